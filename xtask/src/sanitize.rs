//! Runs tests under sanitizers, with the pinned compiler. It accepts the unstable option if it is
//! allowed to.
//!
//! * Address: all unit tests of the rooms that have `unsafe`. It detects accesses outside of a heap
//!   block or a stack variable, and to a freed block. It does not see what happens inside of the
//!   store's own range of memory, where slots are allocated without its knowledge, nor accesses
//!   from assembly.
//! * Thread: the stress tests of the store, whose values check themselves, and of base's mutex. It
//!   detects plain memory that two threads use without an order between them. The toolchain's
//!   standard library is not built for it, and its sources may be missing. Therefore it does not
//!   see what orders threads inside of the library, such as a mutex that had to wait, or a channel.
//!   The mutex of `base::sync` states its order a second time (`--cfg thread_sanitizer`); what
//!   other primitives guard is excluded by name (`UNSEEN`). It knows neither fences nor assembly;
//!   the models under loom and shuttle cover those.
//!
//! The whole server can be run under both: `cargo xtask churn address 120`. This is not part of the
//! tests, because the server would have to be built twice.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::{cargo, target_directory};
use crate::toolchain;

/// Memory whose order comes from a mutex or channel of the standard library.
const UNSEEN: &str = "\
race:store::lazy_free
race:std::sync::mpmc
race:test::
";

/// The same in the whole server. The last owner unmaps a mapping, ordered by a fence.
const UNSEEN_IN_SERVER: &str = "\
race:store::reservation::Mapped as core::ops::drop
";

/// The rooms whose changes make the sanitizers run.
pub const ROOMS: &[&str] = &[
    "crates/base",
    "crates/store",
    "crates/structures",
    "crates/reactor",
];

/// Returns the commands of both sanitizers, in order.
#[must_use]
pub fn commands() -> Vec<Command> {
    let rooms = ["-p", "store", "-p", "structures", "-p", "reactor"];
    let address = test("address", &rooms, &[]);
    let rooms = ["-p", "base", "-p", "store"];
    let mut thread = test("thread", &rooms, &["stress::"]);
    thread.env("TSAN_OPTIONS", unseen("unseen.txt", UNSEEN));
    vec![address, thread]
}

/// Runs the churn of clients for some seconds, with a server instrumented by a sanitizer (`address`
/// or `thread`). The server is built for it, which takes minutes the first time.
///
/// Only some reports of the thread sanitizer count: those about two accesses in files that have
/// `unsafe`. Any other two accesses are ordered by something it does not see; otherwise the
/// compiler would have refused them.
///
/// # Errors
/// What failed. A report of the address sanitizer is in the output of the test.
pub fn churn(sanitizer: &str, seconds: &str) -> Result<(), String> {
    let server = ["build", "-p", "server", "--bin", "iolite"];
    let (mut build, directory) = prepared(sanitizer, &server);
    expect(&mut build, "the server does not build")?;
    let host = toolchain::fact("host").unwrap_or_default();
    let reports = directory.join("reports");
    let _there_are_none = std::fs::remove_dir_all(&reports);
    std::fs::create_dir_all(&reports).map_err(|error| error.to_string())?;
    let patterns = format!("{UNSEEN}{UNSEEN_IN_SERVER}");
    let unseen = unseen("unseen-in-server.txt", &patterns);
    let filter = ["test", "-p", "server", "--test", "it", "churn::"];
    let mut test = cargo(&filter);
    test.args(["--", "--nocapture"])
        .env("SERVER_BIN", directory.join(host).join("debug/iolite"))
        .env("CHURN_SECONDS", seconds)
        .env(
            "TSAN_OPTIONS",
            format!("{unseen}:log_path={}", reports.join("report").display()),
        );
    expect(&mut test, "the churn test failed")?;
    let (all, told) = read_reports(&reports).map_err(|error| error.to_string())?;
    println!("{} reports of {all} are about unsafe code", told.len());
    match told.is_empty() {
        true => Ok(()),
        false => Err(told.join("\n\n")),
    }
}

/// Returns the number of reports in a directory, and those about unsafe code.
fn read_reports(directory: &Path) -> std::io::Result<(usize, Vec<String>)> {
    let mut told = Vec::new();
    let mut all = 0;
    for entry in std::fs::read_dir(directory)? {
        let text = std::fs::read(entry?.path())?;
        let text = String::from_utf8_lossy(&text).into_owned();
        for report in text.split("WARNING: ThreadSanitizer: ").skip(1) {
            all += 1;
            // The two accesses come first, each with its stack.
            let mut accesses = report.split("\n\n").take(2);
            if !report.starts_with("data race") || accesses.all(is_in_unsafe_file) {
                told.push(report.to_owned());
            }
        }
    }
    Ok((all, told))
}

/// Whether the innermost frame of a stack in our own code is in a file with `unsafe`.
fn is_in_unsafe_file(stack: &str) -> bool {
    let root = format!("{}/", crate::workspace_root().join("crates").display());
    let mut frames = stack.lines();
    let frame = frames.find_map(|line| Some(line.split_once(&root)?.1));
    let file = frame.and_then(|frame| frame.split(':').next());
    let text = file.and_then(|file| std::fs::read_to_string(format!("{root}{file}")).ok());
    text.is_none_or(|text| text.contains("unsafe {") || text.contains("unsafe impl"))
}

fn expect(command: &mut Command, complaint: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(complaint.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns options that make the thread sanitizer leave out what `patterns` match.
fn unseen(name: &str, patterns: &str) -> String {
    let file = target_directory().join("sanitize").join(name);
    // If the file is missing, the sanitizer stops with an error of its own.
    let _written = std::fs::create_dir_all(target_directory().join("sanitize"))
        .and_then(|()| std::fs::write(&file, patterns));
    format!("suppressions={}", file.display())
}

fn test(sanitizer: &str, rooms: &[&str], tests: &[&str]) -> Command {
    let (mut command, _) = prepared(sanitizer, &["test", "--lib", "--no-fail-fast"]);
    command.args(rooms).arg("--").args(tests);
    command
}

/// Returns a cargo command for code instrumented by a sanitizer, and its target directory.
fn prepared(sanitizer: &str, words: &[&str]) -> (Command, PathBuf) {
    let host = toolchain::fact("host").unwrap_or_default();
    let directory = target_directory().join("sanitize").join(sanitizer);
    // An explicit target keeps the flags out of build scripts.
    let mut command = cargo(words);
    command.args(["--target", &host]);
    // Slightly optimised; otherwise the tests take several times as long.
    let flags = format!(
        "-Zsanitizer={sanitizer} --cfg {sanitizer}_sanitizer -Cunsafe-allow-abi-mismatch=sanitizer \
         -Copt-level=1 -Cdebuginfo=1"
    );
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", &directory);
    (command, directory)
}
