//! Reads of sets.

use std::collections::HashSet;

use base::random::Prng;
use engine::args::Args;
use engine::context::Context;
use engine::error::CommandResult;
use engine::spec::{Arity, CommandSpec, Flags};
use protocol::Reply;
use structures::{ElementText, Set};

use super::{ASKED_KEY, READER, write_members};
use crate::chance::{RandomCount, Selection, Wanted, are_few};
use crate::structure;
use crate::structure::begins_batch;
use crate::walk::{WalkOptions, WalkWords, parse_cursor, write_cursor};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SMEMBERS",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY,
        summary: "Gives all members of a set.",
        complexity: "O(N) where N is the set cardinality.",
        syntax: "key",
        tips: &["nondeterministic_output_order"],
        handler: smembers,
        ..READER
    },
    CommandSpec {
        name: "SISMEMBER",
        element: Some(2),
        arity: Arity::Exactly(3),
        keys: ASKED_KEY,
        summary: "Says whether a member is in a set.",
        syntax: "key member",
        handler: sismember,
        ..READER
    },
    CommandSpec {
        name: "SMISMEMBER",
        arity: Arity::AtLeast(3),
        since: "6.2.0",
        summary: "Says of several members whether they are in a set.",
        complexity: "O(N) where N is the number of elements being checked for membership",
        syntax: "key member [member ...]",
        handler: smismember,
        ..READER
    },
    CommandSpec {
        name: "SCARD",
        needs_values: false,
        arity: Arity::Exactly(2),
        keys: ASKED_KEY,
        summary: "Says how many members a set has.",
        syntax: "key",
        handler: scard,
        ..READER
    },
    CommandSpec {
        name: "SSCAN",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        since: "2.8.0",
        summary: "Walks the members of a set a few at a time.",
        complexity: "O(1) a call, O(N) for the whole walk.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        tips: &["nondeterministic_output"],
        handler: sscan,
        ..READER
    },
    CommandSpec {
        name: "SRANDMEMBER",
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY,
        history: &[("2.6.0", "Takes a count.")],
        summary: "Gives members by chance: one, several different ones, or so many draws.",
        complexity: "O(1) without a count, otherwise O(N) where N is the count.",
        syntax: "key [count]",
        tips: &["nondeterministic_output"],
        handler: srandmember,
        ..READER
    },
];

fn smembers(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let pace = context.pace;
    structure::read(context, &key, reply, |set: Option<&Set>, reply| {
        match set {
            Some(set) => {
                pace.admit_steps(set.len())?;
                write_members(set, reply);
            }
            None => reply.set(0),
        }
        Ok(())
    })?
}

fn sismember(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let member = args.bytes()?;
    structure::read(context, &key, reply, |set: Option<&Set>, reply| {
        reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    })
}

fn smismember(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let members = args.rest();
    structure::read(context, &key, reply, |set: Option<&Set>, reply| {
        reply.array(members.len());
        let mut ahead = members;
        for (index, member) in members.enumerate() {
            if let Some(set) = set
                && begins_batch(index, members.len())
            {
                set.prefetch(ahead.by_ref());
            }
            reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
        }
    })
}

fn scard(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    structure::count(context, &key, reply, Set::len)
}

fn sscan(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let cursor = parse_cursor(args.bytes()?)?;
    structure::read(context, &key, reply, |set: Option<&Set>, reply| {
        // An absent key is answered before the options are checked, as in Redis.
        let Some(set) = set else {
            write_cursor(0, reply);
            reply.array(0);
            return Ok(());
        };
        let options = WalkOptions::parse(&mut args.clone(), WalkWords::Plain)?;
        let mut found = Vec::new();
        let next = set.scan(cursor, options.count, |member| {
            if options.accepts(member.as_bytes()) {
                found.push(member);
            }
        });
        write_cursor(next, reply);
        reply.array(found.len());
        for member in &found {
            reply.bulk(member.as_bytes());
        }
        Ok(())
    })?
}

fn srandmember(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let mut random = context.random.fork();
    if args.remaining() == 0 {
        return structure::read(context, &key, reply, |set: Option<&Set>, reply| {
            match set.and_then(|set| set.random(|| random.next_u64())) {
                Some(member) => reply.bulk(member.as_bytes()),
                None => reply.null(),
            }
        });
    }
    let count = RandomCount::parse(args, None)?.within(context.replies_bytes_max());
    let pace = context.pace;
    structure::read(context, &key, reply, |set: Option<&Set>, reply| {
        let Some(set) = set else {
            reply.array(0);
            return Ok(());
        };
        pace.admit(count.wanted()?.steps(set.len()))?;
        let chosen = choose(set, count.wanted()?, &mut random);
        reply.array(chosen.len());
        for member in &chosen {
            reply.bulk(member.as_bytes());
        }
        Ok(())
    })?
}

/// Returns random members.
pub(super) fn choose<'s>(set: &'s Set, wanted: Wanted, random: &mut Prng) -> Vec<ElementText<'s>> {
    match wanted {
        Wanted::Draws(count) => {
            let mut draw = || set.random(|| random.next_u64());
            std::iter::from_fn(&mut draw).take(count).collect()
        }
        Wanted::Different(count) if are_few(count, set.len()) => {
            let (mut seen, mut chosen) = (HashSet::new(), Vec::with_capacity(count));
            while chosen.len() < count
                && let Some(member) = set.random(|| random.next_u64())
            {
                if seen.insert(member.as_bytes().to_vec()) {
                    chosen.push(member);
                }
            }
            chosen
        }
        Wanted::Different(count) => {
            let mut selection = Selection::new(count, set.len());
            set.iter().filter(|_| selection.takes(random)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn texts(value: Value) -> Vec<Vec<u8>> {
        let Value::Array(elements) = value else {
            panic!("expected an array, got {value:?}");
        };
        let text = |element| match element {
            Value::Bulk(text) => text,
            other => panic!("expected a string, got {other:?}"),
        };
        elements.into_iter().map(text).collect()
    }

    #[test]
    fn chosen_members_are_different_ones() {
        for (len, prefix) in [(5, ""), (100, "m"), (300, ""), (1_000, "m")] {
            let mut server = TestServer::new();
            for number in 0..len {
                server.run(&format!("SADD s {prefix}{number}"));
            }
            for count in [0, 1, len / 4, len / 2, len, len + 5] {
                let chosen = texts(server.run(&format!("SRANDMEMBER s {count}")));
                assert_eq!(chosen.len(), count.min(len));
                let different: BTreeSet<_> = chosen.iter().collect();
                assert_eq!(different.len(), chosen.len());
            }
            assert_eq!(texts(server.run("SRANDMEMBER s -2000")).len(), 2_000);
        }
    }
}
