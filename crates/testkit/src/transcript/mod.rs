//! Transcripts: requests with the replies they must get, as readable text files.
//!
//! `crates/commands/tests/transcripts/README.md`, next to the files, describes the format.
//! [`Transcript::parse`] reads a file, [`run()`] checks it against a target, and [`transcribe()`]
//! writes a target's replies into it (`cargo xtask transcribe FILE`).

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
