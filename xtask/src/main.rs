//! The developer's entry point: `cargo xtask test`, `soak`, `tidy`, `ci` and the tools of the
//! testkit.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for a terminal"
)]

use std::process::ExitCode;

use xtask::parts::{self, PARTS};
use xtask::run::{self, Outcome};
use xtask::{
    big_endian, chart, coverage, figures, flakes, fuzz, instructions, instructions::Build, package,
    package::Target, sanitize, soak, tidy, workflows, workspace_root,
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test"] => report(&run::gate(PARTS)),
        ["test", names @ ..] => test_named(names),
        ["soak", words @ ..] => {
            answer(soak::Request::read(words).and_then(|request| soak::run(&request)))
        }
        ["budgets"] => {
            print!("{}", parts::budgets());
            ExitCode::SUCCESS
        }
        ["ci"] => ci(),
        ["package"] => answer(package::make(Target::own())),
        ["package", "index"] => answer(package::make_index()),
        ["package", "arm64"] => answer(package::make(Target::ARM64)),
        ["package", "arm64", program] => answer(package::make_of(Target::ARM64, program)),
        ["package", program] => answer(package::make_of(Target::own(), program)),
        ["check-packages"] => answer(package::check(Target::own())),
        ["check-packages", "arm64"] => answer(package::check(Target::ARM64)),
        ["check-chart"] => answer(chart::check()),
        ["check-workflows"] => answer(workflows::check()),
        ["check-builds"] => answer(package::check_builds()),
        ["tidy"] => check_tidiness(),
        ["tidy", "--accept"] => accept_long_functions(),
        ["figures"] => measure(None),
        ["figures", report] => measure(Some(report)),
        ["instructions"] => answer(instructions::check(Build::Release, false)),
        ["instructions", "--accept"] => answer(instructions::check(Build::Release, true)),
        ["instructions", "dev"] => answer(instructions::check(Build::Dev, false)),
        ["instructions", "dev", "--accept"] => answer(instructions::check(Build::Dev, true)),
        ["instructions", "dist"] => answer(instructions::check(Build::Dist, false)),
        ["instructions", "dist", "--accept"] => answer(instructions::check(Build::Dist, true)),
        ["instructions", "cache"] => answer(instructions::show_cache_misses()),
        ["big-endian"] => answer(big_endian::run()),
        ["big-endian", "qemu"] => answer(big_endian::with_emulator()),
        ["fuzz"] => answer(fuzz::run_all()),
        ["fuzz", "grow", seconds, seed] => answer(fuzz::grow_all(seconds, seed)),
        ["fuzz", "replay", target, input] => answer(fuzz::replay(target, input)),
        ["fuzz", target, seconds] => answer(fuzz::run_one(target, seconds)),
        ["churn", sanitizer @ ("address" | "thread"), seconds] => {
            answer(sanitize::churn(sanitizer, seconds))
        }
        ["flakes", words @ ..] => flakes_of(words),
        ["coverage"] => answer(coverage::run()),
        [
            "transcribe" | "transcripts" | "differential" | "schedules",
            ..,
        ] => testkit(&words),
        _ => help(),
    }
}

/// Builds the profile whose figures are published, and measures it next to `redis-server`.
fn measure(report: Option<&str>) -> ExitCode {
    let words = ["build", "--profile", "dist", "--package", "server"];
    let built = std::process::Command::new("cargo").args(words).status();
    if !built.is_ok_and(|status| status.success()) {
        return failed("the server does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace_root().join("target"), std::path::PathBuf::from);
    match figures::run(&target.join("dist/iolite").display().to_string(), report) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Runs the tests of the server many times: `[TIMES] [FILTER]`.
fn flakes_of(words: &[&str]) -> ExitCode {
    let times = words.first().and_then(|first| first.parse().ok());
    let (times, rest) = times.map_or((flakes::TIMES, words), |times| (times, &words[1..]));
    match rest {
        [] => answer(flakes::run(times, "")),
        [filter] => answer(flakes::run(times, filter)),
        _ => help(),
    }
}

/// Runs the gate as CI does: no part may be left out because a tool is missing.
fn ci() -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&error.to_string()),
    };
    let mut command = std::process::Command::new(program);
    match command.arg("test").env("CI", "true").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => failed(&error.to_string()),
    }
}

fn test_named(names: &[&str]) -> ExitCode {
    let mut chosen = Vec::new();
    for name in names {
        match PARTS.iter().find(|part| part.name == *name) {
            Some(part) => chosen.push(*part),
            None => return failed(&format!("no part of the tests is called {name}")),
        }
    }
    report(&run::all(&chosen))
}

fn report(outcomes: &[Outcome]) -> ExitCode {
    println!("\n{}", run::table(outcomes));
    match outcomes.iter().all(Outcome::is_good) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn check_tidiness() -> ExitCode {
    let root = workspace_root();
    match tidy::circles(&root) {
        Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
        Err(error) => return failed(&error.to_string()),
    }
    let faults = tidy::faults(&root);
    for fault in &faults {
        eprintln!("{fault}");
    }
    match faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => failed(&format!("{} faults", faults.len())),
    }
}

fn accept_long_functions() -> ExitCode {
    match tidy::accept_long_functions(&workspace_root()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

fn testkit(words: &[&str]) -> ExitCode {
    // The server is built too, because some tools start it.
    let build = ["build", "--quiet", "-p", "server", "-p", "testkit"];
    let run = ["run", "--quiet", "-p", "testkit", "--"];
    let done = parts::cargo(&build)
        .status()
        .is_ok_and(|status| status.success())
        && parts::cargo(&run)
            .args(words)
            .status()
            .is_ok_and(|status| status.success());
    match done {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn help() -> ExitCode {
    println!("cargo xtask test [PART...]     the gate, or some of its parts:");
    for part in PARTS {
        println!("    {:<14}{}", part.name, part.purpose);
    }
    println!(
        "cargo xtask soak [HOURS] [PART...] [--seed N]   for an hour, with fresh seeds; or once:"
    );
    for part in soak::PARTS {
        println!("    {:<16}{}", part.name, part.purpose);
    }
    println!("cargo xtask budgets            minutes that each part of the gate may take");
    println!(
        "cargo xtask package [arm64] [PROGRAM]   tarballs, deb, rpm, image, wheel and sums in target/package, or target/package-arm64"
    );
    println!("cargo xtask package index      one image of those for amd64 and arm64");
    println!(
        "cargo xtask check-packages [arm64]  installs each into a root of its own and runs the server in it"
    );
    println!(
        "cargo xtask check-chart        lints and renders the chart for Kubernetes, and checks its objects"
    );
    println!("cargo xtask check-workflows    lints the workflow that makes a release");
    println!("cargo xtask check-builds       builds again in another directory, and compares");
    println!("cargo xtask ci                 the gate; fails when a tool is missing");
    println!(
        "cargo xtask tidy [--accept]    checks of the source; accepts long functions as they are"
    );
    println!(
        "cargo xtask figures [FILE]       CPU per operation and bytes per key beside redis-server"
    );
    println!(
        "cargo xtask instructions [dev | dist] [--accept]   instructions of a GET and a SET beside Redis', \
         held against xtask/instructions.txt; `cache` in their place: misses of simulated caches"
    );
    println!(
        "cargo xtask big-endian [qemu]  the lower rooms where the high byte comes first; QEMU alone"
    );
    println!(
        "cargo xtask fuzz [TARGET SECONDS | replay TARGET FILE]  every fuzz target for a bounded number of inputs; one; \
         one input"
    );
    println!(
        "cargo xtask churn address|thread SECONDS  clients that come, wait and go, beside a server under \
         that sanitizer"
    );
    println!(
        "cargo xtask flakes [TIMES] [FILTER]  tests of the whole server many times on a busy machine; names those that fail"
    );
    println!(
        "cargo xtask coverage           line coverage of each room by all tests; fails below 80 %"
    );
    println!("cargo xtask transcribe [--write] FILE...");
    println!("cargo xtask transcripts oracle|iolite FILE...");
    println!("cargo xtask differential [--seed N] [--round N] [--requests N] [ARG...]");
    println!("cargo xtask schedules [--seed N] [--round N] [--requests N] [ARG...]");
    ExitCode::FAILURE
}

fn answer(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(what: &str) -> ExitCode {
    eprintln!("{what}");
    ExitCode::FAILURE
}
