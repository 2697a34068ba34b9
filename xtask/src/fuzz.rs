//! Builds the fuzz targets with coverage and the address sanitizer, and runs them.
//!
//! In the gate, each target gets a fixed number of inputs, independent of the machine's speed. They
//! are mutated from the seeds under `fuzz/corpus` with a fixed random seed. `cargo xtask soak fuzz`
//! runs each target for a number of seconds with a fresh seed. It keeps the inputs that reached
//! something new in `fuzz/grown` (or where `FUZZ_CORPUS` says), which is not in git and which
//! `cargo clean` does not remove; the next run continues from there. An input that fails is kept in
//! `target/fuzz/artifacts`.
//!
//! The sanitizer is an unstable option. The pinned compiler accepts it if it is allowed to.

use std::ffi::OsString;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::parts::{cargo, done, target_directory};
use crate::{toolchain, workspace_root};

/// The targets, and the number of inputs of each in the gate: about 2 s each.
const TARGETS: [(&str, u32); 20] = [
    ("glob", 40_000),
    ("words", 40_000),
    ("number", 60_000),
    ("resp_decode", 30_000),
    ("command_args", 3_000),
    ("restore", 15_000),
    ("aof_dir", 10_000),
    ("log_file", 10_000),
    ("rdb_file", 6_000),
    ("redis_primary", 20_000),
    ("psync_request", 40_000),
    ("types", 600),
    ("manifest", 40_000),
    ("checkpoint", 6_000),
    ("tier", 10_000),
    ("control_group", 40_000),
    ("script", 1_200),
    ("acl_rule", 2_000),
    ("http_request", 3_000),
    ("memcached_request", 30_000),
];
/// Seconds after which an input counts as endless: far more than any takes on a busy machine.
const INPUT_SECONDS_MAX: u32 = 60;
const MEMORY_MB_MAX: u32 = 2048;

/// Compiler options that show a program's edges and comparisons to the fuzzer.
const FLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Zsanitizer=address --cfg fuzzing -Ccodegen-units=1";

/// Runs every target with its number of inputs, as many targets at a time as there are cores.
///
/// # Errors
/// Which target failed, and where its input is.
pub fn run_all() -> Result<(), String> {
    let programs = build()?;
    side_by_side(&|target, runs| feed(&programs, target, runs))
}

/// Runs every target for some seconds, with the random seed `seed`. Inputs that reached something
/// new are kept.
///
/// # Errors
/// As for [`run_all`].
pub fn grow_all(seconds: &str, seed: &str) -> Result<(), String> {
    let programs = build()?;
    side_by_side(&|target, _| grow(&programs, target, seconds, Some(seed)))
}

/// Calls `each` with each target and the number of its inputs, as many at a time as there are
/// cores.
fn side_by_side(each: &(impl Fn(&str, u32) -> Result<(), String> + Sync)) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(target, runs)) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            each(target, runs)?;
        }
        Ok(())
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let done = workers.into_iter().map(|worker| {
            let panicked = |_| Err("feeding a target panicked".to_owned());
            worker.join().unwrap_or_else(panicked)
        });
        done.collect()
    })
}

/// Runs one target with a number of inputs, and shows its output at the end.
fn feed(programs: &Path, target: &str, runs: u32) -> Result<(), String> {
    let mut fuzzer = fuzzer(programs, target)?;
    fuzzer.arg(format!("-runs={runs}")).arg("-seed=1");
    fuzzer.arg(seeds(target)?);
    let fed = fuzzer
        .output()
        .map_err(|error| format!("{target}: {error}"))?;
    let said = [fed.stdout, fed.stderr].concat();
    println!(
        "== {target}: {runs} inputs\n{}",
        String::from_utf8_lossy(&said)
    );
    match fed.status.success() {
        true => Ok(()),
        false => Err(format!("{target}: {}", fed.status)),
    }
}

/// Runs one target for some seconds, from its seeds and from what earlier runs have found.
///
/// # Errors
/// As for [`run_all`].
pub fn run_one(target: &str, seconds: &str) -> Result<(), String> {
    if !TARGETS.iter().any(|(name, _)| *name == target) {
        return Err(format!("no fuzz target is called {target}"));
    }
    grow(&build()?, target, seconds, None)
}

/// Runs one input, for example one that failed before.
///
/// # Errors
/// As for [`run_all`].
pub fn replay(target: &str, input: &str) -> Result<(), String> {
    if !TARGETS.iter().any(|(name, _)| *name == target) {
        return Err(format!("no fuzz target is called {target}"));
    }
    let mut fuzzer = fuzzer(&build()?, target)?;
    fuzzer.arg(input);
    done(&mut fuzzer, target)
}

fn grow(programs: &Path, target: &str, seconds: &str, seed: Option<&str>) -> Result<(), String> {
    let corpus = std::env::var_os("FUZZ_CORPUS")
        .map_or_else(|| source().join("grown"), PathBuf::from)
        .join(target);
    fs::create_dir_all(&corpus).map_err(|error| error.to_string())?;
    let mut fuzzer = fuzzer(programs, target)?;
    fuzzer.arg(format!("-max_total_time={seconds}"));
    fuzzer.args(seed.map(|seed| format!("-seed={seed}")));
    fuzzer
        .arg(&corpus)
        .arg(source().join("corpus").join(target));
    done(&mut fuzzer, target).map_err(|error| {
        let artifacts = directory().join("artifacts").join(target);
        let artifacts = artifacts.display();
        format!("{error}\nto see it again: cargo xtask fuzz replay {target} {artifacts}/FILE")
    })
}

/// Builds all targets, and returns where the programs are.
fn build() -> Result<PathBuf, String> {
    let host = toolchain::fact("host")?;
    // An explicit target keeps the flags out of build scripts.
    let mut build = cargo(&["build", "--quiet", "--release", "--bins", "--target", &host]);
    build.current_dir(source());
    build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
    build.env("CARGO_TARGET_DIR", directory());
    done(&mut build, "building the fuzz targets")?;
    Ok(directory().join(host).join("release"))
}

fn fuzzer(programs: &Path, target: &str) -> Result<Command, String> {
    let artifacts = directory().join("artifacts").join(target);
    fs::create_dir_all(&artifacts).map_err(|error| error.to_string())?;
    let mut fuzzer = Command::new(programs.join(target));
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    fuzzer.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    fuzzer.arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"));
    fuzzer.args(["-verbosity=0", "-print_funcs=0"]);
    let dictionary = source().join(format!("dictionaries/{target}.dict"));
    if dictionary.exists() {
        fuzzer.arg(format!("-dict={}", dictionary.display()));
    }
    Ok(fuzzer)
}

/// Returns the seeds as one option. Nothing is written next to them.
fn seeds(target: &str) -> Result<OsString, String> {
    let place = source().join("corpus").join(target);
    let failed = |error: std::io::Error| format!("{}: {error}", place.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(&place).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    let paths: Vec<_> = paths.iter().map(|path| path.as_os_str()).collect();
    let mut option = OsString::from("-seed_inputs=");
    option.push(paths.join(std::ffi::OsStr::new(",")));
    Ok(option)
}

/// Returns the targets' package, which is not a member of the workspace.
fn source() -> PathBuf {
    workspace_root().join("fuzz")
}

fn directory() -> PathBuf {
    target_directory().join("fuzz")
}
