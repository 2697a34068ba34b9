//! Removal of members: ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX.

use std::ops::Range;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use store::EventClass;
use structures::SortedSet;

use super::bounds::{MemberRange, ScoreRange};
use super::shared::{CUT_KEY, ranks, state_removed};
use crate::structure::write_count;

const BY_RANGE: CommandSpec = CommandSpec {
    arity: Arity::Exactly(4),
    flags: Flags::WRITE,
    keys: CUT_KEY,
    group: Group::SortedSet,
    complexity: "O(log(N)*M) where N is the number of members of the set and M the number of \
                 members removed.",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ZREM",
        arity: Arity::AtLeast(3),
        element: Some(2),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: CUT_KEY,
        group: Group::SortedSet,
        since: "1.2.0",
        history: &[("2.4.0", "Takes several members.")],
        summary: "Removes members.",
        complexity: "O(M*log(N)) where N is the number of members of the set and M the number of \
                     members removed.",
        syntax: "key member [member ...]",
        handler: zrem,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "ZREMRANGEBYRANK",
        since: "2.0.0",
        summary: "Removes the members between two ranks.",
        syntax: "key start stop:integer",
        handler: |context, args, reply| {
            let key = args.bytes()?;
            let (start, end) = (args.integer()?, args.integer()?);
            let which = |set: &SortedSet| ranks(start, end, set.len());
            remove(context, key, reply, "zremrangebyrank", which)
        },
        ..BY_RANGE
    },
    CommandSpec {
        name: "ZREMRANGEBYSCORE",
        since: "1.2.0",
        summary: "Removes the members between two scores.",
        syntax: "key min:double max:double",
        handler: |context, args, reply| {
            let key = args.bytes()?;
            let range = ScoreRange::parse(args.bytes()?, args.bytes()?)?;
            remove(context, key, reply, "zremrangebyscore", |set| {
                range.ranks(set)
            })
        },
        ..BY_RANGE
    },
    CommandSpec {
        name: "ZREMRANGEBYLEX",
        since: "2.8.9",
        summary: "Removes the members between two of them, where all scores are the same.",
        syntax: "key min max",
        handler: |context, args, reply| {
            let key = args.bytes()?;
            let range = MemberRange::parse(args.bytes()?, args.bytes()?)?;
            remove(context, key, reply, "zremrangebylex", |set| {
                range.ranks(set)
            })
        },
        ..BY_RANGE
    },
];

fn zrem(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let count = context.store.modify(&key, |entry| {
        let removed = entry.change(|set: &mut SortedSet| {
            let is_removed = |member: &&[u8]| set.remove(member).is_some();
            args.filter(is_removed).collect::<Vec<_>>()
        })?;
        let removed = removed.unwrap_or_default();
        if !removed.is_empty() {
            entry.effect(|effect| {
                let mut parts: Vec<&[u8]> = vec![b"ZREM", key.bytes()];
                parts.extend(&removed);
                effect.command(&parts);
            });
            entry.event_of_taking(EventClass::SORTED_SET, "zrem");
        }
        Ok::<_, CommandError>(removed.len())
    })?;
    write_count(reply, count);
    Ok(())
}

/// Removes the members whose ranks `which` returns.
fn remove(
    context: &mut Context<'_>,
    key: &[u8],
    reply: &mut Reply<'_>,
    event: &'static str,
    which: impl FnOnce(&SortedSet) -> Range<usize>,
) -> CommandResult {
    let (key, pace) = (context.key(key), context.pace);
    let count = context.store.modify(&key, |entry| {
        let removed = entry.change(|set: &mut SortedSet| {
            let ranks = which(set);
            pace.admit(ranks.len())?;
            set.remove_range(ranks.clone(), |_| {});
            Ok::<_, CommandError>(ranks)
        })?;
        let ranks = removed.transpose()?.unwrap_or_default();
        if !ranks.is_empty() {
            state_removed(entry, ranks.clone());
            entry.event_of_taking(EventClass::SORTED_SET, event);
        }
        Ok::<_, CommandError>(ranks.len())
    })?;
    write_count(reply, count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn what_was_there_goes() {
        let mut server = TestServer::new();
        server.run("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g");
        assert_eq!(server.integer("ZREM z a none b a"), 2);
        assert_eq!(server.integer("ZREM z none"), 0);
        assert_eq!(server.integer("ZREMRANGEBYRANK z 0 0"), 1);
        assert_eq!(server.integer("ZREMRANGEBYRANK z 5 1"), 0);
        assert_eq!(server.integer("ZREMRANGEBYSCORE z (4 5"), 1);
        assert_eq!(server.texts("ZRANGE z 0 -1"), ["d", "f", "g"]);
        assert_eq!(server.integer("ZREMRANGEBYLEX z - +"), 3);
        assert_eq!(server.integer("EXISTS z"), 0);
        assert_eq!(server.integer("ZREMRANGEBYLEX z - +"), 0);
        assert_eq!(
            server.effects()[1..],
            [
                "ZREM z a b",
                "ZREMRANGEBYRANK z 0 0",
                "ZREMRANGEBYRANK z 1 1",
                "ZREMRANGEBYRANK z 0 2"
            ]
        );
        server.assert_effects_replay();
    }
}
