//! A client's identity and protocol: HELLO AUTH RESET.

use std::sync::Arc;

use access::{LogInError, Origin, Reason};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::identity;
use engine::session::{ClientRecord, ReplyMode};
use engine::spec::{Arity, CommandSpec, Flags, Group, InTransaction};
use protocol::{Reply, Request, Resp};

use super::client::{checked_name, set_name};
use super::tracking;
use crate::families::pubsub;

const BEFORE_AUTH: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::NO_AUTH)
    .with(Flags::ALLOW_BUSY);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HELLO",
        secrets: Some(is_secret_of_hello),
        history: &[(
            "6.2.0",
            "The version may be left out; without arguments it only tells.",
        )],
        arity: Arity::AtLeast(1),
        flags: BEFORE_AUTH,
        group: Group::Connection,
        categories: &["connection"],
        since: "6.0.0",
        summary: "Chooses the protocol version, authenticates, and tells about the server.",
        syntax: "[protover [AUTH username password] [SETNAME clientname]]",
        handler: hello,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "AUTH",
        secrets: Some(|_, at| at > 0),
        history: &[("6.0.0", "Takes the name of a user before the password.")],
        arity: Arity::AtLeast(2),
        flags: BEFORE_AUTH,
        group: Group::Connection,
        categories: &["connection"],
        summary: "Authenticates the connection.",
        syntax: "[username] password",
        handler: auth,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "RESET",
        in_transaction: InTransaction::AtOnce,
        arity: Arity::Exactly(1),
        flags: BEFORE_AUTH.with(Flags::FOR_SUBSCRIBERS),
        group: Group::Connection,
        categories: &["connection"],
        since: "6.2.0",
        summary: "Makes the connection as it was when it was new.",
        handler: reset,
        ..CommandSpec::BLANK
    },
];

/// The parsed arguments of HELLO.
#[derive(Default)]
struct Greeting<'a> {
    version: Option<Resp>,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Greeting<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut greeting = Self::default();
        let Some(version) = args.next() else {
            return Ok(greeting);
        };
        greeting.version = match base::number::parse_i64(version) {
            Some(2) => Some(Resp::V2),
            Some(3) => Some(Resp::V3),
            Some(_) => {
                return Err(CommandError::fixed("NOPROTO unsupported protocol version"));
            }
            None => {
                return Err(CommandError::fixed(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
        while let Some(option) = args.next() {
            if option.eq_ignore_ascii_case(b"AUTH") && args.remaining() >= 2 {
                greeting.credentials = Some((args.bytes()?, args.bytes()?));
            } else if option.eq_ignore_ascii_case(b"SETNAME") && args.remaining() >= 1 {
                let name = args.bytes()?;
                checked_name(name)?;
                greeting.name = Some(name);
            } else {
                let mut text = b"ERR Syntax error in HELLO option '".to_vec();
                text.extend_from_slice(option);
                text.push(b'\'');
                return Err(CommandError::Bytes(text));
            }
        }
        Ok(greeting)
    }
}

/// Whether an argument is the name or the password after AUTH.
fn is_secret_of_hello(request: &Request<'_>, at: usize) -> bool {
    let is_auth = |at: &usize| {
        let word = request.arg(*at).unwrap_or_default();
        word.eq_ignore_ascii_case(b"AUTH")
    };
    let auth_at = (2..request.len()).find(is_auth);
    auth_at.is_some_and(|auth| at == auth + 1 || at == auth + 2)
}

fn hello(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let greeting = Greeting::parse(args)?;
    if let Some((user, password)) = greeting.credentials {
        log_in(context, args.request(), user, password)?;
    }
    if !context.session.authenticated {
        return Err(CommandError::fixed(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = greeting.name {
        set_name(context, name)?;
    }
    if let Some(version) = greeting.version {
        context.session.speak(version);
        reply.set_version(version);
    }
    introduce(context, reply);
    Ok(())
}

/// Writes what this server is.
fn introduce(context: &Context<'_>, reply: &mut Reply<'_>) {
    let proto = if context.session.resp == Resp::V3 {
        3
    } else {
        2
    };
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(identity::redis_version().as_bytes());
    reply.bulk(b"proto");
    reply.integer(proto);
    reply.bulk(b"id");
    reply.integer(i64::try_from(context.session.client.id).unwrap_or(i64::MAX));
    reply.bulk(b"mode");
    reply.bulk(
        if context.shared.hash_slots.is_on() && !context.session.forwards {
            b"cluster"
        } else {
            b"standalone"
        },
    );
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}

fn auth(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let (user, password): (&[u8], &[u8]) = match args.remaining() {
        1 => (b"default", args.bytes()?),
        2 => (args.bytes()?, args.bytes()?),
        _ => return Err(CommandError::Syntax),
    };
    let user_was_left_out = args.request().len() == 2;
    let default_user = context.shared.access.users.default_user();
    if user_was_left_out && default_user.rules().needs_no_password() {
        return Err(CommandError::fixed(
            "ERR AUTH <password> called without any password configured for the default user. Are \
             you sure your configuration is correct?",
        ));
    }
    log_in(context, args.request(), user, password)?;
    reply.ok();
    Ok(())
}

fn log_in(
    context: &mut Context<'_>,
    request: Request<'_>,
    name: &[u8],
    password: &[u8],
) -> CommandResult {
    let shared = context.shared;
    let client = Arc::clone(&context.session.client);
    let access = &shared.access;
    let refused = match access.log_in(name, password, client.host(), context.now_unix_ms) {
        Ok(user) => {
            context.session.log_in(user);
            return Ok(());
        }
        Err(refused) => refused,
    };
    if refused == LogInError::Wrong {
        let origin = match context.session.transaction {
            Some(_) => Origin::Transaction,
            None => Origin::Client,
        };
        let command = request.name().to_vec();
        context.log_denial(Reason::LogIn, origin, command, name.to_vec());
    }
    Err(CommandError::fixed(refused.text()))
}

fn reset(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    context.end_transaction();
    pubsub::unsubscribe_all(context, reply);
    tracking::end(context);
    let session = &mut *context.session;
    let monitors = &context.shared.observer.monitors;
    monitors.remove(&session.client);
    session.select(0);
    session.speak(Resp::V2);
    session.reply_mode = ReplyMode::On;
    session.waits_for_disk = false;
    session.waits_for_majority = false;
    let users = &context.shared.access.users;
    session.log_in(Arc::clone(users.default_user()));
    session.authenticated = !users.must_log_in();
    session.client.set_flag(
        ClientRecord::NO_EVICT
            | ClientRecord::NO_TOUCH
            | ClientRecord::REDIRECTS
            | ClientRecord::READS_REPLICAS,
        false,
    );
    session.client.clear_name();
    context.store.note_use(true);
    reply.set_version(Resp::V2);
    reply.simple("RESET");
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::{Resp, Value};

    use testkit::engine_server::TestServer;

    /// Returns a field of a HELLO reply by name.
    fn field(reply: &Value, name: &str) -> Option<Value> {
        let name = Value::Bulk(name.as_bytes().to_vec());
        match reply {
            Value::Map(pairs) => pairs
                .iter()
                .find(|pair| pair.0 == name)
                .map(|pair| pair.1.clone()),
            Value::Array(flat) => {
                let at = flat.iter().position(|value| *value == name)?;
                flat.get(at + 1).cloned()
            }
            _ => None,
        }
    }

    #[test]
    fn the_reply_is_in_the_version_that_was_asked_for() {
        let mut server = TestServer::new();
        let reply = server.run("HELLO 3 SETNAME me");
        assert!(matches!(reply, Value::Map(_)));
        assert_eq!(field(&reply, "proto"), Some(Value::Integer(3)));
        assert_eq!(field(&reply, "id"), Some(Value::Integer(1)));
        assert_eq!(server.session().client.names().name, "me");
        let reply = server.run("HELLO 2");
        assert!(matches!(reply, Value::Array(_)));
        assert_eq!(field(&reply, "proto"), Some(Value::Integer(2)));
    }

    #[test]
    fn what_is_wrong_changes_nothing() {
        let mut server = TestServer::new();
        assert_eq!(
            server.error("HELLO 4"),
            "NOPROTO unsupported protocol version"
        );
        assert!(
            server
                .error("HELLO 3 AUTH nobody x")
                .starts_with("WRONGPASS")
        );
        assert!(
            server
                .error("HELLO 3 SETNAME \"a b\"")
                .starts_with("ERR Client names")
        );
        assert_eq!(
            server.error("HELLO 3 AUTH x"),
            "ERR Syntax error in HELLO option 'AUTH'"
        );
        assert!(server.session().resp == Resp::V2);
    }

    #[test]
    fn a_password_is_asked_for() {
        let mut server = TestServer::with_password("secret");
        assert!(server.error("PING").starts_with("NOAUTH Authentication"));
        assert!(server.error("HELLO 3").starts_with("NOAUTH HELLO"));
        assert!(server.error("AUTH wrong").starts_with("WRONGPASS"));
        assert!(server.error("AUTH other secret").starts_with("WRONGPASS"));
        assert!(
            server
                .error("CLIENT nonsense")
                .starts_with("ERR unknown subcommand")
        );
        assert!(server.error("GET").starts_with("ERR wrong number"));
        server.run("AUTH secret");
        assert_eq!(server.run("PING"), Value::Simple(b"PONG".to_vec()));
        server.run("RESET");
        assert!(server.error("PING").starts_with("NOAUTH"));
        assert!(matches!(
            server.run("HELLO 3 AUTH default secret"),
            Value::Map(_)
        ));
    }

    #[test]
    fn who_fails_to_log_in_too_often_has_to_wait() {
        let mut server = TestServer::with_password("secret");
        for _ in 0..100 {
            assert!(server.error("AUTH wrong").starts_with("WRONGPASS"));
        }
        let refused = server.error("AUTH secret");
        assert!(refused.starts_with("ERR Too many failed logins"));
        server.advance_ms(50);
        server.run("AUTH secret");
        assert_eq!(server.run("PING"), Value::Simple(b"PONG".to_vec()));
    }

    #[test]
    fn reset_makes_all_as_it_was() {
        let mut server = TestServer::new();
        server.run("HELLO 3 SETNAME me");
        server.run("SELECT 5");
        server.run("CLIENT NO-TOUCH ON");
        assert!(server.is_silent("CLIENT REPLY OFF"));
        assert_eq!(server.run("RESET"), Value::Simple(b"RESET".to_vec()));
        let session = server.session();
        assert!(session.resp == Resp::V2 && session.database == 0);
        assert!(session.client.names().name.is_empty());
    }
}
