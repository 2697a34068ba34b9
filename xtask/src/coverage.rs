//! Line coverage of the rooms by all tests, including those that start the server as a process.
//!
//! The rooms are compiled with LLVM's counters into `target/coverage`. The counters live in a
//! mapped file, so that they survive when a test kills its server. Lines of tests do not count. A
//! run takes some ten minutes on two cores and is therefore not part of `cargo xtask test`. Figures
//! with their date are in `docs/bench/`.

mod lines;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::parts::{self, cargo, target_directory};
use crate::{toolchain, tools, workspace_root};

/// Minimum percentage of a room's lines that its tests must run.
const COVERED_MIN: f64 = 80.0;
/// Number of files shown for each room, those with the most lines that no test runs.
const FILES_SHOWN: usize = 4;
const ROOMS: [&str; 14] = [
    "base",
    "access",
    "protocol",
    "reactor",
    "structures",
    "rdb",
    "durability",
    "store",
    "scripting",
    "engine",
    "commands",
    "tls",
    "tool",
    "server",
];

/// Runs all tests with counters and prints a table.
///
/// # Errors
/// What failed or is missing, or which rooms have too little coverage.
pub fn run() -> Result<(), String> {
    let llvm = llvm_programs()?;
    let profiles = directory().join("profiles");
    // Counters of an earlier build would otherwise be added to those of this one.
    if profiles.exists() {
        fs::remove_dir_all(&profiles).map_err(|error| error.to_string())?;
    }
    done(instrumented(&["build", "--quiet", "-p", "server"]).stdout(Stdio::null()))?;
    let programs = test_programs()?;
    let tests = done(
        instrumented(TEST)
            .args(["--no-fail-fast"])
            .env("CI", "true"),
    );

    let merged = merge(&llvm, &profiles)?;
    let report = export(&llvm, &merged, &programs)?;
    let files = lines::of_files(&report, &workspace_root());
    let (table, too_low) = table(&files);
    println!("{table}");
    // A failed test is shown in addition to the figures, not instead of them.
    tests?;
    match too_low.is_empty() {
        true => Ok(()),
        false => Err(format!("below {COVERED_MIN} %: {}", too_low.join(", "))),
    }
}

const TEST: &[&str] = &[
    "test",
    "--workspace",
    "--exclude",
    "xtask",
    "--lib",
    "--bins",
    "--tests",
];

/// Returns a cargo command that compiles counters in.
fn instrumented(words: &[&str]) -> Command {
    let mut command = cargo(words);
    command.env("CARGO_TARGET_DIR", directory());
    command.env("CARGO_INCREMENTAL", "0");
    let flags = "-Cinstrument-coverage -Cllvm-args=-runtime-counter-relocation";
    command.env("RUSTFLAGS", flags);
    // One file for each program (%m), mapped while the program runs (%c).
    let profile = directory().join("profiles/%m%c.profraw");
    command.env("LLVM_PROFILE_FILE", profile);
    command
}

/// Returns the compiled tests, as cargo names them, and the server.
fn test_programs() -> Result<Vec<PathBuf>, String> {
    let mut build = instrumented(TEST);
    build.arg("--no-run");
    let output = build.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(text.into_owned());
    }
    let mut programs = vec![directory().join("debug/iolite")];
    for line in text.lines() {
        let Some((_, place)) = line
            .trim_start()
            .strip_prefix("Executable ")
            .and_then(|line| line.rsplit_once('('))
        else {
            continue;
        };
        programs.push(workspace_root().join(place.trim_end_matches(')')));
    }
    Ok(programs)
}

fn merge(llvm: &Path, profiles: &Path) -> Result<PathBuf, String> {
    let merged = directory().join("merged.profdata");
    let mut command = Command::new(llvm.join("llvm-profdata"));
    command.args(["merge", "--sparse", "--failure-mode=all", "-o"]);
    command.arg(&merged);
    for entry in fs::read_dir(profiles).map_err(|error| error.to_string())? {
        command.arg(entry.map_err(|error| error.to_string())?.path());
    }
    done(&mut command)?;
    Ok(merged)
}

/// Returns the line counts in the format of lcov.
fn export(llvm: &Path, merged: &Path, programs: &[PathBuf]) -> Result<String, String> {
    let mut command = Command::new(llvm.join("llvm-cov"));
    command.args(["export", "--format=lcov", "--skip-functions"]);
    command.arg("--instr-profile").arg(merged);
    for program in programs {
        command.arg("--object").arg(program);
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("llvm-cov: {}", output.status)),
    }
}

/// Returns the table, and the rooms with too little coverage.
fn table(files: &[lines::Covered]) -> (String, Vec<String>) {
    let mut table = String::from("| room | lines | run | % | most lines not run |\n");
    table.push_str("|---|---:|---:|---:|---|\n");
    let mut too_low = Vec::new();
    for room in ROOMS {
        let source = format!("crates/{room}/src/");
        let mut of_room: Vec<_> = files
            .iter()
            .filter(|file| file.path.starts_with(&source))
            .collect();
        of_room.sort_by_key(|file| std::cmp::Reverse(file.missed()));
        let lines: u32 = of_room.iter().map(|file| file.lines).sum();
        let run: u32 = of_room.iter().map(|file| file.run).sum();
        let percent = 100.0 * f64::from(run) / f64::from(lines.max(1));
        if percent < COVERED_MIN {
            too_low.push(room.to_owned());
        }
        let most: Vec<String> = of_room
            .iter()
            .take(FILES_SHOWN)
            .map(|file| format!("{} {}", &file.path[source.len()..], file.missed()))
            .collect();
        let most = most.join(", ");
        table.push_str(&format!(
            "| {room} | {lines} | {run} | {percent:.1} | {most} |\n"
        ));
    }
    (table, too_low)
}

/// Returns the directory with LLVM's programs of the compiler's LLVM version.
fn llvm_programs() -> Result<PathBuf, String> {
    let own = toolchain::programs()?;
    if has_llvm(&own) {
        return Ok(own);
    }
    tools::LLVM.ensure()?;
    let major = toolchain::fact("LLVM version")?;
    let major = major.split('.').next().unwrap_or_default();
    let debian = PathBuf::from(format!("/usr/lib/llvm-{major}/bin"));
    match has_llvm(&debian) {
        true => Ok(debian),
        false => Err(format!("llvm-profdata and llvm-cov of LLVM {major}")),
    }
}

fn has_llvm(directory: &Path) -> bool {
    directory.join("llvm-cov").exists() && directory.join("llvm-profdata").exists()
}

fn directory() -> PathBuf {
    target_directory().join("coverage")
}

fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    parts::done(command, &name)
}
