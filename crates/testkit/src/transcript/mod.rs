//! Transcripts: requests with the replies they must get, as text files anyone can read.
//!
//! The format is described in `crates/commands/tests/transcripts/README.md`, next to the files.
//! [`Transcript::parse`] reads one, [`run()`] holds it against a target, [`transcribe()`] writes into it
//! what a target answers (`cargo xtask transcribe FILE`).

mod file;
mod notation;
mod pattern;
mod run;
mod transcribe;

pub use file::{Line, ParseError, Section, Step, Transcript};
pub use notation::show;
pub use pattern::Pattern;
pub use run::{Failure, run};
pub use transcribe::transcribe;
