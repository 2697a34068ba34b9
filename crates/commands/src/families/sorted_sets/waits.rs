//! Blocking pops, which wait until there is a member: BZPOPMIN BZPOPMAX BZMPOP.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeySpec};
use engine::waiting;
use protocol::Reply;
use store::{Key, Wanted};
use structures::SortedSet;

use super::pop::{End, TAKEN, count_option, end_word, take};
use super::shared::{Shape, positive};
use engine::keys::KeyList;

const POP: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::FAST),
    keys: &[KeySpec::range(1, -2, 1, TAKEN)],
    group: Group::SortedSet,
    since: "5.0.0",
    history: &[("6.0.0", "The timeout is a double.")],
    complexity: "O(log(N)) with N being the number of members of the set.",
    syntax: "key [key ...] timeout:double",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "BZPOPMIN",
        summary: "Takes the member with the lowest score, and waits for one if there is none.",
        handler: |context, args, reply| pop(context, args, reply, End::Lowest),
        ..POP
    },
    CommandSpec {
        name: "BZPOPMAX",
        summary: "Takes the member with the highest score, and waits for one if there is none.",
        handler: |context, args, reply| pop(context, args, reply, End::Highest),
        ..POP
    },
    CommandSpec {
        name: "BZMPOP",
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
        group: Group::SortedSet,
        since: "7.0.0",
        summary: "Takes members of the first of several sorted sets that exists, and waits for one.",
        complexity: "O(K+M*log(N)) where K is the number of keys, N the number of members of the \
                     set and M the number of members taken.",
        syntax: "timeout:double numkeys:integer key [key ...] <MIN | MAX> [COUNT count]",
        handler: pop_several,
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
    let pace = context.pace;
    context.locked(&keys, |context| {
        let is_taken = context.take_first::<SortedSet>(&keys, Wanted::SortedSet, |entry| {
            reply.array(3);
            reply.bulk(entry.key().bytes());
            take(entry, reply, end, 1, Shape::Bare, pace).map(drop)
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
    let pace = context.pace;
    context.locked(&keys, |context| {
        let is_taken = context.take_first::<SortedSet>(&keys, Wanted::SortedSet, |entry| {
            reply.array(2);
            reply.bulk(entry.key().bytes());
            take(entry, reply, end, count, Shape::Pairs, pace).map(drop)
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
        return context.wait_for(keys, Wanted::SortedSet, timeout_ms, args);
    }
    if !is_taken {
        reply.null_array();
    }
    Ok(())
}
