//! Additions of members, and to scores: ZADD ZINCRBY.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, EventClass};
use structures::{SortedSet, SortedSetLimits};

use super::shared::{check_member, full, score, state_added, write_score};
use crate::structure::write_count;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ZADD",
        arity: Arity::AtLeast(4),
        element: Some(3),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))],
        group: Group::SortedSet,
        since: "1.2.0",
        history: &[
            ("2.4.0", "Takes several members."),
            ("3.0.2", "Added `XX`, `NX`, `CH` and `INCR`."),
            ("6.2.0", "Added `GT` and `LT`."),
        ],
        summary: "Adds members with scores, or changes the scores of members.",
        complexity: "O(log(N)) for each member, where N is the number of members of the set.",
        syntax: "key [NX | XX] [GT | LT] [CH:change] [INCR:increment] score:double member \
                 [score:double member ...]",
        handler: zadd,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "ZINCRBY",
        arity: Arity::Exactly(4),
        element: Some(3),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: &[KeySpec::one(
            1,
            KeyAccess::RW
                .with(KeyAccess::ACCESS)
                .with(KeyAccess::UPDATE),
        )],
        group: Group::SortedSet,
        since: "1.2.0",
        summary: "Adds to the score of a member.",
        complexity: "O(log(N)) where N is the number of members of the set.",
        syntax: "key increment member",
        handler: zincrby,
        ..CommandSpec::BLANK
    },
];

const NOT_A_NUMBER: CommandError = CommandError::fixed("ERR resulting score is not a number (NaN)");

/// The options of ZADD.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    /// NX: existing scores stay.
    pub(crate) only_new: bool,
    /// XX: no members are added.
    pub(crate) only_present: bool,
    /// GT: existing scores only grow.
    pub(crate) only_greater: bool,
    /// LT: existing scores only shrink.
    pub(crate) only_less: bool,
    /// CH: the reply counts changed scores, too.
    pub(crate) counts_changes: bool,
    /// INCR: the score is added.
    pub(crate) is_increment: bool,
}

impl Rules {
    fn parse(args: &mut Args<'_>) -> Self {
        let mut rules = Self::default();
        loop {
            let rule = match () {
                () if args.take_word("NX") => &mut rules.only_new,
                () if args.take_word("XX") => &mut rules.only_present,
                () if args.take_word("CH") => &mut rules.counts_changes,
                () if args.take_word("INCR") => &mut rules.is_increment,
                () if args.take_word("GT") => &mut rules.only_greater,
                () if args.take_word("LT") => &mut rules.only_less,
                () => return rules,
            };
            *rule = true;
        }
    }

    fn check(self, members: usize) -> CommandResult {
        if self.only_new && self.only_present {
            return Err(CommandError::fixed(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        let of_three = [self.only_new, self.only_greater, self.only_less];
        if of_three.into_iter().filter(|is_set| *is_set).count() > 1 {
            return Err(CommandError::fixed(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.is_increment && members > 1 {
            return Err(CommandError::fixed(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok(())
    }

    /// Returns the new score of a member with the score `old`, or none, for the given score
    /// `given`, or `None` if the score stays.
    fn apply(self, old: Option<f64>, given: f64) -> Result<Option<f64>, CommandError> {
        let Some(old) = old else {
            return Ok((!self.only_present).then_some(given));
        };
        if self.only_new {
            return Ok(None);
        }
        let new = if self.is_increment {
            old + given
        } else {
            given
        };
        if new.is_nan() {
            return Err(NOT_A_NUMBER);
        }
        let is_refused = (self.only_less && new >= old) || (self.only_greater && new <= old);
        Ok((!is_refused).then_some(new))
    }
}

/// The result for all members.
#[derive(Default)]
struct Outcome<'a> {
    added: usize,
    changed: Vec<(f64, &'a [u8])>,
    /// The score of the last member, if the rules allow to look at it.
    last: Option<f64>,
}

fn zadd(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = args.bytes()?;
    let rules = Rules::parse(args);
    add_words(context, args, reply, key, rules)
}

fn zincrby(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = args.bytes()?;
    // Option words of ZADD are recognized here, too, so that too few arguments are left.
    let rules = Rules {
        is_increment: true,
        ..Rules::parse(args)
    };
    add_words(context, args, reply, key, rules)
}

/// Adds the members in the remaining arguments, each after its score.
fn add_words(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    key: &[u8],
    rules: Rules,
) -> CommandResult {
    let words = args.remaining();
    if words == 0 || !words.is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    rules.check(words / 2)?;
    let mut members = Vec::with_capacity(words / 2);
    while let (Some(given), Some(member)) = (args.next(), args.next()) {
        members.push((score(given)?, member));
    }
    add(context, key, rules, &members, reply)
}

/// Adds members by the rules of ZADD, and replies as ZADD does.
pub(crate) fn add(
    context: &mut Context<'_>,
    key: &[u8],
    rules: Rules,
    members: &[(f64, &[u8])],
    reply: &mut Reply<'_>,
) -> CommandResult {
    for (_, member) in members {
        check_member(member)?;
    }
    let key = context.key(key);
    let limits = context.shared.settings.thresholds.sorted_set_limits();
    let outcome = context
        .store
        .modify(&key, |entry| change(entry, rules, members, &limits))?;
    if rules.is_increment {
        write_score(reply, outcome.last);
    } else {
        let changed = outcome.changed.len();
        let count = if rules.counts_changes {
            changed
        } else {
            outcome.added
        };
        write_count(reply, count);
    }
    Ok(())
}

fn change<'a>(
    entry: &mut Entry<'_>,
    rules: Rules,
    members: &[(f64, &'a [u8])],
    limits: &SortedSetLimits,
) -> Result<Outcome<'a>, CommandError> {
    let mut outcome = Outcome::default();
    let update = |set: &mut SortedSet| update_all(set, rules, members, limits, &mut outcome);
    let done = match rules.only_present {
        true => entry.change(update)?,
        false => Some(entry.change_or_create(update)?),
    };
    if !outcome.changed.is_empty() {
        let key = entry.key();
        entry.effect(|effect| state_added(effect, &key, &outcome.changed));
        let name = if rules.is_increment { "zincr" } else { "zadd" };
        entry.event(EventClass::SORTED_SET, name);
    }
    done.unwrap_or(Ok(()))?;
    Ok(outcome)
}

fn update_all<'a>(
    set: &mut SortedSet,
    rules: Rules,
    members: &[(f64, &'a [u8])],
    limits: &SortedSetLimits,
    outcome: &mut Outcome<'a>,
) -> CommandResult {
    for (given, member) in members {
        let mut result = Ok(None);
        let mut found = None;
        let mut is_changed = false;
        let updated = set.update(member, limits, |old| {
            found = old;
            result = rules.apply(old, *given);
            let new = result.as_ref().ok().copied().flatten();
            is_changed = new.is_some() && new != old;
            new.filter(|_| is_changed)
        });
        outcome.last = result?;
        updated.map_err(full)?;
        if let Some(score) = outcome.last
            && is_changed
        {
            outcome.added += usize::from(found.is_none());
            outcome.changed.push((score, member));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn members_come_and_change_their_scores() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("ZADD z 1 a 2 b 2 b"), 2);
        assert_eq!(server.integer("ZADD z 3 a 4 c"), 1);
        assert_eq!(server.integer("ZADD z CH 3 a 5 c 1 d"), 2);
        assert_eq!(server.text("ZINCRBY z 1.5 a"), "4.5");
        assert_eq!(server.text("ZADD z INCR 1 d"), "2");
        assert_eq!(
            server.effects(),
            [
                "ZADD z 1 a 2 b",
                "ZADD z 3 a 4 c",
                "ZADD z 5 c 1 d",
                "ZADD z 4.5 a",
                "ZADD z 2 d"
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn conditions_hold_for_each_member() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("ZADD z XX 1 a"), 0);
        assert_eq!(server.integer("EXISTS z"), 0);
        assert_eq!(server.integer("ZADD z NX 1 a 2 b"), 2);
        assert_eq!(server.integer("ZADD z NX CH 5 a 3 c"), 1);
        assert_eq!(server.integer("ZADD z GT CH 0 a 5 b 7 d"), 2);
        assert_eq!(server.integer("ZADD z LT XX CH 0 a 9 b 7 e"), 1);
        assert_eq!(server.run("ZADD z NX INCR 1 a"), Value::Null);
        assert_eq!(server.run("ZADD z XX INCR 1 new"), Value::Null);
        assert_eq!(server.run("ZADD z GT INCR -1 a"), Value::Null);
        server.assert_effects_replay();
    }

    #[test]
    fn nothing_happens_when_a_score_is_wrong() {
        let mut server = TestServer::new();
        assert_eq!(
            server.error("ZADD z 1 a x b"),
            "ERR value is not a valid float"
        );
        assert_eq!(
            server.error("ZADD z nan a"),
            "ERR value is not a valid float"
        );
        assert_eq!(server.error("ZADD z 1 a 2"), "ERR syntax error");
        server.run("ZADD z inf a");
        assert_eq!(
            server.error("ZINCRBY z -inf a"),
            "ERR resulting score is not a number (NaN)"
        );
        assert_eq!(server.effects(), ["ZADD z inf a"]);
    }
}
