//! `iolite analyze`: shows what takes the memory: types, prefixes, time to live, and the biggest
//! keys.
//!
//! ```text
//!   an RDB file ────────────┐
//!   a checkpoint ───────────┼──> keys with type, size, elements, deadline ──> tally ──> text, JSON, CSV or a page
//!   a live server, by SCAN ─┘                                                  │
//!   a log: Redis', or ours ────> commands with their keys ──────────> writes ──┘
//! ```
//!
//! One key is held at a time, and a bounded number of prefixes, so that a file of any length is
//! analysed in little memory. Sizes of a live server are its own (`MEMORY USAGE`); those of files
//! are approximately what this server would take.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, Command, ValueHint, value_parser};

use crate::error::BenchError;
use crate::options::Given;
use crate::options::command::{flag, option};
use crate::server;

mod append_only;
mod files;
mod html;
mod live;
mod logs;
mod report;
mod tally;
mod writes;

use tally::{Rules, Tally};

const NAME: &str = "iolite analyze";
/// Number of keys that are listed.
const TOP: usize = 10;
/// Number of prefixes that are listed.
const PREFIXES: usize = 20;

/// Returns its command line.
#[must_use]
pub fn command() -> Command {
    Command::new("analyze")
        .bin_name(NAME)
        .about("What takes the memory: by type, prefix and time to live, with the biggest keys")
        .override_usage(
            "iolite analyze FILE [OPTIONS]      an RDB file, an append-only file or its directory, or a directory of ours\n       \
             iolite analyze --live [OPTIONS]    a server, by SCAN",
        )
        .disable_help_flag(true)
        .args_override_self(true)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::AnyPath)
                .help("An RDB file, a directory with a checkpoint, or dir of a server"),
        )
        .args(what())
        .next_help_heading("The server")
        .args(server::arguments())
}

fn what() -> Vec<Arg> {
    vec![
        flag("--live", "A running server"),
        option("--top", "N", "How many keys are named (10)"),
        option("--prefixes", "N", "How many prefixes are named (20)"),
        option("--depth", "N", "Of how many parts a prefix is (1)"),
        option("--delimiter", "TEXT", "Between the parts of keys (:)"),
        option("--pattern", "PATTERN", "With --live: only keys like this"),
        option("--count", "N", "With --live: keys in a step (500)"),
        option("-i", "SECONDS", "With --live: wait so long after each step"),
        flag("--json", "As JSON"),
        flag("--csv", "A line a prefix, comma-separated"),
        flag("--html", "As one page"),
    ]
}

/// Runs the tool with the words after `analyze`.
pub fn run(words: Vec<String>) -> ExitCode {
    let mut out = std::io::stdout();
    match execute(words, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.tell();
            ExitCode::FAILURE
        }
    }
}

fn execute(words: Vec<String>, out: &mut dyn Write) -> Result<(), BenchError> {
    let words = std::iter::once(NAME.to_owned()).chain(words);
    let (text, matches) = match command().try_get_matches_from(words) {
        Ok(matches) => (String::new(), Some(matches)),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => (error.to_string(), None),
        Err(error) => return Err(BenchError::Usage(error.to_string().trim_end().to_owned())),
    };
    let text = match matches {
        Some(matches) => analysis(&Given(&matches))?,
        None => text,
    };
    let written = out.write_all(text.as_bytes());
    written.map_err(|error| BenchError::System("standard output", error))
}

fn analysis(given: &Given<'_>) -> Result<String, BenchError> {
    let positive = |name: &str, default| Ok(given.positive(name)?.unwrap_or(default));
    let delimiter = given.text("--delimiter").unwrap_or(":").as_bytes().to_vec();
    if delimiter.is_empty() {
        return Err(BenchError::Usage("--delimiter is empty".to_owned()));
    }
    let rules = Rules {
        top: positive("--top", TOP)?,
        depth: positive("--depth", 1)?,
        delimiter,
    };
    let mut tally = Tally::new(rules);
    let file: Option<&PathBuf> = given.0.get_one("file");
    let source = match (file, given.has("--live")) {
        (Some(path), false) => files::read(path, &mut tally)?,
        (None, true) => {
            let walk = live::Walk {
                pattern: given.text("--pattern"),
                count: given.number("--count")?.unwrap_or(500),
                pause: given.seconds("-i")?.unwrap_or_default(),
            };
            live::read(&server::endpoint(given)?, &walk, &mut tally)?
        }
        _ => {
            return Err(BenchError::Usage(
                "iolite analyze needs a FILE, or --live; --help tells more".to_owned(),
            ));
        }
    };
    let prefixes = positive("--prefixes", PREFIXES)?;
    Ok(match () {
        () if given.has("--json") => report::json(&source, &tally, prefixes),
        () if given.has("--csv") => report::csv(&tally, prefixes),
        () if given.has("--html") => html::page(&source, &tally, prefixes),
        () => report::text(&source, &tally, prefixes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_fit_together() {
        command().debug_assert();
    }
}
