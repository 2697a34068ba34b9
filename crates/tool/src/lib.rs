//! Tools that use a server from outside: the load generator, a client, a monitor, an analysis, a
//! migration.
//!
//! | Word | What it is |
//! |---|---|
//! | `bench` | measures servers and compares them |
//! | [`cli`] | a client for people and scripts |
//! | [`top`] | what a server does, once a second |
//! | [`analyze`] | what takes the memory, of a file or a server |
//! | [`migrate`] | copies keys from one server to another |
//!
//! They only speak the protocol, so that they also work with Redis and Valkey. The load generator:
//!
//! ```text
//!   options ──> measure ──> run ──> worker, one a thread
//!                  │         │        │ pool: requests built before    replies: found and counted
//!                  │         │        │ keys: uniform, Zipf, in order  histogram: latencies
//!                  │         └ process: CPU time and memory of the server, and our own
//!                  └──> record (JSON) ──> report (a page)
//! ```
//!
//! The generator should be idle, not the server: a request costs it little more than the system
//! call that sends its batch, and its CPU use is printed beside the server's. Throughput measured
//! through a permanently busy generator has little meaning; the server's CPU time per request stays
//! valid.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

pub mod analyze;
pub mod cli;
pub mod endpoint;
pub mod error;
pub mod histogram;
pub mod keys;
pub mod metric;
pub mod migrate;
pub mod options;
pub mod process;
pub mod record;
pub mod run;
pub mod server;
pub mod template;
pub mod top;
pub mod workload;

mod catalogue;
mod contestant;
mod digits;
mod framing;
mod idle;
mod measure;
mod output;
mod pool;
mod progress;
mod replies;
mod report;
mod suite;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
pub mod tls;
mod units;
mod worker;

use error::BenchError;
use measure::Measurement;
use options::Job;

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The load generator.
    Bench,
    /// The client.
    Cli,
    /// The monitor.
    Top,
    /// The analysis.
    Analyze,
    /// The migration.
    Migrate,
}

/// Tools, their command words, and names of links to the binary that select them.
const TOOLS: [(Tool, &str, &[&str]); 5] = [
    (Tool::Bench, "bench", &["iolite-bench"]),
    (Tool::Cli, "cli", &["iolite-cli", "redis-cli", "valkey-cli"]),
    (Tool::Top, "top", &["iolite-top"]),
    (Tool::Analyze, "analyze", &["iolite-analyze"]),
    (Tool::Migrate, "migrate", &["iolite-migrate"]),
];

impl Tool {
    /// Returns the tool that a first word selects.
    #[must_use]
    pub fn by_word(word: &str) -> Option<Self> {
        let found = TOOLS.iter().find(|(_, own, _)| *own == word);
        found.map(|(tool, ..)| *tool)
    }

    /// Returns the tool that the binary's own name selects.
    #[must_use]
    pub fn by_link(name: &str) -> Option<Self> {
        let found = TOOLS.iter().find(|(.., links)| links.contains(&name));
        found.map(|(tool, ..)| *tool)
    }

    /// Runs the tool with the words behind its own.
    pub fn run(self, words: Vec<String>) -> ExitCode {
        match self {
            Self::Bench => run(words),
            Self::Cli => cli::run(words),
            Self::Top => top::run(words),
            Self::Analyze => analyze::run(words),
            Self::Migrate => migrate::run(words),
        }
    }
}

/// Returns the command lines of the tools, for help, completions and the manual.
#[must_use]
pub fn commands() -> Vec<clap::Command> {
    vec![
        options::command(),
        cli::command(),
        top::command(),
        analyze::command(),
        migrate::command(),
    ]
}

/// Runs the tool with the words after `bench`.
pub fn run(words: Vec<String>) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match execute(words, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.tell();
            ExitCode::FAILURE
        }
    }
}

fn execute(words: Vec<String>, out: &mut dyn Write) -> Result<(), BenchError> {
    let command = without_secrets(&words);
    match options::read(words)? {
        Job::Measure(options) => {
            let steps = measure::steps(&options);
            Measurement::new(&options, &command, out)?.make(&steps)
        }
        Job::Suite(options) => {
            let steps = suite::steps(&options)?;
            Measurement::new(&options, &command, out)?.make(&steps)
        }
        Job::Idle(options) => idle::hold(&options, out),
        Job::Report(options) => print(&format!("{}\n", report::make(&options)?), out),
        Job::Print(text) => print(&text, out),
    }
}

fn print(text: &str, out: &mut dyn Write) -> Result<(), BenchError> {
    let written = out.write_all(text.as_bytes());
    written.map_err(|error| BenchError::System("standard output", error))
}

/// Returns the command line as it may be shown: without the values of `-a` and `-u`.
fn without_secrets(words: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for word in words {
        let follows_one = matches!(shown.last().map(String::as_str), Some("-a" | "-u"));
        shown.push(match word.get(..2) {
            _ if follows_one => "***".to_owned(),
            // The value may be attached.
            Some(option @ ("-a" | "-u")) if word.len() > 2 => format!("{option}***"),
            _ => word.clone(),
        });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: an attached value was shown.
    #[test]
    fn no_secret_is_shown_whichever_way_it_is_given() {
        let words = [
            "-a",
            "secret",
            "-asecret",
            "-usecret",
            "-a=secret",
            "-n",
            "7",
        ];
        let shown = without_secrets(&words.map(str::to_owned));
        assert_eq!(shown, ["-a", "***", "-a***", "-u***", "-a***", "-n", "7"]);
    }
}
