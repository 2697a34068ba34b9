//! The developer's entry point, as a library: the commands of `cargo xtask`, and the tidy check as
//! a test.
//!
//! No dependencies, so that it builds in a second.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a tool for a terminal")]

pub mod big_endian;
pub mod changed;
pub mod chart;
pub mod coverage;
mod debian;
pub mod figures;
pub mod flakes;
pub mod fuzz;
pub mod instructions;
pub mod package;
pub mod parts;
mod processes;
pub mod run;
pub mod sanitize;
pub mod soak;
mod test_runs;
pub mod tidy;
mod toolchain;
pub mod tools;
pub mod workflows;

use std::path::PathBuf;

/// Returns the directory of the workspace.
#[must_use]
pub fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
