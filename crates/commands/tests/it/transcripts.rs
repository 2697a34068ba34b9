//! Every command and subcommand has a transcript, and every transcript a family.

use std::path::PathBuf;

use engine::{CommandSpec, Group};

/// Returns the path of a row's transcript.
pub(crate) fn path(spec: &CommandSpec, container: Option<&CommandSpec>) -> PathBuf {
    let name = container.map_or_else(
        || spec.name.to_lowercase(),
        |container| format!("{}-{}", container.name, spec.name).to_lowercase(),
    );
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/transcripts")
        .join(family(container.unwrap_or(spec)))
        .join(format!("{name}.txt"))
}

/// Returns the folder of a row's family.
pub(crate) fn family(spec: &CommandSpec) -> &'static str {
    if spec.name == "ACL" {
        return "acl";
    }
    // These are about keys, though the documentation groups them elsewhere.
    if matches!(
        spec.name,
        "DBSIZE" | "FLUSHDB" | "FLUSHALL" | "SWAPDB" | "SELECT"
    ) {
        return "generic";
    }
    match spec.group {
        Group::Generic => "generic",
        Group::String => "strings",
        Group::Bitmap => "bitmaps",
        Group::Hash => "hashes",
        Group::Set => "sets",
        Group::Connection => "connection",
        Group::Server => "server",
        Group::Cluster => "cluster",
        Group::List => "lists",
        Group::SortedSet => "sorted_sets",
        Group::Stream => "streams",
        Group::HyperLogLog => "hyperloglog",
        Group::Geo => "geo",
        Group::Transactions => "transactions",
        Group::PubSub => "pubsub",
        Group::Scripting => "scripting",
    }
}

#[test]
fn every_row_has_a_transcript() {
    let mut missing = Vec::new();
    for spec in testkit::table().commands() {
        let subcommands = spec.subcommands.iter().map(|row| path(row, Some(spec)));
        let paths = std::iter::once(path(spec, None)).chain(subcommands);
        missing.extend(paths.filter(|path| !path.exists()));
    }
    assert!(missing.is_empty(), "no transcripts: {missing:#?}");
}
