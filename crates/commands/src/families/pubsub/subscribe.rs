//! SUBSCRIBE and UNSUBSCRIBE, with their variants for patterns and shard channels.
//!
//! The reply to each name is a separate push, sent even if the client wants no replies.

use engine::args::Args;
use engine::context::Context;
use engine::error::CommandError;
use engine::session::Session;
use engine::spec::{Arity, Channels, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use engine::subscriptions::Subscriptions;
use engine::topic::{Topic, TopicKind};
use protocol::Reply;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::PUBSUB
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE),
    group: Group::PubSub,
    since: "2.0.0",
    ..CommandSpec::BLANK
};

const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyAccess::NOT_KEY)];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SUBSCRIBE",
        channels: Channels::All,
        summary: "Listens to the messages that are published to channels.",
        complexity: "O(N) where N is the number of channels to subscribe to.",
        syntax: "channel [channel ...]",
        handler: |context, args, reply| {
            subscribe(context, args, reply, TopicKind::Channel);
            Ok(())
        },
        ..MEMBER
    },
    CommandSpec {
        name: "UNSUBSCRIBE",
        arity: Arity::AtLeast(1),
        summary: "Stops listening to the messages of channels, or of all.",
        complexity: "O(N) where N is the number of channels to unsubscribe.",
        syntax: "[channel [channel ...]]",
        handler: |context, args, reply| {
            unsubscribe(context, args, reply, TopicKind::Channel);
            Ok(())
        },
        ..MEMBER
    },
    CommandSpec {
        name: "PSUBSCRIBE",
        channels: Channels::Patterns,
        summary: "Listens to the messages of all channels that match a pattern.",
        complexity: "O(N) where N is the number of patterns to subscribe to.",
        syntax: "pattern [pattern ...]",
        handler: |context, args, reply| {
            subscribe(context, args, reply, TopicKind::Pattern);
            Ok(())
        },
        ..MEMBER
    },
    CommandSpec {
        name: "PUNSUBSCRIBE",
        arity: Arity::AtLeast(1),
        summary: "Stops listening to the messages of channels that match patterns, or all.",
        complexity: "O(N) where N is the number of patterns to unsubscribe.",
        syntax: "[pattern [pattern ...]]",
        handler: |context, args, reply| {
            unsubscribe(context, args, reply, TopicKind::Pattern);
            Ok(())
        },
        ..MEMBER
    },
    CommandSpec {
        name: "SSUBSCRIBE",
        channels: Channels::All,
        keys: SHARD_CHANNELS,
        since: "7.0.0",
        summary: "Listens to the messages that are published to shard channels.",
        complexity: "O(N) where N is the number of shard channels to subscribe to.",
        syntax: "shardchannel [shardchannel ...]",
        handler: |context, args, reply| {
            // Confirmations are separate replies. Only for the other kinds may they occur inside
            // EXEC's reply.
            if !context.may_block {
                let text = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client";
                return Err(CommandError::fixed(text));
            }
            subscribe(context, args, reply, TopicKind::ShardChannel);
            Ok(())
        },
        ..MEMBER
    },
    CommandSpec {
        name: "SUNSUBSCRIBE",
        arity: Arity::AtLeast(1),
        keys: SHARD_CHANNELS,
        since: "7.0.0",
        summary: "Stops listening to the messages of shard channels, or of all.",
        complexity: "O(N) where N is the number of shard channels to unsubscribe.",
        syntax: "[shardchannel [shardchannel ...]]",
        handler: |context, args, reply| {
            unsubscribe(context, args, reply, TopicKind::ShardChannel);
            Ok(())
        },
        ..MEMBER
    },
];

/// Returns the kinds that replies count together with this one.
fn counted_with(kind: TopicKind) -> &'static [TopicKind] {
    match kind {
        TopicKind::ShardChannel => &[TopicKind::ShardChannel],
        TopicKind::Channel | TopicKind::Pattern => &[TopicKind::Channel, TopicKind::Pattern],
    }
}

fn subscribe(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    kind: TopicKind,
) {
    let session = &mut *context.session;
    for name in args.by_ref() {
        let own = session.subscriptions.as_ref();
        if !own.is_some_and(|own| own.contains(kind, name)) {
            let topic = context.server.subscribe(session, kind, name, reply);
            session
                .subscriptions
                .get_or_insert_with(Box::<Subscriptions>::default)
                .insert(topic);
        }
        let word = match kind {
            TopicKind::Channel => "subscribe",
            TopicKind::Pattern => "psubscribe",
            TopicKind::ShardChannel => "ssubscribe",
        };
        confirm(session, reply, (kind, word), Some(name));
    }
    tell(session);
}

fn unsubscribe(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    kind: TopicKind,
) {
    let word = match kind {
        TopicKind::Channel => "unsubscribe",
        TopicKind::Pattern => "punsubscribe",
        TopicKind::ShardChannel => "sunsubscribe",
    };
    if args.remaining() > 0 {
        for name in args.by_ref() {
            let own = context.session.subscriptions.as_ref();
            if let Some(topic) = own.and_then(|own| own.find(kind, name)) {
                remove(context, &topic, reply);
            }
            confirm(context.session, reply, (kind, word), Some(name));
        }
    } else {
        let topics = topics_of(context.session, &[kind]);
        for topic in &topics {
            remove(context, topic, reply);
            confirm(context.session, reply, (kind, word), Some(&topic.name));
        }
        if topics.is_empty() {
            confirm(context.session, reply, (kind, word), None);
        }
    }
    tell(context.session);
}

/// See [`super::unsubscribe_all`].
pub(super) fn unsubscribe_all(context: &mut Context<'_>, reply: &mut Reply<'_>) {
    for topic in topics_of(context.session, &TopicKind::ALL) {
        remove(context, &topic, reply);
    }
    tell(context.session);
}

fn topics_of(session: &Session, kinds: &[TopicKind]) -> Vec<Topic> {
    let own = session.subscriptions.as_ref();
    let topics = own.map(|own| kinds.iter().flat_map(|kind| own.of_kind(*kind)));
    topics.into_iter().flatten().collect()
}

fn remove(context: &mut Context<'_>, topic: &Topic, reply: &mut Reply<'_>) {
    context.server.unsubscribe(context.session, topic, reply);
    if let Some(own) = &mut context.session.subscriptions {
        own.remove(topic);
    }
}

/// Replies with the client's present number of subscriptions.
fn confirm(
    session: &mut Session,
    reply: &mut Reply<'_>,
    (kind, word): (TopicKind, &str),
    name: Option<&[u8]>,
) {
    let own = session.subscriptions.as_ref();
    session.reply_is_push = true;
    reply.push(3);
    reply.bulk_str(word);
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.count(own.map_or(0, |own| own.count(counted_with(kind))));
}

/// Copies the numbers of subscriptions to the client's record.
fn tell(session: &mut Session) {
    if let Some(own) = &session.subscriptions {
        own.tell(&session.client);
        if own.count(&TopicKind::ALL) == 0 {
            session.subscriptions = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::session::ClientRecord;
    use testkit::engine_server::TestServer;

    fn push(word: &str, name: &str, count: i64) -> Value {
        Value::Push(vec![
            Value::Bulk(word.into()),
            Value::Bulk(name.into()),
            Value::Integer(count),
        ])
    }

    #[test]
    fn subscriptions_are_counted_and_shard_channels_apart() {
        let mut server = TestServer::resp3();
        assert_eq!(server.run("SUBSCRIBE a"), push("subscribe", "a", 1));
        assert_eq!(server.run("SUBSCRIBE a"), push("subscribe", "a", 1));
        assert_eq!(server.run("PSUBSCRIBE a*"), push("psubscribe", "a*", 2));
        assert_eq!(server.run("SSUBSCRIBE a"), push("ssubscribe", "a", 1));
        assert!(server.session().client.has_flag(ClientRecord::PUBSUB));
        assert_eq!(server.run("UNSUBSCRIBE b"), push("unsubscribe", "b", 2));
        assert_eq!(server.run("UNSUBSCRIBE"), push("unsubscribe", "a", 1));
        assert_eq!(server.run("PUNSUBSCRIBE"), push("punsubscribe", "a*", 0));
        assert_eq!(server.run("SUNSUBSCRIBE a"), push("sunsubscribe", "a", 0));
        assert!(!server.session().client.has_flag(ClientRecord::PUBSUB));
        assert!(server.session().subscriptions.is_none());
    }

    #[test]
    fn who_listens_in_resp2_can_do_little_else() {
        let mut server = TestServer::new();
        server.run("SUBSCRIBE a");
        assert_eq!(
            server.error("CLIENT ID"),
            "ERR Can't execute 'client|id': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        );
        assert!(
            server.error("EXEC").starts_with(
                "EXECABORT Transaction discarded because of: Can't execute 'exec': only"
            )
        );
        assert!(server.error("GET").starts_with("ERR wrong number"));
        assert_eq!(server.texts("PING"), ["pong", ""]);
        assert_eq!(server.texts("PING x"), ["pong", "x"]);
        server.run("RESET");
        assert_eq!(server.run("PING"), Value::Simple(b"PONG".to_vec()));
    }

    #[test]
    fn a_transaction_does_not_listen_to_shard_channels() {
        let mut server = TestServer::new();
        server.run("MULTI");
        server.run("SSUBSCRIBE a");
        let refused = b"ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client".to_vec();
        assert_eq!(
            server.run("EXEC"),
            Value::Array(vec![Value::Error(refused)])
        );
    }

    #[test]
    fn confirmations_come_whatever_replies_are_wanted() {
        let mut server = TestServer::resp3();
        assert!(server.is_silent("CLIENT REPLY OFF"));
        assert_eq!(server.run("SUBSCRIBE a"), push("subscribe", "a", 1));
        assert!(server.is_silent("PING"));
        assert_eq!(server.run("UNSUBSCRIBE"), push("unsubscribe", "a", 0));
    }
}
