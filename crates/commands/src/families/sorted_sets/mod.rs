//! Sorted sets: members with scores, in the order of (score, member).
//!
//! ```text
//!   add      ZADD ZINCRBY                        range   ZRANGE ZREVRANGE and the older forms
//!   remove   ZREM ZREMRANGEBYRANK/SCORE/LEX      store   ZRANGESTORE
//!   pop      ZPOPMIN ZPOPMAX ZMPOP               combine ZUNION ZINTER ZDIFF, STORE and CARD forms
//!   read     ZSCORE ZMSCORE ZCARD ZCOUNT         random  ZRANDMEMBER
//!            ZLEXCOUNT ZRANK ZREVRANK            walk    ZSCAN
//!   waits    BZPOPMIN BZPOPMAX BZMPOP
//!   bounds   what "(1 +inf" and "[a (b" mean: the ranks between them
//! ```
//!
//! # Effects
//! `ZADD key score member …` with the members that were added or got another score, by any command.
//! `ZREM key member …` with removed members. `ZREMRANGEBYRANK` for any removed range, including
//! pops. `DEL` and `ZADD` for a stored result. A command that changed nothing states nothing.

use engine::spec::CommandSpec;

mod add;
mod bounds;
mod combine;
mod pop;
mod random;
mod range;
mod read;
mod remove;
pub(super) mod shared;
mod waits;
mod walk;

pub(super) use add::{Rules, add};

/// The rows of this family.
pub const COMMANDS: &[&[CommandSpec]] = &[
    add::COMMANDS,
    remove::COMMANDS,
    read::COMMANDS,
    range::COMMANDS,
    pop::COMMANDS,
    combine::COMMANDS,
    random::COMMANDS,
    walk::COMMANDS,
    waits::COMMANDS,
];
