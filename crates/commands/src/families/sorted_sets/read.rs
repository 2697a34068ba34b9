//! Scores, ranks and counts: ZSCORE ZMSCORE ZCARD ZCOUNT ZLEXCOUNT ZRANK ZREVRANK.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use structures::SortedSet;

use super::bounds::{MemberRange, ScoreRange};
use super::shared::{READ_KEY, write_score};
use crate::structure::{self, write_count};

const READER: CommandSpec = CommandSpec {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: READ_KEY,
    group: Group::SortedSet,
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ZSCORE",
        arity: Arity::Exactly(3),
        element: Some(2),
        since: "1.2.0",
        summary: "Gives the score of a member.",
        syntax: "key member",
        handler: zscore,
        ..READER
    },
    CommandSpec {
        name: "ZMSCORE",
        arity: Arity::AtLeast(3),
        element: Some(2),
        since: "6.2.0",
        summary: "Gives the scores of several members.",
        complexity: "O(N) where N is the number of members asked for.",
        syntax: "key member [member ...]",
        handler: zmscore,
        ..READER
    },
    CommandSpec {
        name: "ZCARD",
        needs_values: false,
        arity: Arity::Exactly(2),
        keys: &[KeySpec::one(1, KeyAccess::RO)],
        since: "1.2.0",
        summary: "Tells how many members a sorted set has.",
        syntax: "key",
        handler: |context, args, reply| {
            let key = context.key(args.bytes()?);
            structure::count(context, &key, reply, SortedSet::len)
        },
        ..READER
    },
    CommandSpec {
        name: "ZCOUNT",
        arity: Arity::Exactly(4),
        since: "2.0.0",
        summary: "Counts the members between two scores.",
        complexity: "O(log(N)) where N is the number of members of the set.",
        syntax: "key min:double max:double",
        handler: |context, args, reply| {
            let range = ScoreRange::parse(bound(args, 2), bound(args, 3))?;
            count(context, args, reply, |set| range.ranks(set).len())
        },
        ..READER
    },
    CommandSpec {
        name: "ZLEXCOUNT",
        arity: Arity::Exactly(4),
        since: "2.8.9",
        summary: "Counts the members between two of them, where all scores are the same.",
        complexity: "O(log(N)) where N is the number of members of the set.",
        syntax: "key min max",
        handler: |context, args, reply| {
            let range = MemberRange::parse(bound(args, 2), bound(args, 3))?;
            count(context, args, reply, |set| range.ranks(set).len())
        },
        ..READER
    },
    CommandSpec {
        name: "ZRANK",
        arity: Arity::AtLeast(3),
        element: Some(2),
        since: "2.0.0",
        history: &[("7.2.0", "Added `WITHSCORE`.")],
        summary: "Tells how many members are before one.",
        complexity: "O(log(N))",
        syntax: "key member [WITHSCORE]",
        handler: |context, args, reply| rank(context, args, reply, false),
        ..READER
    },
    CommandSpec {
        name: "ZREVRANK",
        arity: Arity::AtLeast(3),
        element: Some(2),
        since: "2.0.0",
        history: &[("7.2.0", "Added `WITHSCORE`.")],
        summary: "Tells how many members are behind one.",
        complexity: "O(log(N))",
        syntax: "key member [WITHSCORE]",
        handler: |context, args, reply| rank(context, args, reply, true),
        ..READER
    },
];

fn zscore(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let member = args.bytes()?;
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        write_score(reply, set.and_then(|set| set.score(member)));
    })
}

fn zmscore(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let request = args.request();
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        reply.array(request.len() - 2);
        for member in request.iter().skip(2) {
            write_score(reply, set.and_then(|set| set.score(member)));
        }
    })
}

/// Returns the argument at an index that the arity guarantees.
fn bound<'a>(args: &Args<'a>, at: usize) -> &'a [u8] {
    args.request().arg(at).unwrap_or_default()
}

/// Replies with the number that `of` computes from the set, or 0 if there is no set.
fn count(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    of: impl Fn(&SortedSet) -> usize,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        write_count(reply, set.map_or(0, &of));
    })
}

fn rank(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    is_from_end: bool,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let member = args.bytes()?;
    if args.remaining() > 1 {
        let name = if is_from_end { "zrevrank" } else { "zrank" };
        return Err(CommandError::WrongArity(name.into()));
    }
    let with_score = args.take_word("WITHSCORE");
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        let found = set.and_then(|set| {
            let (rank, score) = set.rank(member)?;
            let rank = if is_from_end {
                set.len() - 1 - rank
            } else {
                rank
            };
            Some((rank, score))
        });
        match found {
            None if with_score => reply.null_array(),
            None => reply.null(),
            Some((rank, score)) => {
                if with_score {
                    reply.array(2);
                }
                write_count(reply, rank);
                if with_score {
                    reply.double(score);
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn scores_ranks_and_counts_are_found() {
        let mut server = TestServer::new();
        server.run("ZADD z 1 a 2.5 b 3 c");
        assert_eq!(server.text("ZSCORE z b"), "2.5");
        assert_eq!(server.run("ZSCORE z none"), Value::Null);
        assert_eq!(server.integer("ZRANK z b"), 1);
        assert_eq!(server.integer("ZREVRANK z a"), 2);
        assert_eq!(
            server.run("ZRANK z c WITHSCORE"),
            Value::Array(vec![Value::Integer(2), Value::Bulk(b"3".to_vec())])
        );
        assert_eq!(server.run("ZRANK z none WITHSCORE"), Value::NullArray);
        assert_eq!(server.integer("ZCOUNT z (1 +inf"), 2);
        assert_eq!(server.integer("ZCOUNT z 3 1"), 0);
        assert_eq!(server.integer("ZCARD z"), 3);
        assert_eq!(server.integer("ZLEXCOUNT none - +"), 0);
        assert_eq!(server.error("ZRANK z a x"), "ERR syntax error");
        assert!(server.error("ZCOUNT z a b").contains("is not a float"));
    }

    #[test]
    fn scores_are_doubles_in_resp3() {
        let mut server = TestServer::resp3();
        server.run("ZADD z 1.5 a");
        let Value::Double(score) = server.run("ZSCORE z a") else {
            panic!("a score is a double");
        };
        assert_eq!(score.text, "1.5");
    }
}
