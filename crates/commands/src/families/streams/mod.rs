//! Streams: entries ordered by id, and groups of consumers that share them.
//!
//! ```text
//!   add      XADD                          group    XGROUP
//!   trim     XTRIM XDEL XSETID             deliver  XREADGROUP
//!   read     XLEN XRANGE XREVRANGE XREAD   pending  XACK XPENDING
//!   info     XINFO                         claim    XCLAIM XAUTOCLAIM
//!   ids      what "5", "5-*", "(5-1", "-" and "+" mean
//! ```
//!
//! # Effects
//! `XADD` with the complete id, and `MAXLEN = n` if entries were trimmed. `XTRIM key MAXLEN = n`.
//! `XDEL` and `XACK` with the removed ids. `XSETID` and `XGROUP SETID` with all counters. Any
//! delivery to a consumer is `XCLAIM … TIME ms RETRYCOUNT n FORCE JUSTID LASTID id`, and `XACK` if
//! a claim met deleted entries. A new consumer is `XGROUP CREATECONSUMER`. The times at which
//! consumers were seen are not stated.

use engine::spec::CommandSpec;

mod add;
mod claim;
mod deliver;
mod group;
mod ids;
mod info;
mod pending;
mod read;
mod shared;
mod trim;

/// The rows of this family.
pub const COMMANDS: &[&[CommandSpec]] = &[
    add::COMMANDS,
    trim::COMMANDS,
    read::COMMANDS,
    group::COMMANDS,
    deliver::COMMANDS,
    pending::COMMANDS,
    claim::COMMANDS,
    info::COMMANDS,
];
