//! Blocking pops and moves, which wait until there is an element.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{
    Arity, Begin, CommandSpec, Deprecation, Find, Flags, Group, KeyAccess, KeySpec,
};
use engine::waiting;
use protocol::Reply;
use store::{Key, Record, Wanted};
use structures::{End, List};

use super::pop::{TAKEN, count_option, positive, take, take_one};
use super::{carry, end_word};
use engine::keys::KeyList;

const SECONDS_AS_DOUBLE: &[(&str, &str)] = &[("6.0.0", "The timeout is a double.")];

const POP: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::BLOCKING),
    keys: &[KeySpec::range(1, -2, 1, TAKEN)],
    group: Group::List,
    since: "2.0.0",
    history: SECONDS_AS_DOUBLE,
    complexity: "O(N) where N is the number of keys.",
    syntax: "key [key ...] timeout:double",
    ..CommandSpec::BLANK
};

const CARRIED: &[KeySpec] = &[
    KeySpec::one(1, TAKEN),
    KeySpec::one(2, KeyAccess::RW.with(KeyAccess::INSERT)),
];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "BLPOP",
        summary: "Takes the first element of a list, and waits for one if there is none.",
        handler: |context, args, reply| pop(context, args, reply, End::Front),
        ..POP
    },
    CommandSpec {
        name: "BRPOP",
        summary: "Takes the last element of a list, and waits for one if there is none.",
        handler: |context, args, reply| pop(context, args, reply, End::Back),
        ..POP
    },
    CommandSpec {
        name: "BLMPOP",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::MOVABLE_KEYS),
        keys: &[KeySpec {
            begin: Begin::Index(2),
            find: Find::Count {
                count: 0,
                first: 1,
                step: 1,
            },
            access: TAKEN,
            notes: "",
        }],
        group: Group::List,
        since: "7.0.0",
        summary: "Takes elements of the first of several lists that exists, and waits for one.",
        complexity: "O(N+M) where N is the number of keys and M the number of elements returned.",
        syntax: "timeout:double numkeys:integer key [key ...] <LEFT | RIGHT> [COUNT count]",
        handler: pop_several,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "BLMOVE",
        arity: Arity::Exactly(6),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BLOCKING),
        keys: CARRIED,
        group: Group::List,
        since: "6.2.0",
        summary: "Takes an element from one end of a list, once it has one, and adds it to an end of \
                  another.",
        syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout:double",
        handler: |context, args, reply| {
            let (source, target) = (context.key(args.bytes()?), context.key(args.bytes()?));
            let ends = (end_word(args)?, end_word(args)?);
            carry_one(context, args, reply, [source, target], ends)
        },
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "BRPOPLPUSH",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BLOCKING),
        keys: CARRIED,
        group: Group::List,
        since: "2.2.0",
        history: SECONDS_AS_DOUBLE,
        deprecated: Some(Deprecation {
            since: "6.2.0",
            replaced_by: "`BLMOVE` with the `RIGHT` and `LEFT` arguments",
        }),
        summary: "Takes the last element of a list, once it has one, and adds it before the first of \
                  another.",
        syntax: "source destination timeout:double",
        handler: |context, args, reply| {
            let (source, target) = (context.key(args.bytes()?), context.key(args.bytes()?));
            let ends = (End::Back, End::Front);
            carry_one(context, args, reply, [source, target], ends)
        },
        ..CommandSpec::BLANK
    },
];

fn pop(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    end: End,
) -> CommandResult {
    let keys_count = args.remaining() - 1;
    let names = args.by_ref().take(keys_count);
    let keys: KeyList<'_> = names.map(|name| context.key(name)).collect();
    let timeout_ms = waiting::seconds(args.bytes()?, context.now_unix_ms)?;
    let limit = context.shared.settings.thresholds.list_blocks();
    context.locked(&keys, |context| {
        let is_taken = context.take_first::<List>(&keys, Wanted::List, |entry| {
            reply.array(2);
            reply.bulk(entry.key().bytes());
            take_one(entry, reply, end, limit).map(drop)
        })?;
        wait_unless(is_taken, context, args, reply, (&keys, timeout_ms))
    })
}

fn pop_several(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let timeout = args.bytes()?;
    let keys_count = positive(args, "ERR numkeys should be greater than 0")?;
    if keys_count >= args.remaining() {
        return Err(CommandError::Syntax);
    }
    let names = args.by_ref().take(keys_count);
    let keys: KeyList<'_> = names.map(|name| context.key(name)).collect();
    let end = end_word(args)?;
    let count = count_option(args)?;
    let timeout_ms = waiting::seconds(timeout, context.now_unix_ms)?;
    let (limit, pace) = (
        context.shared.settings.thresholds.list_blocks(),
        context.pace,
    );
    context.locked(&keys, |context| {
        let is_taken = context.take_first::<List>(&keys, Wanted::List, |entry| {
            reply.array(2);
            reply.bulk(entry.key().bytes());
            take(entry, reply, end, count, limit, pace).map(drop)
        })?;
        wait_unless(is_taken, context, args, reply, (&keys, timeout_ms))
    })
}

/// Lets the client wait if nothing was taken, or replies with null if it may not wait.
fn wait_unless(
    is_taken: bool,
    context: &mut Context<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    (keys, timeout_ms): (&[Key<'_>], Option<u64>),
) -> CommandResult {
    if !is_taken && context.may_block {
        return context.wait_for(keys, Wanted::List, timeout_ms, args);
    }
    if !is_taken {
        reply.null_array();
    }
    Ok(())
}

fn carry_one(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    [source, target]: [Key<'_>; 2],
    ends: (End, End),
) -> CommandResult {
    let timeout_ms = waiting::seconds(args.bytes()?, context.now_unix_ms)?;
    context.locked(&[source, target], |context| {
        let is_there = context.store.inspect(&source, |record| {
            let list = record.map(Record::structure::<List>).transpose();
            list.map(|list| list.is_some())
        })?;
        // As in `take_first`: a transaction does not stand in line.
        if is_there && (!context.may_block || context.turn.has_come(&source, Wanted::List)) {
            context.turn.take()?;
            return carry::carry(context, reply, &source, &target, ends);
        }
        if context.may_block {
            return context.wait_for(&[source], Wanted::List, timeout_ms, args);
        }
        reply.null();
        Ok(())
    })
}
