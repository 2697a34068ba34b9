//! Commands for keys of any type: deleting, naming, expiring, walking.
//!
//! Effects: DEL and UNLINK state one `DEL` a key; deadlines are stated as `PEXPIREAT`, one already
//! past as `DEL`; RENAME, COPY and MOVE are stated as they are, since they replay exactly; RESTORE with
//! an absolute time, and as one that replaces; what SORT keeps as the list that it is.

use engine::spec::CommandSpec;

mod delete;
mod expire;
mod migrate;
mod object;
mod persist;
mod rename;
mod restore;
mod sort;
mod wait;
mod walk;
mod whole;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[
    delete::COMMANDS,
    expire::COMMANDS,
    migrate::COMMANDS,
    object::COMMANDS,
    rename::COMMANDS,
    restore::COMMANDS,
    sort::COMMANDS,
    wait::COMMANDS,
    walk::COMMANDS,
    whole::COMMANDS,
];
