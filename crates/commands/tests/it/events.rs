//! The events that each command states: flag of the class, name, key, in Redis' order.

use std::collections::BTreeSet;

use engine::Flags;
use protocol::Value;
use testkit::client::Client;
use testkit::differential;
use testkit::process::Server;

use crate::effect_server::TestServer;
use crate::oracle;

/// Commands, run in order on one server, with the events of each. A command that begins with `+`
/// only prepares the next ones. An event that begins with `*` exists only since Redis 7.2.
const TABLE: &[(&str, &str)] = &[
    ("SET s 1", "n new s, $ set s"),
    ("SET s 2 EX 100", "$ set s, g expire s"),
    ("SET s 3 KEEPTTL", "$ set s"),
    ("SET s 3 NX", ""),
    ("SETNX s 3", ""),
    ("SETEX s 10 v", "$ set s, g expire s"),
    ("PSETEX s 10000 v", "$ set s, g expire s"),
    ("GETSET s 5", "$ set s"),
    ("MSET s 1 s2 2", "$ set s, n new s2, $ set s2"),
    ("MSETNX s 1 s3 2", ""),
    ("MSETNX s3 1 s4 2", "n new s3, $ set s3, n new s4, $ set s4"),
    ("MSETEX 2 s3 1 s5 2 XX", ""),
    (
        "MSETEX 2 s3 1 s4 2 EX 100",
        "$ set s3, g expire s3, $ set s4, g expire s4",
    ),
    ("INCR s", "$ incrby s"),
    ("DECRBY s 5", "$ incrby s"),
    ("INCRBY s 2", "$ incrby s"),
    ("DECR s", "$ incrby s"),
    ("INCRBYFLOAT s 0.5", "$ incrbyfloat s"),
    ("APPEND s x", "$ append s"),
    ("APPEND s ''", "$ append s"),
    ("SETRANGE s 1 y", "$ setrange s"),
    ("SETRANGE s 1 ''", ""),
    ("GETEX s EX 10", "g expire s"),
    ("GETEX s PERSIST", "g persist s"),
    ("GETEX s PERSIST", ""),
    ("GETEX s EXAT 1", "g del s"),
    ("GETDEL s2", "g del s2"),
    ("SETBIT b 3 0", "n new b, $ setbit b"),
    ("SETBIT b 3 0", ""),
    ("SETBIT b 3 1", "$ setbit b"),
    ("BITFIELD b SET u8 0 5 INCRBY u8 0 1", "$ setbit b"),
    ("BITFIELD b SET u8 0 6", ""),
    ("BITOP NOT b2 b", "n new b2, $ set b2"),
    ("DEL b", "g del b"),
    ("UNLINK b2 b2 s3 s4", "g del b2, g del s3, g del s4"),
    ("PFADD p a", "n new p, $ pfadd p"),
    ("PFADD p a", ""),
    ("PFMERGE p2 p", "n new p2, $ pfadd p2"),
    ("DELIFEQ p x", ""),
    ("SETWITHETAG e v EX 10", "n new e, $ set e, g expire e"),
    ("SETIFMATCH e w 1", "$ set e"),
    ("SETIFGREATER e x 7", "$ set e"),
    ("SETETAG e 9", ""),
    ("EXECWITHETAG SET e y", "$ set e"),
    ("EXECIFMATCH 10 SET e z", "$ set e"),
    ("EXECIFNOTMATCH 10 GET e", ""),
    ("EXECIFGREATER 20 SET e z", "$ set e"),
    ("DELIFGREATER e 99", "g del e"),
    ("MCSET e 1 7 0 SET", "n new e, $ set e"),
    ("MCSET e 2 7 9000000000000 APPEND", "$ set e"),
    ("MCSET e 2 7 9000000000000 ADD", ""),
    ("MCINCR e INCR 5", "$ set e"),
    ("MCGAT e 9000000000000", "g expire e"),
    ("MCGAT e 0", "g persist e"),
    ("MCGAT e 0", ""),
    ("MCFLUSH 0", ""),
    ("MCDEL e STALE", ""),
    ("MCWIN e", ""),
    ("MCDEL e EMPTY", "$ set e"),
    ("MCDEL e", "g del e"),
    ("MCWIN e VIVIFY 0", "n new e, $ set e"),
    ("MCDEL e", "g del e"),
    ("+FLUSHALL", ""),
    ("RPUSH l a b c d e", "n new l, l rpush l"),
    ("LPUSH l z", "l lpush l"),
    ("LPUSHX none z", ""),
    ("RPUSHX none z", ""),
    ("LPOP l", "l lpop l"),
    ("RPOP l 2", "l rpop l"),
    ("LPOP l 0", ""),
    ("LSET l 0 y", "l lset l"),
    ("LINSERT l BEFORE y x", "l linsert l"),
    ("LINSERT l BEFORE none x", ""),
    ("LREM l 0 x", "l lrem l"),
    ("LREM l 0 x", ""),
    ("LTRIM l 0 -1", "l ltrim l"),
    ("LMOVE l l2 LEFT RIGHT", "n new l2, l rpush l2, l lpop l"),
    ("RPOPLPUSH l2 l2", "l lpush l2, l rpop l2"),
    ("RPOPLPUSH l2 l", "l lpush l, l rpop l2, g del l2"),
    ("LMPOP 2 none l LEFT COUNT 2", "l lpop l"),
    ("LTRIM l 5 9", "l ltrim l, g del l"),
    ("RPUSH l b a", "n new l, l rpush l"),
    ("SORT l ALPHA STORE l3", "n new l3, l sortstore l3"),
    ("SORT l ALPHA STORE l3", "l sortstore l3"),
    ("SORT l ALPHA LIMIT 9 1 STORE l3", "g del l3"),
    ("SADD t a b c", "n new t, s sadd t"),
    ("SADD t a", ""),
    ("SREM t a", "s srem t"),
    ("SMOVE t t2 b", "s srem t, n new t2, s sadd t2"),
    ("SADD t2 c", "s sadd t2"),
    ("SMOVE t t2 c", "s srem t, g del t"),
    ("SUNIONSTORE t3 t2", "n new t3, s sunionstore t3"),
    ("SINTERSTORE t3 t2 t2", "s sinterstore t3"),
    ("SDIFFSTORE t3 t2 t2", "g del t3"),
    ("SPOP t2", "s spop t2"),
    ("SPOP t2 5", "s spop t2, g del t2"),
    ("HSET h f 1 g 2", "n new h, h hset h"),
    ("HMSET h f 1", "h hset h"),
    ("HSETNX h f 1", ""),
    ("HINCRBY h f 1", "h hincrby h"),
    ("HINCRBYFLOAT h f 1", "h hincrbyfloat h"),
    ("HEXPIRE h 100 FIELDS 1 f", "h hexpire h"),
    ("HPEXPIRE h 100000 FIELDS 1 f", "h hexpire h"),
    ("HPEXPIREAT h 33177117420000 FIELDS 1 f", "h hexpire h"),
    ("HPERSIST h FIELDS 1 f", "h hpersist h"),
    ("HPERSIST h FIELDS 1 f", ""),
    ("EXPIREMEMBER h f 100", "h hexpire h"),
    ("EXPIREMEMBERAT h f 33177117420", "h hexpire h"),
    ("PEXPIREMEMBERAT h f 33177117420000", "h hexpire h"),
    ("HGETEX h EX 100 FIELDS 1 f", "h hexpire h"),
    ("HGETEX h PERSIST FIELDS 1 f", "h hpersist h"),
    ("HSETEX h EX 100 FIELDS 1 i 1", "h hset h, h hexpire h"),
    ("HEXPIREAT h 1 FIELDS 1 i", "h hdel h"),
    ("HDEL h f none", "h hdel h"),
    ("HGETDEL h FIELDS 1 g", "h hdel h, g del h"),
    ("ZADD z 1 a 2 b 3 c 4 d 5 e", "n new z, z zadd z"),
    ("ZADD z 1 a", ""),
    ("ZADD z INCR 1 a", "z zincr z"),
    ("ZINCRBY z 1 a", "z zincr z"),
    ("ZREM z a", "z zrem z"),
    ("ZPOPMIN z", "z zpopmin z"),
    ("ZMPOP 1 z MAX", "z zpopmax z"),
    ("ZUNIONSTORE z2 1 z", "n new z2, z zunionstore z2"),
    ("ZINTERSTORE z2 1 z", "z zinterstore z2"),
    ("ZDIFFSTORE z2 2 z z", "g del z2"),
    ("ZRANGESTORE z2 z 0 -1", "n new z2, z zrangestore z2"),
    ("ZREMRANGEBYRANK z2 0 0", "z zremrangebyrank z2"),
    (
        "ZREMRANGEBYSCORE z2 0 99",
        "z zremrangebyscore z2, g del z2",
    ),
    ("ZREMRANGEBYLEX z - +", "z zremrangebylex z, g del z"),
    ("GEOADD g 13 38 x", "n new g, z zadd g"),
    (
        "GEOSEARCHSTORE g2 g FROMLONLAT 13 38 BYRADIUS 1 km",
        "n new g2, z geosearchstore g2",
    ),
    ("GEORADIUS g 13 38 1 km STORE g2", "z georadiusstore g2"),
    (
        "GEORADIUSBYMEMBER g x 1 km STORE g3",
        "n new g3, z georadiusstore g3",
    ),
    ("SWAPDB 3 4", ""),
    ("FLUSHDB", ""),
    ("XADD x 1-0 f v", "n new x, t xadd x"),
    ("XADD x MAXLEN 1 2-0 f v", "t xadd x, t xtrim x"),
    ("XGROUP CREATE x g 0", "t xgroup-create x"),
    (
        "XGROUP CREATE x2 g 0 MKSTREAM",
        "n new x2, t xgroup-create x2",
    ),
    ("XGROUP SETID x g 0", "t xgroup-setid x"),
    ("XGROUP CREATECONSUMER x g c", "t xgroup-createconsumer x"),
    ("XGROUP CREATECONSUMER x g c", ""),
    (
        "XREADGROUP GROUP g d STREAMS x >",
        "t xgroup-createconsumer x",
    ),
    ("XACK x g 2-0", ""),
    ("*XCLAIM x g f 0 0-1", "t xgroup-createconsumer x"),
    ("*XAUTOCLAIM x g e 0 0", "t xgroup-createconsumer x"),
    ("XGROUP DELCONSUMER x g c", "t xgroup-delconsumer x"),
    ("XGROUP DESTROY x g", "t xgroup-destroy x"),
    ("XSETID x 9-9", "t xsetid x"),
    ("XDEL x 2-0", "t xdel x"),
    ("XTRIM x MAXLEN 0", ""),
    ("EXPIRE x 100", "g expire x"),
    ("EXPIREAT x 33177117420", "g expire x"),
    ("PEXPIREAT x 33177117420000", "g expire x"),
    ("PEXPIRE x 100 GT", ""),
    ("PERSIST x", "g persist x"),
    ("PERSIST x", ""),
    ("EXPIRE x -1", "g del x"),
    ("+SET a 1", ""),
    ("RENAME a b", "n new b, g rename_from a, g rename_to b"),
    ("+SET a 1", ""),
    ("RENAME a b", "n new b, g rename_from a, g rename_to b"),
    ("RENAME b b", ""),
    ("RENAMENX b c", "n new c, g rename_from b, g rename_to c"),
    ("COPY c d", "n new d, g copy_to d"),
    ("COPY c d REPLACE", "n new d, g copy_to d"),
    ("COPY c d DB 2", "n new d@2, g copy_to d@2"),
    ("MOVE c 1", "n new c@1, g move_from c, g move_to c@1"),
    ("+RPUSH a 1", ""),
    ("RENAME a d", "n new d, g rename_from a, g rename_to d"),
    ("+FLUSHALL", ""),
    ("+RPUSH l a b c", ""),
    ("+ZADD z 1 a 2 b", ""),
    ("BLPOP l 0", "l lpop l"),
    ("BLMOVE l k LEFT RIGHT 0", "n new k, l rpush k, l lpop l"),
    ("+RPUSH l d", ""),
    ("BRPOP l 0", "l rpop l"),
    ("BLMPOP 0 1 l RIGHT", "l rpop l, g del l"),
    ("BRPOPLPUSH k k 0", "l lpush k, l rpop k"),
    ("BZPOPMIN z 0", "z zpopmin z"),
    ("+ZADD z2 1 a 2 b", ""),
    ("ZPOPMAX z2", "z zpopmax z2"),
    ("BZPOPMAX z2 0", "z zpopmax z2, g del z2"),
    ("BZMPOP 0 1 z MAX", "z zpopmax z, g del z"),
];

fn states(events: &str) -> Vec<&str> {
    events
        .split(", ")
        .filter(|event| !event.is_empty())
        .collect()
}

/// Returns the words of a line; `''` is an empty word.
fn words(line: &str) -> Vec<&str> {
    let word = |word| if word == "''" { "" } else { word };
    line.split(' ').map(word).collect()
}

#[test]
fn each_command_states_its_events_in_order() {
    let mut server = TestServer::new();
    server.want_events();
    for (line, expected) in TABLE {
        if let Some(line) = line.strip_prefix('+') {
            server.run(&words(line));
            server.events();
            continue;
        }
        server.run(&words(line.trim_start_matches('*')));
        let mut stated = server.events();
        stated.retain(|event| !event.starts_with("m "));
        assert_eq!(stated, states(expected), "{line}");
    }
}

#[test]
fn the_clock_states_what_it_takes() {
    let mut server = TestServer::new();
    server.want_events();
    for line in [
        "SET s 1 PX 10",
        "HSET h f 1 g 2",
        "HPEXPIRE h 10 FIELDS 1 f",
    ] {
        server.line(line);
    }
    server.events();
    server.advance_ms(10);
    server.tick();
    let mut stated = server.events();
    stated.sort();
    assert_eq!(stated, ["h hexpired h", "x expired s"]);
    server.line("HPEXPIRE h 10 FIELDS 1 g");
    server.line("SET s 1 PX 10");
    server.events();
    server.advance_ms(10);
    // The first access removes expired data.
    server.line("HSET h g 1");
    server.line("SETNX s 1");
    let expected = [
        "h hexpired h",
        "g del h",
        "n new h",
        "h hset h",
        "x expired s",
        "n new s",
        "$ set s",
    ];
    assert_eq!(server.events(), expected);
}

#[test]
fn a_key_looked_for_in_vain_is_an_event() {
    let mut server = TestServer::new();
    server.want_events();
    for (line, expected) in [
        ("GET a", "m keymiss a"),
        ("MGET a b", "m keymiss a, m keymiss b"),
        ("LLEN a", "m keymiss a"),
        ("EXISTS a", "m keymiss a"),
        ("TTL a", "m keymiss a"),
        ("TYPE a", "m keymiss a"),
        ("HGET a f", "m keymiss a"),
        ("LPOP a", ""),
        ("DEL a", ""),
        ("WATCH a", ""),
        ("UNWATCH", ""),
        ("MULTI", ""),
        ("BLMOVE a b LEFT LEFT 0", ""),
        ("EXEC", ""),
        ("XAUTOCLAIM a g c x 0", "m keymiss a"),
        ("XAUTOCLAIM a g c 0 0 COUNT 0", "m keymiss a"),
        ("SET a 1", "n new a, $ set a"),
        ("GET a", ""),
        ("SINTER b a c", "m keymiss b"),
        ("SUNIONSTORE d a c", ""),
        ("LPUSH l 1", "n new l, l lpush l"),
        ("LCS l b", "m keymiss b"),
    ] {
        server.line(line);
        assert_eq!(server.events(), states(expected), "{line}");
    }
}

#[test]
fn what_is_restored_is_new() {
    let mut server = TestServer::new();
    server.line("SET a text");
    let Value::Bulk(payload) = server.line("DUMP a") else {
        panic!("a payload");
    };
    server.want_events();
    for (ttl, expected) in [
        ("0", "n new a, g restore a"),
        ("1", "g del a"),
        ("1", ""),
        ("0", "n new a, g restore a"),
    ] {
        server.run(&[
            b"RESTORE",
            &b"a"[..],
            ttl.as_bytes(),
            &payload,
            b"ABSTTL",
            b"REPLACE",
        ]);
        assert_eq!(server.events(), states(expected), "{ttl}");
    }
}

/// Redis with a subscriber of its events.
struct Watched {
    server: Server,
    client: Client,
    marker: Client,
    subscriber: Client,
}

/// The channel of the message that marks the end of a request's events.
const MARK: &str = "__key-mark";

impl Watched {
    fn start() -> Option<Self> {
        let server = oracle::start()?;
        let mut subscriber = server.client().unwrap();
        subscriber.command(&["PSUBSCRIBE", "__key*"]).unwrap();
        Some(Self {
            client: server.client().unwrap(),
            marker: server.client().unwrap(),
            subscriber,
            server,
        })
    }

    fn want(&mut self, flags: &str) {
        let request = ["CONFIG", "SET", "notify-keyspace-events", flags];
        assert_eq!(
            self.client.command(&request).unwrap(),
            Value::Simple(b"OK".to_vec())
        );
    }

    /// Starts with no data, in the first database.
    fn begin(&mut self) {
        self.client = self.server.client().unwrap();
        self.client.command(&["FLUSHALL"]).unwrap();
    }

    /// Returns the reply to a request, and the events: name, key, and the database if it is not the
    /// first.
    fn run<A: AsRef<[u8]>>(&mut self, request: &[A]) -> (Value, Vec<String>) {
        let reply = self.client.command(request).unwrap();
        self.marker.command(&["PUBLISH", MARK, "end"]).unwrap();
        let mut events = Vec::new();
        while let Some(event) = self.next_event() {
            events.push(event);
        }
        (reply, events)
    }

    fn next_event(&mut self) -> Option<String> {
        let Some(Value::Array(parts)) = self.subscriber.receive().unwrap() else {
            panic!("a message");
        };
        let [_, _, Value::Bulk(channel), Value::Bulk(name)] = &parts[..] else {
            panic!("{parts:?}");
        };
        let channel = channel.escape_ascii().to_string();
        let place = channel.strip_prefix("__keyspace@")?;
        let (database, key) = place.split_once("__:").unwrap();
        let name = name.escape_ascii();
        Some(match database {
            "0" => format!("{name} {key}"),
            other => format!("{name} {key}@{other}"),
        })
    }
}

fn is_unknown_command(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"ERR unknown"))
}

/// Commands that write but have no line of their own, with the reason.
const WITHOUT_LINE: &[(&str, &str)] = &[
    ("PFDEBUG", "it changes a form and no value"),
    (
        "RESTORE",
        "its payload is no line: `what_is_restored_is_new`",
    ),
    ("RESTORE-ASKING", "as RESTORE"),
    ("MIGRATE", "needs another server; a process test moves keys"),
];

#[test]
fn every_command_that_writes_has_a_line() {
    let named = |line: &str| {
        let line = line.trim_start_matches(['+', '*']);
        line.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let lines: BTreeSet<String> = TABLE.iter().map(|(line, _)| named(line)).collect();
    let commands = testkit::table().commands().iter();
    let missing: BTreeSet<&str> = commands
        .filter(|spec| spec.flags.has(Flags::WRITE) && !lines.contains(spec.name))
        .map(|spec| spec.name)
        .collect();
    let without: BTreeSet<&str> = WITHOUT_LINE.iter().map(|(name, _)| *name).collect();
    assert_eq!(missing, without, "without a line; listed as such");
}

#[test]
fn the_table_is_that_of_redis_class_by_class() {
    let Some(mut redis) = Watched::start() else {
        return;
    };
    for flag in "g$lshztn".chars() {
        redis.want(&format!("K{flag}"));
        redis.begin();
        for (line, expected) in TABLE {
            let request = words(line.trim_start_matches(['+', '*']));
            let (reply, stated) = redis.run(&request);
            if is_unknown_command(&reply) || line.starts_with(['+', '*']) {
                continue;
            }
            let of_class = states(expected)
                .into_iter()
                .filter(|event| event.starts_with(flag));
            let expected: Vec<&str> = of_class.map(|event| &event[2..]).collect();
            assert_eq!(stated, expected, "{flag} {line}");
        }
    }
}

/// Since Redis 7.2, a read for a consumer creates the consumer, whether there are entries or not.
fn is_compared(event: &str) -> bool {
    !event.starts_with("xgroup-createconsumer") && !event.starts_with("xgroup-delconsumer")
}

/// A refused request may have looked up more or fewer keys, and SORT may look up keys of patterns
/// in any order.
fn is_free_to_miss(request: &[Vec<u8>], reply: &Value) -> bool {
    matches!(reply, Value::Error(_)) || request[0].to_ascii_uppercase().starts_with(b"SORT")
}

/// Returns the number of rounds of random requests; `EVENTS_ROUNDS` sets it.
fn rounds() -> u64 {
    std::env::var("EVENTS_ROUNDS").map_or(20, |text| text.parse().unwrap())
}

#[test]
fn random_requests_state_what_they_state_in_redis() {
    let Some(mut redis) = Watched::start() else {
        return;
    };
    redis.want("KAnm");
    let seed = std::env::var("EVENTS_SEED").map_or(5, |text| text.parse().unwrap());
    let mut differences = Vec::new();
    for (round, requests) in differential::rounds(seed, 0..rounds()).enumerate() {
        redis.begin();
        let mut server = TestServer::now();
        server.want_events();
        for (at, request) in requests.iter().enumerate() {
            let (reply, mut expected) = redis.run(request);
            let answer = server.run(request);
            let mut stated = server.events();
            for event in &mut stated {
                event.drain(..2);
            }
            let hides_misses =
                is_free_to_miss(request, &reply) || is_free_to_miss(request, &answer);
            for events in [&mut expected, &mut stated] {
                events.retain(|event| is_compared(event));
                events.retain(|event| !(hides_misses && event.starts_with("keymiss")));
            }
            if is_unknown_command(&reply) || stated == expected {
                continue;
            }
            let shown = request.join(&b' ').escape_ascii().to_string();
            differences.push(format!(
                "round {round}, request {at}: {shown:.300}\n  Redis {expected:?} after {reply:?}\n  Iolite {stated:?} after {answer:?}",
            ));
            break;
        }
    }
    let count = differences.len();
    assert!(
        count == 0,
        "{count} rounds differ:\n{}",
        differences.join("\n")
    );
}
