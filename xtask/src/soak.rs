//! `cargo xtask soak [HOURS] [PART...]`: runs what takes too long for the gate, with fresh seeds,
//! round after round.
//!
//! A round runs every part once. Each part of each round has its own seed from the system's random
//! numbers. The seed is shown before the part begins, with the command that runs the part with it
//! again. A failed part does not stop the others. When the time is up, the figures are shown and
//! added to `target/soak/record.md`, with date, commit and command.
//!
//! Loom and Miri are exhaustive, whatever the seed. The system schedules threads and processes:
//! with the same seed they get the same requests, but not the same interleaving.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Duration;

use crate::changed::git;
use crate::instructions::bare_directory;
use crate::parts::{self, SHIPPED, cargo, target_directory};
use crate::run::{now, succeeds};
use crate::sanitize;
use crate::tools::{self, Tool};

/// A part of the soak.
pub struct SoakPart {
    /// Name on the command line.
    pub name: &'static str,
    /// What the part shows.
    pub purpose: &'static str,
    needs: &'static [&'static Tool],
    /// The commands of one round. The seed is for those that do not take it from the environment.
    commands: fn(seed: &str) -> Vec<Command>,
}

/// Environment variables from which tests take their seed.
const SEEDS: &[&str] = &[
    "SIMULATION_SEED",
    "FIRST_SEED",
    "LOG_POWER_SEED",
    "LEDGER_SEED",
    "DIFFERENTIAL_SEED",
    "SCHEDULES_SEED",
    "EFFECTS_SEED",
    "EVENTS_SEED",
    "CONCATENATIONS_SEED",
    "LINEARIZABILITY_SEED",
    "HOSTILE_SEED",
    "CHURN_SEED",
    "LOG_LIFE_SEED",
    "MIGRATION_SEED",
    "REPLICATION_FAULTS_SEED",
    "CLUSTER_FAULTS_SEED",
    "PROPTEST_RNG_SEED",
    "SHUTTLE_RANDOM_SEED",
];

/// Environment variables that enlarge a round, compared with the gate.
const AMOUNTS: &[(&str, &str)] = &[
    ("SIMULATION_SEEDS", "20000"),
    ("SEEDS", "20000"),
    ("LOG_POWER_SEEDS", "500"),
    ("LOG_LIFE_SEEDS", "5000"),
    ("LEDGER_CYCLES", "100"),
    ("TIER_KILLS", "1000"),
    ("POWER_CUTS", "100"),
    ("DIFFERENTIAL_REQUESTS", "4000000"),
    ("SCHEDULES_REQUESTS", "100000"),
    ("EFFECTS_SEQUENCES", "2000"),
    ("EVENTS_ROUNDS", "400"),
    ("CONCATENATIONS", "2000"),
    ("PROPTEST_CASES", "4096"),
    ("CHURN_SECONDS", "120"),
    ("GROUP_KILLS", "200"),
    ("STRANGERS", "20000"),
    ("MIGRATION_KILLS", "300"),
    ("REPLICATION_FAULTS", "200"),
    ("CLUSTER_FAULTS", "300"),
    ("SLOT_MOVES", "20"),
];

/// Seconds for which each fuzz target runs in a round.
const FUZZ_SECONDS: &str = "60";
const CHURN_SECONDS: &str = "120";

/// All parts, those that find most first.
pub const PARTS: &[SoakPart] = &[
    SoakPart {
        name: "simulation",
        purpose: "store, log and recovery in one thread, with power cuts and failing operations",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let log = cargo(&["test", "-p", "durability", "power"]);
            let log_life = cargo(&["test", "-p", "persistence", "--test", "log_life"]);
            vec![parts::process_tests("simulation::what"), log, log_life]
        },
    },
    SoakPart {
        name: "differential",
        purpose: "four million random commands, schedules, events and effects, beside Redis",
        needs: &[&tools::CPP_COMPILER, &tools::REDIS_SERVER],
        commands: |_| {
            let random = parts::process_tests("differential::the_built_server");
            let schedules = parts::process_tests("differential::sessions_hear");
            let commands = ["test", "-p", "commands", "--test", "it"];
            let mut events = cargo(&commands);
            events.args(["random_requests_state", "--", "--nocapture"]);
            let mut effects = cargo(&commands);
            effects.arg("effects_of_random_commands");
            let scripts = cargo(&["test", "-p", "scripting", "random_concatenations"]);
            vec![random, schedules, events, effects, scripts]
        },
    },
    SoakPart {
        name: "fuzz",
        purpose: "each target a minute; what reaches something new is kept in fuzz/grown",
        needs: &[&tools::CPP_COMPILER],
        commands: |seed| vec![parts::xtask(&["fuzz", "grow", FUZZ_SECONDS, seed])],
    },
    SoakPart {
        name: "properties",
        purpose: "properties of the rooms, 4,096 cases each",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let mut test = cargo(&["test", "--release", "--lib"]);
            for room in ["base", "protocol", "structures", "rdb", "store"] {
                test.args(["-p", room]);
            }
            vec![test]
        },
    },
    SoakPart {
        name: "instructions",
        purpose: "instructions of a GET and a SET of the build that is published",
        needs: &[&tools::CPP_COMPILER, &tools::VALGRIND, &tools::REDIS_SERVER],
        commands: |_| vec![parts::xtask(&["instructions", "dist"])],
    },
    SoakPart {
        name: "bare",
        purpose: "the server without features: instructions of a GET and a SET; it is small and has nothing of tests",
        needs: &[&tools::CPP_COMPILER, &tools::VALGRIND, &tools::REDIS_SERVER],
        commands: |_| {
            let mut shipped = parts::process_tests("shipped::");
            shipped.env("SERVER_BIN", bare_directory().join("release/iolite"));
            vec![parts::xtask(&["instructions"]), shipped]
        },
    },
    SoakPart {
        name: "kills",
        purpose: "the process killed while clients write; what was acknowledged comes back",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| vec![parts::process_tests("ledger::nothing")],
    },
    SoakPart {
        name: "tier-kills",
        purpose: "the process killed 1,000 times while its values leave memory after every command",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let mut kills = parts::process_tests("ledger::a_kill_with_a_tier");
            kills.args(["--", "--nocapture"]);
            vec![kills]
        },
    },
    SoakPart {
        name: "migration-kills",
        purpose: "a migration killed 300 times while its source is written to; the target has what the source has",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            vec![parts::process_tests(
                "migrations::a_migration_that_is_killed",
            )]
        },
    },
    SoakPart {
        name: "replication-faults",
        purpose: "200 faults between a primary, its replicas, one of a replica's and redis-server; all have the same after each (some need root and loop devices)",
        needs: &[&tools::CPP_COMPILER, &tools::REDIS_SERVER],
        commands: |seed| {
            let mut faults = parts::ignored("own_link::random_faults::");
            faults.env("REPLICATION_FAULTS_SEED", seed);
            vec![faults]
        },
    },
    SoakPart {
        name: "cluster-faults",
        purpose: "300 faults among six nodes while clients write and hash slots move; nothing lost or doubled, one owner of each slot",
        needs: &[&tools::CPP_COMPILER],
        commands: |seed| {
            let mut faults = cargo(&["test", "-p", "server", "--test", "group", "six_nodes::"]);
            faults.args(["--", "--nocapture"]);
            faults.env("CLUSTER_FAULTS_SEED", seed);
            vec![faults, parts::process_tests("slot_moves::all_moves")]
        },
    },
    SoakPart {
        name: "failovers",
        purpose: "the primary of a control group killed 200 times; how long until another one takes writes. Nodes of a cluster killed 300 times",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let mut kills = cargo(&["test", "-p", "server", "--test", "group", "kills::"]);
            kills.args(["--", "--ignored", "--nocapture"]);
            let mut clusters = cargo(&["test", "-p", "server", "--test", "group"]);
            clusters.arg("what_a_majority_of_a_shard");
            clusters.env("GROUP_KILLS", "300");
            vec![kills, clusters]
        },
    },
    SoakPart {
        name: "histories",
        purpose: "what clients see at quorum over failovers and moves of hash slots; the control log, and whole groups on it, under 100,000 seeds each; slots that move and copies that go over, searched",
        needs: &[&tools::CPP_COMPILER],
        commands: |seed| {
            let mut histories = cargo(&["test", "-p", "server", "--test", "group", "histories::"]);
            histories.args(["--", "--nocapture", "--test-threads", "1"]);
            histories
                .env("HISTORIES", "100")
                .env("HISTORY_OPERATIONS", "10000");
            let mut control = parts::whole_groups();
            control
                .env("CONSENSUS_FIRST_SEED", seed)
                .env("CONSENSUS_SEEDS", "100000");
            let mut models = cargo(&["test", "-p", "cluster", "--release"]);
            models.args(["--test", "slot_move_model", "--test", "replace_model"]);
            models.args(["--", "--ignored", "--nocapture"]);
            vec![histories, control, models]
        },
    },
    SoakPart {
        name: "power-cuts",
        purpose: "a file system that is shut down under the server (needs root and loop devices)",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| vec![parts::process_tests("power_cuts::a_power_cut")],
    },
    SoakPart {
        name: "planted",
        purpose: "mistakes that servers are made to make, and the tests that have to find them (one needs loop devices); histories by clocks that drift",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let mut planted = cargo(&["test", "-p", "server", "--features", "planted"]);
            planted.args(["--test", "it", "planted::", "--", "--ignored"]);
            // The server that was built with the tests.
            let server = target_directory().join("debug/iolite");
            planted.env("SERVER_BIN", &server);
            let mut drifting = cargo(&["test", "-p", "server", "--features", "planted"]);
            drifting.args(["--test", "group", "clocks_that_drift", "--", "--ignored"]);
            drifting.arg("--nocapture").env("SERVER_BIN", server);
            drifting
                .env("HISTORIES", "20")
                .env("HISTORY_OPERATIONS", "10000");
            vec![planted, drifting]
        },
    },
    SoakPart {
        name: "linearizability",
        purpose: "histories of four clients with transactions and watches, checked by porcupine",
        needs: &[&tools::CPP_COMPILER, &tools::GO],
        commands: |_| vec![parts::ignored("linearizability::")],
    },
    SoakPart {
        name: "sentinel-clients",
        purpose: "clients of Sentinels follow when the primary of a group is killed, and when it hands over",
        needs: &[
            &tools::CPP_COMPILER,
            &tools::PYTHON,
            &tools::NODE,
            &tools::GO,
            &tools::MAVEN,
        ],
        commands: |_| vec![parts::sentinel_clients()],
    },
    SoakPart {
        name: "hostile",
        purpose: "a thousand bad clients beside a good one; strangers at the ports of links of a group",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let strangers = ["test", "-p", "server", "--test", "group", "strangers::"];
            vec![parts::ignored("hostile::"), cargo(&strangers)]
        },
    },
    SoakPart {
        name: "sanitize",
        purpose: "rooms with unsafe code under the sanitizers of addresses and threads",
        needs: &[],
        commands: |_| sanitize::commands(),
    },
    SoakPart {
        name: "churn",
        purpose: "clients that come, wait and go, beside a server under each sanitizer",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let churn = |sanitizer| parts::xtask(&["churn", sanitizer, CHURN_SECONDS]);
            vec![churn("address"), churn("thread")]
        },
    },
    SoakPart {
        name: "loom",
        purpose: "models of shared memory, every interleaving",
        needs: &[],
        commands: |_| vec![parts::model("loom", &["store"])],
    },
    SoakPart {
        name: "shuttle",
        purpose: "models of shared memory, random interleavings",
        needs: &[],
        commands: |_| vec![parts::model("shuttle", &["store", "durability"])],
    },
    SoakPart {
        name: "flakes",
        purpose: "tests of the whole server, those that are quick 20 times, beside threads that keep all cores busy",
        needs: &[&tools::CPP_COMPILER, &tools::REDIS_SERVER],
        commands: |_| vec![parts::xtask(&["flakes", "20"])],
    },
    SoakPart {
        name: "lints",
        purpose: "clippy, no warning, where the gate has no time for it: benchmarks, and the server without features",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let mut all = cargo(&["clippy", "--workspace", "--all-targets"]);
            all.args(["--", "-D", "warnings"]);
            let mut bare = cargo(&["clippy", "-p", "server", "--no-default-features"]);
            bare.args(["--", "-D", "warnings"]);
            vec![all, bare]
        },
    },
    SoakPart {
        name: "chart",
        purpose: "the chart for Kubernetes, linted and rendered by Helm; its objects decoded strictly, and what they say to each other",
        needs: &[&tools::GO],
        commands: |_| vec![parts::xtask(&["check-chart"])],
    },
    SoakPart {
        name: "workflows",
        purpose: "the workflow that makes a release, linted",
        needs: &[&tools::GO, &tools::SHELLCHECK],
        commands: |_| vec![parts::xtask(&["check-workflows"])],
    },
    SoakPart {
        name: "docs",
        purpose: "rustdoc, no warning",
        needs: &[&tools::CPP_COMPILER],
        commands: |_| {
            let mut doc = cargo(&[
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
            ]);
            // Whoever reads these pages reads the private items as well.
            doc.env(
                "RUSTDOCFLAGS",
                "-D warnings -A rustdoc::private_intra_doc_links",
            );
            vec![doc]
        },
    },
    SoakPart {
        name: "big-endian",
        purpose: "the lower rooms where the high byte comes first: QEMU, and Miri where it is installed",
        needs: &[&tools::S390X_COMPILER],
        commands: |_| vec![parts::xtask(&["big-endian"])],
    },
];

/// The arguments of the soak.
pub struct Request {
    hours: f64,
    seed: Option<u64>,
    parts: Vec<&'static SoakPart>,
}

impl Request {
    /// Parses `[HOURS] [PART...] [--seed N]`. The default is one hour and all parts. With a seed,
    /// one round is run.
    ///
    /// # Errors
    /// A word that is none of these.
    pub fn read(words: &[&str]) -> Result<Self, String> {
        let mut request = Self {
            hours: 1.0,
            seed: None,
            parts: Vec::new(),
        };
        let mut words = words.iter().peekable();
        if let Some(hours) = words.peek().and_then(|word| word.parse().ok()) {
            request.hours = hours;
            words.next();
        }
        while let Some(&word) = words.next() {
            if word == "--seed" {
                let seed = words.next().and_then(|word| word.parse().ok());
                request.seed = Some(seed.ok_or("--seed takes a number")?);
                continue;
            }
            let part = PARTS.iter().find(|part| part.name == word);
            request
                .parts
                .push(part.ok_or_else(|| format!("no part of the soak is called {word}"))?);
        }
        if request.parts.is_empty() {
            request.parts = PARTS.iter().collect();
        }
        Ok(request)
    }
}

/// The results of a part over all rounds.
#[derive(Clone, Default)]
struct Tally {
    rounds: u32,
    took: Duration,
    failed_seeds: Vec<u64>,
    left_out: Option<String>,
}

/// Runs the soak.
///
/// # Errors
/// Which parts failed, and with which seeds.
pub fn run(request: &Request) -> Result<(), String> {
    if !succeeds(cargo(SHIPPED).env("KEEP_SYMBOLS", "yes")) {
        return Err("the server does not build".to_owned());
    }
    let time =
        Duration::try_from_secs_f64(request.hours * 3600.0).map_err(|error| error.to_string())?;
    let begin = now();
    let mut tallies = vec![Tally::default(); request.parts.len()];
    'rounds: loop {
        for (part, tally) in request.parts.iter().zip(&mut tallies) {
            let seed = match request.seed {
                Some(seed) => seed,
                None => fresh_seed()?,
            };
            round(part, seed, tally);
            if request.seed.is_none() && begin.elapsed() >= time {
                break 'rounds;
            }
        }
        let is_any_run = tallies.iter().any(|tally| tally.left_out.is_none());
        if request.seed.is_some() || !is_any_run {
            break;
        }
    }
    let record = record(request, &tallies);
    println!("\n{record}");
    keep(&record).map_err(|error| format!("the record cannot be kept: {error}"))?;
    let parts = request.parts.iter().zip(&tallies);
    let failed = parts.filter(|(_, tally)| !tally.failed_seeds.is_empty());
    let failed: Vec<String> = failed
        .map(|(part, tally)| format!("{} failed with seeds {:?}", part.name, tally.failed_seeds))
        .collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\n")),
    }
}

fn round(part: &SoakPart, seed: u64, tally: &mut Tally) {
    let missing = part.needs.iter().find_map(|tool| tool.ensure().err());
    if missing.is_some() {
        tally.left_out = missing;
        return;
    }
    println!("\n== {}: {}; seed {seed}", part.name, part.purpose);
    println!(
        "to see it again: cargo xtask soak {} --seed {seed}",
        part.name
    );
    let begin = now();
    let text = seed.to_string();
    let is_good = (part.commands)(&text).iter_mut().all(|command| {
        command.envs(AMOUNTS.iter().copied());
        command.envs(SEEDS.iter().map(|name| (name, &text)));
        // The shipped server, unless the part names another one.
        if command.get_envs().all(|(name, _)| name != "SERVER_BIN") {
            command.env("SERVER_BIN", target_directory().join("release/iolite"));
        }
        succeeds(command)
    });
    tally.rounds += 1;
    tally.took += begin.elapsed();
    if !is_good {
        tally.failed_seeds.push(seed);
        println!("FAILED: {} with seed {seed}", part.name);
    }
}

/// Returns a random number of 31 bits, because tests count up from it.
fn fresh_seed() -> Result<u64, String> {
    let mut bytes = [0; 4];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| format!("no random numbers: {error}"))?;
    Ok(u64::from(u32::from_be_bytes(bytes) >> 1))
}

fn record(request: &Request, tallies: &[Tally]) -> String {
    let date = Command::new("date").args(["-u", "+%F %H:%M"]).output();
    let date = date.map(|output| output.stdout).unwrap_or_default();
    let date = String::from_utf8_lossy(&date).trim().to_owned();
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_default();
    let seed = request.seed.map(|seed| format!(" --seed {seed}"));
    let names: Vec<&str> = request.parts.iter().map(|part| part.name).collect();
    let mut text = format!(
        "## {date} UTC, commit {commit}\n\n`cargo xtask soak {} {}{}`\n\n\
         | part | rounds | minutes | failed with seeds |\n|---|---|---|---|\n",
        request.hours,
        names.join(" "),
        seed.unwrap_or_default()
    );
    for (part, tally) in request.parts.iter().zip(tallies) {
        let minutes = tally.took.as_secs_f64() / 60.0;
        let (name, rounds) = (part.name, tally.rounds);
        let end = match &tally.left_out {
            Some(missing) => format!("left out, missing: {missing}"),
            None if tally.failed_seeds.is_empty() => "none".to_owned(),
            None => format!("{:?}", tally.failed_seeds),
        };
        writeln!(text, "| {name} | {rounds} | {minutes:.1} | {end} |")
            .expect("a String takes any text");
    }
    text
}

fn keep(record: &str) -> std::io::Result<()> {
    let directory = target_directory().join("soak");
    fs::create_dir_all(&directory)?;
    let path = directory.join("record.md");
    let mut file = File::options().create(true).append(true).open(path)?;
    writeln!(file, "{record}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_parts_and_a_seed_are_read() {
        let request = Request::read(&["2.5", "fuzz", "kills", "--seed", "7"]).expect("good words");
        assert_eq!((request.hours, request.seed), (2.5, Some(7)));
        let names: Vec<&str> = request.parts.iter().map(|part| part.name).collect();
        assert_eq!(names, ["fuzz", "kills"]);
        let all = Request::read(&[]).expect("nothing is good");
        assert_eq!((all.hours, all.parts.len()), (1.0, PARTS.len()));
        assert!(Request::read(&["nonsense"]).is_err());
        assert!(Request::read(&["--seed"]).is_err());
    }
}
