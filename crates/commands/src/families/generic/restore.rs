//! DUMP and RESTORE: a value as bytes that another server understands, and back.
//!
//! A payload is parsed into its own structure before the key is locked, and is written from a copy
//! that shares the value's pages: neither holds a lock for longer than a COPY does.

use std::sync::atomic::Ordering;

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use rdb::Value;
use rdb::dump::{self, Refused};
use store::{Deadline, Entry, Event, EventClass, Key, Owned, Use};

const BUSY: CommandError = CommandError::fixed("BUSYKEY Target key name already exists.");

/// Bytes of a payload that are parsed into elements in the time of one look-up.
const BYTES_PER_LOOKUP: usize = 32;

const RESTORER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(1, KeyAccess::OW.with(KeyAccess::UPDATE))],
    categories: &["keyspace", "dangerous"],
    history: &[
        ("3.0.0", "Added `REPLACE`."),
        ("5.0.0", "Added `ABSTTL`."),
        ("5.0.0", "Added `IDLETIME` and `FREQ`."),
    ],
    complexity: "O(N) where N is the length of the payload; O(N*log(N)) for sorted sets.",
    syntax: "key ttl:integer serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency:integer]",
    handler: restore,
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "DUMP",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))],
        group: Group::Generic,
        categories: &["keyspace"],
        since: "2.6.0",
        summary: "Gives the value of a key as bytes that RESTORE takes.",
        complexity: "O(N) where N is the length of the value.",
        syntax: "key",
        tips: &["nondeterministic_output"],
        handler: dump,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "RESTORE",
        group: Group::Generic,
        since: "2.6.0",
        summary: "Makes a key hold the value that DUMP gave.",
        ..RESTORER
    },
    CommandSpec {
        name: "RESTORE-ASKING",
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::ASKING),
        group: Group::Server,
        since: "3.0.0",
        summary: "What a cluster node says instead of RESTORE while a slot moves.",
        ..RESTORER
    },
];

fn dump(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let pace = context.pace;
    let value = context.store.read(&key, |record| {
        let value = record.map(|record| match record.object() {
            Some(object) => {
                pace.admit(object.len())?;
                Ok::<_, CommandError>(Value::Object(object.clone()))
            }
            None => Ok(Value::String(record.to_vec())),
        });
        value.transpose()
    });
    let Some(value) = value? else {
        reply.null();
        return Ok(());
    };
    let mut payload = Vec::new();
    let compresses = context
        .shared
        .settings
        .compresses_dumps
        .load(Ordering::Relaxed);
    dump::write(&value, compresses, &mut payload);
    reply.bulk(&payload);
    Ok(())
}

/// Returns a copy of the value of a key, and its deadline, or `None` if there is no such key.
pub(super) fn value_of(context: &mut Context<'_>, key: &Key<'_>) -> Option<(Value, Option<u64>)> {
    context.store.read(key, |record| {
        let record = record?;
        let value = match record.object() {
            Some(object) => Value::Object(object.clone()),
            None => Value::String(record.to_vec()),
        };
        Some((value, record.deadline_unix_ms()))
    })
}

fn restore(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (ttl, payload) = (args.bytes()?, args.bytes()?);
    let options = Options::parse(args)?;
    context.pace.admit(payload.len() / BYTES_PER_LOOKUP)?;
    if !options.replace && context.store.modify(&key, |entry| entry.is_present()) {
        return Err(BUSY);
    }
    let deadline = options.deadline(ttl, context.now_unix_ms)?;
    let limits = context.shared.settings.value_limits();
    let value = dump::read(payload, &limits).map_err(|refused| match refused {
        Refused::Footer => CommandError::fixed("ERR DUMP payload version or checksum are wrong"),
        Refused::Malformed(_) => CommandError::fixed("ERR Bad data format"),
    })?;
    // The log and replicas of any version get the payload in a version that all of them read.
    let rewritten = dump::is_foreign(payload).then(|| {
        let mut payload = Vec::new();
        dump::write(&value, false, &mut payload);
        payload
    });
    let payload = rewritten.as_deref().unwrap_or(payload);
    let now_unix_ms = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        if !options.replace && entry.is_present() {
            return Err(BUSY);
        }
        if deadline.is_some_and(|at| at <= now_unix_ms) {
            if entry.remove() {
                entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
                entry.event(EventClass::GENERIC, Event::DELETED);
            }
            return Ok(());
        }
        let existed = entry.is_present();
        put(entry, value, deadline)?;
        if existed {
            entry.event(EventClass::NEW, Event::CREATED);
        }
        if let Some(before) = options.before {
            entry.set_use(before);
        }
        entry.effect(|effect| {
            let at = IntegerText::new_u64(deadline.unwrap_or(0));
            let parts = [
                b"RESTORE",
                key.bytes(),
                at.as_bytes(),
                payload,
                b"ABSTTL",
                b"REPLACE",
            ];
            effect.command(&parts);
        });
        entry.event(EventClass::GENERIC, "restore");
        Ok(())
    })?;
    reply.ok();
    Ok(())
}

fn put(entry: &mut Entry<'_>, value: Value, deadline: Option<u64>) -> CommandResult {
    match value {
        Value::String(text) => entry.set(&text, deadline.map_or(Deadline::Never, Deadline::At))?,
        Value::Object(object) => entry.put(Owned::of_object(object, deadline))?,
    }
    Ok(())
}

/// The options after the payload.
#[derive(Default)]
struct Options {
    replace: bool,
    is_absolute: bool,
    before: Option<Use>,
}

impl Options {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while args.remaining() > 0 {
            let has_value = args.remaining() > 1;
            let before = options.before;
            if args.take_word("REPLACE") {
                options.replace = true;
            } else if args.take_word("ABSTTL") {
                options.is_absolute = true;
            } else if has_value
                && !matches!(before, Some(Use::Frequency(_)))
                && args.take_word("IDLETIME")
            {
                let seconds = u64::try_from(args.integer()?)
                    .map_err(|_| CommandError::fixed("ERR Invalid IDLETIME value, must be >= 0"))?;
                options.before = Some(Use::IdleSeconds(seconds));
            } else if has_value
                && !matches!(before, Some(Use::IdleSeconds(_)))
                && args.take_word("FREQ")
            {
                let count = u8::try_from(args.integer()?).map_err(|_| {
                    CommandError::fixed("ERR Invalid FREQ value, must be >= 0 and <= 255")
                })?;
                options.before = Some(Use::Frequency(count));
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }

    /// Returns the absolute time that the argument means, or `None` for 0, which means never.
    fn deadline(&self, ttl: &[u8], now_unix_ms: u64) -> Result<Option<u64>, CommandError> {
        let ttl = base::number::parse_i64(ttl).ok_or(CommandError::NotInteger)?;
        let ttl_ms = u64::try_from(ttl)
            .map_err(|_| CommandError::fixed("ERR Invalid TTL value, must be >= 0"))?;
        Ok(match ttl_ms {
            0 => None,
            at if self.is_absolute => Some(at),
            // Redis' sum overflows to a negative time here, which has already passed.
            ttl_ms => {
                let at = ttl_ms.saturating_add(now_unix_ms);
                Some(if at > i64::MAX.unsigned_abs() { 0 } else { at })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::{START_UNIX_MS, TestServer};

    fn payload(server: &mut TestServer, key: &str) -> Vec<u8> {
        match server.run(&format!("DUMP {key}")) {
            Value::Bulk(payload) => payload,
            other => panic!("{other:?}"),
        }
    }

    fn restore(
        server: &mut TestServer,
        key: &str,
        ttl: &str,
        payload: &[u8],
        more: &[&str],
    ) -> Value {
        let mut args = vec![b"RESTORE", key.as_bytes(), ttl.as_bytes(), payload];
        args.extend(more.iter().map(|word| word.as_bytes()));
        server.run_args(&args)
    }

    /// As Redis 8.10 sends it to replicas: by a template, and without a checksum. Its effect has a
    /// payload of our own.
    #[test]
    fn a_payload_of_a_newer_server_is_taken_and_told_in_an_older_version() {
        let mut server = TestServer::new();
        let newer = b"\x1f\x01\x02\x01a\x02bb\xc0\x01\x01x\x0f\0\0\0\0\0\0\0\0\0";
        let reply = restore(&mut server, "hash", "0", newer, &[]);
        assert_eq!(reply, Value::Simple(b"OK".to_vec()));
        assert_eq!(server.text("HGET hash bb"), "x");
        assert_eq!(server.integer("HLEN hash"), 2);
        let effects = server.effects();
        let told = effects.last().unwrap();
        assert!(told.contains(r"\n\x00"), "version 10: {told}");
        server.assert_effects_replay();
    }

    /// Values are moved, copied, dumped and restored while they are one buffer, and after a long
    /// element split them.
    #[test]
    fn small_collections_are_the_same_on_every_way() {
        let mut server = TestServer::new();
        let (long, longest) = ("x".repeat(100), "x".repeat(10_000));
        let kinds = [
            ("RPUSH", "0 1 2", longest, "quicklist"),
            ("SADD", "0 1 2", long.clone(), "hashtable"),
            ("SADD", "a b c", long.clone(), "hashtable"),
            ("HSET", "a 0 b 1 c 2", format!("d {long}"), "hashtable"),
            ("ZADD", "0 a 1 b 2 c", format!("3 {long}"), "skiplist"),
        ];
        for (number, (command, three, fourth, large)) in kinds.into_iter().enumerate() {
            let names = ["a", "b", "c", "d"].map(|name| format!("{number}:{name}"));
            let [first, second, third, last] = &names;
            server.run(&format!("{command} {first} {three}"));
            let small = server.text(&format!("OBJECT ENCODING {first}"));
            let used = server.integer(&format!("MEMORY USAGE {first}"));
            assert!(used < 100, "{command}: {used}");
            for encoding in [small.as_str(), large] {
                server.run(&format!("COPY {first} {second} REPLACE"));
                server.run(&format!("RENAME {second} {third}"));
                let dumped = payload(&mut server, third);
                restore(&mut server, last, "0", &dumped, &["REPLACE"]);
                for name in [first, third, last] {
                    let is = server.text(&format!("OBJECT ENCODING {name}"));
                    assert_eq!(is, encoding, "{command} {name}");
                    if encoding == small {
                        let takes = server.integer(&format!("MEMORY USAGE {name}"));
                        assert_eq!(takes, used, "{command} {name}");
                    }
                }
                server.run(&format!("{command} {first} {fourth}"));
            }
        }
        server.assert_effects_replay();
    }

    #[test]
    fn every_type_comes_back_as_it_was() {
        let mut server = TestServer::new();
        let long = "x".repeat(100);
        for line in [
            "SET string text",
            "SET number 12345",
            "RPUSH list a b 3",
            "SADD ints 1 2 300000",
            "SADD set a b 3",
            "ZADD sorted 1 a 2.5 b -inf c",
            "HSET hash f v g 2",
            &format!("RPUSH longlist {long}"),
            &format!("SADD table {long} b"),
            &format!("ZADD tree 1 {long} 2 b"),
            &format!("HSET table2 {long} 1 b 2"),
            "HSET deadlines f v g w",
            "HPEXPIREAT deadlines 1800000000000 FIELDS 1 f",
        ] {
            server.run(line);
        }
        let before = server.dump();
        for record in &before {
            let key = String::from_utf8(record.1.clone()).expect("a name");
            let dumped = payload(&mut server, &key);
            server.run(&format!("DEL {key}"));
            assert_eq!(
                restore(&mut server, &key, "0", &dumped, &[]),
                Value::Simple("OK".into())
            );
        }
        assert_eq!(server.dump(), before);
        server.assert_effects_replay();
    }

    #[test]
    fn the_effect_is_absolute_and_replaces() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        let dumped = payload(&mut server, "a");
        restore(&mut server, "b", "500", &dumped, &[]);
        restore(&mut server, "c", "0", &dumped, &["IDLETIME", "5"]);
        let effects = server.effects();
        let at = START_UNIX_MS + 500;
        assert!(
            effects[1].starts_with(&format!("RESTORE b {at} ")),
            "{effects:?}"
        );
        assert!(effects[1].ends_with(" ABSTTL REPLACE"));
        assert!(effects[2].starts_with("RESTORE c 0 "));
        assert_eq!(server.integer("PTTL b"), 500);
        server.assert_effects_replay();
    }

    #[test]
    fn a_time_that_has_come_removes_what_it_would_replace() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        let dumped = payload(&mut server, "a");
        restore(&mut server, "b", "1", &dumped, &["ABSTTL"]);
        restore(&mut server, "a", "1", &dumped, &["ABSTTL", "REPLACE"]);
        assert_eq!(server.effects()[1..], ["DEL a"]);
        assert_eq!(server.integer("DBSIZE"), 0);
        let most = i64::MAX.to_string();
        restore(&mut server, "a", &most, &dumped, &["ABSTTL"]);
        assert_eq!(server.integer("PEXPIRETIME a"), i64::MAX);
        server.assert_effects_replay();
    }

    #[test]
    fn a_time_that_overflows_has_come() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        let dumped = payload(&mut server, "a");
        let most = i64::MAX - i64::try_from(START_UNIX_MS).expect("a time");
        restore(&mut server, "b", &most.to_string(), &dumped, &[]);
        assert_eq!(server.integer("PEXPIRETIME b"), i64::MAX);
        for ttl in [most + 1, i64::MAX] {
            let ttl = ttl.to_string();
            server.run("SET b 2");
            let reply = restore(&mut server, "b", &ttl, &dumped, &["REPLACE"]);
            assert_eq!(reply, Value::Simple("OK".into()));
            assert_eq!(server.integer("EXISTS b"), 0);
            restore(&mut server, "b", &ttl, &dumped, &[]);
            assert_eq!(server.integer("EXISTS b"), 0);
        }
        server.assert_effects_replay();
    }

    #[test]
    fn nothing_changes_when_it_is_refused() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        let dumped = payload(&mut server, "a");
        let mut error = |ttl, payload: &[u8], more: &[&str]| match restore(
            &mut server,
            "a",
            ttl,
            payload,
            more,
        ) {
            Value::Error(text) => String::from_utf8(text).expect("a text"),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            error("-1", b"", &[]),
            "BUSYKEY Target key name already exists."
        );
        assert_eq!(
            error("-1", b"", &["REPLACE"]),
            "ERR Invalid TTL value, must be >= 0"
        );
        assert_eq!(
            error("0", b"", &["IDLETIME", "-1"]),
            "ERR Invalid IDLETIME value, must be >= 0"
        );
        assert_eq!(
            error("0", b"", &["FREQ", "256"]),
            "ERR Invalid FREQ value, must be >= 0 and <= 255"
        );
        assert_eq!(
            error("0", b"", &["FREQ", "2", "IDLETIME", "3"]),
            "ERR syntax error"
        );
        let wrong = "ERR DUMP payload version or checksum are wrong";
        assert_eq!(error("0", b"", &["REPLACE"]), wrong);
        for at in 0..dumped.len() {
            let mut flipped = dumped.clone();
            flipped[at] ^= 1;
            assert_eq!(error("0", &flipped, &["REPLACE"]), wrong);
        }
        assert_eq!(server.text("GET a"), "1");
        assert_eq!(server.effects(), ["SET a 1"]);
    }
}
