//! MIGRATE: sends keys to another server, by DUMP and RESTORE, and deletes them here.
//!
//! It waits for that server, so it is offloaded, and holds its keys meanwhile: other clients see
//! the keys before or after, and no state in between.

use std::sync::atomic::Ordering;

use base::hash_slot;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::port::AskServer;
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec};
use engine::table::Table;
use protocol::{Reply, Request, encode_request};
use rdb::dump;
use store::{Event, EventClass, Key};

use super::restore::value_of;

const ACCESS: KeyAccess = KeyAccess::RW
    .with(KeyAccess::ACCESS)
    .with(KeyAccess::DELETE);

/// Maximum wait of each step if the client gives no useful value.
const TIMEOUT_MS: u64 = 1_000;

const KEYS: &[KeySpec] = &[
    KeySpec::one(3, ACCESS),
    KeySpec {
        begin: Begin::Keyword("KEYS", -2),
        find: Find::Range {
            last: -1,
            step: 1,
            limit: 0,
        },
        access: ACCESS.with(KeyAccess::INCOMPLETE),
        notes: "",
    },
];

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "MIGRATE",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.with(Flags::MOVABLE_KEYS),
    keys: KEYS,
    keys_of: Some(keys_of),
    secrets: Some(is_secret),
    sends_to: Some(sends_to),
    group: Group::Generic,
    categories: &["keyspace", "dangerous"],
    since: "2.6.0",
    history: &[
        ("3.0.0", "Added `COPY` and `REPLACE`."),
        ("3.0.6", "Added `KEYS`."),
        ("4.0.7", "Added `AUTH`."),
        ("6.0.0", "Added `AUTH2`."),
    ],
    summary: "Moves keys to another server.",
    complexity: "A DUMP and a DEL here, and a RESTORE there, for each key, and a round trip.",
    syntax: "host port:integer <key | \"\"> destination-db:integer timeout:integer [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key [key ...]]",
    tips: &["nondeterministic_output"],
    handler: migrate,
    ..CommandSpec::BLANK
}];

/// Returns the position of KEYS among the options, if present.
fn keys_option(request: &Request<'_>) -> Option<usize> {
    let is_word = |at: usize, word: &str| {
        let arg = request.arg(at);
        arg.is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    let mut at = 6;
    while at < request.len() {
        if is_word(at, "KEYS") {
            return Some(at);
        }
        at += if is_word(at, "AUTH") {
            2
        } else if is_word(at, "AUTH2") {
            3
        } else {
            1
        };
    }
    None
}

fn keys_of(_table: &Table, request: &Request<'_>) -> Vec<(usize, KeyAccess)> {
    let is_single = request.arg(3).is_some_and(|key| !key.is_empty());
    match keys_option(request) {
        Some(at) if !is_single => (at + 1..request.len()).map(|at| (at, ACCESS)).collect(),
        // Both are errors of the request, which names no key then.
        Some(_) => Vec::new(),
        None => vec![(3, ACCESS)],
    }
}

fn sends_to(request: &Request<'_>, host: &str, port: u16) -> bool {
    let is_port = |arg: &[u8]| base::number::parse_i64(arg) == Some(port.into());
    request.arg(1) == Some(host.as_bytes()) && request.arg(2).is_some_and(is_port)
}

fn is_secret(request: &Request<'_>, at: usize) -> bool {
    let end = keys_option(request).unwrap_or(request.len());
    let is_word = |at: usize, word: &str| {
        at >= 6
            && request
                .arg(at)
                .is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    let before = |by: usize| at.saturating_sub(by);
    at < end
        && (is_word(before(1), "AUTH")
            || is_word(before(1), "AUTH2")
            || is_word(before(2), "AUTH2"))
}

/// The parsed request.
struct Options<'a> {
    host: &'a [u8],
    port: &'a [u8],
    database: i64,
    timeout_ms: u64,
    copies: bool,
    replaces: bool,
    login: Vec<&'a [u8]>,
    names: Vec<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let (host, port, single) = (args.bytes()?, args.bytes()?, args.bytes()?);
        let (database, timeout_ms) = (args.bytes()?, args.bytes()?);
        let mut options = Self {
            host,
            port,
            database: 0,
            timeout_ms: TIMEOUT_MS,
            copies: false,
            replaces: false,
            login: Vec::new(),
            names: vec![single],
        };
        while args.remaining() > 0 {
            if args.take_word("COPY") {
                options.copies = true;
            } else if args.take_word("REPLACE") {
                options.replaces = true;
            } else if args.remaining() >= 2 && args.take_word("AUTH") {
                options.login = vec![args.bytes()?];
            } else if args.remaining() >= 3 && args.take_word("AUTH2") {
                options.login = vec![args.bytes()?, args.bytes()?];
            } else if args.take_word("KEYS") {
                if !single.is_empty() {
                    return Err(CommandError::fixed(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                options.names = args.by_ref().collect();
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let number = |bytes| base::number::parse_i64(bytes).ok_or(CommandError::NotInteger);
        let timeout_ms = number(timeout_ms)?;
        options.database = number(database)?;
        if timeout_ms > 0 {
            options.timeout_ms = timeout_ms.unsigned_abs();
        }
        Ok(options)
    }
}

fn migrate(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let options = Options::parse(args)?;
    // A leaving slot takes all its keys along, and none is left to be sent. The request waits for
    // that before it locks the keys, because the move waits for holders of the keys.
    if let Err(not_here) = context.pace.admit_waiting() {
        let mut leaves = |name: &&[u8]| context.server.is_leaving(hash_slot::of(name));
        let waits = context.may_block && options.names.first().is_some_and(&mut leaves);
        return Err(if waits { CommandError::Held } else { not_here });
    }
    let mut requests = Vec::new();
    let mut before = 1;
    if !options.login.is_empty() {
        let mut words: Vec<&[u8]> = vec![b"AUTH"];
        words.extend(&options.login);
        encode_request(&mut requests, &words);
        before += 1;
    }
    let database = options.database.to_string();
    encode_request(&mut requests, &[b"SELECT", database.as_bytes()]);
    let keys: Vec<Key<'_>> = options.names.iter().map(|name| context.key(name)).collect();
    let mut sent = Vec::new();
    for key in keys {
        if add_restore(context, &key, options.replaces, &mut requests) {
            sent.push(key);
        }
    }
    if sent.is_empty() {
        reply.simple("NOKEY");
        return Ok(());
    }
    let answers = context.server.ask_server(&AskServer {
        host: options.host,
        port: options.port,
        timeout_ms: options.timeout_ms,
        requests: &requests,
        count: before + sent.len(),
    })?;
    let mut refusal = None;
    for (index, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(()) => {
                // If the login or the database is refused, everything after it is void.
                let key = index.checked_sub(before).and_then(|at| sent.get(at));
                if let (Some(key), false, true) = (key, options.copies, is_past(&refusal, before)) {
                    delete(context, key);
                }
            }
            Err(text) => {
                refusal.get_or_insert((index, text));
            }
        }
    }
    if let Some((_, text)) = refusal {
        let text = [b"ERR Target instance replied with error: ", text.as_slice()].concat();
        return Err(CommandError::Bytes(text));
    }
    reply.ok();
    Ok(())
}

/// Whether nothing before the keys was refused.
fn is_past(refusal: &Option<(usize, Vec<u8>)>, before: usize) -> bool {
    refusal.as_ref().is_none_or(|(at, _)| *at >= before)
}

/// Adds the request that creates a key there. Returns false if the key does not exist here.
fn add_restore(
    context: &mut Context<'_>,
    key: &Key<'_>,
    replaces: bool,
    requests: &mut Vec<u8>,
) -> bool {
    let Some((value, deadline_unix_ms)) = value_of(context, key) else {
        return false;
    };
    let mut payload = Vec::new();
    let compresses = context
        .shared
        .settings
        .compresses_dumps
        .load(Ordering::Relaxed);
    dump::write(&value, compresses, &mut payload);
    let left_ms = deadline_unix_ms.map_or(0, |at| at.saturating_sub(context.now_unix_ms).max(1));
    let ttl = left_ms.to_string();
    let name: &[u8] = match context.shared.hash_slots.is_on() {
        true => b"RESTORE-ASKING",
        false => b"RESTORE",
    };
    let mut words: Vec<&[u8]> = vec![name, key.bytes(), ttl.as_bytes(), &payload];
    if replaces {
        words.push(b"REPLACE");
    }
    encode_request(requests, &words);
    true
}

fn delete(context: &mut Context<'_>, key: &Key<'_>) {
    let deleted = context.store.delete(key, |entry| {
        entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
        entry.event(EventClass::GENERIC, Event::DELETED);
    });
    // Requests for the key waited meanwhile, so it was still there.
    let _is_there_no_more = deleted;
}

#[cfg(test)]
mod tests {
    use protocol::Value;
    use testkit::engine_server::TestServer;

    #[test]
    fn keys_are_sent_and_deleted_when_they_are_taken() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.run("SET b 2");
        server.port.server_answers = Some(vec![Ok(()), Ok(()), Err(b"BUSYKEY there".to_vec())]);
        assert_eq!(
            server.error("MIGRATE host 1 '' 0 100 KEYS a none b"),
            "ERR Target instance replied with error: BUSYKEY there"
        );
        assert_eq!(server.integer("EXISTS a"), 0);
        assert_eq!(server.integer("EXISTS b"), 1);
        let sent = String::from_utf8_lossy(&server.port.server_requests).into_owned();
        assert!(
            sent.starts_with("*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*4\r\n$7\r\nRESTORE\r\n$1\r\na\r\n")
        );
        server.port.server_answers = Some(vec![Ok(()), Ok(())]);
        assert_eq!(
            server.run("MIGRATE host 1 b 0 100 COPY REPLACE"),
            Value::Simple("OK".into())
        );
        assert_eq!(server.integer("EXISTS b"), 1);
    }

    #[test]
    fn nothing_is_deleted_where_the_other_server_does_not_let_us_in() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.port.server_answers = Some(vec![Err(b"WRONGPASS no".to_vec()), Ok(()), Ok(())]);
        assert_eq!(
            server.error("MIGRATE host 1 a 0 100 AUTH x"),
            "ERR Target instance replied with error: WRONGPASS no"
        );
        assert_eq!(server.integer("EXISTS a"), 1);
        server.port.server_answers = None;
        assert!(server.error("MIGRATE host 1 a 0 100").starts_with("IOERR"));
        assert_eq!(server.integer("EXISTS a"), 1);
    }

    #[test]
    fn requests_are_checked() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("MIGRATE host 1 none 0 100"),
            Value::Simple("NOKEY".into())
        );
        for (line, error) in [
            (
                "MIGRATE host 1 a x 100",
                "ERR value is not an integer or out of range",
            ),
            ("MIGRATE host 1 a 0 100 WHAT", "ERR syntax error"),
            (
                "MIGRATE host 1 a 0 100 KEYS b",
                "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
            ),
        ] {
            assert_eq!(server.error(line), error);
        }
        let keys = server.run("COMMAND GETKEYS MIGRATE host 1 '' 0 100 AUTH KEYS KEYS a b");
        let names = [b"a", b"b"].map(|name| Value::Bulk(name.to_vec()));
        assert_eq!(keys, Value::Array(names.to_vec()));
    }
}
