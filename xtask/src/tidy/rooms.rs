//! Edges between rooms: which package may use which.

use super::sources::Source;

/// The rooms that each room may use, as in the table of docs/ARCHITECTURE.md. A new edge needs a
/// decision.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("access", &["base"]),
    ("protocol", &["base"]),
    ("reactor", &["base"]),
    ("structures", &["base"]),
    ("durability", &["base"]),
    ("replication", &["base", "durability"]),
    ("tier", &["base", "durability"]),
    ("cluster", &["base", "durability"]),
    ("consensus", &["base", "durability", "cluster"]),
    ("rdb", &["base", "structures"]),
    ("scripting", &["base"]),
    ("store", &["base", "structures"]),
    (
        "engine",
        &[
            "base",
            "access",
            "protocol",
            "structures",
            "rdb",
            "store",
            "scripting",
        ],
    ),
    (
        "commands",
        &[
            "base",
            "access",
            "protocol",
            "structures",
            "rdb",
            "store",
            "engine",
        ],
    ),
    ("console", &["access", "base", "protocol"]),
    ("memcached", &["base", "protocol"]),
    ("tls", &["base", "reactor"]),
    (
        "tool",
        &[
            "base",
            "protocol",
            "reactor",
            "tls",
            "rdb",
            "structures",
            "durability",
        ],
    ),
    (
        "persistence",
        &[
            "base",
            "protocol",
            "structures",
            "rdb",
            "durability",
            "store",
            "tier",
            "engine",
        ],
    ),
    (
        "server",
        &[
            "persistence",
            "cluster",
            "consensus",
            "replication",
            "base",
            "access",
            "protocol",
            "reactor",
            "structures",
            "rdb",
            "durability",
            "store",
            "tier",
            "scripting",
            "engine",
            "commands",
            "console",
            "memcached",
            "tls",
            "tool",
        ],
    ),
    (
        "testkit",
        &[
            "persistence",
            "base",
            "protocol",
            "reactor",
            "structures",
            "rdb",
            "durability",
            "store",
            "scripting",
            "engine",
            "commands",
            "server",
        ],
    ),
    ("xtask", &[]),
];

/// The room that only tests may use.
const TESTKIT: &str = "testkit";

pub(super) fn faults(sources: &[Source]) -> Vec<String> {
    let manifests = sources.iter().filter_map(|source| {
        let path = source.path.strip_suffix("/Cargo.toml")?;
        let room = path
            .strip_prefix("crates/")
            .or_else(|| (path == "xtask").then_some("xtask"))?;
        Some((room, source))
    });
    manifests
        .flat_map(|(room, source)| manifest_faults(room, source))
        .collect()
}

fn manifest_faults(room: &str, source: &Source) -> Vec<String> {
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{}:1: no room is called {room}", source.path)];
    };
    let mut section = "";
    let mut faults = Vec::new();
    for (number, line) in source.lines() {
        if let Some(header) = line.trim().strip_prefix('[') {
            section = header.trim_end_matches(']');
            continue;
        }
        let Some(used) = used_room(line) else {
            continue;
        };
        let is_dev = section.ends_with("dev-dependencies");
        let is_edge = section.ends_with("dependencies");
        // A room's tests may use the room itself, with features that only tests have.
        let is_for_tests = is_dev && (used == TESTKIT || used == room);
        let is_allowed = allowed.contains(&used) || is_for_tests;
        if is_edge && !is_allowed {
            let path = &source.path;
            faults.push(format!("{path}:{number}: {room} may not use {used}"));
        }
    }
    faults
}

/// Returns the room that a line of a manifest's dependencies names.
fn used_room(line: &str) -> Option<&'static str> {
    let name = line.split(['=', '.', ' ']).next()?.trim();
    EDGES
        .iter()
        .map(|(room, _)| *room)
        .find(|room| *room == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        faults(&[Source {
            path: path.to_owned(),
            text: text.to_owned(),
        }])
    }

    #[test]
    fn edges_that_are_not_in_the_table_are_faults() {
        let good =
            "[dependencies]\nbase.workspace = true\n[dev-dependencies]\ntestkit.workspace = true\n";
        assert!(check("crates/protocol/Cargo.toml", good).is_empty());
        let own = "[dev-dependencies]\nprotocol = { workspace = true, features = [\"x\"] }\n";
        assert!(check("crates/protocol/Cargo.toml", own).is_empty());
        let bad = "[dependencies]\nstore = { workspace = true }\n";
        let expected = "crates/protocol/Cargo.toml:2: protocol may not use store";
        assert_eq!(check("crates/protocol/Cargo.toml", bad), [expected]);
        let shipped = "[dependencies]\ntestkit.workspace = true\n";
        assert_eq!(check("crates/server/Cargo.toml", shipped).len(), 1);
        assert_eq!(check("crates/attic/Cargo.toml", "").len(), 1);
    }
}
