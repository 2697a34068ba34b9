//! Several sets combined.
//!
//! All keys are locked, so that the result is that of one moment and the sets can be looked at beside each
//! other. One set is gone through (of an intersection the smallest), and the others say which of its
//! members stay; nothing is copied but what is kept.

use std::ops::ControlFlow;

use protocol::Reply;
use store::{Entry, Event, EventClass, Handle, Key, Owned};
use structures::{AHEAD_MAX, ElementText, Set, SetLimits, Structure};

use super::{READER, limits, write_members};
use crate::args::Args;
use crate::context::{Context, Pace};
use crate::error::{CommandError, CommandResult};
use crate::keys::KeyList;
use crate::spec::{Arity, Begin, CommandSpec, Find, Flags, KeyAccess, KeySpec};

/// What the rows of commands that answer with the result begin with.
const COMBINER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    keys: &[KeySpec::range(
        1,
        -1,
        1,
        KeyAccess::RO.and(KeyAccess::ACCESS),
    )],
    complexity: "O(N) where N is the number of members in all sets.",
    syntax: "key [key ...]",
    tips: &["nondeterministic_output_order"],
    ..READER
};

/// What the rows of commands that keep the result begin with.
const KEEPER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[
        KeySpec::one(1, KeyAccess::OW.and(KeyAccess::UPDATE)),
        KeySpec::range(2, -1, 1, KeyAccess::RO.and(KeyAccess::ACCESS)),
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
            KeySpec::one(1, KeyAccess::RW.and(KeyAccess::UPDATE)),
            KeySpec::range(2, -1, 1, KeyAccess::RO.and(KeyAccess::ACCESS)),
        ],
        summary: "Keeps the members that all of several sets have as a set.",
        complexity: "O(N*M) where N is the size of the smallest of M sets.",
        handler: |context, args, reply| keep(context, args, reply, Operation::Intersection),
        ..KEEPER
    },
    CommandSpec {
        name: "SINTERCARD",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY.and(Flags::MOVABLE_KEYS),
        keys: &[KeySpec {
            begin: Begin::Index(1),
            find: Find::Count {
                count: 0,
                first: 1,
                step: 1,
            },
            access: KeyAccess::RO.and(KeyAccess::ACCESS),
            notes: "",
        }],
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

/// A table of so many members may not be in the cache: its members are asked for ahead.
const AHEAD_FROM_LEN: usize = 8_192;

/// An insertion into a growing set costs about as much as so many look-ups.
const LOOKUPS_PER_INSERTION: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

impl Operation {
    /// Shows the members of the result, of a union some more than once, until `visit` breaks off.
    fn walk<'s>(
        self,
        sets: &mut [&'s Set],
        mut visit: impl FnMut(ElementText<'s>) -> ControlFlow<()>,
    ) {
        // Whoever breaks off knows that.
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

    /// The event of keeping its result.
    fn stored_event(self) -> &'static str {
        match self {
            Self::Intersection => "sinterstore",
            Self::Union => "sunionstore",
            Self::Difference => "sdiffstore",
        }
    }

    /// How many look-ups it takes, at most.
    fn lookups(self, sets: &[&Set]) -> usize {
        let mut lens = sets.iter().map(|set| set.len());
        match self {
            Self::Intersection => sets.len() * lens.min().unwrap_or(0),
            Self::Union => lens.sum(),
            Self::Difference => sets.len() * lens.next().unwrap_or(0),
        }
    }
}

/// Shows the sets at the keys, as of one moment, if this is no work for another thread. Where there is none
/// it is an empty one.
fn with_sets<R>(
    store: &mut Handle,
    keys: &[Key<'_>],
    pace: Pace,
    operation: Operation,
    visit: impl FnOnce(&mut [&Set]) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    let none = Set::new();
    store.read_all(keys, |records| {
        let sets = records.iter().map(|record| match record {
            Some(record) => record.structure(),
            None => Ok(&none),
        });
        let mut sets = sets.collect::<Result<Vec<&Set>, _>>()?;
        pace.admit(operation.lookups(&sets))?;
        visit(&mut sets)
    })
}

/// Shows the members of a union, each once, if that takes fewer look-ups than making a set of them would:
/// those of the largest set, and of each other one what none before it has. Whether it does.
fn walk_once<'s>(sets: &mut [&'s Set], mut visit: impl FnMut(ElementText<'s>)) -> bool {
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
        let _to_the_end = sift(set, &sets[..at], false, |member| {
            visit(member);
            ControlFlow::Continue(())
        });
    }
    true
}

/// Shows the members of the first set that all others have (or none of them).
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

/// Shows the members of a set that all others have (or none of them).
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

/// The result as a set of its own.
fn collect(
    operation: Operation,
    sets: &mut [&Set],
    limits: &SetLimits,
) -> Result<Set, CommandError> {
    let (mut result, mut inserted) = (Set::new(), Ok(true));
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

fn combine(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> CommandResult {
    let keys: KeyList<'_> = args.map(|name| context.key(name)).collect();
    let (limits, pace) = (limits(context), context.pace);
    with_sets(context.store, &keys, pace, operation, |sets| {
        // They are unlike, as those of the set are that they come from.
        let mut members = Vec::new();
        if operation != Operation::Union {
            operation.walk(sets, |member| {
                members.push(member);
                ControlFlow::Continue(())
            });
        } else if !walk_once(sets, |member| members.push(member)) {
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

/// Makes a key hold a set, or nothing if it is empty, and states it.
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

fn sintercard(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
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
    let mut most = 0;
    while args.remaining() > 0 {
        if args.remaining() < 2 || !args.take_word("LIMIT") {
            return Err(CommandError::Syntax);
        }
        let limit = args
            .integer()
            .ok()
            .and_then(|limit| usize::try_from(limit).ok());
        most = limit.ok_or(CommandError::fixed("ERR LIMIT can't be negative"))?;
    }
    let most = if most == 0 { usize::MAX } else { most };
    let (operation, pace) = (Operation::Intersection, context.pace);
    let count = with_sets(context.store, &keys, pace, operation, |sets| {
        let mut count = 0;
        operation.walk(sets, |_| {
            count += 1;
            if count < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        Ok(count)
    })?;
    reply.count(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestServer;

    #[test]
    fn a_union_has_each_member_once_however_it_is_made() {
        let mut server = TestServer::new();
        let sizes = [0, 3, 600, 9_000, 20_000, 20_000];
        for (at, size) in sizes.into_iter().enumerate() {
            for start in (0..size).step_by(1_000) {
                let end = size.min(start + 1_000);
                let members: Vec<String> = (start..end)
                    .map(|number| format!("m{}", number * (at + 1)))
                    .collect();
                server.run(&format!("SADD s{at} {}", members.join(" ")));
            }
        }
        let unions = [
            "s0",
            "s1 s0",
            "s1 s2",
            "s2 s3",
            "s3 s4",
            "s4 s5 s3",
            "s4 s4",
            "s5 s4 s3 s2 s1 s0",
            "s4 s4 s4 s4 s4 s4 s5",
        ];
        for keys in unions {
            let protocol::Value::Array(mut members) = server.run(&format!("SUNION {keys}")) else {
                panic!("no array");
            };
            let count = members.len();
            members.sort_by_key(|member| format!("{member:?}"));
            members.dedup();
            assert_eq!(members.len(), count, "{keys}");
            let stored = server.integer(&format!("SUNIONSTORE u {keys}"));
            assert_eq!(i64::try_from(count).unwrap(), stored, "{keys}");
            let both = server.integer(&format!("SINTERCARD 2 u {}", &keys[..2]));
            assert_eq!(both, server.integer(&format!("SCARD {}", &keys[..2])));
        }
    }

    fn filled() -> TestServer {
        let mut server = TestServer::new();
        server.run("SADD one a b c d 1");
        server.run("SADD two b c 1 2");
        server.run("SADD three c 1 3");
        server
    }

    #[test]
    fn results_are_kept_and_stated_as_members() {
        let mut server = filled();
        assert_eq!(server.integer("SINTERSTORE r one two three"), 2);
        assert_eq!(server.integer("SUNIONSTORE r one two three"), 7);
        assert_eq!(server.integer("SDIFFSTORE one one two"), 2);
        assert_eq!(server.integer("SDIFFSTORE two none one"), 0);
        assert_eq!(server.integer("EXISTS two"), 0);
        let effects = server.effects();
        assert_eq!(effects[3], "SADD r c 1");
        assert_eq!(effects[4], "DEL r");
        assert_eq!(effects[6], "DEL one");
        assert_eq!(effects[7], "SADD one a d");
        assert_eq!(effects[8], "DEL two");
        server.assert_effects_replay();
    }

    #[test]
    fn an_intersection_is_counted_up_to_its_limit() {
        let mut server = filled();
        assert_eq!(server.integer("SINTERCARD 2 one two"), 3);
        assert_eq!(server.integer("SINTERCARD 2 one two LIMIT 2"), 2);
        assert_eq!(server.integer("SINTERCARD 1 one LIMIT 2"), 2);
        assert_eq!(server.integer("SINTERCARD 2 one none LIMIT 0"), 0);
    }

    #[test]
    fn sets_of_many_are_combined() {
        let mut server = TestServer::new();
        for member in 0..6_000 {
            server.run(&format!("SADD thirds m:{}", 3 * member));
            server.run(&format!("SADD halves m:{}", 2 * member));
        }
        assert_eq!(server.integer("SINTERCARD 2 thirds halves"), 2_000);
        assert_eq!(server.integer("SINTERSTORE sixths thirds halves"), 2_000);
        assert_eq!(server.integer("SISMEMBER sixths m:11994"), 1);
        assert_eq!(server.integer("SINTERCARD 2 thirds halves LIMIT 7"), 7);
        // Large enough to be asked for ahead.
        for member in 6_000..9_000 {
            server.run(&format!("SADD thirds m:{}", 3 * member));
            server.run(&format!("SADD halves m:{}", 2 * member));
        }
        assert_eq!(server.integer("SINTERCARD 2 thirds halves"), 3_000);
        assert_eq!(server.integer("SINTERCARD 2 thirds halves LIMIT 40"), 40);
        assert_eq!(server.integer("SDIFFSTORE odd thirds halves"), 6_000);
        assert_eq!(server.integer("SISMEMBER odd m:26997"), 1);
        assert_eq!(server.integer("SISMEMBER odd m:17994"), 0);
    }

    #[test]
    fn what_is_no_set_is_refused_and_nothing_changes() {
        let mut server = filled();
        server.run("SET text x");
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(server.error("SINTERSTORE r none text"), wrong);
        assert_eq!(server.error("SUNION one text"), wrong);
        assert_eq!(server.error("SDIFF none text"), wrong);
        assert_eq!(server.integer("EXISTS r"), 0);
        assert_eq!(server.integer("SUNIONSTORE text one"), 5);
    }
}
