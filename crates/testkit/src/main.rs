//! The testkit as a tool: `transcribe`, `transcripts`, `differential`, `schedules`.
//!
//! ```text
//! cargo xtask transcribe [--write] FILE...    FILE with the oracle's replies
//! cargo xtask transcribe iolite FILE...       writes Iolite's into FILE, where the oracle has none
//! cargo xtask transcripts [iolite|oracle] FILE...   runs files, shows every difference
//! ```
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use testkit::differential::{self, Plan, Side};
use testkit::target::Launcher;
use testkit::transcript::{Transcript, run, transcribe};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["transcribe", "iolite", files @ ..] => transcribe_files(files, &Launcher::iolite(), true),
        ["transcribe", "--write", files @ ..] => transcribe_files(files, &Launcher::oracle(), true),
        ["transcribe", files @ ..] => transcribe_files(files, &Launcher::oracle(), false),
        ["transcripts", "oracle", files @ ..] => run_files(files, &Launcher::oracle()),
        ["transcripts", "iolite", files @ ..] => run_files(files, &Launcher::iolite()),
        ["differential", options @ ..] => compare(options, false),
        ["schedules", options @ ..] => compare(options, true),
        _ => Err(io::Error::other(
            "transcribe [--write] FILE... | transcripts iolite|oracle FILE... | differential | schedules",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _written = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn transcribe_files(files: &[&str], launcher: &Launcher, write: bool) -> io::Result<()> {
    for path in files {
        let text = transcribe(path, &std::fs::read_to_string(path)?, launcher)?;
        match write {
            true => std::fs::write(path, text)?,
            false => io::stdout().write_all(text.as_bytes())?,
        }
    }
    Ok(())
}

fn run_files(files: &[&str], launcher: &Launcher) -> io::Result<()> {
    let mut failures_count = 0;
    for path in files {
        let text = std::fs::read_to_string(path)?;
        let transcript = Transcript::parse(path, &text).map_err(io::Error::other)?;
        for failure in run(&transcript, launcher) {
            failures_count += 1;
            writeln!(io::stdout(), "{failure}")?;
        }
    }
    match failures_count {
        0 => Ok(()),
        _ => Err(io::Error::other(format!("{failures_count} differences"))),
    }
}

fn compare(options: &[&str], in_sessions: bool) -> io::Result<()> {
    let mut plan = Plan {
        seed: 1,
        round: 0,
        requests_count: 200_000,
        failures_max: 20,
    };
    let (mut one, mut two) = ("oracle", "iolite");
    let mut args = Vec::new();
    let mut words = options.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().copied().unwrap_or_default();
        match word {
            "--seed" => plan.seed = number(value())?,
            "--round" => plan.round = number(value())?,
            "--requests" => plan.requests_count = number(value())?,
            "--one" => one = value(),
            "--two" => two = value(),
            _ => args.push(word.to_owned()),
        }
    }
    let mut one = Side::start(launcher(one)?, &[])?;
    let mut two = Side::start(launcher(two)?, &args)?;
    let agree = if in_sessions {
        let report = differential::schedule::run_schedules(&mut one, &mut two, plan)?;
        writeln!(io::stdout(), "{report}")?;
        report.failures.is_empty()
    } else {
        let report = differential::run(&mut one, &mut two, plan)?;
        writeln!(io::stdout(), "{report}")?;
        report.failures.is_empty()
    };
    match agree {
        true => Ok(()),
        false => Err(io::Error::other("the servers differ")),
    }
}

fn launcher(name: &str) -> io::Result<Launcher> {
    match name {
        "oracle" => Ok(Launcher::oracle()),
        "iolite" => Ok(Launcher::iolite()),
        _ => Err(io::Error::other(format!("no server is called {name}"))),
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.parse()
        .map_err(|_| io::Error::other(format!("not a number: {text}")))
}
