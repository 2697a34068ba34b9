//! Effects, replayed into an empty store, produce the same store: keys, values, encodings,
//! deadlines.
//!
//! Requests are drawn from forms, one or more for every command that writes. There are few keys and
//! three databases, and time passes between requests, so that commands meet each other's values,
//! and expired ones. `EFFECTS_SEED` repeats one sequence.

use base::random::Prng;
use engine::{Flags, Thresholds};
use protocol::Value;
use structures::{
    Element, End, EntryId, FieldDeadline, Hash, Kept, List, Set, SortedSet, SortedSetLimits, Stream,
};

use crate::effect_server::{START_UNIX_MS, TestServer};

const SEQUENCES: u64 = 100;
const REQUESTS: usize = 150;
const DATABASES: u64 = 3;

/// `{dump}` is a payload, `{k}` a key, `{l}` one that is mostly a list, `{h}` a hash, `{t}` a set, `{p}` a sketch, `{z}` a sorted set,
/// `{x}` a stream, `{g}` a group, `{c}` a consumer,
/// `{f}` a field, `{m}` a member, `{v}` a value, `{n}` a small number, `{o}` an offset, `{ms}` and
/// `{s}` a time to live, `{at}` and `{ats}` a time, `{d}` a database.
const FORMS: &[&str] = &[
    "SET {k} {v}",
    "SET {k} {v} EX {s}",
    "SET {k} {v} PX {ms} NX",
    "SET {k} {v} PXAT {at} XX GET",
    "SET {k} {v} EXAT {ats}",
    "SET {k} {v} KEEPTTL",
    "SET {k} {v} IFEQ {v}",
    "SETNX {k} {v}",
    "SETEX {k} {s} {v}",
    "PSETEX {k} {ms} {v}",
    "MSET {k} {v} {k} {v} {k} {v}",
    "MSETNX {k} {v} {k} {v}",
    "MSETEX 2 {k} {v} {k} {v} PX {ms}",
    "MSETEX 2 {k} {v} {k} {v} NX",
    "MSETEX 1 {k} {v} XX KEEPTTL",
    "GETSET {k} {v}",
    "GETDEL {k}",
    "GETEX {k} PX {ms}",
    "GETEX {k} EXAT {ats}",
    "GETEX {k} PERSIST",
    "DELIFEQ {k} {v}",
    "SETWITHETAG {k} {v}",
    "SETWITHETAG {k} {v} XX KEEPTTL",
    "SETWITHETAG {k} {n} PX {ms}",
    "SETIFMATCH {k} {v} 1",
    "SETIFMATCH {k} {v} {n} EXAT {ats} NOGET",
    "SETIFGREATER {k} {v} {n}",
    "DELIFGREATER {k} {n}",
    "GETWITHETAG {k}",
    "GETETAG {k}",
    "SETETAG {k} {n}",
    "SETETAG {h} 1",
    "SETETAG {z} 1",
    "EXECWITHETAG SADD {t} {m}",
    "EXECWITHETAG LPUSH {l} {v}",
    "EXECWITHETAG XADD {x} * {f} {v}",
    "EXECIFMATCH {n} HSET {h} {f} {v}",
    "EXECIFNOTMATCH {n} ZADD {z} {n} {m}",
    "EXECIFGREATER {n} SET {k} {v} EX {s}",
    "MCSET {k} {v} 7 0 SET",
    "MCSET {k} {v} 4294967295 9000000000000 ADD",
    "MCSET {k} {v} 1 1 REPLACE",
    "MCSET {k} {v} 2 0 APPEND",
    "MCSET {k} {v} 3 0 PREPEND",
    "MCINCR {k} INCR 5 INIT 1 0",
    "MCINCR {k} DECR 2 PXAT 9000000000000",
    "MCGAT {k} 9000000000000 CAS",
    "MCGAT {k} 0 NOVALUE",
    "MCGAT {k} 1",
    "MCGET {k}",
    "MCSET {k} {v} 7 9000000000000 SET CAS 1 STALE",
    "MCWIN {k}",
    "MCWIN {k} VIVIFY 9000000000000 CAS",
    "MCWIN {k} RECACHE 9000000000001 PXAT 0",
    "MCFLUSH 0",
    "MCDEL {k} STALE",
    "MCDEL {k} EMPTY STALE PXAT 9000000000000",
    "MCDEL {k}",
    "APPEND {k} {v}",
    "SETRANGE {k} {o} {v}",
    "INCR {k}",
    "DECR {k}",
    "INCRBY {k} {n}",
    "DECRBY {k} {n}",
    "INCRBYFLOAT {k} {n}",
    "INCRBYFLOAT {k} 0.{n}",
    "SETBIT {k} {o} 1",
    "SETBIT {k} {o} 0",
    "BITOP AND {k} {k} {k}",
    "BITOP OR {k} {k} {k}",
    "BITOP NOT {k} {k}",
    "BITFIELD {k} SET u8 {o} {n} INCRBY i5 {o} {n}",
    "BITFIELD {k} GET u8 {o}",
    "BITFIELD {k} OVERFLOW FAIL INCRBY u2 {o} {n}",
    "LPUSH {l} {v}",
    "LPUSH {l} {v} {v} {v}",
    "RPUSH {l} {v}",
    "RPUSH {l} {v} {v} {v} {v}",
    "LPUSHX {l} {v}",
    "RPUSHX {l} {v} {v}",
    "LPOP {l}",
    "RPOP {l}",
    "LPOP {l} {n}",
    "RPOP {l} 2",
    "LMPOP 2 {l} {l} LEFT COUNT 2",
    "LMPOP 1 {l} RIGHT",
    "LMOVE {l} {l} LEFT RIGHT",
    "BLPOP {l} {l} 0",
    "BRPOP {l} 0",
    "BLMPOP 0 2 {l} {l} LEFT COUNT 2",
    "BLMOVE {l} {l} LEFT RIGHT 0",
    "BRPOPLPUSH {l} {l} 0",
    "BZPOPMIN {z} {z} 0",
    "BZPOPMAX {z} 0",
    "BZMPOP 0 2 {z} {z} MAX COUNT 2",
    "LMOVE {l} {l} RIGHT RIGHT",
    "RPOPLPUSH {l} {l}",
    "LSET {l} {n} {v}",
    "LSET {l} -1 {v}",
    "LINSERT {l} BEFORE {v} {v}",
    "LINSERT {l} AFTER {v} {v}",
    "LREM {l} 0 {v}",
    "LREM {l} -1 {v}",
    "LTRIM {l} {n} -2",
    "LTRIM {l} 0 {n}",
    "LPUSH {k} {v}",
    "RPUSH {k} {v} {v}",
    "RPOP {k}",
    "RENAME {l} {l}",
    "COPY {l} {l} REPLACE",
    "COPY {l} {k} REPLACE",
    "MOVE {l} {d}",
    "PEXPIRE {l} {ms}",
    "RESTORE {k} {ms} {dump} REPLACE",
    "RESTORE {k} 0 {dump}",
    "RESTORE {h} {at} {dump} ABSTTL REPLACE IDLETIME 5",
    "RESTORE-ASKING {l} 0 {dump} REPLACE FREQ 5",
    "DUMP {k}",
    "SORT {l} ALPHA STORE {k}",
    "SORT {l} BY {v}* ALPHA GET # GET {k}* STORE {l}",
    "SORT {t} BY nosort STORE {l}",
    "SORT {z} BY nosort DESC LIMIT 0 {n} STORE {l}",
    "XADD {k} * {f} {v}",
    "XADD {x} {n}-* {f} {v}",
    "XADD {x} 19-* {f} {v} {f} {v}",
    "XADD {x} 19-* {f} {v}",
    "XADD {x} MAXLEN {n} 19-* {f} {v}",
    "XADD {x} NOMKSTREAM MINID ~ {n} 19-* {f} {v}",
    "XADD {x} MAXLEN ~ {n} LIMIT {n} 19-* {f} {v}",
    "XTRIM {x} MAXLEN {n}",
    "XTRIM {x} MINID 19-{n}",
    "XDEL {x} {n}-0 19-{n} 19-{n}",
    "XSETID {x} 19-{n} ENTRIESADDED {n}",
    "XSETID {x} 20-0 MAXDELETEDID {n}-1",
    "XGROUP CREATE {x} {g} 0 MKSTREAM",
    "XGROUP CREATE {x} {g} 0",
    "XGROUP CREATE {x} {g} $ ENTRIESREAD {n}",
    "XGROUP SETID {x} {g} {n}",
    "XGROUP CREATECONSUMER {x} {g} {c}",
    "XGROUP DELCONSUMER {x} {g} {c}",
    "XGROUP DESTROY {x} {g}",
    "XREADGROUP GROUP {g} {c} COUNT {n} STREAMS {x} >",
    "XREADGROUP GROUP {g} {c} STREAMS {x} {x} > {n}",
    "XREADGROUP GROUP {g} {c} COUNT 1 NOACK STREAMS {x} >",
    "XREADGROUP GROUP {g} {c} COUNT {n} STREAMS {x} 0",
    "XREADGROUP GROUP {g} {c} COUNT {n} BLOCK 0 STREAMS {x} {x} > >",
    "XACK {x} {g} 19-{n} 19-{n} {n}-0",
    "XCLAIM {x} {g} {c} 0 19-{n} 19-{n} FORCE",
    "XCLAIM {x} {g} {c} {ms} 19-{n} IDLE {n} JUSTID LASTID {n}-0",
    "XAUTOCLAIM {x} {g} {c} {ms} 0 COUNT 3",
    "XAUTOCLAIM {x} {g} {c} 0 - JUSTID",
    "RENAME {x} {x}",
    "COPY {x} {x} REPLACE",
    "HSET {k} {f} {v}",
    "RENAME {h} {h}",
    "COPY {h} {h} REPLACE",
    "HSET {h} {f} {v}",
    "HSET {h} {f} {v} {f} {v} {f} {v}",
    "HMSET {h} {f} {v} {f} {v}",
    "HSETNX {h} {f} {v}",
    "HDEL {h} {f} {f}",
    "HGETDEL {h} FIELDS 2 {f} {f}",
    "HINCRBY {h} {f} {n}",
    "HINCRBYFLOAT {h} {f} 0.{n}",
    "HEXPIRE {h} {s} FIELDS 2 {f} {f}",
    "HPEXPIRE {h} {ms} NX FIELDS 1 {f}",
    "HEXPIREAT {h} {ats} FIELDS 1 {f}",
    "HPEXPIREAT {h} {at} GT FIELDS 1 {f}",
    "HPERSIST {h} FIELDS 2 {f} {f}",
    "EXPIREMEMBER {h} {f} {s}",
    "EXPIREMEMBERAT {h} {f} {ats}",
    "PEXPIREMEMBERAT {h} {f} {at}",
    "HGETEX {h} PX {ms} FIELDS 2 {f} {f}",
    "HGETEX {h} PERSIST FIELDS 1 {f}",
    "HSETEX {h} PX {ms} FIELDS 2 {f} {v} {f} {v}",
    "HSETEX {h} FXX KEEPTTL FIELDS 1 {f} {v}",
    "HGET {h} {f}",
    "PFADD {p} {f} {v}",
    "PFADD {p}",
    "PFMERGE {p} {p} {p}",
    "PFCOUNT {p}",
    "PFDEBUG TODENSE {p}",
    "SADD {k} {f}",
    "SADD {t} {f} {v} {f}",
    "SADD {t} {n} {n} {n}",
    "SREM {t} {f} {v}",
    "SPOP {t}",
    "SPOP {t} {n}",
    "SMOVE {t} {t} {f}",
    "SINTERSTORE {t} {t} {t}",
    "SUNIONSTORE {t} {t} {t}",
    "SDIFFSTORE {t} {t} {t}",
    "COPY {t} {t} REPLACE",
    "ZADD {z} {n} {m}",
    "ZADD {z} {n} {m} {n}.5 {m} -{n} {m}",
    "ZADD {z} NX {n} {m} {n} {m}",
    "ZADD {z} XX CH {n} {m} {n} {m}",
    "ZADD {z} GT {n} {m} {n} {m}",
    "ZADD {z} LT {n} {m} {n} {m}",
    "ZADD {z} INCR 0.1 {m}",
    "ZADD {z} {n} {v}",
    "ZINCRBY {z} 0.{n} {m}",
    "ZINCRBY {z} -{n} {m}",
    "ZREM {z} {m} {m}",
    "ZREMRANGEBYRANK {z} {n} {n}",
    "ZREMRANGEBYRANK {z} 0 1",
    "ZREMRANGEBYSCORE {z} {n} {n}",
    "ZREMRANGEBYSCORE {z} -inf 2",
    "ZREMRANGEBYLEX {z} [a [b",
    "ZPOPMIN {z}",
    "ZPOPMAX {z} 2",
    "ZMPOP 2 {z} {z} MAX COUNT 2",
    "ZRANGESTORE {z} {z} 0 {n}",
    "ZRANGESTORE {z} {z} {n} +inf BYSCORE",
    "ZUNIONSTORE {z} 2 {z} {z} WEIGHTS 1 0.1",
    "ZUNIONSTORE {k} 1 {z}",
    "ZINTERSTORE {z} 2 {z} {z} AGGREGATE MAX",
    "ZDIFFSTORE {z} 2 {z} {z}",
    "GEOADD {z} {n} {n} {m}",
    "GEOADD {z} CH 1.{n} {n} {m} {n} 2.{n} {m}",
    "GEOSEARCHSTORE {z} {z} FROMLONLAT {n} {n} BYRADIUS 500 km",
    "GEOSEARCHSTORE {z} {z} FROMLONLAT {n} {n} BYBOX 500 900 km STOREDIST",
    "GEORADIUS {z} {n} {n} 500 km STORE {z}",
    "GEORADIUSBYMEMBER {z} {m} 500 km STOREDIST {z}",
    "ZADD {k} {n} {m}",
    "RENAME {z} {z}",
    "COPY {z} {z} REPLACE",
    "PEXPIRE {z} {ms}",
    "DEL {k}",
    "DEL {k} {k} {k}",
    "UNLINK {k} {k}",
    "RENAME {k} {k}",
    "RENAMENX {k} {k}",
    "COPY {k} {k}",
    "COPY {k} {k} REPLACE",
    "COPY {k} {k} DB {d} REPLACE",
    "COPY {k} {k} DB {d}",
    "MOVE {k} {d}",
    "EXPIRE {k} {s}",
    "EXPIRE {k} {s} NX",
    "PEXPIRE {k} {ms}",
    "PEXPIRE {k} {ms} XX",
    "PEXPIRE {k} -{n}",
    "EXPIREAT {k} {ats}",
    "EXPIREAT {k} {ats} GT",
    "PEXPIREAT {k} {at}",
    "PEXPIREAT {k} {at} LT",
    "PERSIST {k}",
    "SWAPDB {d} {d}",
    // Reads may meet expired keys.
    "GET {k}",
    "TOUCH {k} {k}",
    "RANDOMKEY",
    "SCAN 0",
    "OBJECT ENCODING {k}",
];

/// Rare, so that something is left to compare.
const RARE_FORMS: &[&str] = &["FLUSHDB", "FLUSHALL ASYNC"];

#[test]
fn effects_of_random_commands_make_the_same_store() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("EFFECTS_SEED");
    // A given seed runs alone, unless more sequences are requested.
    let count = number("EFFECTS_SEQUENCES").unwrap_or(match first {
        Some(_) => 1,
        None => SEQUENCES,
    });
    let first = first.unwrap_or(0);
    for seed in first..first + count {
        check(seed);
    }
}

fn check(seed: u64) {
    let mut random = Prng::seeded(seed);
    let mut server = TestServer::new();
    let mut requests = Vec::new();
    for _ in 0..REQUESTS {
        if below(&mut random, 4) == 0 {
            server.advance_ms(below(&mut random, 3000));
        }
        if below(&mut random, 10) == 0 {
            server.select(u16::try_from(below(&mut random, DATABASES)).unwrap());
        }
        let stated = server.effects().len();
        let before = server.dump();
        let reply = if below(&mut random, 8) == 0 {
            transaction(&mut server, &mut random, &mut requests)
        } else {
            let request = draw(&mut random);
            requests.push(String::from_utf8_lossy(&request.join(&b' ')).into_owned());
            server.run(&request)
        };
        let changed = server.dump() != before;
        let states = server.effects().len() > stated;
        assert!(
            states || !changed,
            "seed {seed}: a change without an effect: {:?} after {requests:#?}",
            requests.last()
        );
        // Expired fields are removed before a write is checked.
        let is_expiry = |parts: &[Vec<u8>]| parts[0] == b"HDEL";
        let has_expired = server.effects()[stated..]
            .iter()
            .all(|one| is_expiry(&one.1));
        assert!(
            has_expired || !matches!(reply, Value::Error(_)) || !changed,
            "seed {seed}: an error changed something: {:?}",
            requests.last()
        );
    }
    let mut replica = server.replica();
    assert_eq!(
        replica.dump(),
        server.dump(),
        "seed {seed} (EFFECTS_SEED={seed}): {requests:#?}"
    );
}

/// Returns a random request.
fn draw(random: &mut Prng) -> Vec<Vec<u8>> {
    let forms = if below(random, 100) == 0 {
        RARE_FORMS
    } else {
        FORMS
    };
    let form = forms[usize::try_from(below(random, forms.len() as u64)).unwrap()];
    let words = form.split_whitespace();
    words.map(|word| fill(word, random)).collect()
}

/// Runs some requests as one transaction, which ends in the database in which it began. Its effects
/// are one group.
fn transaction(server: &mut TestServer, random: &mut Prng, requests: &mut Vec<String>) -> Value {
    server.line("MULTI");
    requests.push("MULTI".to_owned());
    for _ in 0..below(random, 5) {
        let mut request = draw(random);
        if below(random, 8) == 0 {
            let database = below(random, DATABASES).to_string();
            request = vec![b"SELECT".to_vec(), database.into_bytes()];
        }
        requests.push(String::from_utf8_lossy(&request.join(&b' ')).into_owned());
        server.run(&request);
    }
    requests.push("EXEC".to_owned());
    let (stated, groups) = (server.effects().len(), server.groups().len());
    let reply = server.line("EXEC");
    assert!(matches!(reply, Value::Array(_)), "{reply:?}: {requests:#?}");
    // A waiting client is served after the transaction, with its own effects.
    let groups = &server.groups()[groups..];
    assert_eq!(groups[0].0, stated, "{requests:#?}");
    reply
}

fn fill(word: &str, random: &mut Prng) -> Vec<u8> {
    match word {
        "{dump}" => dump(random),
        word => fill_text(word, random).into_bytes(),
    }
}

/// Returns the payload of a small value of any type.
fn dump(random: &mut Prng) -> Vec<u8> {
    let text = value(random).into_bytes();
    let (limits, now) = (Thresholds::default(), 0);
    let object = match below(random, 6) {
        0 => {
            let mut list = List::new();
            list.push(End::Back, Element::parse(&text), limits.list_blocks());
            list.into_object()
        }
        1 => {
            let mut set = Set::new();
            set.insert(&text, &limits.set_limits()).unwrap();
            set.into_object()
        }
        2 => {
            let mut hash = Hash::new();
            let deadline = match below(random, 3) {
                0 => FieldDeadline::At(START_UNIX_MS + below(random, 200_000)),
                _ => FieldDeadline::Never,
            };
            hash.set(b"f0", &text, deadline, now, &limits.hash_limits())
                .unwrap();
            hash.into_object()
        }
        3 => {
            let mut set = SortedSet::new();
            let limits = SortedSetLimits {
                listpack_entries: 128,
                listpack_value_bytes: 64,
            };
            set.insert(&text, 2.5, &limits).unwrap();
            set.into_object()
        }
        4 => {
            let mut stream = Stream::new();
            let (id, pair) = (
                EntryId::new(1 + below(random, 9), 0),
                (&b"f"[..], &text[..]),
            );
            let log = stream.log_mut();
            log.append(id, [pair].into_iter(), limits.stream_blocks())
                .unwrap();
            stream.into_object()
        }
        _ => return payload(&rdb::Value::String(text)),
    };
    payload(&rdb::Value::Object(object))
}

fn payload(value: &rdb::Value) -> Vec<u8> {
    let mut payload = Vec::new();
    rdb::dump::write(value, true, &mut payload);
    payload
}

fn fill_text(word: &str, random: &mut Prng) -> String {
    let mut number = |most| below(random, most);
    match word {
        "{k}" => format!("key{}", number(6)),
        "{l}" => format!("list{}", number(4)),
        "{z}" => format!("zset{}", number(4)),
        "{m}" => format!("m{}", number(12)),
        "{x}" => format!("stream{}", number(3)),
        "{g}" => format!("g{}", number(2)),
        "{c}" => format!("c{}", number(3)),
        "{h}" => format!("hash{}", number(4)),
        "{t}" => format!("set{}", number(4)),
        "{p}" => format!("sketch{}", number(4)),
        "{f}" => format!("f{}", number(5)),
        "{v}" => value(random),
        "{o}" => number(60).to_string(),
        "{ms}" => (number(4000) + 1).to_string(),
        "{s}" => (number(5) + 1).to_string(),
        "{d}" => number(DATABASES).to_string(),
        "{at}" => (START_UNIX_MS + number(200_000)).to_string(),
        "{ats}" => (START_UNIX_MS / 1000 + number(200)).to_string(),
        word => word.replace("{n}", &number(20).to_string()),
    }
}

/// Returns a random value: a number, a near number, short or long text.
fn value(random: &mut Prng) -> String {
    match below(random, 6) {
        0 => below(random, 3).to_string(),
        1 => format!("-{}", random.next_u64() >> 1),
        2 => format!("0{}", below(random, 100)),
        3 => "x".repeat(usize::try_from(below(random, 100)).unwrap()),
        4 if below(random, 10) == 0 => "y".repeat(40_000),
        _ => format!("{}.5", below(random, 10)),
    }
}

fn below(random: &mut Prng, most: u64) -> u64 {
    random.next_u64() % most
}

#[test]
fn every_command_that_writes_has_a_form() {
    for spec in testkit::table().commands() {
        // The effects of a command that needs another server (those of a DEL) are tested with its
        // handler.
        if spec.flags.has(Flags::WRITE) && spec.name != "MIGRATE" {
            let mut forms = FORMS.iter().chain(RARE_FORMS);
            let named = |form: &&str| form.split_whitespace().next() == Some(spec.name);
            assert!(forms.any(named), "no form of {}", spec.name);
        }
    }
}

#[test]
fn what_changed_nothing_states_nothing() {
    let mut server = TestServer::new();
    server.line("SET here 1 PXAT 1700000100000");
    server.line("SET other 1");
    let stated = server.effects().len();
    for line in [
        "DEL none",
        "UNLINK none none",
        "RENAMENX here other",
        "RENAME here here",
        "RENAME none here",
        "COPY none here",
        "COPY here other",
        "MOVE none 1",
        "MOVE here 0",
        "EXPIRE none 10",
        "EXPIRE here 10 NX",
        "EXPIRE other 10 XX",
        "PEXPIREAT here 1700000000001 GT",
        "PERSIST other",
        "PERSIST none",
        "TOUCH here",
        "SWAPDB 3 3",
        "SWAPDB 4 5",
        "SELECT 5",
        "FLUSHDB",
    ] {
        server.line(line);
        assert_eq!(server.effects().len(), stated, "{line}");
    }
}

#[test]
fn effects_are_canonical() {
    let mut server = TestServer::new();
    for (line, effects) in [
        ("SET a 1", &["SET a 1"][..]),
        ("EXPIRE a 10", &["PEXPIREAT a 1700000010000"]),
        ("EXPIREAT a 1700000020", &["PEXPIREAT a 1700000020000"]),
        ("PERSIST a", &["PERSIST a"]),
        ("COPY a b", &["COPY a b DB 0 REPLACE"]),
        ("RENAMENX a c", &["RENAME a c"]),
        ("UNLINK b none c", &["DEL b", "DEL c"]),
        ("MSET a 1 b 2", &["SET a 1", "SET b 2"]),
        ("PEXPIRE a 0", &["DEL a"]),
        ("MOVE b 2", &["MOVE b 2"]),
        ("SWAPDB 2 0", &["SWAPDB 2 0"]),
        ("FLUSHDB SYNC", &["FLUSHDB"]),
    ] {
        let stated = server.effects().len();
        server.line(line);
        let fresh: Vec<String> = server.effects()[stated..]
            .iter()
            .map(|(_, parts)| String::from_utf8(parts.join(&b' ')).unwrap())
            .collect();
        assert_eq!(fresh, effects, "{line}");
    }
}

#[test]
fn an_expired_key_leaves_as_a_deletion() {
    let mut server = TestServer::new();
    server.line("SET a 1 PX 5");
    server.advance_ms(5);
    server.line("SET a 2 NX");
    let effects: Vec<Vec<u8>> = server
        .effects()
        .iter()
        .map(|(_, parts)| parts.join(&b' '))
        .collect();
    assert_eq!(effects.last().unwrap(), b"SET a 2");
    assert_eq!(server.replica().dump(), server.dump());
}
