//! The cluster as clients see it: which node serves which hash slots, how that changes, and the
//! keys of a slot.
//!
//! Whether this node serves a request is decided before it runs (`engine`'s `hash_slots`).

use engine::args::Args;
use engine::cluster::{ClusterSeen, DISABLED};
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::session::ClientRecord;
use engine::spec::{Arity, CommandSpec, Flags, Group, container};
use protocol::Reply;
use std::sync::Arc;

use crate::help as help_lines;

mod keys;
mod moves;
mod orders;
mod rows;
mod shown;
mod slot_stats;

const MODE: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::FAST);

const MEMBER: CommandSpec = CommandSpec {
    flags: Flags::FAST,
    group: Group::Cluster,
    categories: &["connection"],
    since: "3.0.0",
    ..CommandSpec::BLANK
};

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "CLUSTER",
        arity: Arity::AtLeast(2),
        flags: Flags::NONE,
        categories: &[],
        summary: "Tells about the cluster, and changes it.",
        complexity: "Depends on subcommand.",
        subcommands: rows::SUBCOMMANDS,
        handler: container,
        ..MEMBER
    },
    CommandSpec {
        name: "READONLY",
        flags: MODE,
        summary: "Lets a connection read from a replica of a cluster.",
        handler: |context, _args, reply| read_replicas(context, reply, true),
        ..MEMBER
    },
    CommandSpec {
        name: "READWRITE",
        flags: MODE,
        summary: "Ends READONLY.",
        handler: |context, _args, reply| read_replicas(context, reply, false),
        ..MEMBER
    },
    CommandSpec {
        name: "ASKING",
        summary: "Announces a redirected command: taken, as no slot is ever half moved.",
        handler: |context, _args, reply| {
            admit(context)?;
            reply.ok();
            Ok(())
        },
        ..MEMBER
    },
];

fn read_replicas(context: &Context<'_>, reply: &mut Reply<'_>, on: bool) -> CommandResult {
    admit(context)?;
    let client = &context.session.client;
    client.set_flag(ClientRecord::READS_REPLICAS, on);
    reply.ok();
    Ok(())
}

/// Returns an error if there is no cluster.
fn admit(context: &Context<'_>) -> CommandResult {
    if context.shared.hash_slots.is_on() && !context.session.forwards {
        Ok(())
    } else {
        Err(DISABLED)
    }
}

/// Returns the cluster as this node sees it.
fn seen(context: &mut Context<'_>) -> Result<Arc<ClusterSeen>, CommandError> {
    let seen = context.server.cluster();
    seen.filter(|_| !context.session.forwards).ok_or(DISABLED)
}

/// Parses the next argument as a slot number.
fn slot_arg(args: &mut Args<'_>) -> Result<u16, CommandError> {
    slot(args.bytes()?).ok_or(CommandError::fixed("ERR Invalid or out of range slot"))
}

/// Parses a slot number.
fn slot(bytes: &[u8]) -> Option<u16> {
    let number = u16::try_from(base::number::parse_i64(bytes)?).ok()?;
    (usize::from(number) < base::hash_slot::HASH_SLOTS).then_some(number)
}

/// Returns an error whose text repeats what the client sent.
fn about(before: &str, arg: &[u8], after: &str) -> CommandError {
    CommandError::Bytes([before.as_bytes(), arg, after.as_bytes()].concat())
}

fn help(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    admit(context)?;
    help_lines::write(reply, "CLUSTER", HELP)
}

const HELP: &[&str] = &[
    "CANCELSLOTMIGRATIONS",
    "    Give up all moves of slots from this node.",
    "COUNTKEYSINSLOT <slot>",
    "    Return the number of keys in <slot>.",
    "GETKEYSINSLOT <slot> <count>",
    "    Return key names stored by current node in a slot.",
    "GETSLOTMIGRATIONS",
    "    Return the moves of slots from and to this node.",
    "INFO",
    "    Return information about the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "MIGRATESLOTS SLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...] NODE <node-id>",
    "    Move slots of this node to another one.",
    "MIGRATION IMPORT <start slot> <end slot> [<start slot> <end slot> ...] | STATUS [ID <id>|ALL] | CANCEL (ID <id>|ALL)",
    "    Move slots of another node to this one, show moves and give them up.",
    "MYID",
    "    Return the node id.",
    "MYSHARDID",
    "    Return the node's shard id.",
    "NODES",
    "    Return cluster configuration seen by node. Output format:",
    "    <id> <ip:port@bus-port[,hostname]> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ...",
    "REPLICAS <node-id>",
    "    Return <node-id> replicas.",
    "SLOTS",
    "    Return information about slots range mappings. Each range is made of:",
    "    start, end, master and replicas IP addresses, ports and ids",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "SLOT-STATS SLOTSRANGE <start-slot> <end-slot> | ORDERBY <metric> [LIMIT <limit>] [ASC|DESC]",
    "    Return key counts of slots.",
    "LINKS",
    "    Return information about all network links between this node and its peers.",
    "ADDSLOTS <slot> [<slot> ...]",
    "    Assign slots to current node.",
    "ADDSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Assign slots which are between <start-slot> and <end-slot> to current node.",
    "BUMPEPOCH",
    "    Advance the cluster config epoch.",
    "COUNT-FAILURE-REPORTS <node-id>",
    "    Return number of failure reports for <node-id>.",
    "DELSLOTS <slot> [<slot> ...]",
    "    Delete slots information from current node.",
    "DELSLOTSRANGE <start slot> <end slot> [<start slot> <end slot> ...]",
    "    Delete slots information which are between <start-slot> and <end-slot> from current node.",
    "FAILOVER [FORCE|TAKEOVER]",
    "    Promote current replica node to being a master.",
    "FORGET <node-id>",
    "    Remove a node from the cluster.",
    "FLUSHSLOTS",
    "    Delete current node own slots information.",
    "MEET <ip> <port> [<bus-port>]",
    "    Connect nodes into a working cluster.",
    "REPLICATE <node-id>",
    "    Configure current node as replica to <node-id>.",
    "RESET [HARD|SOFT]",
    "    Reset current node (default: soft).",
    "SET-CONFIG-EPOCH <epoch>",
    "    Set config epoch of current node.",
    "SETSLOT <slot> (IMPORTING <node-id>|MIGRATING <node-id>|STABLE|NODE <node-id>)",
    "    Set slot state.",
    "SAVECONFIG",
    "    Force saving cluster configuration on disk.",
];

#[cfg(test)]
mod tests;
