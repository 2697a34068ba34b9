//! `iolite top`: shows a server's activity once a second: requests, commands, latencies, memory,
//! clients, replication.
//!
//! ```text
//!   INFO, INFO commandstats, INFO latencystats ──> sample ─┐
//!                                        a pause           ├──> frame ──> text, or JSON
//!   the same                                   ──> sample ─┘
//! ```
//!
//! It uses only features that Redis and Valkey also have, and costs the server one pipeline of INFO
//! per second.

use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::Duration;

use base::clock::SystemClock;
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::endpoint::{Endpoint, Session};
use crate::error::BenchError;
use crate::options::Given;
use crate::options::command::{flag, option};
use crate::server;

mod frame;
mod sample;
mod screen;

use frame::Frame;
use sample::Sample;
use screen::Screen;

const NAME: &str = "iolite top";
/// Pause between two samples.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns its command line.
#[must_use]
pub fn command() -> Command {
    Command::new("top")
        .bin_name(NAME)
        .about("What a server does, once a second; q ends it")
        .disable_help_flag(true)
        .args_override_self(true)
        .args(server::arguments())
        .next_help_heading("The view")
        .args(view())
}

fn view() -> Vec<Arg> {
    vec![
        option("-i", "SECONDS", "Between two looks (1)"),
        flag("--once", "One frame as text, and end"),
        flag(
            "--json",
            "With --once as JSON; else an object a line for each frame",
        ),
    ]
}

/// Runs the tool with the words after `top`.
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
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return written(out.write_all(error.to_string().as_bytes()));
        }
        Err(error) => return Err(BenchError::Usage(error.to_string().trim_end().to_owned())),
    };
    let given = Given(&matches);
    let endpoint = server::endpoint(&given)?;
    let pause = given
        .seconds("-i")?
        .unwrap_or(PAUSE)
        .max(Duration::from_millis(10));
    let (is_once, is_json) = (given.has("--once"), given.has("--json"));
    if is_once || is_json || !std::io::stdout().is_terminal() {
        return print(&endpoint, pause, is_once, is_json, out);
    }
    watch(&endpoint, pause, out)
}

fn written(result: std::io::Result<()>) -> Result<(), BenchError> {
    result.map_err(|error| BenchError::System("standard output", error))
}

/// Prints one frame, or frames in succession.
fn print(
    endpoint: &Endpoint,
    pause: Duration,
    is_once: bool,
    is_json: bool,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let clock = SystemClock::new();
    let mut session = endpoint.connect()?;
    let mut before = Sample::take(&mut session, &clock)?;
    loop {
        std::thread::sleep(pause);
        let now = Sample::take(&mut session, &clock)?;
        let frame = Frame::between(&endpoint.address.to_string(), &before, &now);
        let text = match is_json {
            true => frame.json(),
            false => frame.text(usize::MAX),
        };
        written(writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()))?;
        if is_once {
            return Ok(());
        }
        before = now;
    }
}

/// Shows frames on a terminal until the user ends it.
fn watch(endpoint: &Endpoint, pause: Duration, out: &mut dyn Write) -> Result<(), BenchError> {
    let clock = SystemClock::new();
    let mut session = endpoint.connect()?;
    let screen = Screen::enter().map_err(|error| BenchError::System("the terminal", error))?;
    let mut before = Sample::take(&mut session, &clock)?;
    // The first frame is shown at once: its rates are those since the start of the server.
    let mut frame = Frame::between(&endpoint.address.to_string(), &Sample::default(), &before);
    loop {
        written(screen.show(&frame.text(screen.rows()), out))?;
        if screen.is_ended_within(pause) {
            return Ok(());
        }
        let now = match again(endpoint, &mut session, &clock) {
            Ok(now) => now,
            Err(error) => {
                let text = format!("{error}\nTrying again; q ends.\n");
                written(screen.show(&text, out))?;
                if screen.is_ended_within(pause) {
                    return Ok(());
                }
                continue;
            }
        };
        frame = Frame::between(&endpoint.address.to_string(), &before, &now);
        before = now;
    }
}

/// Takes a sample, over a new connection if the old one is lost.
fn again(
    endpoint: &Endpoint,
    session: &mut Session,
    clock: &SystemClock,
) -> Result<Sample, BenchError> {
    if let Ok(sample) = Sample::take(session, clock) {
        return Ok(sample);
    }
    *session = endpoint.connect()?;
    Sample::take(session, clock)
}
