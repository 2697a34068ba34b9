//! Removal at the ends: ZPOPMIN ZPOPMAX ZMPOP.

use engine::args::Args;
use engine::context::{Context, Pace};
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, EventClass, Key};
use structures::SortedSet;

use super::shared::{Shape, positive, state_removed};
use engine::keys::KeyList;

pub(super) const TAKEN: KeyAccess = KeyAccess::RW
    .with(KeyAccess::ACCESS)
    .with(KeyAccess::DELETE);

const POP: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(1, TAKEN)],
    group: Group::SortedSet,
    since: "5.0.0",
    complexity: "O(log(N)*M) where N is the number of members of the set and M the number of \
                 members taken.",
    syntax: "key [count]",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ZPOPMIN",
        summary: "Takes the members with the lowest scores.",
        handler: |context, args, reply| pop(context, args, reply, End::Lowest),
        ..POP
    },
    CommandSpec {
        name: "ZPOPMAX",
        summary: "Takes the members with the highest scores.",
        handler: |context, args, reply| pop(context, args, reply, End::Highest),
        ..POP
    },
    CommandSpec {
        name: "ZMPOP",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE.with(Flags::MOVABLE_KEYS),
        keys: &[KeySpec {
            begin: Begin::Index(1),
            find: Find::Count {
                count: 0,
                first: 1,
                step: 1,
            },
            access: TAKEN,
            notes: "",
        }],
        group: Group::SortedSet,
        since: "7.0.0",
        summary: "Takes members of the first of several sorted sets that exists.",
        complexity: "O(K+M*log(N)) where K is the number of keys, N the number of members of the \
                     set and M the number of members taken.",
        syntax: "numkeys:integer key [key ...] <MIN | MAX> [COUNT count]",
        handler: pop_from_several,
        ..CommandSpec::BLANK
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// ZPOPMIN.
    Lowest,
    /// ZPOPMAX.
    Highest,
}

fn pop(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    end: End,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    if args.remaining() > 1 {
        return Err(CommandError::Syntax);
    }
    let with_count = args.remaining() == 1;
    let count = match with_count {
        true => args
            .integer()
            .ok()
            .and_then(|count| usize::try_from(count).ok()),
        false => Some(1),
    };
    let count = count.ok_or(CommandError::fixed(
        "ERR value is out of range, must be positive",
    ))?;
    let shape = match with_count {
        true => Shape::of(true, reply),
        false => Shape::Flat,
    };
    let pace = context.pace;
    context.store.modify(&key, |entry| {
        if !take(entry, reply, end, count, shape, pace)? {
            reply.array(0);
        }
        Ok(())
    })
}

/// Writes up to `count` members from an end of the set at a key, and removes them. Returns whether
/// there is such a set.
pub(super) fn take(
    entry: &mut Entry<'_>,
    reply: &mut Reply<'_>,
    end: End,
    count: usize,
    shape: Shape,
    pace: Pace,
) -> Result<bool, CommandError> {
    let taken = entry.change(|set: &mut SortedSet| {
        let count = count.min(set.len());
        pace.admit(count)?;
        let ranks = match end {
            End::Lowest => 0..count,
            End::Highest => set.len() - count..set.len(),
        };
        shape.begin(reply, count);
        let members = set.range(ranks.clone());
        match end {
            End::Lowest => members.for_each(|one| shape.write(reply, &one)),
            End::Highest => members.rev().for_each(|one| shape.write(reply, &one)),
        }
        set.remove_range(ranks.clone(), |_| {});
        Ok::<_, CommandError>(ranks)
    })?;
    let taken = taken.transpose()?;
    if let Some(ranks) = &taken
        && !ranks.is_empty()
    {
        state_removed(entry, ranks.clone());
        let name = match end {
            End::Lowest => "zpopmin",
            End::Highest => "zpopmax",
        };
        entry.event_of_taking(EventClass::SORTED_SET, name);
    }
    Ok(taken.is_some())
}

fn pop_from_several(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let keys_count = positive(args, "ERR numkeys should be greater than 0")?;
    if keys_count >= args.remaining() {
        return Err(CommandError::Syntax);
    }
    let names = args.by_ref().take(keys_count);
    let keys: KeyList<'_> = names.map(|name| context.key(name)).collect();
    let end = end_word(args)?;
    let count = count_option(args)?;
    context.locked(&keys, |context| {
        for key in &*keys {
            if pop_first(context, key, reply, end, count)? {
                return Ok(());
            }
        }
        reply.null_array();
        Ok(())
    })
}

/// Takes the next argument as an end: MIN or MAX.
pub(super) fn end_word(args: &mut Args<'_>) -> Result<End, CommandError> {
    match () {
        () if args.take_word("MIN") => Ok(End::Lowest),
        () if args.take_word("MAX") => Ok(End::Highest),
        () => Err(CommandError::Syntax),
    }
}

/// Replies with members of one key. Returns false if there is no such key.
fn pop_first(
    context: &mut Context<'_>,
    key: &Key<'_>,
    reply: &mut Reply<'_>,
    end: End,
    count: usize,
) -> Result<bool, CommandError> {
    let pace = context.pace;
    context.store.modify(key, |entry| {
        if !entry.is_present() {
            return Ok(false);
        }
        let mark = reply.mark();
        reply.array(2);
        reply.bulk(key.bytes());
        let taken = take(entry, reply, end, count, Shape::Pairs, pace);
        if taken.is_err() {
            reply.rollback(mark);
        }
        taken
    })
}

/// Parses COUNT with a number, at most once. Returns 1 without it.
pub(super) fn count_option(args: &mut Args<'_>) -> Result<usize, CommandError> {
    if args.remaining() == 0 {
        return Ok(1);
    }
    if args.remaining() == 1 || !args.take_word("COUNT") {
        return Err(CommandError::Syntax);
    }
    let count = positive(args, "ERR count should be greater than 0")?;
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn members_leave_from_either_end() {
        let mut server = TestServer::new();
        server.run("ZADD z 1 a 2 b 3 c 4 d 5 e");
        assert_eq!(server.texts("ZPOPMIN z"), ["a", "1"]);
        assert_eq!(server.texts("ZPOPMAX z 2"), ["e", "5", "d", "4"]);
        assert_eq!(server.texts("ZPOPMIN z 0"), [""; 0]);
        assert_eq!(server.texts("ZPOPMIN none"), [""; 0]);
        assert_eq!(
            server.error("ZPOPMIN z -1"),
            "ERR value is out of range, must be positive"
        );
        assert_eq!(server.error("ZPOPMIN z 1 2"), "ERR syntax error");
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        assert_eq!(
            server.run("ZMPOP 2 none z MAX COUNT 1"),
            Value::Array(vec![
                bulk("z"),
                Value::Array(vec![Value::Array(vec![bulk("c"), bulk("3")])])
            ])
        );
        assert_eq!(server.run("ZMPOP 1 none MIN"), Value::NullArray);
        assert_eq!(server.texts("ZPOPMAX z 9"), ["b", "2"]);
        assert_eq!(server.integer("EXISTS z"), 0);
        assert_eq!(
            server.effects()[1..],
            [
                "ZREMRANGEBYRANK z 0 0",
                "ZREMRANGEBYRANK z 2 3",
                "ZREMRANGEBYRANK z 1 1",
                "ZREMRANGEBYRANK z 0 0"
            ]
        );
        server.assert_effects_replay();
    }
}
