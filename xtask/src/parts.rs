//! The parts of the gate, `cargo xtask test`: what each part runs, what it needs and how long it
//! may take.

use std::process::Command;

use crate::tools::{self, Tool};
use crate::{sanitize, toolchain, workspace_root};

/// A part of the gate.
#[derive(Clone, Copy)]
pub struct Part {
    /// Name on the command line.
    pub name: &'static str,
    /// What the part shows.
    pub purpose: &'static str,
    /// Budget in minutes on two cores, from a clean clone.
    pub minutes_max: f64,
    /// Programs that it needs besides Rust and a C compiler.
    pub needs: &'static [&'static Tool],
    /// When it runs, unless it is named on the command line.
    pub when: When,
    /// The commands that it runs, in order.
    pub commands: fn() -> Vec<Command>,
}

/// When a part of the gate runs.
#[derive(Clone, Copy)]
pub enum When {
    /// Every time.
    Always,
    /// If something below these paths changed ([`crate::changed`]).
    Changed(&'static [&'static str]),
}

/// Minutes that the parts that always run may take together, on two cores, from a clean clone. If a
/// change exceeds it, something must move to the soak.
pub const MINUTES_MAX: f64 = 15.0;

/// Paths of code that reads bytes from outside.
const DECODERS: &[&str] = &[
    "crates/access",
    "crates/base",
    "crates/cluster",
    "crates/console",
    "crates/durability",
    "crates/memcached",
    "crates/protocol",
    "crates/rdb",
    "crates/replication",
    "crates/scripting",
    "fuzz",
];

/// The parts of the gate, fast ones first.
pub const PARTS: &[Part] = &[
    Part {
        name: "format",
        purpose: "rustfmt",
        minutes_max: 0.1,
        needs: &[],
        when: When::Always,
        commands: || vec![cargo(&["fmt", "--all", "--check"])],
    },
    Part {
        name: "tidy",
        purpose: "room edges, heads of modules, words, links, sizes, licences, budgets",
        minutes_max: 0.2,
        needs: &[],
        when: When::Always,
        commands: || vec![cargo(&["test", "-p", "xtask", "--no-fail-fast"])],
    },
    Part {
        name: "tests",
        purpose: "clippy, no warning; unit, property, transcript and process tests of all rooms, simulation",
        minutes_max: 10.5,
        needs: &[
            &tools::CPP_COMPILER,
            &tools::REDIS_SERVER,
            &tools::REDIS_TOOLS,
        ],
        when: When::Always,
        commands: || {
            let mut test = linted(&["test", "--workspace", "--no-fail-fast"]);
            // The previous part runs these.
            test.args(["--exclude", "xtask"]);
            // Three times the cores of the smallest machine, because many tests wait for a server
            // or for time to pass.
            test.env("RUST_TEST_THREADS", "6");
            vec![everything(), test]
        },
    },
    Part {
        name: "differential",
        purpose: "200,000 random commands, and schedules of several sessions, beside Redis",
        minutes_max: 0.4,
        needs: &[&tools::CPP_COMPILER, &tools::REDIS_SERVER],
        when: When::Always,
        commands: || {
            let mut test = process_tests("differential::");
            test.args(["--", "--nocapture"]);
            test.env("DIFFERENTIAL_REQUESTS", "200000");
            test.env("SCHEDULES_REQUESTS", "10000");
            vec![test]
        },
    },
    Part {
        name: "clients",
        purpose: "redis-cli, redis-benchmark, clients, and the queues, locks and limiters built on them",
        minutes_max: 1.0,
        needs: &[
            &tools::CPP_COMPILER,
            &tools::REDIS_TOOLS,
            &tools::MEMCACHED_TOOLS,
            &tools::PYTHON,
            &tools::NODE,
            &tools::GO,
            &tools::MAVEN,
        ],
        when: When::Always,
        commands: || {
            vec![
                ignored("clients::"),
                ignored("applications::"),
                ignored_of("group", "redis_cli_"),
                ignored("memcached::"),
            ]
        },
    },
    Part {
        name: "sentinel-clients",
        purpose: "clients of Sentinels follow when the primary of a group is killed, and when it hands over",
        minutes_max: 2.0,
        needs: &[
            &tools::CPP_COMPILER,
            &tools::PYTHON,
            &tools::NODE,
            &tools::GO,
            &tools::MAVEN,
        ],
        when: When::Changed(&[
            "crates/server/src/group",
            "crates/server/src/replication",
            "crates/server/tests/clients",
        ]),
        commands: || vec![sentinel_clients()],
    },
    Part {
        name: "instructions",
        purpose: "instructions of a GET and a SET by callgrind, in the server that the tests ran",
        minutes_max: 0.6,
        needs: &[&tools::CPP_COMPILER, &tools::VALGRIND, &tools::REDIS_SERVER],
        when: When::Always,
        commands: || vec![xtask(&["instructions", "dev"])],
    },
    Part {
        name: "bare",
        purpose: "the server without features compiles",
        minutes_max: 0.8,
        needs: &[&tools::CPP_COMPILER],
        when: When::Always,
        commands: || vec![cargo(&["check", "-p", "server", "--no-default-features"])],
    },
    Part {
        name: "groups",
        purpose: "whole control groups on openraft, and the control log, under 1,000 seeds of faults each",
        minutes_max: 2.5,
        needs: &[],
        when: When::Changed(&["crates/cluster", "crates/consensus"]),
        commands: || {
            let mut test = whole_groups();
            test.env("CONSENSUS_SEEDS", "1000");
            vec![test]
        },
    },
    Part {
        name: "fuzz",
        purpose: "mutated bytes into every decoder, under the address sanitizer",
        minutes_max: 3.0,
        needs: &[&tools::CPP_COMPILER],
        when: When::Changed(DECODERS),
        commands: || vec![xtask(&["fuzz"])],
    },
    Part {
        name: "loom",
        purpose: "models of shared memory, every interleaving",
        minutes_max: 6.0,
        needs: &[],
        when: When::Changed(&["crates/store"]),
        commands: || vec![model("loom", &["store"])],
    },
    Part {
        name: "shuttle",
        purpose: "models of shared memory, random interleavings",
        minutes_max: 4.0,
        needs: &[],
        when: When::Changed(&["crates/store", "crates/durability"]),
        commands: || vec![model("shuttle", &["store", "durability"])],
    },
    Part {
        name: "sanitize",
        purpose: "rooms with unsafe code under the address sanitizer, stress under that of threads",
        minutes_max: 6.0,
        needs: &[],
        when: When::Changed(sanitize::ROOMS),
        commands: sanitize::commands,
    },
];

/// Returns the budgets as a Markdown table, as in CONTRIBUTING.md.
#[must_use]
pub fn budgets() -> String {
    let mut table = String::from("| part | what it shows | minutes | runs |\n|---|---|---|---|\n");
    let mut sum = 0.0;
    for part in PARTS {
        let (name, purpose, minutes) = (part.name, part.purpose, part.minutes_max);
        let runs = match part.when {
            When::Always => {
                sum += minutes;
                "always".to_owned()
            }
            When::Changed(paths) => format!("when {} changed", paths.join(", ")),
        };
        table += &format!("| {name} | {purpose} | {minutes:.1} | {runs} |\n");
    }
    table + &format!("| **what always runs** | | **{sum:.1}** | at most {MINUTES_MAX:.1} |\n")
}

/// Builds what ships: the server alone, and therefore only with its own features.
pub(crate) const SHIPPED: &[&str] = &["build", "--release", "--package", "server"];

/// Returns a command that runs the process tests whose names begin with `filter`, with the server
/// that was built with them.
pub(crate) fn process_tests(filter: &str) -> Command {
    // The same packages as in the part `tests`. Otherwise features would differ and everything
    // would be compiled again.
    process_tests_of("it", filter)
}

fn process_tests_of(target: &str, filter: &str) -> Command {
    linted(&[
        "test",
        "--workspace",
        "--no-fail-fast",
        "--test",
        target,
        filter,
    ])
}

/// Returns the build of the part `tests`. If other parts name the same packages, nothing is built
/// again with other features.
pub(crate) fn everything() -> Command {
    linted(&["build", "--workspace", "--all-targets"])
}

/// Returns a cargo command with clippy as the compiler of the workspace, so that code that is built
/// to be run is linted too. `cargo clippy` itself would compile everything a second time, including
/// libraries, without a result that can be run.
pub(crate) fn linted(words: &[&str]) -> Command {
    let mut command = cargo(words);
    command.env("RUSTC_WORKSPACE_WRAPPER", toolchain::clippy_driver());
    // As `cargo clippy -- -D warnings` passes it on.
    command.env(
        "CLIPPY_ARGS",
        "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
    );
    command
}

/// Returns a cargo command in the workspace.
#[must_use]
pub fn cargo(words: &[&str]) -> Command {
    // Set when cargo runs this program. Then the same cargo is used, not the first one in PATH.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(words).current_dir(workspace_root());
    command
}

/// Runs a command to its end.
///
/// # Errors
/// If it cannot be run or fails: `what`, and how.
pub(crate) fn done(command: &mut Command, what: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what}: {status}")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

/// Returns a command that runs this program with other arguments.
pub(crate) fn xtask(words: &[&str]) -> Command {
    let mut command = cargo(&["run", "--quiet", "--package", "xtask", "--"]);
    command.args(words);
    command
}

/// Returns the tests of the control log and of whole control groups under random faults. They are
/// optimised, because a seed then takes a tenth of the time.
pub(crate) fn whole_groups() -> Command {
    let mut test = cargo(&["test", "-p", "consensus", "--release", "--lib"]);
    test.args(["--", "--nocapture", "faults::", "under_faults"]);
    test
}

/// Returns the tests that plain `cargo test` leaves out because they take long or need more than
/// Rust.
pub(crate) fn ignored(filter: &str) -> Command {
    ignored_of("it", filter)
}

/// Returns the tests of clients that ask Sentinels for the primary, also after its loss.
pub(crate) fn sentinel_clients() -> Command {
    ignored_of("group", "sentinel_clients::")
}

/// Returns the same tests of another test target of the whole server.
fn ignored_of(target: &str, filter: &str) -> Command {
    let mut test = process_tests_of(target, filter);
    test.args(["--", "--ignored", "--nocapture", "--test-threads", "1"]);
    test
}

/// Returns the modules called `model`, under a model checker. They have their own target directory;
/// otherwise everything would be compiled again afterwards.
pub(crate) fn model(checker: &str, rooms: &[&str]) -> Command {
    let mut test = cargo(&["test", "--release", "--lib", "--no-fail-fast"]);
    test.args(rooms.iter().flat_map(|room| ["-p", room]));
    test.arg("model");
    test.env("RUSTFLAGS", format!("--cfg {checker}"));
    test.env("CARGO_TARGET_DIR", target_directory().join(checker));
    test
}

pub(crate) fn target_directory() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace_root().join("target"), std::path::PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_always_runs_stays_in_the_budget() {
        let always = |part: &&Part| matches!(part.when, When::Always);
        let sum: f64 = PARTS
            .iter()
            .filter(always)
            .map(|part| part.minutes_max)
            .sum();
        assert!(
            sum <= MINUTES_MAX + 1e-9,
            "{sum} minutes: move something to the soak"
        );
    }

    #[test]
    fn the_table_for_contributors_is_this_one() {
        let path = workspace_root().join("CONTRIBUTING.md");
        let text = std::fs::read_to_string(path).expect("the file is there");
        let table = budgets();
        assert!(
            text.contains(&table),
            "CONTRIBUTING.md should have\n{table}"
        );
    }
}
