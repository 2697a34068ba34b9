//! Combinations of several sets.
//!
//! All keys are locked, so that the result is of one moment and the sets can be compared with each
//! other. The command visits one set (for an intersection the smallest), and looks up its members
//! in the others; only members of the result are copied. Sets of integers are sorted and are
//! merged.

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use engine::args::Args;
use engine::context::{Context, Pace};
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, Event, EventClass, Handle, Key, Lent, Owned, Record};
use structures::hyper_log_log::{self, REGISTERS, register_of};
use structures::{AHEAD_MAX, ElementText, Encoding, IntSet, Kept, Set, SetLimits};

use super::{READER, limits, write_members, write_numbers};
use engine::keys::KeyList;

/// The base row of commands that return the result.
const COMBINER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    keys: &[KeySpec::range(
        1,
        -1,
        1,
        KeyAccess::RO.with(KeyAccess::ACCESS),
    )],
    complexity: "O(N) where N is the number of members in all sets.",
    syntax: "key [key ...]",
    tips: &["nondeterministic_output_order"],
    ..READER
};

/// Keys after their number.
const COUNTED_KEYS: &[KeySpec] = &[KeySpec {
    begin: Begin::Index(1),
    find: Find::Count {
        count: 0,
        first: 1,
        step: 1,
    },
    access: KeyAccess::RO.with(KeyAccess::ACCESS),
    notes: "",
}];

/// The base row of commands that store the result.
const KEEPER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(1, KeyAccess::OW.with(KeyAccess::UPDATE)),
        KeySpec::range(2, -1, 1, KeyAccess::RO.with(KeyAccess::ACCESS)),
    ],
    syntax: "destination key [key ...]",
    tips: &[],
    ..COMBINER
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SINTER",
        summary: "Gives the members that all of several sets have.",
        complexity: "O(N*M) where N is the size of the smallest of M sets.",
        handler: |context, args, reply| combine(context, args, reply, Operation::Intersection),
        ..COMBINER
    },
    CommandSpec {
        name: "SINTERSTORE",
        keys: &[
            KeySpec::one(1, KeyAccess::OW.with(KeyAccess::UPDATE)),
            KeySpec::range(2, -1, 1, KeyAccess::RO.with(KeyAccess::ACCESS)),
        ],
        summary: "Keeps the members that all of several sets have as a set.",
        complexity: "O(N*M) where N is the size of the smallest of M sets.",
        handler: |context, args, reply| keep(context, args, reply, Operation::Intersection),
        ..KEEPER
    },
    CommandSpec {
        name: "SINTERCARD",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY.with(Flags::MOVABLE_KEYS),
        keys: COUNTED_KEYS,
        since: "7.0.0",
        summary: "Counts the members that all of several sets have.",
        complexity: "O(N*M) where N is the size of the smallest of M sets.",
        syntax: "numkeys:integer key [key ...] [LIMIT limit:integer]",
        tips: &[],
        handler: sintercard,
        ..COMBINER
    },
    CommandSpec {
        name: "SUNION",
        summary: "Gives the members that any of several sets has.",
        handler: |context, args, reply| combine(context, args, reply, Operation::Union),
        ..COMBINER
    },
    CommandSpec {
        name: "SUNIONCARD",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY.with(Flags::MOVABLE_KEYS),
        keys: COUNTED_KEYS,
        since: "8.10.0",
        summary: "Counts the members that any of several sets has.",
        syntax: "numkeys:integer key [key ...] [APPROX] [LIMIT limit:integer]",
        tips: &[],
        handler: sunioncard,
        ..COMBINER
    },
    CommandSpec {
        name: "SUNIONSTORE",
        summary: "Keeps the members that any of several sets has as a set.",
        handler: |context, args, reply| keep(context, args, reply, Operation::Union),
        ..KEEPER
    },
    CommandSpec {
        name: "SDIFF",
        summary: "Gives the members of a set that none of others has.",
        handler: |context, args, reply| combine(context, args, reply, Operation::Difference),
        ..COMBINER
    },
    CommandSpec {
        name: "SDIFFSTORE",
        summary: "Keeps the members of a set that none of others has as a set.",
        handler: |context, args, reply| keep(context, args, reply, Operation::Difference),
        ..KEEPER
    },
];

/// Number of members from which a table may not be in the cache, so that its members are
/// prefetched.
const AHEAD_FROM_LEN: usize = 8_192;

/// Cost of an insertion into a growing set, in look-ups.
const LOOKUPS_PER_INSERTION: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

impl Operation {
    /// Shows the members of the result (members of a union possibly repeatedly) until `visit`
    /// breaks off.
    fn walk<'s>(
        self,
        sets: &mut [&'s Set],
        mut visit: impl FnMut(ElementText<'s>) -> ControlFlow<()>,
    ) {
        // A caller that breaks off knows that.
        let _ended = match self {
            Self::Intersection => {
                sets.sort_by_key(|set| set.len());
                sift_first(sets, true, visit)
            }
            Self::Union => sets
                .iter()
                .try_for_each(|set| set.iter().try_for_each(&mut visit)),
            Self::Difference => sift_first(sets, false, visit),
        };
    }

    /// If all sets contain only integers, shows the result in ascending order, each number once,
    /// until `visit` breaks off. Returns whether they do.
    fn walk_numbers(self, sets: &[&Set], mut visit: impl FnMut(i64) -> ControlFlow<()>) -> bool {
        let ints = sets.iter().map(|set| set.ints());
        let Some(mut ints) = ints.collect::<Option<Vec<&IntSet>>>() else {
            return false;
        };
        if self == Self::Intersection {
            ints.sort_by_key(|set| set.len());
        }
        // A caller that breaks off knows that.
        let _ended = match (self, ints.split_first()) {
            (_, None) => ControlFlow::Continue(()),
            (Self::Union, _) => IntSet::union(&ints).into_iter().try_for_each(&mut visit),
            (_, Some((first, others))) => first.sift(others, self == Self::Intersection, visit),
        };
        true
    }

    /// Returns the numbers of the result in ascending order, or `None` if not all sets contain only
    /// integers.
    fn numbers(self, sets: &[&Set]) -> Option<Vec<i64>> {
        let mut numbers = Vec::new();
        let are_numbers = self.walk_numbers(sets, |number| {
            numbers.push(number);
            ControlFlow::Continue(())
        });
        are_numbers.then_some(numbers)
    }

    /// Returns the event of storing the result.
    fn stored_event(self) -> &'static str {
        match self {
            Self::Intersection => "sinterstore",
            Self::Union => "sunionstore",
            Self::Difference => "sdiffstore",
        }
    }

    /// Returns the maximum number of look-ups.
    fn lookups(self, sets: &[&Set]) -> usize {
        let mut lens = sets.iter().map(|set| set.len());
        match self {
            Self::Intersection => sets.len() * lens.min().unwrap_or(0),
            Self::Union => lens.sum(),
            Self::Difference => sets.len() * lens.next().unwrap_or(0),
        }
    }
}

/// Shows the sets at the keys as of one moment, unless the command has to be offloaded. An absent
/// key counts as an empty set.
fn with_sets<R>(
    store: &mut Handle,
    keys: &[Key<'_>],
    pace: Pace,
    operation: Operation,
    visit: impl FnOnce(&mut [&Set]) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    let none = Set::new();
    // The look-up stops after the first key with another type: the reply is WRONGTYPE whatever
    // follows.
    let is_set = |record: &Record<'_>| record.structure::<Set>().is_ok();
    store.read_all(keys, is_set, |records| {
        let mut lent: Vec<Option<Lent<'_, Set>>> = Vec::with_capacity(records.len());
        for record in records {
            lent.push(match record {
                Some(record) => Some(record.structure()?),
                None => None,
            });
        }
        let sets = lent.iter().map(|set| set.as_deref().unwrap_or(&none));
        let mut sets: Vec<&Set> = sets.collect();
        pace.admit(operation.lookups(&sets))?;
        visit(&mut sets)
    })
}

/// Shows the members of a union, each once, until `visit` breaks off, if that takes fewer look-ups
/// than building the union. Shows all members of the largest set, and from each other set the
/// members that no earlier set has. Returns whether it did so.
fn walk_once<'s>(
    sets: &mut [&'s Set],
    mut visit: impl FnMut(ElementText<'s>) -> ControlFlow<()>,
) -> bool {
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let members: usize = sets.iter().map(|set| set.len()).sum();
    let lookups: usize = sets
        .iter()
        .enumerate()
        .map(|(at, set)| at * set.len())
        .sum();
    if lookups > LOOKUPS_PER_INSERTION * members {
        return false;
    }
    for (at, set) in sets.iter().enumerate() {
        if sift(set, &sets[..at], false, &mut visit).is_break() {
            break;
        }
    }
    true
}

/// Shows the members of the first set that are in all other sets (or in none of them).
fn sift_first<'s>(
    sets: &[&'s Set],
    have: bool,
    visit: impl FnMut(ElementText<'s>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match sets.split_first() {
        Some((set, others)) => sift(set, others, have, visit),
        None => ControlFlow::Continue(()),
    }
}

/// Shows the members of a set that are in all other sets (or in none of them).
fn sift<'s>(
    set: &'s Set,
    others: &[&Set],
    have: bool,
    mut visit: impl FnMut(ElementText<'s>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let show = |member: ElementText<'s>| {
        let passes = others
            .iter()
            .all(|other| other.contains(member.as_bytes()) == have);
        if passes {
            visit(member)
        } else {
            ControlFlow::Continue(())
        }
    };
    if others.iter().all(|other| other.len() < AHEAD_FROM_LEN) {
        return set.iter().try_for_each(show);
    }
    let (mut members, mut batch) = (set.iter(), Vec::with_capacity(AHEAD_MAX));
    loop {
        batch.extend(members.by_ref().take(AHEAD_MAX));
        if batch.is_empty() {
            return ControlFlow::Continue(());
        }
        for other in others {
            let mut there = other.which(batch.iter().map(ElementText::as_bytes));
            batch.retain(|_| {
                let stays = (there & 1 != 0) == have;
                there >>= 1;
                stays
            });
        }
        batch.drain(..).try_for_each(&mut visit)?;
    }
}

/// Returns the result as a new set.
fn collect(
    operation: Operation,
    sets: &mut [&Set],
    limits: &SetLimits,
) -> Result<Set, CommandError> {
    if let Some(numbers) = operation.numbers(sets) {
        return Ok(Set::from_ascending(&numbers, limits)?);
    }
    let (mut result, sets) = match operation {
        Operation::Union => begin_union(sets, limits),
        Operation::Intersection | Operation::Difference => (Set::new(), sets),
    };
    let mut inserted = Ok(true);
    operation.walk(sets, |member| {
        inserted = result.insert(member.as_bytes(), limits);
        if inserted.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    inserted?;
    Ok(result)
}

/// Returns the initial set of a union, and the sets to add to it. If the result will be a table in
/// any case, the initial set is a copy of the largest, which shares its pages until they change.
/// Otherwise it is empty.
fn begin_union<'a, 's>(sets: &'a mut [&'s Set], limits: &SetLimits) -> (Set, &'a mut [&'s Set]) {
    let small_max = limits.intset_entries.max(limits.listpack_entries);
    let largest = (0..sets.len()).max_by_key(|at| sets[*at].len());
    if let Some(at) = largest
        && sets[at].encoding() == Encoding::Hashtable
        && sets[at].len() > small_max
    {
        sets.swap(0, at);
        return (sets[0].clone(), &mut sets[1..]);
    }
    (Set::new(), sets)
}

fn combine(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> CommandResult {
    let keys: KeyList<'_> = args.map(|name| context.key(name)).collect();
    let (limits, pace) = (limits(context), context.pace);
    with_sets(context.store, &keys, pace, operation, |sets| {
        if let Some(numbers) = operation.numbers(sets) {
            write_numbers(numbers.into_iter(), reply);
            return Ok(());
        }
        // No member occurs twice: an intersection and a difference take their members from one set,
        // and `walk_once` shows each member of a union once.
        let mut members = Vec::new();
        if operation != Operation::Union {
            operation.walk(sets, |member| {
                members.push(member);
                ControlFlow::Continue(())
            });
        } else if !walk_once(sets, |member| {
            members.push(member);
            ControlFlow::Continue(())
        }) {
            write_members(&collect(operation, sets, &limits)?, reply);
            return Ok(());
        }
        reply.set(members.len());
        members
            .iter()
            .for_each(|member| reply.bulk(member.as_bytes()));
        Ok(())
    })
}

fn keep(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> CommandResult {
    let keys: KeyList<'_> = args.map(|name| context.key(name)).collect();
    let Some((destination, sources)) = keys.split_first() else {
        return Err(CommandError::Syntax);
    };
    let (limits, pace) = (limits(context), context.pace);
    let len = context.store.locked(&keys, |store| {
        let set = with_sets(store, sources, pace, operation, |sets| {
            collect(operation, sets, &limits)
        })?;
        let len = set.len();
        store.modify(destination, |entry| put(entry, set, operation))?;
        Ok::<_, CommandError>(len)
    })?;
    reply.count(len);
    Ok(())
}

/// Stores a set at a key, or deletes the key if the set is empty, and states it.
fn put(entry: &mut Entry<'_>, set: Set, operation: Operation) -> CommandResult {
    let existed = entry.is_present();
    // Shares its pages.
    let stated = set.clone();
    if set.is_empty() {
        entry.remove();
    } else {
        entry.put(Owned::of_object(set.into_object(), None))?;
    }
    let key = entry.key();
    if existed {
        entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
    }
    if !stated.is_empty() {
        entry.effect(|effect| {
            let members: Vec<_> = stated.iter().collect();
            let mut parts: Vec<&[u8]> = vec![b"SADD", key.bytes()];
            parts.extend(members.iter().map(ElementText::as_bytes));
            effect.command(&parts);
        });
        entry.event(EventClass::SET, operation.stored_event());
    } else if existed {
        entry.event(EventClass::GENERIC, Event::DELETED);
    }
    Ok(())
}

/// The arguments of SINTERCARD and SUNIONCARD.
struct Counting<'a> {
    keys: KeyList<'a>,
    /// Maximum count.
    most: usize,
    /// Whether an estimate is enough.
    is_approximate: bool,
}

/// Parses `numkeys key [key ...]` and the options, with APPROX if the command has it.
fn counting<'a>(
    context: &Context<'_>,
    args: &mut Args<'a>,
    has_approx: bool,
) -> Result<Counting<'a>, CommandError> {
    let count = args
        .integer()
        .ok()
        .and_then(|count| usize::try_from(count).ok());
    let count = count
        .filter(|count| *count > 0)
        .ok_or(CommandError::fixed("ERR numkeys should be greater than 0"))?;
    if count > args.remaining() {
        return Err(CommandError::fixed(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    let keys: KeyList<'_> = args
        .by_ref()
        .take(count)
        .map(|name| context.key(name))
        .collect();
    let (mut most, mut is_approximate) = (0, false);
    while args.remaining() > 0 {
        if has_approx && args.take_word("APPROX") {
            is_approximate = true;
            continue;
        }
        if args.remaining() < 2 || !args.take_word("LIMIT") {
            return Err(CommandError::Syntax);
        }
        let limit = args
            .integer()
            .ok()
            .and_then(|limit| usize::try_from(limit).ok());
        most = limit.ok_or(CommandError::fixed("ERR LIMIT can't be negative"))?;
    }
    Ok(Counting {
        keys,
        most: if most == 0 { usize::MAX } else { most },
        is_approximate,
    })
}

fn sunioncard(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let Counting {
        keys,
        most,
        is_approximate,
    } = counting(context, args, true)?;
    let (limits, pace) = (limits(context), context.pace);
    let count = with_sets(context.store, &keys, pace, Operation::Union, |sets| {
        // Every member of a set is a member of the union.
        if sets.iter().any(|set| set.len() >= most) {
            return Ok(most);
        }
        let count = match is_approximate {
            true => estimate_union(sets),
            false => count_union(sets, most, &limits)?,
        };
        Ok(count.min(most))
    })?;
    reply.count(count);
    Ok(())
}

/// Returns the number of members of a union, at most `most`.
fn count_union(sets: &mut [&Set], most: usize, limits: &SetLimits) -> Result<usize, CommandError> {
    if let Some(numbers) = Operation::Union.numbers(sets) {
        return Ok(numbers.len());
    }
    let mut count = 0;
    let counts = walk_once(sets, |_| {
        count += 1;
        if count < most {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    if counts {
        return Ok(count);
    }
    Ok(collect(Operation::Union, sets, limits)?.len())
}

/// Estimates the number of members of a union with the registers of a HyperLogLog: in 16 KiB,
/// whatever the sets' sizes.
fn estimate_union(sets: &[&Set]) -> usize {
    let mut registers = Box::new([0; REGISTERS]);
    for member in sets.iter().flat_map(|set| set.iter()) {
        let (index, value) = register_of(member.as_bytes());
        registers[index] = registers[index].max(value);
    }
    usize::try_from(hyper_log_log::count(&registers)).unwrap_or(usize::MAX)
}

fn sintercard(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let Counting { keys, most, .. } = counting(context, args, false)?;
    let (operation, pace) = (Operation::Intersection, context.pace);
    let count = with_sets(context.store, &keys, pace, operation, |sets| {
        let mut count = 0;
        let mut one_more = || {
            count += 1;
            if count < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        if !operation.walk_numbers(sets, |_| one_more()) {
            operation.walk(sets, |_| one_more());
        }
        Ok(count)
    })?;
    reply.count(count);
    Ok(())
}
