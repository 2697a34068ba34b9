//! The parts of `cargo xtask test`: what each runs, what it needs, how long it may take.

use std::process::Command;

use crate::tools::{self, Tool};
use crate::{sanitize, workspace_root};

/// A part of the tests.
#[derive(Clone, Copy)]
pub struct Part {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub purpose: &'static str,
    /// Minutes it may take on two cores.
    pub minutes_max: f64,
    /// Programs it needs beyond Rust and a C compiler.
    pub needs: &'static [&'static Tool],
    /// What it runs, in order.
    pub commands: fn() -> Vec<Command>,
}

/// All parts, the quick ones first. Together they stay below 45 minutes on two cores.
pub const PARTS: &[Part] = &[
    Part {
        name: "format",
        purpose: "rustfmt",
        minutes_max: 0.5,
        needs: &[],
        commands: || vec![cargo(&["fmt", "--all", "--check"])],
    },
    Part {
        name: "tidy",
        purpose: "room edges, heads of modules, words, links, sizes",
        minutes_max: 0.5,
        needs: &[],
        commands: || vec![cargo(&["test", "-p", "xtask"])],
    },
    Part {
        name: "lints",
        purpose: "clippy, no warning; the server without TLS, too",
        minutes_max: 5.0,
        needs: &[&tools::CPP_COMPILER],
        commands: || {
            let words = [
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ];
            let bare = ["clippy", "-p", "server", "--no-default-features"];
            let bare = [&bare[..], &["--", "-D", "warnings"]].concat();
            vec![cargo(&words), cargo(&bare)]
        },
    },
    Part {
        name: "build",
        purpose: "the server",
        minutes_max: 4.0,
        needs: &[&tools::CPP_COMPILER],
        commands: || vec![cargo(&["build", "--workspace"])],
    },
    Part {
        name: "tests",
        purpose: "unit, property, transcript and process tests of all rooms",
        minutes_max: 10.0,
        needs: &[
            &tools::CPP_COMPILER,
            &tools::REDIS_SERVER,
            &tools::REDIS_TOOLS,
        ],
        commands: || vec![cargo(&["test", "--workspace", "--no-fail-fast"])],
    },
    Part {
        name: "docs",
        purpose: "rustdoc, no warning",
        minutes_max: 3.0,
        needs: &[&tools::CPP_COMPILER],
        commands: || {
            let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
            doc.env("RUSTDOCFLAGS", "-D warnings");
            vec![doc]
        },
    },
    Part {
        name: "loom",
        purpose: "models of shared memory, every interleaving",
        minutes_max: 6.0,
        needs: &[],
        commands: || vec![model("loom", &["store"])],
    },
    Part {
        name: "shuttle",
        purpose: "models of shared memory, random interleavings",
        minutes_max: 4.0,
        needs: &[],
        commands: || vec![model("shuttle", &["store", "durability"])],
    },
    Part {
        name: "big-endian",
        purpose: "the lower rooms where the high byte comes first, under QEMU",
        minutes_max: 10.0,
        needs: &[&tools::S390X_COMPILER],
        commands: || vec![xtask(&["big-endian", "qemu"])],
    },
    Part {
        name: "differential",
        purpose: "two million random commands, and schedules of several sessions, beside Redis",
        minutes_max: 10.0,
        needs: &[&tools::CPP_COMPILER, &tools::REDIS_SERVER],
        commands: || {
            let mut test = cargo(&["test", "-p", "server", "--test", "it", "differential::"]);
            test.args(["--", "--nocapture"]);
            test.env("DIFFERENTIAL_REQUESTS", "2000000");
            test.env("SCHEDULES_REQUESTS", "20000");
            vec![test]
        },
    },
    Part {
        name: "instructions",
        purpose: "instructions of a GET and a SET, by callgrind, against what is recorded",
        minutes_max: 6.0,
        needs: &[&tools::CPP_COMPILER, &tools::VALGRIND, &tools::REDIS_SERVER],
        commands: || vec![xtask(&["instructions"])],
    },
    Part {
        name: "fuzz",
        purpose: "mutated bytes into every decoder, under the address sanitizer",
        minutes_max: 9.0,
        needs: &[&tools::CPP_COMPILER],
        commands: || vec![xtask(&["fuzz"])],
    },
    Part {
        name: "sanitize",
        purpose: "rooms with unsafe code under the address sanitizer, stress under that of threads",
        minutes_max: 6.0,
        needs: &[],
        commands: sanitize::commands,
    },
    Part {
        name: "clients",
        purpose: "redis-cli, redis-benchmark, clients, and the queues, locks and limiters built on them",
        minutes_max: 5.0,
        needs: &[
            &tools::CPP_COMPILER,
            &tools::REDIS_TOOLS,
            &tools::PYTHON,
            &tools::NODE,
            &tools::GO,
            &tools::MAVEN,
        ],
        commands: || vec![ignored("clients::"), ignored("applications::")],
    },
    Part {
        name: "linearizability",
        purpose: "histories of four clients with transactions and watches, checked by porcupine",
        minutes_max: 4.0,
        needs: &[&tools::CPP_COMPILER, &tools::GO],
        commands: || vec![ignored("linearizability::")],
    },
    Part {
        name: "hostile",
        purpose: "a thousand bad clients beside a good one",
        minutes_max: 3.0,
        needs: &[&tools::CPP_COMPILER],
        commands: || vec![ignored("hostile::")],
    },
];

/// Cargo with these words, in the workspace.
#[must_use]
pub fn cargo(words: &[&str]) -> Command {
    // Set when cargo runs this program: the same cargo then, not the first one in PATH.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(words).current_dir(workspace_root());
    command
}

/// This program with other words.
fn xtask(words: &[&str]) -> Command {
    let mut command = cargo(&["run", "--quiet", "--package", "xtask", "--"]);
    command.args(words);
    command
}

/// Tests that plain `cargo test` leaves out because they need more than Rust, or long.
fn ignored(filter: &str) -> Command {
    let mut test = cargo(&["test", "-p", "server", "--test", "it", filter]);
    test.args(["--", "--ignored", "--nocapture", "--test-threads", "1"]);
    test
}

/// The modules called `model`, under a model checker. It has a target directory of its own, or
/// everything would be compiled anew afterwards.
fn model(checker: &str, rooms: &[&str]) -> Command {
    let mut test = cargo(&["test", "--release", "--lib"]);
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
