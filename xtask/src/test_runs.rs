//! Runs the tests of a command, and repeats those that failed, alone.
//!
//! A process test that fails among others on a busy machine and passes alone is *flaky*: it shows a
//! defect of the test or of the code it tests, which this change need not have caused. It is named
//! in the table of results and does not fail the gate. The soak's failures, and the table, lead to
//! the defect. A test that fails for a stable reason fails again.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::run::{ends_well, now, show, succeeds_before};

/// Maximum number of failures that are retried. More than that are no accident.
const RETRIED_MAX: usize = 5;

/// The result of a command's tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    /// All passed, but these only when they ran again, alone.
    Flaky(Vec<String>),
    Failed,
}

/// Runs a command of `cargo test` with `--no-fail-fast`, because without it the programs after the
/// first failed one would not run. At the deadline, kills what still runs.
pub(crate) fn run(command: &mut Command, deadline: Instant) -> Ended {
    show(command);
    command.stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return Ended::Failed;
    };
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut seen = Seen::default();
        let lines = output.map(|output| BufReader::new(output).split(b'\n'));
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            println!("{line}");
            seen.line(&line);
        }
        seen
    });
    let is_good = ends_well(&mut child, deadline);
    if is_good {
        return Ended::Passed;
    }
    // A process that outlives a killed test may hold the pipe. Then nothing is retried.
    if now() >= deadline {
        return Ended::Failed;
    }
    let Ok(seen) = reader.join() else {
        return Ended::Failed;
    };
    match seen.into_retried() {
        Some(names) if passes_alone(command, &names, deadline) => Ended::Flaky(names),
        _ => Ended::Failed,
    }
}

/// Whether these tests pass when they run alone.
fn passes_alone(command: &Command, names: &[String], deadline: Instant) -> bool {
    println!("once more, alone: {}", names.join(", "));
    succeeds_before(&mut again(command, names), deadline)
}

/// Returns the same command for these tests only. A filter in the command matches no full name.
fn again(command: &Command, names: &[String]) -> Command {
    let mut again = Command::new(command.get_program());
    again.args(command.get_args());
    if !command.get_args().any(|word| word == "--") {
        again.arg("--");
    }
    again.arg("--exact").args(names);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => again.env(name, value),
            None => again.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        again.current_dir(directory);
    }
    again.env("RUST_TEST_THREADS", "1");
    again
}

/// What the test programs of a command have printed.
#[derive(Debug, Default)]
struct Seen {
    begun: usize,
    ended: usize,
    failed: Vec<String>,
    /// Names below the latest heading `failures:`.
    listed: Vec<String>,
}

impl Seen {
    fn line(&mut self, line: &str) {
        if line.starts_with("running ") && line.ends_with(['s', 't']) {
            self.begun += 1;
        } else if line == "failures:" {
            self.listed.clear();
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.ended += 1;
            let listed = std::mem::take(&mut self.listed);
            if result.starts_with("FAILED") {
                self.failed.extend(listed);
            }
        } else if let Some(name) = line.strip_prefix("    ")
            && !name.is_empty()
            && !name.contains(' ')
        {
            self.listed.push(name.to_owned());
        }
    }

    /// Returns the failures that are worth a retry, or `None`. If a program ended without a result,
    /// its failures have no names, so nothing is retried.
    fn into_retried(self) -> Option<Vec<String>> {
        let is_all = self.begun == self.ended;
        let is_few = (1..=RETRIED_MAX).contains(&self.failed.len());
        (is_all && is_few).then_some(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FAILED: &str = "\nrunning 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\nfailures:\n\n---- a::c stdout ----\n    left: 1\n\
        \n\nfailures:\n    a::c\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
    const PASSED: &str = "\nrunning 1 test\ntest d ... ok\n\ntest result: ok. 1 passed; 0 failed\n";

    fn seen(text: &str) -> Seen {
        let mut seen = Seen::default();
        text.lines().for_each(|line| seen.line(line));
        seen
    }

    #[test]
    fn failures_are_read_from_their_list() {
        let both = seen(&format!("{FAILED}{PASSED}"));
        assert_eq!(both.into_retried(), Some(vec!["a::c".to_owned()]));
    }

    #[test]
    fn who_ends_without_a_word_is_not_tried_again() {
        let crashed = "\nrunning 3 tests\ntest e ... ok\n";
        assert_eq!(seen(&format!("{FAILED}{crashed}")).into_retried(), None);
        assert_eq!(seen(PASSED).into_retried(), None);
        assert_eq!(seen(&FAILED.repeat(RETRIED_MAX + 1)).into_retried(), None);
    }

    /// Returns a shell that prints what a test program prints. Further words become its arguments.
    fn program(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]);
        command
    }

    #[test]
    fn who_passes_alone_is_flaky_and_who_does_not_fails() {
        let deadline = now() + Duration::from_mins(5);
        // The second time it prints nothing, because that output would be shown to readers.
        let fails = format!(
            "[ $# = 0 ] && printf '{}'; exit 1",
            FAILED.replace('\n', "\\n")
        );
        // The second time it gets the names of tests.
        let passes_alone = format!("[ \"$*\" = '-- --exact a::c' ] && exit 0; {fails}");
        let flaky = Ended::Flaky(vec!["a::c".to_owned()]);
        assert_eq!(run(&mut program(&passes_alone), deadline), flaky);
        assert_eq!(run(&mut program(&fails), deadline), Ended::Failed);
        assert_eq!(run(&mut program("exit 0"), deadline), Ended::Passed);
    }

    #[test]
    fn a_command_with_words_for_the_program_keeps_them() {
        let mut command = Command::new("cargo");
        command.args(["test", "clients::", "--", "--ignored"]);
        let again = again(&command, &["clients::one".to_owned()]);
        let words: Vec<_> = again.get_args().collect();
        let expected = [
            "test",
            "clients::",
            "--",
            "--ignored",
            "--exact",
            "clients::one",
        ];
        assert_eq!(words, expected);
    }
}
