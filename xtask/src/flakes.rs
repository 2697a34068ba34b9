//! `cargo xtask flakes [TIMES] [FILTER]`: runs tests of the whole server many times on a busy
//! machine, to find those that fail occasionally.
//!
//! Each test runs in its own process, several at a time, next to threads that keep every core busy.
//! A test that does not wait long enough for a server thus fails here rather than in a gate. Tests
//! that take long the first time are not repeated. A test that does not end is killed and counts as
//! failed.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::parts::linted;
use crate::run::{ends_well, now};
use crate::workspace_root;

/// Tests of the whole server.
const TARGETS: &[&str] = &["it", "group"];

/// Number of tests that run at once.
const AT_ONCE: usize = 4;

/// Maximum time of a test on the busy machine. A test that takes longer is not repeated.
const QUICK: Duration = Duration::from_secs(10);

/// Time after which a test counts as hanging.
const PATIENCE: Duration = Duration::from_mins(5);

/// Number of output lines shown of a failed test.
const LINES_SHOWN: usize = 40;

/// Default number of runs of each test.
pub const TIMES: u32 = 20;

/// A test and its program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    program: PathBuf,
    name: String,
}

/// Runs the tests whose names contain `filter`, each this many times.
///
/// # Errors
/// Which tests failed, and how often.
pub fn run(times: u32, filter: &str) -> Result<(), String> {
    let mut tests = find_tests(filter)?;
    let is_over = AtomicBool::new(false);
    let failures = Mutex::new(BTreeMap::<String, u32>::new());
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            scope.spawn(|| burn(&is_over));
        }
        for round in 1..=times {
            println!("round {round} of {times}: {} tests", tests.len());
            tests = round_of(&tests, &failures);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let lines = failures
        .iter()
        .map(|(name, count)| format!("{name} failed {count} times"));
    match failures.is_empty() {
        true => Ok(()),
        false => Err(lines.collect::<Vec<_>>().join("\n")),
    }
}

/// Keeps a core busy.
fn burn(is_over: &AtomicBool) {
    let mut number = 1_u64;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) + 1);
        }
    }
}

/// Runs each of the tests once, and returns those that were quick.
fn round_of(tests: &[Test], failures: &Mutex<BTreeMap<String, u32>>) -> Vec<Test> {
    let next = AtomicUsize::new(0);
    let quick = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = now();
                    if let Err(said) = run_once(test) {
                        println!("FAILED: {}\n{said}", test.name);
                        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                        *failures.entry(test.name.clone()).or_default() += 1;
                    }
                    if begin.elapsed() <= QUICK {
                        let mut quick = quick.lock().unwrap_or_else(PoisonError::into_inner);
                        quick.push(test.clone());
                    }
                }
            });
        }
    });
    quick.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test. The error is the end of its output.
fn run_once(test: &Test) -> Result<(), String> {
    let mut child = Command::new(&test.program)
        .args(["--exact", &test.name, "--nocapture"])
        .current_dir(workspace_root().join("crates/server"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let readers = [
        child.stdout.take().map(|from| thread::spawn(|| text(from))),
        child.stderr.take().map(|from| thread::spawn(|| text(from))),
    ];
    let deadline = now() + PATIENCE;
    if ends_well(&mut child, deadline) {
        return Ok(());
    }
    let is_late = now() >= deadline;
    let mut said = String::new();
    for reader in readers.into_iter().flatten() {
        // If a test was killed, a process that it started may still hold the pipe. Then nothing
        // more is read.
        if !is_late {
            said += &reader.join().unwrap_or_default();
        }
    }
    let lines: Vec<&str> = said.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    let how = match is_late {
        true => format!("it did not end in {} s", PATIENCE.as_secs()),
        false => "it failed".to_owned(),
    };
    Err(format!("{}\n{how}", last.join("\n")))
}

fn text(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    let _as_far_as_it_goes = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Builds the tests and lists their names.
fn find_tests(filter: &str) -> Result<Vec<Test>, String> {
    let mut build = linted(&["test", "--workspace", "--no-run", "--message-format=json"]);
    build.args(TARGETS.iter().flat_map(|target| ["--test", target]));
    let output = build
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let mut tests = Vec::new();
    for program in programs(&String::from_utf8_lossy(&output.stdout)) {
        let list = Command::new(&program)
            .args(["--list", "--format", "terse"])
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        tests.extend(names.filter(|name| name.contains(filter)).map(|name| Test {
            program: program.clone(),
            name: name.to_owned(),
        }));
    }
    match tests.is_empty() {
        true => Err(format!("no test has {filter} in its name")),
        false => Ok(tests),
    }
}

/// Returns the programs of the server's tests from cargo's output, which has one JSON object per
/// line. Other rooms have tests with the same names.
fn programs(said: &str) -> Vec<PathBuf> {
    let program = |line: &str| {
        let (_, path) = line.split_once("\"executable\":\"")?;
        let (path, _) = path.split_once('"')?;
        let is_test = line.contains("\"kind\":[\"test\"]");
        (is_test && line.contains("/crates/server#")).then(|| PathBuf::from(path))
    };
    said.lines().filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_of_the_servers_tests() {
        let said = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/base#0.1.0","target":{"kind":["test"],"name":"it"},"executable":"/w/target/debug/deps/it-1"}
{"reason":"compiler-artifact","package_id":"path+file:///w/crates/server#0.1.0","target":{"kind":["test"],"name":"it"},"executable":"/w/target/debug/deps/it-2"}
{"reason":"compiler-artifact","package_id":"path+file:///w/crates/server#0.1.0","target":{"kind":["bin"],"name":"iolite"},"executable":"/w/target/debug/iolite"}
{"reason":"compiler-artifact","package_id":"path+file:///w/crates/server#0.1.0","target":{"kind":["lib"],"name":"server"},"executable":null}
{"reason":"build-finished","success":true}"#;
        assert_eq!(programs(said), [PathBuf::from("/w/target/debug/deps/it-2")]);
    }

    #[test]
    fn who_fails_is_named_with_what_it_said() {
        let test = |name: &str| Test {
            program: "/bin/sh".into(),
            name: name.to_owned(),
        };
        // sh has no such option, and says so.
        let said = run_once(&test("anything")).expect_err("sh has no tests");
        assert!(
            said.contains("option") && said.ends_with("it failed"),
            "{said}"
        );
        let failures = Mutex::default();
        let left = round_of(&[test("one"), test("two")], &failures);
        assert_eq!(left.len(), 2);
        let failures = failures.into_inner().unwrap_or_default();
        assert_eq!(
            failures.into_iter().collect::<Vec<_>>(),
            [("one".to_owned(), 1), ("two".to_owned(), 1)]
        );
    }
}
