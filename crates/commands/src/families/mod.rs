//! The families of commands. Each family lists its rows; this list grows only with a new family.

use engine::spec::CommandSpec;

pub mod acl;
pub mod bitmaps;
pub mod cluster;
pub mod connection;
pub mod etags;
pub mod generic;
pub mod geo;
pub mod hashes;
pub mod hyper_log_log;
pub mod lists;
pub mod memcached;
pub mod pubsub;
pub mod scripting;
pub mod server;
pub mod sets;
pub mod sorted_sets;
pub mod streams;
pub mod strings;
pub mod transactions;

/// Family, theme, row.
const FAMILIES: &[&[&[CommandSpec]]] = &[
    &[strings::COMMANDS],
    &[bitmaps::COMMANDS],
    etags::COMMANDS,
    memcached::COMMANDS,
    lists::COMMANDS,
    sorted_sets::COMMANDS,
    geo::COMMANDS,
    generic::COMMANDS,
    hashes::COMMANDS,
    sets::COMMANDS,
    streams::COMMANDS,
    hyper_log_log::COMMANDS,
    connection::COMMANDS,
    server::COMMANDS,
    &[acl::COMMANDS],
    pubsub::COMMANDS,
    scripting::COMMANDS,
    &[cluster::COMMANDS],
    &[transactions::COMMANDS],
];

/// Returns every row, in the order of the families.
pub fn all() -> impl Iterator<Item = &'static CommandSpec> {
    FAMILIES.iter().copied().flatten().copied().flatten()
}
