//! Commands about the connection itself.

mod client;
mod filter;
mod hello;
mod others;
mod tracking;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::session::Fate;
use engine::spec::{Arity, CommandSpec, Deprecation, Flags, Group, InTransaction};
use protocol::Reply;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[BASICS, hello::COMMANDS, client::COMMANDS];

const BASICS: &[CommandSpec] = &[
    CommandSpec {
        name: "PING",
        arity: Arity::AtLeast(1),
        flags: Flags::FAST.with(Flags::FOR_SUBSCRIBERS).with(Flags::PROBES),
        group: Group::Connection,
        categories: &["connection"],
        summary: "Answers PONG, or the message it was given.",
        syntax: "[message]",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        handler: ping,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "ECHO",
        arity: Arity::Exactly(2),
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        group: Group::Connection,
        categories: &["connection"],
        summary: "Answers the message it was given.",
        syntax: "message",
        handler: |_context, args, reply| {
            reply.bulk(args.bytes()?);
            Ok(())
        },
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "QUIT",
        in_transaction: InTransaction::AtOnce,
        arity: Arity::AtLeast(1),
        flags: Flags::NOSCRIPT
            .with(Flags::LOADING)
            .with(Flags::STALE)
            .with(Flags::FAST)
            .with(Flags::NO_AUTH)
            .with(Flags::ALLOW_BUSY)
            .with(Flags::FOR_SUBSCRIBERS),
        group: Group::Connection,
        categories: &["connection"],
        deprecated: Some(Deprecation {
            since: "7.2.0",
            replaced_by: "just closing the connection",
        }),
        summary: "Closes the connection once its replies are sent.",
        handler: |context, _args, reply| {
            // When the client has the reply, it must no longer count as a subscriber, though the
            // connection closes after it.
            super::pubsub::unsubscribe_all(context, reply);
            context.session.fate = Fate::Close;
            reply.ok();
            Ok(())
        },
        ..CommandSpec::BLANK
    },
];

fn ping(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let only_listens = context.session.only_listens();
    match (args.next(), args.remaining()) {
        (message, 0) if only_listens => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(message.unwrap_or_default());
        }
        (None, _) => reply.simple("PONG"),
        (Some(message), 0) => reply.bulk(message),
        (Some(_), _) => return Err(CommandError::WrongArity("ping".into())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::session::Fate;
    use engine::topic::TopicKind;
    use testkit::engine_server::TestServer;

    #[test]
    fn ping_takes_one_message_at_most() {
        let mut server = TestServer::new();
        assert_eq!(server.run("PING"), Value::Simple(b"PONG".to_vec()));
        assert_eq!(server.text("PING hello"), "hello");
        assert_eq!(
            server.error("PING a b"),
            "ERR wrong number of arguments for 'ping' command"
        );
        assert_eq!(server.text("ECHO hello"), "hello");
    }

    #[test]
    fn quit_answers_before_it_closes() {
        let mut server = TestServer::new();
        assert_eq!(server.run("QUIT"), Value::Simple(b"OK".to_vec()));
        assert!(server.session().fate == Fate::Close);
    }

    #[test]
    fn who_quits_hears_no_more() {
        let mut server = TestServer::new();
        server.run("HELLO 3");
        server.run("SUBSCRIBE a");
        server.run("PSUBSCRIBE c*");
        assert_eq!(server.run("QUIT"), Value::Simple(b"OK".to_vec()));
        let own = server.session().subscriptions.as_ref();
        assert!(
            TopicKind::ALL
                .iter()
                .all(|kind| { own.is_none_or(|own| own.of_kind(*kind).next().is_none()) })
        );
    }
}
