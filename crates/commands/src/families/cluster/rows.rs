//! The subcommands of CLUSTER.

use engine::spec::{Arity, CommandSpec, Deprecation, Flags, Group};

use super::{keys, moves, orders, shown, slot_stats};

/// The base row of queries.
const READER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::STALE,
    group: Group::Cluster,
    since: "3.0.0",
    ..CommandSpec::BLANK
};

/// The base row of commands that tell clients where to go. A replica that loads its primary's data
/// knows that too, and clients may ask only this replica.
const GUIDE: CommandSpec = CommandSpec {
    flags: Flags::STALE.with(Flags::LOADING),
    ..READER
};

/// The base row of commands that change the cluster.
const STEERER: CommandSpec = CommandSpec {
    flags: Flags::ADMIN
        .with(Flags::STALE)
        .with(Flags::NO_ASYNC_LOADING),
    ..READER
};

const VARIES: &[&str] = &["nondeterministic_output"];

pub(super) const SUBCOMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ADDSLOTS",
        handler: orders::add_slots,
        arity: Arity::AtLeast(3),
        summary: "Gives slots to this node.",
        complexity: "O(N) where N is the total number of hash slot arguments",
        syntax: "slot:integer [slot:integer ...]",
        ..STEERER
    },
    CommandSpec {
        name: "ADDSLOTSRANGE",
        handler: orders::add_slots_range,
        arity: Arity::AtLeast(4),
        since: "7.0.0",
        summary: "Gives ranges of slots to this node.",
        complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        syntax: "start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]",
        ..STEERER
    },
    CommandSpec {
        name: "BUMPEPOCH",
        handler: orders::bump_epoch,
        summary: "Raises the epoch of this node's configuration.",
        tips: VARIES,
        ..STEERER
    },
    CommandSpec {
        name: "CANCELSLOTMIGRATIONS",
        handler: moves::cancel_slot_migrations,
        since: "9.0.0",
        summary: "Gives up all moves of slots from this node.",
        ..STEERER
    },
    CommandSpec {
        name: "COUNT-FAILURE-REPORTS",
        handler: shown::count_failure_reports,
        arity: Arity::Exactly(3),
        flags: Flags::ADMIN.with(Flags::STALE),
        summary: "Counts the reports that a node fails.",
        complexity: "O(N) where N is the number of failure reports",
        syntax: "node-id",
        tips: VARIES,
        ..READER
    },
    CommandSpec {
        name: "COUNTKEYSINSLOT",
        handler: keys::count_in_slot,
        arity: Arity::Exactly(3),
        summary: "Counts the keys of a slot.",
        syntax: "slot:integer",
        ..READER
    },
    CommandSpec {
        name: "DELSLOTS",
        handler: orders::del_slots,
        arity: Arity::AtLeast(3),
        summary: "Takes slots from this node.",
        complexity: "O(N) where N is the total number of hash slot arguments",
        syntax: "slot:integer [slot:integer ...]",
        ..STEERER
    },
    CommandSpec {
        name: "DELSLOTSRANGE",
        handler: orders::del_slots_range,
        arity: Arity::AtLeast(4),
        since: "7.0.0",
        summary: "Takes ranges of slots from this node.",
        complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        syntax: "start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...]",
        ..STEERER
    },
    CommandSpec {
        name: "FAILOVER",
        handler: orders::fail_over,
        arity: Arity::AtLeast(2),
        summary: "Has a replica take the place of its primary.",
        syntax: "[FORCE | TAKEOVER]",
        ..STEERER
    },
    CommandSpec {
        name: "FLUSHSLOTS",
        handler: orders::flush_slots,
        summary: "Takes all slots from this node.",
        ..STEERER
    },
    CommandSpec {
        name: "FORGET",
        handler: orders::forget,
        arity: Arity::Exactly(3),
        summary: "Removes a node from those that are known.",
        syntax: "node-id",
        ..STEERER
    },
    CommandSpec {
        name: "GETKEYSINSLOT",
        handler: keys::in_slot,
        arity: Arity::Exactly(4),
        summary: "Lists keys of a slot.",
        complexity: "O(log(N)) where N is the number of requested keys",
        syntax: "slot:integer count:integer",
        tips: VARIES,
        ..READER
    },
    CommandSpec::help(Group::Cluster, "5.0.0", super::help),
    CommandSpec {
        name: "GETSLOTMIGRATIONS",
        handler: moves::get_slot_migrations,
        since: "9.0.0",
        summary: "Tells of the moves of slots from and to this node.",
        complexity: "O(N), where N is the number of moves",
        ..STEERER
    },
    CommandSpec {
        name: "INFO",
        handler: shown::info,
        summary: "Tells the state of the cluster.",
        tips: VARIES,
        ..GUIDE
    },
    CommandSpec {
        name: "KEYSLOT",
        handler: keys::slot_of,
        arity: Arity::Exactly(3),
        summary: "Tells the slot of a key.",
        complexity: "O(N) where N is the number of bytes in the key",
        syntax: "key:string",
        ..READER
    },
    CommandSpec {
        name: "LINKS",
        handler: shown::links,
        since: "7.0.0",
        summary: "Lists the connections between nodes.",
        complexity: "O(N) where N is the total number of Cluster nodes",
        tips: VARIES,
        ..READER
    },
    CommandSpec {
        name: "MEET",
        handler: orders::meet,
        arity: Arity::AtLeast(4),
        history: &[("4.0.0", "Takes `cluster_bus_port`.")],
        summary: "Introduces a node to this one.",
        syntax: "ip port:integer [cluster_bus_port:integer]",
        flags: STEERER.flags.with(Flags::LOADING),
        ..STEERER
    },
    CommandSpec {
        name: "MIGRATESLOTS",
        handler: moves::migrate_slots,
        arity: Arity::AtLeast(7),
        since: "9.0.0",
        summary: "Moves slots of this node to another one, with their keys.",
        complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        syntax: "SLOTSRANGE start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...] NODE node-id",
        ..STEERER
    },
    CommandSpec {
        name: "MIGRATION",
        handler: moves::migration,
        arity: Arity::AtLeast(3),
        since: "8.4.0",
        summary: "Moves slots of another node to this one, shows moves and gives them up.",
        complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        syntax: "IMPORT start-slot:integer end-slot:integer [start-slot:integer end-slot:integer ...] | STATUS [ID task-id | ALL] | CANCEL ID task-id | CANCEL ALL",
        ..STEERER
    },
    CommandSpec {
        name: "MYID",
        handler: shown::my_id,
        summary: "Tells the id of this node.",
        ..GUIDE
    },
    CommandSpec {
        name: "MYSHARDID",
        handler: shown::my_shard_id,
        since: "7.2.0",
        summary: "Tells the id of this node's shard.",
        tips: VARIES,
        ..GUIDE
    },
    CommandSpec {
        name: "NODES",
        handler: shown::nodes,
        summary: "Lists the nodes as their configuration has them.",
        complexity: "O(N) where N is the total number of Cluster nodes",
        tips: VARIES,
        ..GUIDE
    },
    CommandSpec {
        name: "REPLICAS",
        handler: shown::replicas,
        arity: Arity::Exactly(3),
        flags: Flags::ADMIN.with(Flags::STALE),
        since: "5.0.0",
        summary: "Lists the replicas of a node.",
        syntax: "node-id",
        tips: VARIES,
        ..READER
    },
    CommandSpec {
        name: "REPLICATE",
        handler: orders::replicate,
        arity: Arity::Exactly(3),
        summary: "Makes this node a replica of another.",
        syntax: "node-id",
        ..STEERER
    },
    CommandSpec {
        name: "RESET",
        handler: orders::reset,
        arity: Arity::AtLeast(2),
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NOSCRIPT),
        summary: "Has this node forget the cluster.",
        complexity: "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
        syntax: "[HARD | SOFT]",
        ..STEERER
    },
    CommandSpec {
        name: "SAVECONFIG",
        handler: orders::save_config,
        summary: "Writes the configuration of this node to its disk.",
        ..STEERER
    },
    CommandSpec {
        name: "SET-CONFIG-EPOCH",
        handler: orders::set_config_epoch,
        arity: Arity::Exactly(3),
        summary: "Says the epoch of a new node's configuration.",
        syntax: "config-epoch:integer",
        ..STEERER
    },
    CommandSpec {
        name: "SETSLOT",
        handler: orders::set_slot,
        arity: Arity::AtLeast(4),
        summary: "Says whose a slot is, or that it moves.",
        syntax: "slot:integer <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
        ..STEERER
    },
    CommandSpec {
        name: "SHARDS",
        handler: shown::shards,
        since: "7.0.0",
        summary: "Lists the shards with their slots and nodes.",
        complexity: "O(N) where N is the total number of cluster nodes",
        tips: VARIES,
        ..GUIDE
    },
    CommandSpec {
        name: "SLAVES",
        handler: shown::replicas,
        arity: Arity::Exactly(3),
        flags: Flags::ADMIN.with(Flags::STALE),
        summary: "Lists the replicas of a node.",
        syntax: "node-id",
        tips: VARIES,
        deprecated: Some(Deprecation {
            since: "5.0.0",
            replaced_by: "`CLUSTER REPLICAS`",
        }),
        ..READER
    },
    CommandSpec {
        name: "SLOT-STATS",
        handler: slot_stats::slot_stats,
        arity: Arity::AtLeast(4),
        since: "8.2.0",
        summary: "Tells how many keys hash slots have, and what requests about them took.",
        complexity: "O(N) where N is the total number of slots based on arguments. O(N*log(N)) with ORDERBY subcommand.",
        syntax: "<SLOTSRANGE start-slot:integer end-slot:integer | ORDERBY metric [LIMIT limit:integer] [ASC | DESC]>",
        tips: VARIES,
        ..GUIDE
    },
    CommandSpec {
        name: "SLOTS",
        handler: shown::slots,
        history: &[
            ("4.0.0", "Tells the ids of nodes."),
            ("7.0.0", "Tells more of their addresses."),
        ],
        summary: "Lists ranges of slots with their nodes.",
        complexity: "O(N) where N is the total number of Cluster nodes",
        tips: VARIES,
        deprecated: Some(Deprecation {
            since: "7.0.0",
            replaced_by: "`CLUSTER SHARDS`",
        }),
        ..GUIDE
    },
];
