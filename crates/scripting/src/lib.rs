//! Scripts: one virtual machine, and what a script sees of it.
//!
//! ```text
//!  commands ── Machine::run(program, keys, args, host) ──► Luau
//!      ▲                                                     │ redis.call
//!      └──────────────── Host::call ◄────────────────────────┘
//! ```
//!
//! The virtual machine is Luau, made to look like the Lua 5.1 that scripts are written for. This room
//! knows no store, no command table and no session: what a script asks of the server goes through
//! [`Host`], what comes back is a [`Reply`].
//!
//! Invariants
//!  1. Nothing that a script does is seen by the next one: globals, libraries and metatables of
//!     built-in types are read-only, each run has its own `KEYS` and `ARGV`.
//!  2. Once [`Host::interrupted`] or a reply has said stop, no `pcall` of the script goes on.
//!  3. A script has no more memory than [`Limits`] says, and ends in an error when it wants more.
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
