//! Combinations of sorted sets and sets: ZUNION ZINTER ZDIFF, their STORE forms, ZINTERCARD.
//!
//! The inputs are read one after another with all of them locked, so that the reply is of one
//! moment. Members of a set have a score of 1.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Key, Record};
use structures::{Object, SortedSet};

use super::shared::{Shape, full, store_result};
use crate::structure::write_count;
use engine::keys::KeyList;

const fn inputs(at: u16) -> KeySpec {
    KeySpec {
        begin: Begin::Index(at),
        find: Find::Count {
            count: 0,
            first: 1,
            step: 1,
        },
        access: KeyAccess::RO.with(KeyAccess::ACCESS),
        notes: "",
    }
}

const READ: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY.with(Flags::MOVABLE_KEYS),
    keys: &[inputs(1)],
    group: Group::SortedSet,
    since: "6.2.0",
    ..CommandSpec::BLANK
};

const STORE: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLE_KEYS),
    keys: &[
        KeySpec::one(1, KeyAccess::OW.with(KeyAccess::UPDATE)),
        inputs(2),
    ],
    group: Group::SortedSet,
    since: "2.0.0",
    ..CommandSpec::BLANK
};

const UNION_COST: &str = "O(N*log(M)) where N is the number of members of all inputs and M that of \
                          the result.";
const INTER_COST: &str = "O(N*K+M*log(M)) where N is the number of members of the smallest input, K \
                          the number of inputs and M the number of members of the result.";
const DIFF_COST: &str = "O(N*K+M*log(M)) where N is the number of members of the first input, K the \
                         number of inputs and M the number of members of the result.";

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ZUNION",
        summary: "Gives the members of any of several sorted sets.",
        complexity: UNION_COST,
        syntax: "numkeys:integer key [key ...] [WEIGHTS weight:integer [weight:integer ...]] \
                 [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        handler: |context, args, reply| answer(context, args, reply, Operation::Union, "zunion"),
        ..READ
    },
    CommandSpec {
        name: "ZINTER",
        summary: "Gives the members of all of several sorted sets.",
        complexity: INTER_COST,
        syntax: "numkeys:integer key [key ...] [WEIGHTS weight:integer [weight:integer ...]] \
                 [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        handler: |context, args, reply| answer(context, args, reply, Operation::Inter, "zinter"),
        ..READ
    },
    CommandSpec {
        name: "ZDIFF",
        summary: "Gives the members of the first of several sorted sets that no other has.",
        complexity: DIFF_COST,
        syntax: "numkeys:integer key [key ...] [WITHSCORES]",
        handler: |context, args, reply| answer(context, args, reply, Operation::Diff, "zdiff"),
        ..READ
    },
    CommandSpec {
        name: "ZUNIONSTORE",
        summary: "Keeps the members of any of several sorted sets at a key.",
        complexity: UNION_COST,
        syntax: "destination numkeys:integer key [key ...] \
                 [WEIGHTS weight:integer [weight:integer ...]] [AGGREGATE <SUM | MIN | MAX>]",
        handler: |context, args, reply| {
            store(context, args, reply, Operation::Union, "zunionstore")
        },
        ..STORE
    },
    CommandSpec {
        name: "ZINTERSTORE",
        summary: "Keeps the members of all of several sorted sets at a key.",
        complexity: INTER_COST,
        syntax: "destination numkeys:integer key [key ...] \
                 [WEIGHTS weight:integer [weight:integer ...]] [AGGREGATE <SUM | MIN | MAX>]",
        handler: |context, args, reply| {
            store(context, args, reply, Operation::Inter, "zinterstore")
        },
        ..STORE
    },
    CommandSpec {
        name: "ZDIFFSTORE",
        since: "6.2.0",
        summary: "Keeps the members of the first of several sorted sets that no other has at a key.",
        complexity: DIFF_COST,
        syntax: "destination numkeys:integer key [key ...]",
        handler: |context, args, reply| store(context, args, reply, Operation::Diff, "zdiffstore"),
        ..STORE
    },
    CommandSpec {
        name: "ZINTERCARD",
        since: "7.0.0",
        summary: "Counts the members of all of several sorted sets.",
        complexity: "O(N*K) where N is the number of members of the smallest input and K the number \
                     of inputs.",
        syntax: "numkeys:integer key [key ...] [LIMIT limit:integer]",
        handler: zintercard,
        ..READ
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

impl Operation {
    /// Returns the event of storing the result.
    fn stored_event(self) -> &'static str {
        match self {
            Self::Union => "zunionstore",
            Self::Inter => "zinterstore",
            Self::Diff => "zdiffstore",
        }
    }

    /// Returns the maximum number of look-ups for inputs of these sizes.
    fn lookups(self, sizes: &[usize]) -> usize {
        match self {
            Self::Union => sizes.iter().sum(),
            Self::Inter => sizes.len() * sizes.iter().min().map_or(0, |least| *least),
            Self::Diff => sizes.len() * sizes.first().map_or(0, |first| *first),
        }
    }
}

/// How the scores of a member in several inputs are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => no_nan(one + other),
            Self::Min if other < one => other,
            Self::Max if other > one => other,
            Self::Min | Self::Max => one,
        }
    }
}

/// Replaces NaN by zero: infinities that cancel out, or that have a weight of zero.
fn no_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Which options a command has after its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Answer,
    Store,
    Count,
}

#[derive(Debug)]
struct Options {
    /// One weight for every input, or none.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// 0 for none.
    limit: usize,
}

impl Options {
    fn parse(
        args: &mut Args<'_>,
        operation: Operation,
        form: Form,
        inputs: usize,
    ) -> Result<Self, CommandError> {
        let mut options = Self {
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        let weighs = operation != Operation::Diff && form != Form::Count;
        while args.remaining() > 0 {
            let remaining = args.remaining();
            if weighs && remaining > inputs && args.take_word("WEIGHTS") {
                options.weights = (0..inputs)
                    .map(|_| weight(args))
                    .collect::<Result<_, _>>()?;
            } else if weighs && remaining >= 2 && args.take_word("AGGREGATE") {
                options.aggregate = match () {
                    () if args.take_word("SUM") => Aggregate::Sum,
                    () if args.take_word("MIN") => Aggregate::Min,
                    () if args.take_word("MAX") => Aggregate::Max,
                    () => return Err(CommandError::Syntax),
                };
            } else if form == Form::Answer && args.take_word("WITHSCORES") {
                options.with_scores = true;
            } else if form == Form::Count && remaining >= 2 && args.take_word("LIMIT") {
                let limit = args.integer().ok();
                let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                options.limit = limit.ok_or(CommandError::fixed("ERR LIMIT can't be negative"))?;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }
}

fn weight(args: &mut Args<'_>) -> Result<f64, CommandError> {
    let weight = super::shared::score(args.bytes()?);
    weight.map_err(|_| CommandError::fixed("ERR weight value is not a float"))
}

fn answer(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
    name: &'static str,
) -> CommandResult {
    let keys = input_keys(context, args, name)?;
    let options = Options::parse(args, operation, Form::Answer, keys.len());
    let (result, options) = context.locked(&keys, |context| {
        let sizes = sizes(context, &keys)?;
        let options = options?;
        context.pace.admit(operation.lookups(&sizes))?;
        let result = combine(context, operation, &keys, &sizes, &options)?;
        Ok::<_, CommandError>((result, options))
    })?;
    let shape = Shape::of(options.with_scores, reply);
    shape.begin(reply, result.len());
    result.iter().for_each(|one| shape.write(reply, &one));
    Ok(())
}

fn store(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
    name: &'static str,
) -> CommandResult {
    let target = context.key(args.bytes()?);
    let keys = input_keys(context, args, name)?;
    let options = Options::parse(args, operation, Form::Store, keys.len());
    let locked: KeyList<'_> = [target].into_iter().chain(keys.iter().copied()).collect();
    let count = context.locked(&locked, |context| {
        let sizes = sizes(context, &keys)?;
        let options = options?;
        context.pace.admit(operation.lookups(&sizes))?;
        let mut result = combine(context, operation, &keys, &sizes, &options)?;
        let limits = context.shared.settings.thresholds.sorted_set_limits();
        result.compact(&limits).map_err(full)?;
        store_result(context, &target, result, operation.stored_event())
    })?;
    write_count(reply, count);
    Ok(())
}

fn zintercard(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let keys = input_keys(context, args, "zintercard")?;
    let options = Options::parse(args, Operation::Inter, Form::Count, keys.len());
    let count = context.locked(&keys, |context| {
        let sizes = sizes(context, &keys)?;
        let options = options?;
        context.pace.admit(Operation::Inter.lookups(&sizes))?;
        let found = intersect(context, &keys, &sizes, &options).len();
        Ok::<_, CommandError>(match options.limit {
            0 => found,
            limit => found.min(limit),
        })
    })?;
    write_count(reply, count);
    Ok(())
}

/// Parses `numkeys key [key ...]`.
fn input_keys<'a>(
    context: &Context<'_>,
    args: &mut Args<'a>,
    name: &'static str,
) -> Result<KeyList<'a>, CommandError> {
    let count = args.integer()?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    let too_few = || format!("ERR at least 1 input key is needed for '{name}' command");
    let count = count.ok_or_else(|| CommandError::Text(too_few().into()))?;
    if count > args.remaining() {
        return Err(CommandError::Syntax);
    }
    let names = args.by_ref().take(count);
    Ok(names.map(|name| context.key(name)).collect())
}

/// One input: a sorted set, or a set whose members have a score of 1.
#[derive(Clone, Copy)]
enum Input<'a> {
    Scored(&'a SortedSet),
    Plain(&'a structures::Set),
}

impl Input<'_> {
    fn len(self) -> usize {
        match self {
            Self::Scored(set) => set.len(),
            Self::Plain(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Scored(set) => set.score(member),
            Self::Plain(set) => set.contains(member).then_some(1.0),
        }
    }

    fn for_each(self, mut visit: impl FnMut(&[u8], f64)) {
        match self {
            Self::Scored(set) => set
                .iter()
                .for_each(|one| visit(one.member.as_bytes(), one.score)),
            Self::Plain(set) => set.iter().for_each(|one| visit(one.as_bytes(), 1.0)),
        }
    }
}

/// Shows an input, or `None` for an absent key. The key is locked.
fn with_input<R>(
    context: &mut Context<'_>,
    key: &Key<'_>,
    visit: impl FnOnce(Option<Input<'_>>) -> R,
) -> Result<R, CommandError> {
    context.store.modify(key, |entry| {
        let record = entry.record();
        let object = record.as_ref().map(Record::object);
        let input = match object.as_ref().map(Option::as_deref) {
            None => None,
            Some(Some(Object::SortedSet(set))) => Some(Input::Scored(set)),
            Some(Some(Object::Set(set))) => Some(Input::Plain(set)),
            Some(_) => return Err(CommandError::WrongType),
        };
        Ok(visit(input))
    })
}

/// Returns the number of members of each input. Refuses keys with other types.
fn sizes(context: &mut Context<'_>, keys: &[Key<'_>]) -> Result<Vec<usize>, CommandError> {
    let size = |key| {
        context.store.modify(key, |entry| entry.note_look());
        with_input(context, key, |input| input.map_or(0, Input::len))
    };
    keys.iter().map(size).collect()
}

/// Returns the result in the form of a large set, which keeps the signs of zeros, as in Redis.
fn combine(
    context: &mut Context<'_>,
    operation: Operation,
    keys: &[Key<'_>],
    sizes: &[usize],
    options: &Options,
) -> Result<SortedSet, CommandError> {
    if operation == Operation::Union {
        return unite(context, keys, sizes, options);
    }
    let found = match operation {
        Operation::Inter => intersect(context, keys, sizes, options),
        _ => subtract(context, keys),
    };
    let limits = context.shared.settings.thresholds.sorted_set_limits();
    let mut result = SortedSet::for_members(usize::MAX, 0, &limits);
    for (member, score) in &found {
        result.insert(member, *score, &limits).map_err(full)?;
    }
    Ok(result)
}

/// Returns the order of the inputs by size, smallest first: sums in this order are the same as in
/// Redis.
fn by_size(sizes: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|at| sizes[*at]);
    order
}

/// Applies the input's weight to a score. Either all inputs have a weight, or none has.
fn weighed(options: &Options, at: usize, score: f64) -> f64 {
    options
        .weights
        .get(at)
        .map_or(score, |weight| weight * score)
}

fn unite(
    context: &mut Context<'_>,
    keys: &[Key<'_>],
    sizes: &[usize],
    options: &Options,
) -> Result<SortedSet, CommandError> {
    let limits = context.shared.settings.thresholds.sorted_set_limits();
    let mut result = SortedSet::for_members(usize::MAX, 0, &limits);
    for at in by_size(sizes) {
        with_input(context, &keys[at], |input| {
            let mut outcome = Ok(());
            let add = |member: &[u8], score| {
                let score = no_nan(weighed(options, at, score));
                let added = result.update(member, &limits, |old| {
                    Some(old.map_or(score, |old| options.aggregate.of(old, score)))
                });
                outcome = added.and(outcome);
            };
            if let Some(input) = input {
                input.for_each(add);
            }
            outcome.map_err(full)
        })??;
    }
    Ok(result)
}

type Found = Vec<(Vec<u8>, f64)>;

/// Keeps the members of `found` for which `keep` returns true, given the input at a key. `keep` may
/// change scores.
fn sift(
    context: &mut Context<'_>,
    key: &Key<'_>,
    found: &mut Found,
    mut keep: impl FnMut(Option<f64>, &mut f64) -> bool,
) {
    // Types have been checked, and the keys are locked.
    let _checked = with_input(context, key, |input| {
        found
            .retain_mut(|(member, score)| keep(input.and_then(|input| input.score(member)), score));
    });
}

/// Returns all members of one input.
fn members_of(context: &mut Context<'_>, key: &Key<'_>) -> Found {
    let mut found = Vec::new();
    let _checked = with_input(context, key, |input| {
        if let Some(input) = input {
            input.for_each(|member, score| found.push((member.to_vec(), score)));
        }
    });
    found
}

fn intersect(
    context: &mut Context<'_>,
    keys: &[Key<'_>],
    sizes: &[usize],
    options: &Options,
) -> Found {
    let order = by_size(sizes);
    let Some((&smallest, rest)) = order.split_first() else {
        return Vec::new();
    };
    let mut found = members_of(context, &keys[smallest]);
    for (_, score) in &mut found {
        *score = no_nan(weighed(options, smallest, *score));
    }
    for &at in rest {
        sift(context, &keys[at], &mut found, |there, score| {
            if let Some(there) = there {
                *score = options.aggregate.of(*score, weighed(options, at, there));
            }
            there.is_some()
        });
    }
    found
}

fn subtract(context: &mut Context<'_>, keys: &[Key<'_>]) -> Found {
    let mut found = members_of(context, &keys[0]);
    for key in &keys[1..] {
        sift(context, key, &mut found, |there, _| there.is_none());
    }
    found
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    fn filled() -> TestServer {
        let mut server = TestServer::new();
        server.run("ZADD a 1 x 2 y 3 z");
        server.run("ZADD b 10 y 20 z 30 w");
        server.effects();
        server
    }

    #[test]
    fn sets_are_united_intersected_and_subtracted() {
        let mut server = filled();
        assert_eq!(
            server.texts("ZUNION 2 a b WITHSCORES"),
            ["x", "1", "y", "12", "z", "23", "w", "30"]
        );
        assert_eq!(
            server.texts("ZINTER 2 a b WEIGHTS 2 1 AGGREGATE MAX WITHSCORES"),
            ["y", "10", "z", "20"]
        );
        assert_eq!(server.texts("ZDIFF 2 a b WITHSCORES"), ["x", "1"]);
        assert_eq!(server.texts("ZDIFF 2 a none"), ["x", "y", "z"]);
        assert_eq!(server.texts("ZINTER 2 a none"), [""; 0]);
        assert_eq!(server.integer("ZINTERCARD 2 a b"), 2);
        assert_eq!(server.integer("ZINTERCARD 2 a b LIMIT 1"), 1);
        assert_eq!(server.integer("ZINTERCARD 2 a a LIMIT 0"), 3);
    }

    #[test]
    fn results_are_stored() {
        let mut server = filled();
        assert_eq!(server.integer("ZUNIONSTORE b 2 a b AGGREGATE MIN"), 4);
        assert_eq!(server.integer("ZINTERSTORE c 2 a b WEIGHTS 0 1"), 3);
        assert_eq!(server.integer("ZDIFFSTORE c 2 a b"), 0);
        assert_eq!(server.integer("EXISTS c"), 0);
        assert_eq!(
            server.effects(),
            [
                "DEL b",
                "ZADD b 1 x 2 y 3 z 30 w",
                "ZADD c 1 x 2 y 3 z",
                "DEL c"
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn infinities_that_cancel_out_make_zero() {
        let mut server = TestServer::new();
        server.run("ZADD a inf x");
        server.run("ZADD b -inf x");
        assert_eq!(server.texts("ZUNION 2 a b WITHSCORES"), ["x", "0"]);
        assert_eq!(server.texts("ZINTER 2 a b WITHSCORES"), ["x", "0"]);
        assert_eq!(server.texts("ZUNION 1 a WEIGHTS 0 WITHSCORES"), ["x", "0"]);
    }

    #[test]
    fn arguments_are_checked() {
        let mut server = filled();
        server.run("SET s v");
        for (line, part) in [
            (
                "ZUNION 0 a",
                "at least 1 input key is needed for 'zunion' command",
            ),
            ("ZDIFFSTORE d -1 a", "needed for 'zdiffstore' command"),
            ("ZUNION 3 a b", "ERR syntax error"),
            ("ZUNION x a", "not an integer"),
            ("ZUNION 1 a WEIGHTS x", "ERR weight value is not a float"),
            ("ZDIFF 1 a WEIGHTS 1", "ERR syntax error"),
            ("ZINTERCARD 1 a LIMIT -1", "ERR LIMIT can't be negative"),
            ("ZUNIONSTORE d 1 a WITHSCORES", "ERR syntax error"),
            ("ZUNION 2 a s NONSENSE", "WRONGTYPE"),
        ] {
            assert!(server.error(line).contains(part), "{line}");
        }
    }
}
