//! `cargo xtask instructions`: counts the instructions that the server runs in user space per GET
//! and per SET at pipeline 16, next to `redis-server` in the same run.
//!
//! Valgrind's callgrind counts them. A figure is the difference of two runs that differ only in the
//! number of requests, so that starting, filling and stopping cancel out. Unlike a time, a figure
//! is the same on a loaded machine, within a percent or two, because the number of connections that
//! are ready at one wake-up varies. Figures can therefore be compared with the recorded ones
//! (`xtask/instructions.txt`), and a change that makes the path of a request longer shows before
//! any time is measured. The gate counts the binary that its tests ran (`dev`), which is built
//! anyway. The soak counts a release build without features. `cargo xtask instructions dist` counts
//! the published binary, whose figures are cited.
//!
//! `cargo xtask instructions cache` makes callgrind simulate caches as well, and shows how often
//! each server misses them. Real caches prefetch, so this compares two programs and predicts
//! nothing.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::parts::{self, cargo, target_directory};
use crate::workspace_root;
use load::{Load, Request};

mod load;

pub(crate) use load::free_port;

/// The measured requests.
const REQUESTS: [Request; 2] = [Request::Get, Request::Set];

type Outcome<T> = Result<T, String>;

/// Recorded counts: build and request, and number of instructions.
type Recorded = Vec<(String, f64)>;

/// A server to measure: its name in tables, its program and options.
struct Contestant {
    name: &'static str,
    program: String,
    options: &'static [&'static str],
}

/// The binary that is counted. Each has its own recorded figures.
#[derive(Clone, Copy)]
pub enum Build {
    /// The binary of the tests. Rooms on the path of a request are slightly optimised in it; the
    /// server is not. A path that becomes longer shows here as well.
    Dev,
    /// The result of `cargo build --release` without features. The libraries of the features take
    /// most of the build time, and none of them is on the path of a request.
    Release,
    /// The published binary. It is optimised as a whole, which takes minutes to build.
    Dist,
}

impl Build {
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// Returns by what fraction a request's path may exceed the recorded count. Counts of
    /// unoptimised code vary by one percent.
    fn margin(self) -> f64 {
        match self {
            Self::Dev => 0.03,
            Self::Release | Self::Dist => 0.05,
        }
    }

    /// Returns the rounds of requests of the two runs whose difference counts.
    fn rounds(self) -> (u32, u32) {
        match self {
            // It runs ten times as many instructions under the emulator.
            Self::Dev => (10, 60),
            Self::Release | Self::Dist => (25, 125),
        }
    }

    /// Returns the directory where cargo puts the binary.
    fn directory(self) -> PathBuf {
        match self {
            Self::Dev => target_directory().join("debug"),
            // Separate from the build with features, which other parts of the soak run.
            Self::Release => bare_directory().join("release"),
            Self::Dist => target_directory().join("dist"),
        }
    }

    /// Returns the name of a request's figure in the record.
    fn record_name(self, request: Request) -> String {
        format!("{} {}", self.name(), request.name())
    }
}

/// Counts of one run under callgrind, in the order of [`EVENTS`].
type Counts = Vec<f64>;

/// The events shown: instructions, and misses of the simulated caches.
const EVENTS: [(&str, &[&str]); 4] = [
    ("instructions", &["Ir"]),
    ("first level, instructions", &["I1mr"]),
    ("first level, data", &["D1mr", "D1mw"]),
    ("last level", &["ILmr", "DLmr", "DLmw"]),
];

/// Counts instructions and compares them with the recorded counts. With `accept`, records them.
///
/// # Errors
/// If something cannot be run, or more instructions are needed than recorded.
pub fn check(build: Build, accept: bool) -> Outcome<()> {
    let contestants = contestants(build)?;
    let load = Load {
        keys: 10_000,
        rounds: build.rounds(),
    };
    let mut measured = Vec::new();
    let build_name = build.name();
    println!("\nInstructions in user space per request, pipeline 16, build `{build_name}`\n");
    println!(
        "{:<10}{:>10}{:>10}{:>10}",
        "", "Redis", "Iolite", "recorded"
    );
    let recorded = recorded()?;
    for request in REQUESTS {
        let mut row = Vec::new();
        for contestant in &contestants {
            row.push(per_request(contestant, request, &load, &[])?[0]);
        }
        let name = build.record_name(request);
        let limit = recorded.iter().find(|(recorded, _)| *recorded == name);
        let limit = limit.map(|(_, count)| *count);
        let shown = limit.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}"));
        let (theirs, ours) = (row[1], row[0]);
        println!(
            "{:<10}{theirs:>10.0}{ours:>10.0}{shown:>10}",
            request.name()
        );
        measured.push((name, ours, limit));
    }
    if accept {
        return record(recorded, &measured);
    }
    judge(&measured, build.margin())
}

/// Shows the misses of callgrind's simulated caches, next to those of Redis.
///
/// # Errors
/// If something cannot be run.
pub fn show_cache_misses() -> Outcome<()> {
    let contestants = contestants(Build::Dist)?;
    let load = Load {
        keys: 200_000,
        rounds: (25, 125),
    };
    println!("\nPer request, pipeline 16, {} keys\n", load.keys);
    for request in REQUESTS {
        println!("{:<28}{:>10}{:>10}", request.name(), "Redis", "Iolite");
        let mut columns = Vec::new();
        for contestant in &contestants {
            let options = ["--cache-sim=yes"];
            columns.push(per_request(contestant, request, &load, &options)?);
        }
        for (index, (name, _)) in EVENTS.iter().enumerate() {
            let (theirs, ours) = (columns[1][index].max(0.0), columns[0][index].max(0.0));
            println!("  {name:<26}{theirs:>10.2}{ours:>10.2}");
        }
    }
    Ok(())
}

/// Returns Iolite, built now, and Redis.
fn contestants(build: Build) -> Outcome<[Contestant; 2]> {
    let built = built(build).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the server does not build".to_owned());
    }
    let program = build.directory().join("iolite");
    Ok([
        Contestant {
            name: "Iolite",
            program: program.display().to_string(),
            options: &["--io-threads", "1"],
        },
        Contestant {
            name: "Redis",
            program: "redis-server".to_owned(),
            options: &[],
        },
    ])
}

/// Returns the directory of the build without features.
pub(crate) fn bare_directory() -> PathBuf {
    target_directory().join("bare")
}

/// Returns the command that builds the binary.
fn built(build: Build) -> Command {
    let mut built = match build {
        Build::Dev => return parts::everything(),
        Build::Release => {
            let mut bare = cargo(&[
                "build",
                "--release",
                "-p",
                "server",
                "--no-default-features",
            ]);
            bare.env("CARGO_TARGET_DIR", bare_directory());
            bare
        }
        Build::Dist => cargo(&["build", "--profile", "dist", "-p", "server"]),
    };
    // The same code at the same addresses, with the symbols that tests of the shipped binary use.
    built.env("KEEP_SYMBOLS", "yes");
    built
}

/// Returns the cost of each additional request.
fn per_request(
    contestant: &Contestant,
    request: Request,
    load: &Load,
    options: &[&str],
) -> Outcome<Counts> {
    let (few, many) = load.rounds;
    let more = f64::from(many - few) * f64::from(load::REQUESTS_PER_ROUND);
    let before = run(contestant, request, load, few, options)?;
    let after = run(contestant, request, load, many, options)?;
    let pairs = after.iter().zip(&before);
    Ok(pairs
        .map(|(after, before)| (after - before) / more)
        .collect())
}

/// Returns all events of a server that is started, filled, sent a number of rounds of requests, and
/// stopped.
fn run(
    contestant: &Contestant,
    request: Request,
    load: &Load,
    rounds: u32,
    options: &[&str],
) -> Outcome<Counts> {
    let name = format!("iolite-instructions-{}.out", std::process::id());
    let file = std::env::temp_dir().join(name);
    let port = free_port()?;
    let mut server = start(contestant, port, &file, options)?;
    let served = load.run(port, request, rounds);
    let stopped = served.and_then(|()| load::shut_down(port));
    if stopped.is_err() {
        // The server may have ended by itself.
        let _killed = server.kill();
    }
    let ended = server.wait();
    stopped.map_err(|error| format!("{}: {error}", contestant.name))?;
    ended.map_err(|error| error.to_string())?;
    let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
    let _removed = fs::remove_file(&file);
    counts(&text).ok_or_else(|| "callgrind wrote no summary".to_owned())
}

/// Starts a server under callgrind, on one core. With a spare core it would look for requests
/// before it sleeps, as often as time permits.
fn start(
    contestant: &Contestant,
    port: u16,
    file: &std::path::Path,
    options: &[&str],
) -> Outcome<Child> {
    Command::new("taskset")
        .args(["-c", "0", "valgrind", "--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args(options)
        .args([&contestant.program, "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .args(contestant.options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("valgrind: {error}"))
}

/// Returns the sums of a callgrind file for each of [`EVENTS`], 0 for those that were not counted.
fn counts(text: &str) -> Option<Counts> {
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let names: Vec<&str> = line("events:")?.split_whitespace().collect();
    let sums = line("summary:").or_else(|| line("totals:"))?;
    let sums: Vec<f64> = sums.split_whitespace().flat_map(str::parse).collect();
    let sum_of = |wanted: &[&str]| {
        let all = names.iter().zip(&sums);
        all.filter(|(name, _)| wanted.contains(name))
            .map(|(_, sum)| sum)
            .sum()
    };
    Some(EVENTS.iter().map(|(_, wanted)| sum_of(wanted)).collect())
}

fn record_path() -> PathBuf {
    workspace_root().join("xtask/instructions.txt")
}

/// Returns the recorded counts, none if nothing was recorded yet.
fn recorded() -> Outcome<Recorded> {
    let path = record_path();
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(parse_record(&text))
}

fn parse_record(text: &str) -> Recorded {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    pairs
        .filter_map(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?)))
        .collect()
}

fn record(recorded: Recorded, measured: &[(String, f64, Option<f64>)]) -> Outcome<()> {
    let other_build = |(name, _): &(String, f64)| measured.iter().all(|(new, ..)| new != name);
    let mut lines: Recorded = recorded.into_iter().filter(other_build).collect();
    lines.extend(
        measured
            .iter()
            .map(|(name, count, _)| (name.clone(), *count)),
    );
    let mut text = String::from(
        "# Instructions in user space per request at pipeline 16, as `cargo xtask instructions` counts\n\
         # them in a build; `cargo xtask instructions [dev | dist] --accept` writes this file. More by a twentieth is a\n\
         # fault, in `dev` by three hundredths.\n",
    );
    for (name, count) in &lines {
        writeln!(text, "{name} {count:.0}").map_err(|error| error.to_string())?;
    }
    fs::write(record_path(), text).map_err(|error| error.to_string())
}

fn judge(measured: &[(String, f64, Option<f64>)], margin: f64) -> Outcome<()> {
    let mut faults = Vec::new();
    for (name, count, limit) in measured {
        match limit {
            None => faults.push(format!("nothing is recorded for {name}")),
            Some(limit) if *count > limit * (1.0 + margin) => {
                faults.push(format!(
                    "{name} takes {count:.0} instructions, {limit:.0} recorded"
                ));
            }
            Some(limit) if *count < limit * (1.0 - margin) => {
                println!("{name} takes fewer than recorded: `cargo xtask instructions --accept`");
            }
            Some(_) => {}
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(faults.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_found_under_their_names() {
        let text = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nsummary: 9 8 7 6 5 4 3 2 1\n";
        assert_eq!(counts(text), Some(vec![9.0, 6.0, 9.0, 6.0]));
        assert_eq!(
            counts("events: Ir\ntotals: 9\n"),
            Some(vec![9.0, 0.0, 0.0, 0.0])
        );
        assert_eq!(counts("events: Ir\n"), None);
    }

    #[test]
    fn more_than_recorded_is_a_fault_fewer_is_none() {
        let recorded = parse_record("# a line\ndist GET 1000\ndist SET 2000\n");
        assert_eq!(recorded[1], ("dist SET".to_owned(), 2000.0));
        let measured = |count: f64| [("GET".to_owned(), count, Some(1000.0))];
        assert!(judge(&measured(1049.0), 0.05).is_ok());
        assert!(judge(&measured(1051.0), 0.05).is_err());
        assert!(judge(&measured(500.0), 0.05).is_ok());
        assert!(judge(&[("GET".to_owned(), 1.0, None)], 0.05).is_err());
    }
}
