//! Runs parts of the tests one after the other, and shows a table of their times.

use std::fmt::Write;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::parts::{MINUTES_MAX, Part, When};
use crate::test_runs::{self, Ended};
use crate::{changed, processes};

/// Minutes from the start of the gate by which every part that depends on changes must end. Parts
/// for which a slow machine has no time are left to the soak, or to a run by name.
const OVER_WITHIN_MINUTES: f64 = 20.0;

/// The result of a part.
pub struct Outcome {
    name: &'static str,
    minutes_max: f64,
    took: Duration,
    result: PartResult,
}

enum PartResult {
    Passed,
    /// Passed, but these tests only when they ran again, alone.
    Flaky(Vec<String>),
    Failed,
    /// Not run, because these programs are missing.
    LeftOut(Vec<String>),
    /// Not run, because nothing changed that concerns it.
    Unchanged,
    /// Not run, because the earlier parts took so long that it would end after
    /// [`OVER_WITHIN_MINUTES`].
    Postponed,
}

impl Outcome {
    /// Whether the part may count as passed. In CI no part may be left out.
    #[must_use]
    pub fn is_good(&self) -> bool {
        match self.result {
            PartResult::Passed
            | PartResult::Flaky(_)
            | PartResult::Unchanged
            | PartResult::Postponed => true,
            PartResult::Failed => false,
            PartResult::LeftOut(_) => !is_ci(),
        }
    }

    fn word(&self) -> String {
        match &self.result {
            PartResult::Passed => "passed".to_owned(),
            PartResult::Flaky(names) => {
                format!("passed; FLAKY, failed beside others: {}", names.join(", "))
            }
            PartResult::Unchanged => "not run: nothing changed that it is about".to_owned(),
            PartResult::Postponed => format!(
                "not run: this machine is slow; `cargo xtask test {}` runs it",
                self.name
            ),
            PartResult::Failed => "FAILED".to_owned(),
            PartResult::LeftOut(missing) => format!("LEFT OUT, missing: {}", missing.join("; ")),
        }
    }
}

/// Runs the whole gate, and continues after a failed part. Skips parts that nothing changed for,
/// and those that would not end in time.
#[must_use]
pub fn gate(parts: &[Part]) -> Vec<Outcome> {
    let begin = now();
    let run = |part: &Part| {
        let over_at_minutes = (now() - begin).as_secs_f64() / 60.0 + part.minutes_max;
        match part.when {
            When::Changed(paths) if !changed::below(paths) => not_run(part, PartResult::Unchanged),
            When::Changed(_) if over_at_minutes > OVER_WITHIN_MINUTES => {
                not_run(part, PartResult::Postponed)
            }
            _ => one(part),
        }
    };
    parts.iter().map(run).collect()
}

fn not_run(part: &Part, result: PartResult) -> Outcome {
    Outcome {
        name: part.name,
        minutes_max: part.minutes_max,
        took: Duration::ZERO,
        result,
    }
}

/// Runs these parts, and continues after a failed one.
#[must_use]
pub fn all(parts: &[Part]) -> Vec<Outcome> {
    parts.iter().map(one).collect()
}

fn one(part: &Part) -> Outcome {
    println!("\n== {}: {}", part.name, part.purpose);
    let begin = now();
    let missing: Vec<String> = part
        .needs
        .iter()
        .filter_map(|tool| tool.ensure().err())
        .collect();
    let result = match missing.is_empty() {
        true => run_commands(part, begin + time_limit(part)),
        false => PartResult::LeftOut(missing),
    };
    Outcome {
        name: part.name,
        minutes_max: part.minutes_max,
        took: now() - begin,
        result,
    }
}

/// Runs the commands of a part up to the first that fails.
fn run_commands(part: &Part, deadline: Instant) -> PartResult {
    let mut flaky = Vec::new();
    for command in &mut (part.commands)() {
        let is_test = command.get_args().next().is_some_and(|word| word == "test");
        match is_test {
            true => match test_runs::run(command, deadline) {
                Ended::Passed => {}
                Ended::Flaky(names) => flaky.extend(names),
                Ended::Failed => return PartResult::Failed,
            },
            false if succeeds_before(command, deadline) => {}
            false => return PartResult::Failed,
        }
    }
    match flaky.is_empty() {
        true => PartResult::Passed,
        false => PartResult::Flaky(flaky),
    }
}

/// Returns the time after which a part counts as hanging. It is long enough for a machine several
/// times as slow as the budgets assume.
fn time_limit(part: &Part) -> Duration {
    Duration::from_secs_f64((5.0 * part.minutes_max).max(10.0) * 60.0)
}

pub(crate) fn succeeds(command: &mut Command) -> bool {
    show(command);
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command, and returns whether it succeeds before the deadline. At the deadline, kills it
/// with all processes it started. A test that hangs thus fails, and its output shows which one it
/// is.
pub(crate) fn succeeds_before(command: &mut Command, deadline: Instant) -> bool {
    show(command);
    let child = command.spawn();
    child.is_ok_and(|mut child| ends_well(&mut child, deadline))
}

/// Waits for a command to end, and kills it at the deadline. Returns whether it succeeded.
pub(crate) fn ends_well(child: &mut Child, deadline: Instant) -> bool {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if now() < deadline => std::thread::sleep(Duration::from_millis(100)),
            _ => break,
        }
    }
    println!("it hangs: killed, its time is over");
    processes::kill_tree(child.id());
    // Reaps the child, whether it was killed or ended before.
    drop(child.wait());
    false
}

pub(crate) fn show(command: &Command) {
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    println!("$ cargo {}", words.join(" "));
}

/// Returns a table of the minutes that each part took and may take.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let mut table = String::from("part            minutes   at most   result\n");
    let mut total = 0.0;
    for outcome in outcomes {
        let minutes = outcome.took.as_secs_f64() / 60.0;
        total += minutes;
        let (name, most, word) = (outcome.name, outcome.minutes_max, outcome.word());
        // This is reported but is not a failure, because a machine may be slow.
        let over = match minutes > most {
            true => format!("   OVER ITS BUDGET: {:.1} times", minutes / most),
            false => String::new(),
        };
        writeln!(table, "{name:<14}{minutes:>9.2} {most:>9.1}   {word}{over}")
            .expect("a String takes any text");
    }
    let verdict = match total <= MINUTES_MAX {
        true => "",
        false => "   too long",
    };
    write!(
        table,
        "{:<14}{total:>9.2} {MINUTES_MAX:>9.1}{verdict}",
        "all"
    )
    .expect("a String takes any text");
    table
}

fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

#[expect(clippy::disallowed_methods, reason = "how long the tests take")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_killed_with_all_it_started() {
        let file = std::env::temp_dir().join(format!("xtask-hangs-{}", std::process::id()));
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 1000 & echo $! > $0; wait"])
            .arg(&file);
        let begin = now();
        // If the grandchild does not exist yet, there is nothing to kill.
        let mut limit = Duration::from_millis(200);
        let grandchild = loop {
            assert!(!succeeds_before(&mut command, now() + limit));
            match std::fs::read_to_string(&file).unwrap_or_default().trim() {
                "" => limit *= 2,
                process => break process.to_owned(),
            }
        };
        std::fs::remove_file(&file).unwrap();
        while is_alive(&grandchild) {
            assert!(now() - begin < Duration::from_mins(5), "it sleeps on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether a process exists and is not a zombie.
    fn is_alive(process: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn what_ends_in_time_says_how() {
        let deadline = now() + Duration::from_hours(1);
        assert!(succeeds_before(&mut Command::new("true"), deadline));
        assert!(!succeeds_before(&mut Command::new("false"), deadline));
    }
}
