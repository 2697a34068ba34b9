//! Scripts: one virtual machine, and its interface to scripts.
//!
//! ```text
//!  commands ── Machine::run(program, keys, args, host) ──► Luau
//!      ▲                                                     │ redis.call
//!      └──────────────── Host::call ◄────────────────────────┘
//! ```
//!
//! The virtual machine is Luau, adapted to look like the Lua 5.1 that scripts are written for. This
//! room knows no store, no command table and no session: a script's calls to the server go through
//! [`Host`], and the results are [`Reply`] values.
//!
//! Invariants
//!  1. No script sees anything that an earlier one did: globals, libraries and metatables of
//!     built-in types are read-only, and each run has its own `KEYS` and `ARGV`.
//!  2. After [`Host::interrupted`] or a reply has stopped the script, no `pcall` of the script
//!     continues.
//!  3. A script gets no more memory than [`Limits`] says. If it needs more, it ends with an error.
#![forbid(unsafe_code)]

#[cfg(panic = "abort")]
compile_error!("the machine's errors unwind through our functions: panics have to unwind, too");

mod api;
mod calls;
mod cmsgpack;
mod concat;
mod convert;
mod error;
mod functions;
mod host;
mod json;
mod library;
mod machine;
mod number_text;
mod random;
mod register;
pub mod shebang;
mod straight;
mod struct_library;
mod text_buffer;
mod value;
mod wire;

pub use error::ScriptError;
pub use functions::{Function, Library};
pub use host::{Host, Level, Refused, Reply, Stop};
pub use machine::{Limits, Machine, Program};
pub use value::Value;
