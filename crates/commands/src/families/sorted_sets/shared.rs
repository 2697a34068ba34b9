//! What the commands of sorted sets share: scores, forms of replies, and effects.

use std::ops::Range;

use base::float::{self, FloatText};
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{KeyAccess, KeySpec};
use protocol::{Reply, Resp};
use store::{Effect, Entry, Event, EventClass, Key, Owned};
use structures::{Kept, Scored, SortedSet};

/// The key of a command that reads it.
pub(super) const READ_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];
/// The key of a command that removes from it.
pub(super) const CUT_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::DELETE))];

/// Maximum number of members in one command of an effect. Longer results take several commands.
pub(super) const STATED_MEMBERS_MAX: usize = 512;

/// Parses an argument as a score: any double except NaN.
#[inline]
pub(super) fn score(argument: &[u8]) -> Result<f64, CommandError> {
    float::parse(argument)
        .filter(|score| !score.is_nan())
        .ok_or(CommandError::NotFloat)
}

/// Writes a score, or null.
#[inline]
pub(super) fn write_score(reply: &mut Reply<'_>, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

/// The form of a reply with members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Without scores.
    Members,
    /// Each followed by its score.
    Flat,
    /// The same as parts of an array that was begun before.
    Bare,
    /// Each in an array with its score.
    Pairs,
}

impl Shape {
    /// Returns the form for a command with or without WITHSCORES, in the reply's protocol version.
    pub(super) fn of(with_scores: bool, reply: &Reply<'_>) -> Self {
        match (with_scores, reply.version()) {
            (false, _) => Self::Members,
            (true, Resp::V2) => Self::Flat,
            (true, Resp::V3) => Self::Pairs,
        }
    }

    /// Writes the header of an array of `count` members.
    pub(super) fn begin(self, reply: &mut Reply<'_>, count: usize) {
        match self {
            Self::Bare => {}
            Self::Flat => reply.array(2 * count),
            Self::Members | Self::Pairs => reply.array(count),
        }
    }

    /// Writes a member.
    #[inline]
    pub(super) fn write(self, reply: &mut Reply<'_>, one: &Scored<'_>) {
        if self == Self::Pairs {
            reply.array(2);
        }
        reply.bulk(one.member.as_bytes());
        if self != Self::Members {
            reply.double(one.score);
        }
    }
}

/// Returns the ranks in a set of `len` members between two inclusive positions. Negative positions
/// count from the end.
pub(super) fn ranks(start: i64, end: i64, len: usize) -> Range<usize> {
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

/// States that members were added or got other scores.
pub(super) fn state_added(effect: &mut Effect<'_>, key: &Key<'_>, added: &[(f64, &[u8])]) {
    for some in added.chunks(STATED_MEMBERS_MAX) {
        let scores: Vec<FloatText> = some.iter().map(|one| FloatText::shortest(one.0)).collect();
        let mut parts: Vec<&[u8]> = vec![b"ZADD", key.bytes()];
        for (score, (_, member)) in scores.iter().zip(some) {
            parts.extend([score.as_bytes(), member]);
        }
        effect.command(&parts);
    }
}

/// States that members between two ranks were removed.
pub(super) fn state_removed(entry: &mut Entry<'_>, ranks: Range<usize>) {
    let key = entry.key();
    entry.effect(|effect| {
        let number = |rank: usize| base::number::IntegerText::new_u64(rank as u64);
        let (first, last) = (number(ranks.start), number(ranks.end - 1));
        effect.command(&[
            b"ZREMRANGEBYRANK",
            key.bytes(),
            first.as_bytes(),
            last.as_bytes(),
        ]);
    });
}

/// Stores `result` at a key, or deletes the key if the result is empty. Returns its number of
/// members. `event` is the name of the event.
pub(crate) fn store_result(
    context: &mut Context<'_>,
    target: &Key<'_>,
    result: SortedSet,
    event: &'static str,
) -> Result<usize, CommandError> {
    let count = result.len();
    context.store.modify(target, |entry| {
        let was_there = entry.remove();
        if was_there {
            entry.effect(|effect| effect.command(&[b"DEL", target.bytes()]));
            // A result replaces the previous value, which is not a new key.
            entry.leave_new_unsaid();
        }
        if count == 0 {
            if was_there {
                entry.event(EventClass::GENERIC, Event::DELETED);
            }
            return Ok(());
        }
        entry.put(Owned::of_object(result.into_object(), None))?;
        let record = entry.record();
        let stored = record
            .as_ref()
            .and_then(|one| one.structure::<SortedSet>().ok());
        let members: Vec<(f64, Vec<u8>)> = stored
            .iter()
            .flat_map(|set| set.iter())
            .map(|one| (one.score, one.member.as_bytes().to_vec()))
            .collect();
        entry.effect(|effect| {
            let added: Vec<(f64, &[u8])> = members.iter().map(|one| (one.0, &one.1[..])).collect();
            state_added(effect, target, &added);
        });
        entry.event(EventClass::SORTED_SET, event);
        Ok::<_, CommandError>(())
    })?;
    Ok(count)
}

/// Takes the next argument as a number above 0.
pub(super) fn positive(
    args: &mut engine::args::Args<'_>,
    complaint: &'static str,
) -> Result<usize, CommandError> {
    let number = args.integer().ok();
    let number = number.and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| CommandError::fixed(complaint))
}

/// Returns the error for a set without space for another member.
pub(super) fn full(_: structures::Full) -> CommandError {
    store::StoreError::OutOfMemory.into()
}

/// Refuses a member that exceeds the maximum length.
#[inline]
pub(super) fn check_member(member: &[u8]) -> CommandResult {
    crate::structure::element(member).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::ranks;

    #[test]
    fn ranks_are_clamped() {
        assert_eq!(ranks(0, -1, 5), 0..5);
        assert_eq!(ranks(-3, -2, 5), 2..4);
        assert_eq!(ranks(-100, 0, 5), 0..1);
        assert_eq!(ranks(5, 100, 5), 0..0);
        assert_eq!(ranks(3, 2, 5), 0..0);
        assert_eq!(ranks(i64::MIN, i64::MAX, 5), 0..5);
        assert_eq!(ranks(0, -1, 0), 0..0);
    }
}
