//! Lists: elements in an order that clients choose.
//!
//! ```text
//!   push   LPUSH RPUSH LPUSHX RPUSHX        change   LSET LINSERT LREM LTRIM
//!   pop    LPOP RPOP LMPOP                  read     LLEN LINDEX LRANGE
//!   carry  LMOVE RPOPLPUSH                  search   LPOS
//!   waits  BLPOP BRPOP BLMPOP BLMOVE BRPOPLPUSH
//! ```
//!
//! # Effects
//! A write states itself, without options: `LPUSH`/`RPUSH` for all pushes, `LPOP`/`RPOP key count`
//! with the number removed, `LMOVE` for RPOPLPUSH. A command that changed nothing states nothing.

use std::ops::Range;

use engine::args::Args;
use engine::error::CommandError;
use engine::spec::{CommandSpec, KeyAccess, KeySpec};
use structures::End;

/// Number of elements that a search compares in the time in which one is written to a reply.
const SCANNED_PER_STEP: usize = 4;

mod carry;
mod change;
mod pop;
mod push;
mod read;
mod search;
mod waits;

/// The rows of this family.
pub const COMMANDS: &[&[CommandSpec]] = &[
    push::COMMANDS,
    pop::COMMANDS,
    carry::COMMANDS,
    read::COMMANDS,
    search::COMMANDS,
    change::COMMANDS,
    waits::COMMANDS,
];

/// The key of a command that reads it.
const READ_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];
/// The key of a command that adds to it.
const GROWN_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::INSERT))];
/// The key of a command that removes from it.
const CUT_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::DELETE))];

/// Takes the next argument as an end of a list: LEFT or RIGHT.
fn end_word(args: &mut Args<'_>) -> Result<End, CommandError> {
    if args.take_word("LEFT") {
        Ok(End::Front)
    } else if args.take_word("RIGHT") {
        Ok(End::Back)
    } else {
        Err(CommandError::Syntax)
    }
}

/// Returns the word for an end, as effects state it.
fn word_of(end: End) -> &'static [u8] {
    match end {
        End::Front => b"LEFT",
        End::Back => b"RIGHT",
    }
}

/// Returns the command that pops from an end, as effects state it.
fn pop_of(end: End) -> &'static [u8] {
    match end {
        End::Front => b"LPOP",
        End::Back => b"RPOP",
    }
}

/// Returns the event of adding at an end.
fn push_event(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}

/// Returns the event of removing from an end.
fn pop_event(end: End) -> &'static str {
    match end {
        End::Front => "lpop",
        End::Back => "rpop",
    }
}

/// Returns the position in a list of `len` elements for a client's `index`, which counts from the
/// end if negative, or `None` if there is no such element.
fn position(index: i64, len: usize) -> Option<usize> {
    let at = match usize::try_from(index) {
        Ok(at) => at,
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
    };
    (at < len).then_some(at)
}

/// Returns the elements between two inclusive positions, or an empty range if they are in the wrong
/// order.
fn range(start: i64, end: i64, len: usize) -> Range<usize> {
    let from_start = |index: i64| match usize::try_from(index) {
        Ok(at) => Some(at),
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let first = from_start(start).unwrap_or(0);
    match from_start(end) {
        Some(last) if first <= last && first < len => first..len.min(last.saturating_add(1)),
        _ => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::{position, range};

    #[test]
    fn positions_count_from_both_ends() {
        assert_eq!(position(0, 3), Some(0));
        assert_eq!(position(-1, 3), Some(2));
        assert_eq!(position(-3, 3), Some(0));
        assert_eq!(position(3, 3), None);
        assert_eq!(position(-4, 3), None);
        assert_eq!(position(i64::MIN, 3), None);
        assert_eq!(position(i64::MAX, 3), None);
    }

    #[test]
    fn ranges_are_clamped() {
        assert_eq!(range(0, -1, 5), 0..5);
        assert_eq!(range(-3, -2, 5), 2..4);
        assert_eq!(range(1, 100, 5), 1..5);
        assert_eq!(range(-100, 0, 5), 0..1);
        assert_eq!(range(5, 100, 5), 0..0);
        assert_eq!(range(-100, -200, 5), 0..0);
        assert_eq!(range(3, 2, 5), 0..0);
        assert_eq!(range(i64::MIN, i64::MAX, 5), 0..5);
        assert_eq!(range(i64::MAX, i64::MIN, 5), 0..0);
    }
}
