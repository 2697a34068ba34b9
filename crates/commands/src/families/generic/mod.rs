//! Commands for keys of any type: delete, rename, expire, walk.
//!
//! Effects: DEL and UNLINK state one `DEL` per key. Deadlines are stated as `PEXPIREAT`, or as
//! `DEL` if already past. RENAME, COPY and MOVE are stated as they are, because they replay
//! exactly. RESTORE is stated with an absolute time and with REPLACE. A stored result of SORT is
//! stated as its list.

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
