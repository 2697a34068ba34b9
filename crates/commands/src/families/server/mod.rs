//! Commands about the server itself.

use engine::spec::CommandSpec;

mod command;
mod config;
mod debug;
mod debug_replies;
mod digest;
mod docs;
mod hot_keys;
mod latency;
mod logs;
mod memory;
mod monitor;
mod populate;
mod replication;
mod saves;
mod state;
mod tier;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[
    command::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    hot_keys::COMMANDS,
    latency::COMMANDS,
    logs::COMMANDS,
    memory::COMMANDS,
    monitor::COMMANDS,
    replication::COMMANDS,
    saves::COMMANDS,
    state::COMMANDS,
    tier::COMMANDS,
];
