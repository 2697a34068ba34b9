//! Several sets combined.
//!
//! All keys are locked, so that the result is that of one moment. Members are copied out of one set
//! (of an intersection the smallest, in batches), then each other set says which of them stay.

use protocol::Reply;
use store::{Entry, Handle, Key, Owned};
use structures::{ElementText, Set, SetLimits, Structure};

use super::members::Members;
use super::{READER, limits, state};
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

/// Members of the smallest set that the others are asked about at once: few at first, for those who
/// want few.
const BATCH_MIN: usize = 32;
/// … and then more, so that finding the sets again costs nothing beside it.
const BATCH_MAX: usize = 4_096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

impl Operation {
    /// The members of the result; of an intersection not many more than `most`.
    fn result(
        self,
        store: &mut Handle,
        keys: &[Key<'_>],
        limits: &SetLimits,
        most: usize,
        pace: Pace,
    ) -> Result<Members, CommandError> {
        let lens = lens(store, keys)?;
        pace.admit(self.lookups(&lens))?;
        match self {
            Self::Intersection => intersection(store, keys, &lens, most),
            Self::Union => union(store, keys, limits),
            Self::Difference => difference(store, keys),
        }
    }
}

impl Operation {
    /// How many look-ups it takes, at most, over sets with so many members.
    fn lookups(self, lens: &[usize]) -> usize {
        match self {
            Self::Intersection => lens.len() * lens.iter().min().map_or(0, |least| *least),
            Self::Union => lens.iter().sum(),
            Self::Difference => lens.len() * lens.first().map_or(0, |first| *first),
        }
    }
}

/// How many members each set has; the first look at each, which refuses what is no set.
fn lens(store: &mut Handle, keys: &[Key<'_>]) -> Result<Vec<usize>, CommandError> {
    let len = |key| visit(store, key, |set| set.map_or(0, Set::len));
    keys.iter().map(len).collect()
}

/// Shows the set at a key. The key is locked, so `look` runs once.
fn visit<R>(
    store: &mut Handle,
    key: &Key<'_>,
    mut look: impl FnMut(Option<&Set>) -> R,
) -> Result<R, CommandError> {
    store.read(key, |record| {
        let set = record.map(|record| record.structure::<Set>()).transpose()?;
        Ok(look(set))
    })
}

/// Asks the other sets about members of the smallest, batch by batch, until there are `most`; a few
/// more may be given.
fn intersection(
    store: &mut Handle,
    keys: &[Key<'_>],
    lens: &[usize],
    most: usize,
) -> Result<Members, CommandError> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|index| lens[*index]);
    let mut members = Members::default();
    let Some((smallest, others)) = order.split_first().filter(|(first, _)| lens[**first] > 0)
    else {
        return Ok(members);
    };
    let (mut cursor, mut count) = (0, BATCH_MIN);
    loop {
        let mut batch = Members::default();
        cursor = visit(store, &keys[*smallest], |set| {
            let push = |member: ElementText<'_>| batch.push(member.as_bytes());
            set.map_or(0, |set| set.scan(cursor, count, push))
        })?;
        for other in others {
            if batch.is_empty() {
                break;
            }
            visit(store, &keys[*other], |set| {
                batch.retain(|member| set.is_some_and(|set| set.contains(member)));
            })?;
        }
        members.append(&batch);
        if cursor == 0 || members.len() >= most {
            return Ok(members);
        }
        count = (2 * count).min(BATCH_MAX);
    }
}

fn union(
    store: &mut Handle,
    keys: &[Key<'_>],
    limits: &SetLimits,
) -> Result<Members, CommandError> {
    let mut seen = Set::new();
    let mut members = Members::default();
    for key in keys {
        let added = visit(store, key, |set| {
            for member in set.into_iter().flat_map(Set::iter) {
                if seen.insert(member.as_bytes(), limits)? {
                    members.push(member.as_bytes());
                }
            }
            Ok::<_, CommandError>(())
        })?;
        added?;
    }
    Ok(members)
}

fn difference(store: &mut Handle, keys: &[Key<'_>]) -> Result<Members, CommandError> {
    let Some((first, others)) = keys.split_first() else {
        return Ok(Members::default());
    };
    let mut members = visit(store, first, |set| set.map(Members::of).unwrap_or_default())?;
    for key in others {
        if members.is_empty() {
            break;
        }
        visit(store, key, |set| {
            if let Some(set) = set {
                members.retain(|member| !set.contains(member));
            }
        })?;
    }
    Ok(members)
}

fn combine(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> CommandResult {
    let keys: KeyList<'_> = args.map(|name| context.key(name)).collect();
    let (limits, pace) = (limits(context), context.pace);
    let members = context.store.locked(&keys, |store| {
        operation.result(store, &keys, &limits, usize::MAX, pace)
    })?;
    reply.set(members.len());
    members.iter().for_each(|member| reply.bulk(member));
    Ok(())
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
        let members = operation.result(store, sources, &limits, usize::MAX, pace)?;
        let mut set = Set::new();
        for member in members.iter() {
            set.insert(member, &limits)?;
        }
        store.modify(destination, |entry| put(entry, set, &members))?;
        Ok::<_, CommandError>(members.len())
    })?;
    reply.count(len);
    Ok(())
}

/// Makes a key hold a set of these members, or nothing if there are none, and states it.
fn put(entry: &mut Entry<'_>, set: Set, members: &Members) -> CommandResult {
    let existed = entry.is_present();
    if members.is_empty() {
        entry.remove();
    } else {
        entry.put(Owned::of_object(set.into_object(), None))?;
    }
    let key = entry.key();
    if existed {
        entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
    }
    if !members.is_empty() {
        state(entry, b"SADD", members.iter());
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
    let (limits, pace) = (limits(context), context.pace);
    let members = context.store.locked(&keys, |store| {
        Operation::Intersection.result(store, &keys, &limits, most, pace)
    })?;
    reply.count(members.len().min(most));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestServer;

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
    fn an_intersection_of_many_is_found_batch_by_batch() {
        let mut server = TestServer::new();
        for member in 0..6_000 {
            server.run(&format!("SADD thirds m:{}", 3 * member));
            server.run(&format!("SADD halves m:{}", 2 * member));
        }
        assert_eq!(server.integer("SINTERCARD 2 thirds halves"), 2_000);
        assert_eq!(server.integer("SINTERSTORE sixths thirds halves"), 2_000);
        assert_eq!(server.integer("SISMEMBER sixths m:11994"), 1);
        assert_eq!(server.integer("SINTERCARD 2 thirds halves LIMIT 7"), 7);
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
