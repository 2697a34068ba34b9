//! The developer's front door: `cargo xtask test`, `tidy`, `ci`.

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("transcribe" | "transcripts" | "differential") => {
            cargo(&["run", "-q", "-p", "testkit", "--"], &args)
        }
        _ => ExitCode::FAILURE,
    }
}

/// Runs cargo with the words of both lists.
fn cargo(words: &[&str], more: &[String]) -> ExitCode {
    let status = Command::new("cargo").args(words).args(more).status();
    match status.is_ok_and(|status| status.success()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
