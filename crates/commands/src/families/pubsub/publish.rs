//! PUBLISH, SPUBLISH, and PUBSUB, which shows subscribers.

use base::glob::{self, Case};
use base::hash_slot;
use engine::args::Args;
use engine::context::Context;
use engine::error::CommandResult;
use engine::slot_usage::Usage;
use engine::spec::{Arity, Channels, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use engine::topic::TopicKind;
use protocol::Reply;

use crate::help;

const PUBLISHER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(3),
    flags: Flags::PUBSUB
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::MAY_REPLICATE),
    channels: Channels::First,
    group: Group::PubSub,
    ..CommandSpec::BLANK
};

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
    group: Group::PubSub,
    since: "2.8.0",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "PUBLISH",
        since: "2.0.0",
        summary: "Sends a message to whoever listens to a channel.",
        complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel \
                     and M is the total number of subscribed patterns (by any client).",
        syntax: "channel message",
        handler: |context, args, reply| publish(context, args, reply, TopicKind::Channel),
        ..PUBLISHER
    },
    CommandSpec {
        name: "SPUBLISH",
        keys: &[KeySpec::one(1, KeyAccess::NOT_KEY)],
        since: "7.0.0",
        summary: "Sends a message to whoever listens to a shard channel.",
        complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
        syntax: "shardchannel message",
        handler: |context, args, reply| publish(context, args, reply, TopicKind::ShardChannel),
        ..PUBLISHER
    },
    CommandSpec {
        name: "PUBSUB",
        arity: Arity::AtLeast(2),
        group: Group::PubSub,
        since: "2.8.0",
        summary: "Tells about channels and who listens to them.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            CommandSpec {
                name: "CHANNELS",
                summary: "Lists the channels that somebody listens to.",
                complexity: "O(N) where N is the number of active channels, and assuming constant \
                             time pattern matching (relatively short channels and patterns)",
                syntax: "[pattern]",
                handler: |context, args, reply| channels(context, args, reply, TopicKind::Channel),
                ..MEMBER
            },
            CommandSpec {
                name: "NUMSUB",
                summary: "Counts the clients that listen to channels by their names.",
                complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested \
                             channels",
                syntax: "[channel [channel ...]]",
                handler: |context, args, reply| {
                    subscribers(context, args, reply, TopicKind::Channel)
                },
                ..MEMBER
            },
            CommandSpec {
                name: "NUMPAT",
                arity: Arity::Exactly(2),
                summary: "Counts the different patterns that clients listen to.",
                handler: |context, _args, reply| {
                    reply.count(context.server.patterns_count());
                    Ok(())
                },
                ..MEMBER
            },
            CommandSpec {
                name: "SHARDCHANNELS",
                since: "7.0.0",
                summary: "Lists the shard channels that somebody listens to.",
                complexity: "O(N) where N is the number of active shard channels, and assuming \
                             constant time pattern matching (relatively short shard channels).",
                syntax: "[pattern]",
                handler: |context, args, reply| {
                    channels(context, args, reply, TopicKind::ShardChannel)
                },
                ..MEMBER
            },
            CommandSpec {
                name: "SHARDNUMSUB",
                since: "7.0.0",
                summary: "Counts the clients that listen to shard channels.",
                complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of \
                             requested shard channels",
                syntax: "[shardchannel [shardchannel ...]]",
                handler: |context, args, reply| {
                    subscribers(context, args, reply, TopicKind::ShardChannel)
                },
                ..MEMBER
            },
            CommandSpec::help(Group::PubSub, "6.2.0", |_context, _args, reply| {
                help::write(reply, "PUBSUB", HELP)
            }),
        ],
        ..CommandSpec::BLANK
    },
];

const HELP: &[&str] = &[
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
];

fn publish(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    kind: TopicKind,
) -> CommandResult {
    let (channel, message) = (args.bytes()?, args.bytes()?);
    let published = context.server.publish(kind, channel, message);
    let usage = &context.shared.hash_slots.usage;
    if kind == TopicKind::ShardChannel && usage.is_on() {
        let bytes = message_bytes(channel, message).saturating_mul(published.receivers);
        let sent = Usage {
            bytes_out: bytes as u64,
            ..Usage::default()
        };
        usage.add(hash_slot::of(channel), sent);
    }
    context.session.is_throttled |= published.is_crowded;
    if published.is_for_replicas {
        let name: &[u8] = match kind {
            TopicKind::ShardChannel => b"SPUBLISH",
            _ => b"PUBLISH",
        };
        let database = context.session.database;
        context.store.effect_for_followers(database, |effect| {
            effect.command(&[name, channel, message]);
        });
    }
    reply.count(published.receivers);
    Ok(())
}

/// Returns the size of the message that one subscriber of a shard channel gets, in either protocol
/// version.
fn message_bytes(channel: &[u8], message: &[u8]) -> usize {
    let bulk = |bytes: usize| format!("${bytes}\r\n\r\n").len() + bytes;
    b"*3\r\n".len() + bulk(b"smessage".len()) + bulk(channel.len()) + bulk(message.len())
}

fn channels(
    context: &Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    kind: TopicKind,
) -> CommandResult {
    let pattern = args.next();
    if args.remaining() > 0 {
        return Err(engine::error::subcommand_syntax(args.request()));
    }
    let mut names = context.server.channels(kind);
    if let Some(pattern) = pattern {
        names.retain(|name| glob::matches(pattern, name, Case::Sensitive));
    }
    reply.array(names.len());
    for name in names {
        reply.bulk(&name);
    }
    Ok(())
}

fn subscribers(
    context: &Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    kind: TopicKind,
) -> CommandResult {
    // Not a map in either protocol version.
    reply.array(args.remaining() * 2);
    for channel in args.by_ref() {
        reply.bulk(channel);
        reply.count(context.server.subscribers(kind, channel));
    }
    Ok(())
}
