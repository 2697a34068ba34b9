//! Running parts of the tests one after the other, and the table of what they took.

use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::changed;
use crate::parts::{MINUTES_MAX, Part, When};

/// What came of a part.
pub struct Outcome {
    name: &'static str,
    minutes_max: f64,
    took: Duration,
    result: PartResult,
}

enum PartResult {
    Passed,
    Failed,
    /// Not run: these programs are missing.
    LeftOut(Vec<String>),
    /// Not run: nothing changed that it is about.
    Unchanged,
}

impl Outcome {
    /// Whether it may count as passed. In CI nothing may be left out.
    #[must_use]
    pub fn is_good(&self) -> bool {
        match self.result {
            PartResult::Passed | PartResult::Unchanged => true,
            PartResult::Failed => false,
            PartResult::LeftOut(_) => !is_ci(),
        }
    }

    fn word(&self) -> String {
        match &self.result {
            PartResult::Passed => "passed".to_owned(),
            PartResult::Unchanged => "not run: nothing changed that it is about".to_owned(),
            PartResult::Failed => "FAILED".to_owned(),
            PartResult::LeftOut(missing) => format!("LEFT OUT, missing: {}", missing.join("; ")),
        }
    }
}

/// Runs the whole gate, also after a part has failed; without the parts about what has not changed.
#[must_use]
pub fn gate(parts: &[Part]) -> Vec<Outcome> {
    let run = |part: &Part| match part.when {
        When::Changed(paths) if !changed::below(paths) => Outcome {
            name: part.name,
            minutes_max: part.minutes_max,
            took: Duration::ZERO,
            result: PartResult::Unchanged,
        },
        _ => one(part),
    };
    parts.iter().map(run).collect()
}

/// Runs these parts, also after one has failed.
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
    let result = if !missing.is_empty() {
        PartResult::LeftOut(missing)
    } else if (part.commands)().iter_mut().all(succeeds) {
        PartResult::Passed
    } else {
        PartResult::Failed
    };
    Outcome {
        name: part.name,
        minutes_max: part.minutes_max,
        took: now() - begin,
        result,
    }
}

pub(crate) fn succeeds(command: &mut Command) -> bool {
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    println!("$ cargo {}", words.join(" "));
    command.status().is_ok_and(|status| status.success())
}

/// What each part took and may take, in minutes.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let mut table = String::from("part            minutes   at most   result\n");
    let mut total = 0.0;
    for outcome in outcomes {
        let minutes = outcome.took.as_secs_f64() / 60.0;
        total += minutes;
        let (name, most, word) = (outcome.name, outcome.minutes_max, outcome.word());
        // Told, no failure: a machine may be slow.
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
