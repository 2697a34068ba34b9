//! Access control: users, their rules, and the checks of a request.
//!
//! ```text
//!   Users ──► User ──► Rules ──► Selector ┐  commands, key patterns, channel patterns;
//!   by name   shared   as they   Selector ┘  one of the selectors must allow all of a request
//!             with     are now
//!             sessions
//!   Session holds a Permit: the user, and its rules as last seen; one load tells whether they changed
//! ```
//!
//! The room knows no commands: they are passed in as a [`Catalog`], made from the command table. A
//! request is passed in as a [`Request`], which names what it touches. Nothing here logs, reads
//! files or ends connections: the code that changes users does ([`Change`] describes the effect on
//! each user).
//!
//! # Invariants
//! - A change of a user is all or nothing, and applies to the next check on every thread.
//! - Everything that no rule allows is denied. A new user may do nothing.
//! - A password is stored as its SHA-256, and compared without a branch on its bytes.
//! - One load tells whether a user is unrestricted (one selector allows every command, key and
//!   channel).

#![forbid(unsafe_code)]

mod access;
mod catalog;
mod denials;
mod error;
mod file;
mod password;
mod proof;
mod rules;
mod selector;
mod throttle;
mod user;
mod users;

pub use access::{Access, LogInError};
pub use catalog::{Catalog, CommandId, CommandNames};
pub use denials::{Denials, Entry, Origin, Reason, Report};
pub use error::RuleError;
pub use file::{FileError, Parsed, parse_definition, parse_file};
pub use password::{Digest, generate};
pub use proof::{PROOF_BYTES, ProofKey};
pub use rules::{Defaults, Rules, merge_selectors};
pub use selector::{ChannelUse, Denial, KeyUse, Request, Selector};
pub use throttle::Throttle;
pub use user::{Permit, User};
pub use users::{Change, DEFAULT, SetError, Users, is_valid_name};
