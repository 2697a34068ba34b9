//! Checks whether one order of the operations on a key explains their history. Each operation
//! happens at some moment between its request and its reply.
//!
//! ```text
//!   requests and replies in order of time ─► where are we: (moment, value, which open operations have happened)
//!   a reply: its operation has happened with what it says, or it and others happen now, one after the other
//! ```
//!
//! The search is depth-first with backtracking, and visits no place twice. An operation without a
//! known reply may happen at any time after its request, or never. The search therefore tries it
//! last, skips it where it would change nothing, and of several such operations with the same
//! request tries only the first. If the search has visited a place with fewer of these operations
//! done, it need not visit that place again, because the others may still happen from there. Keys
//! are independent, so each key's history is checked by itself.

use std::collections::HashMap;

/// A request about the key. The key holds a number, or is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// GET
    Get,
    /// SET
    Set(i64),
    /// INCR
    Increment,
    /// SETNX
    SetIfAbsent(i64),
    /// DEL
    Delete,
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The value, or `None` if the key is absent.
    Value(Option<i64>),
    /// OK
    Done,
    /// A number: the result of an increment, or how many keys were set or deleted.
    Number(i64),
}

/// One operation. Moments are positions in a single order of all requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When the request was sent.
    pub call: u64,
    /// The request.
    pub asked: Asked,
    /// When the reply was received, and the reply; `None` if unknown.
    pub reply: Option<(u64, Answered)>,
}

/// Maximum number of operations open at a time, including those whose end is unknown.
const OPEN_MAX: usize = 64;
/// Number of places after which the search is given up.
const PLACES_MAX: usize = 4 << 20;

/// A fault of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No order explains this reply together with what came before.
    Unexplained(Operation),
    /// More than [`OPEN_MAX`] operations were open, or the search has visited [`PLACES_MAX`]
    /// places.
    TooLarge,
}

/// The next moment, the value, and a bit for each open operation that has happened.
type Place = (usize, Option<i64>, u64);

/// The visited places. The key is moment, value, and the operations with an end that have happened.
/// The value lists, for each visit, which operations without an end had happened.
#[derive(Default)]
struct Been {
    places: HashMap<Place, Vec<u64>>,
    count: usize,
}

impl Been {
    /// Records a place, and returns whether it is new. `endless` has the bits of operations without
    /// an end.
    fn note(&mut self, (moment, value, happened): Place, endless: u64) -> bool {
        let known = self
            .places
            .entry((moment, value, happened & !endless))
            .or_default();
        let happened = happened & endless;
        let is_new = known.iter().all(|fewer| fewer & happened != *fewer);
        if is_new {
            known.retain(|more| happened & more != happened);
            known.push(happened);
            self.count += 1;
        }
        is_new
    }
}

/// A reply, as a moment of a history.
struct Reply {
    /// Bit of its operation.
    bit: u64,
    at: usize,
    /// The operations open at that moment, as bit and index. The one to be tried first is last.
    open: Vec<(u64, usize)>,
    /// Bits of those operations that have no end.
    endless: u64,
}

/// Returns the replies of a history in order of time.
fn replies(history: &[Operation]) -> Result<Vec<Reply>, Fault> {
    let mut moments: Vec<(u64, usize, bool)> = Vec::new();
    for (at, operation) in history.iter().enumerate() {
        moments.push((operation.call, at, false));
        if let Some((end, _)) = operation.reply {
            moments.push((end, at, true));
        }
    }
    moments.sort_unstable();
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut bits = vec![0_u64; history.len()];
    let mut replies = Vec::new();
    for (_, at, is_reply) in moments {
        if !is_reply {
            let place = open_place(&mut open)?;
            open[place] = Some(at);
            bits[at] = 1 << place;
            continue;
        }
        let mut tried: Vec<usize> = open.iter().flatten().copied().collect();
        tried.sort_by_key(|other| {
            let operation = &history[*other];
            (operation.reply.is_some(), *other == at, operation.call)
        });
        let endless = tried
            .iter()
            .filter(|other| history[**other].reply.is_none());
        let endless = endless.fold(0, |all, other| all | bits[*other]);
        let open_then = tried.into_iter().map(|other| (bits[other], other));
        replies.push(Reply {
            bit: bits[at],
            at,
            open: open_then.collect(),
            endless,
        });
        let freed = open.iter().position(|other| *other == Some(at));
        open[freed.unwrap_or(0)] = None;
    }
    Ok(replies)
}

/// Checks the history of one key, which is absent at first.
///
/// # Errors
/// The reply that cannot be explained, or that the history is too large.
pub fn check(history: &[Operation]) -> Result<(), Fault> {
    let replies = replies(history)?;
    let mut been = Been::default();
    let endless = |moment: usize| replies.get(moment).map_or(0, |reply| reply.endless);
    let mut stack: Vec<Place> = vec![(0, None, 0)];
    let mut farthest = 0;
    while let Some((moment, value, happened)) = stack.pop() {
        let Some(reply) = replies.get(moment) else {
            return Ok(());
        };
        farthest = farthest.max(moment);
        if happened & reply.bit != 0 {
            let next = (moment + 1, value, happened & !reply.bit);
            if been.note(next, endless(moment + 1)) {
                stack.push(next);
            }
            continue;
        }
        let mut asked_before: Vec<Asked> = Vec::new();
        for (bit, at) in &reply.open {
            let operation = &history[*at];
            let is_endless = operation.reply.is_none();
            if happened & bit != 0 || is_endless && asked_before.contains(&operation.asked) {
                continue;
            }
            if is_endless {
                asked_before.push(operation.asked);
            }
            let Some(after) = happen(operation, value) else {
                continue;
            };
            let next = (moment, after, happened | bit);
            let changes_nothing = is_endless && after == value;
            if !changes_nothing && been.note(next, reply.endless) {
                stack.push(next);
            }
        }
        if been.count > PLACES_MAX {
            return Err(Fault::TooLarge);
        }
    }
    Err(Fault::Unexplained(history[replies[farthest].at]))
}

fn open_place(open: &mut Vec<Option<usize>>) -> Result<usize, Fault> {
    if let Some(place) = open.iter().position(Option::is_none) {
        return Ok(place);
    }
    if open.len() == OPEN_MAX {
        return Err(Fault::TooLarge);
    }
    open.push(None);
    Ok(open.len() - 1)
}

/// Returns the value after an operation, or `None` if the operation would have been answered
/// differently.
fn happen(operation: &Operation, value: Option<i64>) -> Option<Option<i64>> {
    let (after, answer) = match operation.asked {
        Asked::Get => (value, Answered::Value(value)),
        Asked::Set(number) => (Some(number), Answered::Done),
        Asked::Increment => {
            let number = value.unwrap_or(0).wrapping_add(1);
            (Some(number), Answered::Number(number))
        }
        Asked::SetIfAbsent(number) => match value {
            None => (Some(number), Answered::Number(1)),
            Some(_) => (value, Answered::Number(0)),
        },
        Asked::Delete => (None, Answered::Number(value.is_some().into())),
    };
    let is_so = operation.reply.is_none_or(|(_, said)| said == answer);
    is_so.then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::random::Prng;

    fn operation(call: u64, end: u64, asked: Asked, answered: Answered) -> Operation {
        let reply = Some((end, answered));
        Operation { call, asked, reply }
    }

    fn unknown(call: u64, asked: Asked) -> Operation {
        let reply = None;
        Operation { call, asked, reply }
    }

    fn set(call: u64, end: u64, value: i64) -> Operation {
        operation(call, end, Asked::Set(value), Answered::Done)
    }

    fn get(call: u64, end: u64, value: Option<i64>) -> Operation {
        operation(call, end, Asked::Get, Answered::Value(value))
    }

    #[test]
    fn histories_that_are_good() {
        let increment =
            |call, end, value| operation(call, end, Asked::Increment, Answered::Number(value));
        for history in [
            vec![],
            vec![get(1, 2, None), set(3, 4, 7), get(5, 6, Some(7))],
            // Two overlap, in either order.
            vec![set(1, 4, 1), set(2, 3, 2), get(5, 6, Some(1))],
            vec![set(1, 4, 1), set(2, 3, 2), get(5, 6, Some(2))],
            // A read sees a write that is not answered yet.
            vec![set(1, 6, 1), get(2, 3, Some(1)), get(4, 5, Some(1))],
            vec![increment(1, 4, 2), increment(2, 3, 1)],
            // An operation whose end is unknown happens late, or never.
            vec![
                unknown(1, Asked::Set(1)),
                get(2, 3, None),
                get(4, 5, Some(1)),
            ],
            vec![unknown(1, Asked::Set(1)), get(2, 3, None), get(4, 5, None)],
        ] {
            assert_eq!(check(&history), Ok(()), "{history:?}");
        }
    }

    #[test]
    fn histories_that_are_bad() {
        let absent = |call, end, value, count| {
            operation(
                call,
                end,
                Asked::SetIfAbsent(value),
                Answered::Number(count),
            )
        };
        for history in [
            // A write is lost.
            vec![set(1, 2, 1), get(3, 4, None)],
            // An old value is read after a new one.
            vec![
                set(1, 2, 1),
                set(3, 8, 2),
                get(4, 5, Some(2)),
                get(6, 7, Some(1)),
            ],
            // An operation happens twice.
            vec![
                unknown(1, Asked::Increment),
                get(2, 3, Some(1)),
                get(4, 5, Some(2)),
            ],
            // Two operations were both the first.
            vec![absent(1, 2, 1, 1), absent(3, 4, 2, 1)],
            // A value that no operation wrote.
            vec![set(1, 2, 1), get(3, 4, Some(2))],
            // A value is read before its write is requested.
            vec![get(1, 2, Some(1)), set(3, 4, 1)],
        ] {
            let found = check(&history);
            assert!(matches!(found, Err(Fault::Unexplained(_))), "{history:?}");
        }
    }

    /// Returns a history of a register that performs each operation at some moment between request
    /// and reply.
    fn random_history(seed: u64, count: u64, stale: bool) -> Vec<Operation> {
        let mut random = Prng::seeded(seed);
        let (mut value, mut before) = (None, None);
        let mut history = Vec::new();
        for number in 0..count {
            // Up to four operations overlap. They happen in the order of `middle`.
            let middle = number * 10;
            let call = middle.saturating_sub(1 + random.below(20));
            let end = middle + 1 + random.below(20);
            let wanted = i64::try_from(number).unwrap_or(0);
            let asked = match random.below(5) {
                0 => Asked::Set(wanted),
                1 => Asked::Increment,
                2 => Asked::SetIfAbsent(wanted),
                3 => Asked::Delete,
                _ => Asked::Get,
            };
            let shown = if stale && number > 200 { before } else { value };
            let (after, answered) = match asked {
                Asked::Get => (value, Answered::Value(shown)),
                Asked::Set(number) => (Some(number), Answered::Done),
                Asked::Increment => {
                    let number = value.unwrap_or(0) + 1;
                    (Some(number), Answered::Number(number))
                }
                Asked::SetIfAbsent(number) => (
                    Some(value.unwrap_or(number)),
                    Answered::Number(value.is_none().into()),
                ),
                Asked::Delete => (None, Answered::Number(value.is_some().into())),
            };
            if number == 100 {
                before = after;
            }
            value = after;
            // All moments differ.
            let (call, end) = (call * 1_000 + number, end * 1_000 + number);
            let is_lost = random.below(50) == 0;
            let reply = (!is_lost).then_some((end, answered));
            history.push(Operation { call, asked, reply });
        }
        history
    }

    /// About 40 operations have no end. Each of them may have happened at any time.
    #[test]
    fn a_history_with_many_of_unknown_end_is_not_too_large() {
        for seed in 0..5 {
            let history = random_history(seed, 2_000, false);
            let lost = history.iter().filter(|one| one.reply.is_none());
            assert!(lost.count() > 20);
            assert_eq!(check(&history), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_register_is_linearizable_and_one_that_shows_old_values_is_not() {
        for seed in 0..40 {
            assert_eq!(
                check(&random_history(seed, 400, false)),
                Ok(()),
                "seed {seed}"
            );
            let found = check(&random_history(seed, 400, true));
            assert!(matches!(found, Err(Fault::Unexplained(_))), "seed {seed}");
        }
    }
}
