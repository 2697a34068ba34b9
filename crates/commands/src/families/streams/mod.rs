//! Streams: entries in order of their ids, and groups of consumers that share them out.
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
//! `XADD` with the whole id, and `MAXLEN = n` when something was trimmed; `XTRIM key MAXLEN = n`;
//! `XDEL` and `XACK` with the ids that went; `XSETID` and `XGROUP SETID` with all counters. What a
//! consumer got is `XCLAIM … TIME ms RETRYCOUNT n FORCE JUSTID LASTID id`, whatever gave it, and
//! `XACK` where a claim met entries that are no more. A consumer that came is `XGROUP CREATECONSUMER`.
//! When consumers were seen is not stated.

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
