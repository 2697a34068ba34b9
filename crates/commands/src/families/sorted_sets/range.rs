//! Members between two ranks, scores or members: ZRANGE, its older forms, and ZRANGESTORE.

use std::ops::Range;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Deprecation, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use structures::{Scored, SortedSet};

use super::bounds::{MemberRange, ScoreRange};
use super::shared::{READ_KEY, Shape, full, ranks, store_result};
use crate::structure::{self, write_count};

const RANGE: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::SortedSet,
    complexity: "O(log(N)+M) where N is the number of members of the set and M the number of \
                 members returned.",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ZRANGE",
        since: "1.2.0",
        history: &[("6.2.0", "Added `REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")],
        summary: "Gives the members between two ranks, scores or members.",
        syntax: "key start:string stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        handler: |context, args, reply| range(context, args, reply, None, None),
        ..RANGE
    },
    CommandSpec {
        name: "ZREVRANGE",
        since: "1.2.0",
        deprecated: instead("`ZRANGE` with the `REV` argument"),
        summary: "Gives the members between two ranks from the end, backwards.",
        syntax: "key start stop:integer [WITHSCORES]",
        handler: |context, args, reply| range(context, args, reply, Some(Unit::Rank), Some(true)),
        ..RANGE
    },
    CommandSpec {
        name: "ZRANGEBYSCORE",
        since: "1.0.5",
        history: &[("2.0.0", "Added `WITHSCORES`.")],
        deprecated: instead("`ZRANGE` with the `BYSCORE` argument"),
        summary: "Gives the members between two scores.",
        syntax: "key min:double max:double [WITHSCORES] [LIMIT offset count]",
        handler: |context, args, reply| range(context, args, reply, Some(Unit::Score), Some(false)),
        ..RANGE
    },
    CommandSpec {
        name: "ZREVRANGEBYSCORE",
        since: "2.2.0",
        history: &[("2.1.6", "Bounds may be left out of the range.")],
        deprecated: instead("`ZRANGE` with the `REV` and `BYSCORE` arguments"),
        summary: "Gives the members between two scores, backwards.",
        syntax: "key max:double min:double [WITHSCORES] [LIMIT offset count]",
        handler: |context, args, reply| range(context, args, reply, Some(Unit::Score), Some(true)),
        ..RANGE
    },
    CommandSpec {
        name: "ZRANGEBYLEX",
        since: "2.8.9",
        deprecated: instead("`ZRANGE` with the `BYLEX` argument"),
        summary: "Gives the members between two of them, where all scores are the same.",
        syntax: "key min max [LIMIT offset count]",
        handler: |context, args, reply| {
            range(context, args, reply, Some(Unit::Member), Some(false))
        },
        ..RANGE
    },
    CommandSpec {
        name: "ZREVRANGEBYLEX",
        since: "2.8.9",
        deprecated: instead("`ZRANGE` with the `REV` and `BYLEX` arguments"),
        summary: "Gives the members between two of them, where all scores are the same, backwards.",
        syntax: "key max min [LIMIT offset count]",
        handler: |context, args, reply| range(context, args, reply, Some(Unit::Member), Some(true)),
        ..RANGE
    },
    CommandSpec {
        name: "ZRANGESTORE",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[
            KeySpec::one(1, KeyAccess::OW.with(KeyAccess::UPDATE)),
            KeySpec::one(2, KeyAccess::RO.with(KeyAccess::ACCESS)),
        ],
        since: "6.2.0",
        summary: "Keeps the members between two ranks, scores or members at a key.",
        complexity: "O(log(N)+M*log(M)) where N is the number of members of the source and M the \
                     number of members stored.",
        syntax: "dst:key src:key min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        handler: store,
        ..RANGE
    },
];

const fn instead(what: &'static str) -> Option<Deprecation> {
    Some(Deprecation {
        since: "6.2.0",
        replaced_by: what,
    })
}

/// The unit of a range's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Rank,
    Score,
    Member,
}

/// The parsed bounds.
#[derive(Clone, Copy, Debug)]
enum Bounds<'a> {
    Ranks(i64, i64),
    Scores(ScoreRange),
    Members(MemberRange<'a>),
}

/// The parsed query.
#[derive(Clone, Copy, Debug)]
struct Query<'a> {
    bounds: Bounds<'a>,
    is_reverse: bool,
    with_scores: bool,
    offset: i64,
    /// Negative for all.
    limit: i64,
}

impl<'a> Query<'a> {
    /// Parses the remaining bounds and options. `unit` and `is_reverse` are given if the command's
    /// name implies them.
    fn parse(
        args: &mut Args<'a>,
        unit: Option<Unit>,
        is_reverse: Option<bool>,
        is_stored: bool,
    ) -> Result<Self, CommandError> {
        let (first, last) = (args.bytes()?, args.bytes()?);
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        let (mut named_unit, mut named_reverse) = (unit, is_reverse);
        while args.remaining() > 0 {
            if !is_stored && args.take_word("WITHSCORES") {
                with_scores = true;
            } else if args.remaining() > 2 && args.take_word("LIMIT") {
                (offset, limit) = (args.integer()?, args.integer()?);
            } else if is_reverse.is_none() && named_reverse.is_none() && args.take_word("REV") {
                named_reverse = Some(true);
            } else if named_unit.is_none() && args.take_word("BYLEX") {
                named_unit = Some(Unit::Member);
            } else if named_unit.is_none() && args.take_word("BYSCORE") {
                named_unit = Some(Unit::Score);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let (unit, is_reverse) = (
            named_unit.unwrap_or(Unit::Rank),
            named_reverse == Some(true),
        );
        if limit != -1 && unit == Unit::Rank {
            return Err(CommandError::fixed(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && unit == Unit::Member {
            return Err(CommandError::fixed(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        Ok(Self {
            bounds: Bounds::parse(unit, is_reverse, first, last)?,
            is_reverse,
            with_scores,
            offset,
            limit,
        })
    }

    /// Returns the ranks of the requested members.
    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let all = match self.bounds {
            Bounds::Ranks(start, end) => ranks(start, end, set.len()),
            Bounds::Scores(range) => range.ranks(set),
            Bounds::Members(range) => range.ranks(set),
        };
        if matches!(self.bounds, Bounds::Ranks(..)) {
            return match self.is_reverse {
                true => set.len() - all.end..set.len() - all.start,
                false => all,
            };
        }
        // A negative offset skips everything.
        let skipped = usize::try_from(self.offset)
            .unwrap_or(usize::MAX)
            .min(all.len());
        let left = all.len() - skipped;
        let count = usize::try_from(self.limit).map_or(left, |limit| limit.min(left));
        match self.is_reverse {
            true => all.end - skipped - count..all.end - skipped,
            false => all.start + skipped..all.start + skipped + count,
        }
    }

    /// Shows the requested members in the requested order.
    fn visit(&self, set: &SortedSet, ranks: Range<usize>, mut visit: impl FnMut(Scored<'_>)) {
        let members = set.range(ranks);
        match self.is_reverse {
            true => members.rev().for_each(&mut visit),
            false => members.for_each(&mut visit),
        }
    }
}

impl<'a> Bounds<'a> {
    fn parse(
        unit: Unit,
        is_reverse: bool,
        first: &'a [u8],
        last: &'a [u8],
    ) -> Result<Self, CommandError> {
        let number = |text| base::number::parse_i64(text).ok_or(CommandError::NotInteger);
        // In reverse, the higher bound of scores and members comes first.
        let (low, high) = if is_reverse {
            (last, first)
        } else {
            (first, last)
        };
        Ok(match unit {
            Unit::Rank => Self::Ranks(number(first)?, number(last)?),
            Unit::Score => Self::Scores(ScoreRange::parse(low, high)?),
            Unit::Member => Self::Members(MemberRange::parse(low, high)?),
        })
    }
}

fn range(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    unit: Option<Unit>,
    is_reverse: Option<bool>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let query = Query::parse(args, unit, is_reverse, false)?;
    let pace = context.pace;
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        let Some(set) = set else {
            reply.array(0);
            return Ok(());
        };
        let ranks = query.ranks(set);
        pace.admit_steps(ranks.len())?;
        let shape = Shape::of(query.with_scores, reply);
        shape.begin(reply, ranks.len());
        query.visit(set, ranks, |one| shape.write(reply, &one));
        Ok(())
    })?
}

fn store(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let target = context.key(args.bytes()?);
    let source = context.key(args.bytes()?);
    let query = Query::parse(args, None, None, true)?;
    let (limits, pace) = (
        context.shared.settings.thresholds.sorted_set_limits(),
        context.pace,
    );
    let count = context.locked(&[target, source], |context| {
        let result = structure::read(context, &source, reply, |set: Option<&SortedSet>, _| {
            let mut result = SortedSet::new();
            let mut outcome = Ok(());
            if let Some(set) = set {
                let ranks = query.ranks(set);
                pace.admit(ranks.len())?;
                query.visit(set, ranks, |one| {
                    let added = result.insert(one.member.as_bytes(), one.score, &limits);
                    outcome = added.map(|_| ()).and(outcome);
                });
            }
            outcome.map(|()| result).map_err(full)
        })?;
        store_result(context, &target, result?, "zrangestore")
    })?;
    write_count(reply, count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn filled() -> TestServer {
        let mut server = TestServer::new();
        server.run("ZADD z 1 a 2 b 3 c 4 d 5 e");
        server.run("ZADD l 0 a 0 b 0 c 0 d");
        server.effects();
        server
    }

    #[test]
    fn members_are_found_by_rank_score_and_name() {
        let mut server = filled();
        assert_eq!(server.texts("ZRANGE z 1 2"), ["b", "c"]);
        assert_eq!(
            server.texts("ZRANGE z 0 1 REV WITHSCORES"),
            ["e", "5", "d", "4"]
        );
        assert_eq!(server.texts("ZREVRANGE z -2 -1"), ["b", "a"]);
        assert_eq!(server.texts("ZRANGE z (1 3 BYSCORE"), ["b", "c"]);
        assert_eq!(
            server.texts("ZRANGE z +inf 2 BYSCORE REV LIMIT 1 2"),
            ["d", "c"]
        );
        assert_eq!(server.texts("ZRANGEBYSCORE z 2 4 LIMIT 1 -1"), ["c", "d"]);
        assert_eq!(server.texts("ZRANGEBYSCORE z 2 4 LIMIT -1 2"), [""; 0]);
        assert_eq!(server.texts("ZREVRANGEBYSCORE z 4 (2"), ["d", "c"]);
        assert_eq!(server.texts("ZRANGEBYLEX l [b (d"), ["b", "c"]);
        assert_eq!(server.texts("ZREVRANGEBYLEX l + (b LIMIT 0 1"), ["d"]);
        assert_eq!(server.texts("ZRANGE l - [b BYLEX"), ["a", "b"]);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let mut server = filled();
        for (line, part) in [
            ("ZRANGE z 0 1 LIMIT 0 1", "LIMIT is only supported"),
            ("ZRANGE z - + BYLEX WITHSCORES", "WITHSCORES not supported"),
            ("ZRANGEBYLEX z - + WITHSCORES", "WITHSCORES not supported"),
            ("ZREVRANGE z 0 1 REV", "ERR syntax error"),
            ("ZRANGEBYSCORE z 0 1 BYLEX", "ERR syntax error"),
            ("ZRANGE z a 1", "not an integer"),
            ("ZRANGE z a 1 BYSCORE", "not a float"),
            ("ZRANGESTORE d z 0 1 WITHSCORES", "ERR syntax error"),
        ] {
            assert!(server.error(line).contains(part), "{line}");
        }
    }

    #[test]
    fn a_range_is_stored() {
        let mut server = filled();
        assert_eq!(server.integer("ZRANGESTORE d z 1 2"), 2);
        assert_eq!(server.integer("ZRANGESTORE d z 4 +inf BYSCORE"), 2);
        assert_eq!(server.integer("ZRANGESTORE z z 0 0 REV"), 1);
        assert_eq!(server.integer("ZRANGESTORE z none 0 0"), 0);
        assert_eq!(server.run("EXISTS z"), Value::Integer(0));
        assert_eq!(
            server.effects(),
            [
                "ZADD d 2 b 3 c",
                "DEL d",
                "ZADD d 4 d 5 e",
                "DEL z",
                "ZADD z 5 e",
                "DEL z"
            ]
        );
        server.assert_effects_replay();
    }
}
