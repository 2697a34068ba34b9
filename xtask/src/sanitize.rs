//! Tests under sanitizers, with the pinned compiler, which takes the unstable option when told that it
//! may.
//!
//! * Address: the rooms that have `unsafe`, all their unit tests. It sees accesses outside of a heap
//!   block or a stack variable, and after a block was freed. It does not see what happens inside of the
//!   store's own range of memory, where slots are given out without its knowledge, nor what the
//!   blocks of assembly touch.
//! * Thread: the stress tests of the store, whose values check themselves, and of base's mutex. It
//!   sees plain memory that two threads use without an order between them. The standard library of
//!   the toolchain is not built for it, and its sources may not be there to be built: what orders
//!   threads inside of the library (a mutex that had to wait, a channel) is not seen. The mutex of
//!   `base::sync` says it a second time (`--cfg thread_sanitizer`); what others guard is left out
//!   by name (`UNSEEN`). It knows nothing of fences, nor of assembly; the models under loom and
//!   shuttle are what speaks for those.
//!
//! The whole server can be run under both: `cargo xtask churn address 120`. That is no part of the tests,
//! because of what it takes to build it twice.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::{cargo, target_directory};
use crate::toolchain;

/// What a mutex or channel of the standard library orders.
const UNSEEN: &str = "\
race:store::lazy_free
race:std::sync::mpmc
race:test::
";

/// In the whole server, too: a mapping goes with the last that holds it, by a fence.
const UNSEEN_IN_SERVER: &str = "\
race:store::reservation::Mapped as core::ops::drop
";

/// The rooms whose changes the sanitizers are asked about.
pub const ROOMS: &[&str] = &[
    "crates/base",
    "crates/store",
    "crates/structures",
    "crates/reactor",
];

/// Both, in order.
#[must_use]
pub fn commands() -> Vec<Command> {
    let rooms = ["-p", "store", "-p", "structures", "-p", "reactor"];
    let address = test("address", &rooms, &[]);
    let rooms = ["-p", "base", "-p", "store"];
    let mut thread = test("thread", &rooms, &["stress::"]);
    thread.env("TSAN_OPTIONS", unseen("unseen.txt", UNSEEN));
    vec![address, thread]
}

/// The churn of clients for so many seconds, with a server that a sanitizer (`address` or `thread`) has
/// prepared. The server is built for it, which takes minutes the first time.
///
/// Of the reports of the thread sanitizer those count that are about two accesses in files that have
/// `unsafe`: two others are ordered by what it does not see, or the compiler would have refused them.
///
/// # Errors
/// What failed; a report of the address sanitizer is in the output of the test.
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

/// How many reports there are in a directory, and those that are about unsafe code.
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

/// Whether the innermost frame of a stack that is ours is in a file with `unsafe`.
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

/// Options by which the thread sanitizer leaves out what `patterns` name.
fn unseen(name: &str, patterns: &str) -> String {
    let file = target_directory().join("sanitize").join(name);
    // Without the file the sanitizer stops with an error of its own.
    let _written = std::fs::create_dir_all(target_directory().join("sanitize"))
        .and_then(|()| std::fs::write(&file, patterns));
    format!("suppressions={}", file.display())
}

fn test(sanitizer: &str, rooms: &[&str], tests: &[&str]) -> Command {
    let (mut command, _) = prepared(sanitizer, &["test", "--lib", "--no-fail-fast"]);
    command.args(rooms).arg("--").args(tests);
    command
}

/// Cargo with these words for code that a sanitizer has prepared, and the directory that it goes to.
fn prepared(sanitizer: &str, words: &[&str]) -> (Command, PathBuf) {
    let host = toolchain::fact("host").unwrap_or_default();
    let directory = target_directory().join("sanitize").join(sanitizer);
    // An explicit target keeps the flags away from build scripts.
    let mut command = cargo(words);
    command.args(["--target", &host]);
    // Optimised a little, or the tests take several times as long.
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
