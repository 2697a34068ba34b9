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
//! `ZADD key score member …` with the members that came or got another score, whatever made them;
//! `ZREM key member …` with those that went; `ZREMRANGEBYRANK` for whatever takes a range, pops
//! included; a stored result is `DEL` and `ZADD`. A command that changed nothing states nothing.

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
