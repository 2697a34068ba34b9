//! Tests that idle memory is found and returned to the system, as `activedefrag` and MEMORY PURGE
//! request.

use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};

use crate::limits::eventually;

const KEYS: usize = 60_000;
const KEYS_PER_COMMAND: usize = 500;
/// Number of hashes of 4 KB each: too large for the store's own slabs, and too small for pages of
/// their own.
const HASHES: usize = 8_000;

/// Loads [`KEYS`] keys of 100 bytes, then deletes nine of ten.
fn leave_holes(client: &mut Client) {
    let value = "v".repeat(100);
    let names: Vec<_> = (0..KEYS)
        .map(|number| format!("key:{number:012}"))
        .collect();
    for some in names.chunks(KEYS_PER_COMMAND) {
        let mut all = vec!["MSET"];
        some.iter()
            .for_each(|name| all.extend([name, value.as_str()]));
        assert_eq!(client.command(&all).unwrap(), Value::Simple(b"OK".to_vec()));
    }
    for some in names.chunks(KEYS_PER_COMMAND) {
        let mut nine_of_ten = vec!["DEL"];
        let gone = some.iter().enumerate().filter(|(at, _)| at % 10 != 0);
        nine_of_ten.extend(gone.map(|(_, name)| name.as_str()));
        client.command(&nine_of_ten).unwrap();
    }
}

/// Returns a number from INFO.
fn figure(client: &mut Client, name: &str) -> u64 {
    let Value::Bulk(text) = client.command(&["INFO", "everything"]).unwrap() else {
        panic!("INFO is a text");
    };
    let text = String::from_utf8(text).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().parse().unwrap()
}

/// Returns the number of bytes of a server's private memory. The resident pages of the program vary
/// with the code that runs, and with the machine's cache.
fn own_bytes(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse::<u64>().unwrap() << 10
}

#[test]
fn idle_memory_is_given_back_by_itself_from_the_threshold_on() {
    let args = [
        "--activedefrag",
        "yes",
        "--active-defrag-ignore-bytes",
        "100mb",
        "--threads",
        "1",
    ];
    let server = ServerBuilder::iolite().args(&args).start().unwrap();
    let mut client = server.client().unwrap();
    leave_holes(&mut client);
    let idle = figure(&mut client, "allocator_frag_bytes");
    assert!(idle > 3 << 20, "{idle} bytes idle");
    assert_eq!(figure(&mut client, "active_defrag_key_hits"), 0);
    let set = client
        .command(&["CONFIG", "SET", "active-defrag-ignore-bytes", "1mb"])
        .unwrap();
    assert_eq!(set, Value::Simple(b"OK".to_vec()));
    eventually("holes are closed", || {
        figure(&mut client, "allocator_frag_bytes") < 2 << 20
            && figure(&mut client, "active_defrag_running") == 0
    });
    assert!(figure(&mut client, "active_defrag_key_hits") > 1_000);
    let count = client.command(&["DBSIZE"]).unwrap();
    assert_eq!(count, Value::Integer((KEYS / 10).try_into().unwrap()));
}

#[test]
fn memory_purge_gives_idle_memory_back() {
    let server = ServerBuilder::iolite()
        .args(&["--threads", "1", "--activedefrag", "yes"])
        .start()
        .unwrap();
    let mut client = server.client().unwrap();
    leave_holes(&mut client);
    assert!(figure(&mut client, "allocator_frag_bytes") > 3 << 20);
    client.command(&["MEMORY", "PURGE"]).unwrap();
    eventually("holes are closed", || {
        figure(&mut client, "allocator_frag_bytes") < 1 << 20
    });
}

#[test]
fn memory_purge_gives_back_what_large_values_left() {
    let server = ServerBuilder::iolite()
        .args(&["--threads", "1"])
        .start()
        .unwrap();
    let mut client = server.client().unwrap();
    let at_first = own_bytes(&server);
    let value = "v".repeat(80);
    let fields: Vec<_> = (0..40).map(|field| format!("field:{field}")).collect();
    for number in 0..HASHES {
        let name = format!("hash:{number}");
        let mut all = vec!["HSET", &name];
        fields
            .iter()
            .for_each(|field| all.extend([field.as_str(), value.as_str()]));
        client.command(&all).unwrap();
    }
    let grown = own_bytes(&server) - at_first;
    assert!(grown > 20 << 20, "{grown} bytes for all hashes");
    client.command(&["FLUSHALL"]).unwrap();
    // They are freed in the background.
    eventually("the system has it again", || {
        client.command(&["MEMORY", "PURGE"]).unwrap();
        own_bytes(&server) < at_first + grown / 3
    });
}

/// Returns a value of this many varied bytes.
fn value_of(bytes: usize) -> String {
    ("abcdefghijklmnopqrstuvw".chars().cycle().take(bytes)).collect()
}

/// Writes collections, or strings with values that are too long for slots and too short for pages.
fn fill_with(client: &mut Client, kind: &str, value: &str, megabytes: usize) {
    for number in 0..(megabytes << 20) / value.len() {
        let key = format!("{kind}:{}", number / 8);
        let field = format!("{number}");
        let member = format!("{number}:{value}");
        let own = format!("{key}:{number}");
        let words = match kind {
            "list" => vec!["RPUSH", &key, value],
            "hash" => vec!["HSET", &key, &field, value],
            "sorted set" => vec!["ZADD", &key, &field, &member],
            "stream" => vec!["XADD", &key, "*", "f", value],
            _ => vec!["SET", &own, value],
        };
        client.command(&words).unwrap();
    }
}

/// No client requests it, and no client writes meanwhile.
#[test]
fn memory_returns_after_a_flush() {
    for kind in ["list", "hash", "sorted set", "stream", "string"] {
        let args = ["--threads", "1", "--activedefrag", "no"];
        let server = ServerBuilder::iolite().args(&args).start().unwrap();
        let mut client = server.client().unwrap();
        let at_first = own_bytes(&server);
        for bytes in [2 << 10, 20_000] {
            fill_with(&mut client, kind, &value_of(bytes), 20);
        }
        let grown = own_bytes(&server) - at_first;
        assert!(grown > 30 << 20, "{kind}: {grown} bytes");
        // No memory is counted twice.
        let allocated = figure(&mut client, "allocator_allocated");
        let own = own_bytes(&server);
        assert!(allocated < own + (4 << 20), "{kind}: {allocated} of {own}");
        client.command(&["FLUSHALL"]).unwrap();
        eventually(&format!("memory of a {kind} returns"), || {
            own_bytes(&server) < at_first + (6 << 20)
        });
    }
}

/// Writes collections of short elements and deletes nine in ten of the collections: the remaining
/// ones lie on pages of the deleted ones.
fn thin_out(client: &mut Client, kind: &str) {
    const COLLECTIONS: usize = 3_000;
    let value = value_of(60);
    for number in 0..COLLECTIONS {
        let key = format!("{kind}:{number}");
        let elements: Vec<String> = (0..150).map(|at| format!("{at}:{value}")).collect();
        let scores: Vec<String> = (0..150).map(|at| at.to_string()).collect();
        let mut words = match kind {
            "list" => vec!["RPUSH", key.as_str()],
            _ => vec!["ZADD", key.as_str()],
        };
        for (element, score) in elements.iter().zip(&scores) {
            if kind == "sorted set" {
                words.push(score);
            }
            words.push(element);
        }
        client.command(&words).unwrap();
    }
    for number in (0..COLLECTIONS).filter(|number| number % 10 != 3) {
        client
            .command(&["DEL", &format!("{kind}:{number}")])
            .unwrap();
    }
}

/// The amount of idle memory from which records are moved together. The same amount holds for
/// pieces of collections.
const LEFT_ALONE: u64 = 1 << 20;

/// The memory of the allocator's page tables, and what threads keep for reuse.
const KEPT: u64 = 4 << 20;

/// No client requests it, and it begins while keys are still being deleted: no round is the last
/// that leaves much.
#[test]
fn memory_returns_after_most_collections_are_deleted() {
    for kind in ["list", "sorted set"] {
        let args = ["--threads", "1", "--activedefrag", "no"];
        let server = ServerBuilder::iolite().args(&args).start().unwrap();
        let mut client = server.client().unwrap();
        let at_first = own_bytes(&server);
        let used_at_first = figure(&mut client, "used_memory");
        thin_out(&mut client, kind);
        let patience = Patience::of(Duration::from_secs(180));
        loop {
            let idle = figure(&mut client, "allocator_frag_bytes");
            let grown = own_bytes(&server).saturating_sub(at_first);
            let live = figure(&mut client, "used_memory").saturating_sub(used_at_first);
            if idle < 2 * LEFT_ALONE + LEFT_ALONE / 2 && grown < live + 2 * LEFT_ALONE + KEPT {
                break;
            }
            let seen = format!("{idle} idle, {grown} more held, {live} live");
            assert!(patience.lasts(), "memory of a {kind} returns: {seen}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let elements = match kind {
            "list" => client.command(&["LLEN", "list:2993"]).unwrap(),
            _ => client.command(&["ZCARD", "sorted set:2993"]).unwrap(),
        };
        assert_eq!(elements, Value::Integer(150));
    }
}

/// The allocator starts each allocation of more than 16 KiB at a page boundary. Started elsewhere
/// in a page, each would take one more page, which `maxmemory` does not see: a sixth of values like
/// these.
#[test]
fn values_of_twenty_kilobytes_take_no_more_pages_than_they_need() {
    let server = ServerBuilder::iolite().start().unwrap();
    let mut client = server.client().unwrap();
    let value = "v".repeat(20_000);
    let before = own_bytes(&server);
    for number in 0..1000 {
        let key = format!("key:{number}");
        let set = client.command(&["SET", &key, &value]).unwrap();
        assert_eq!(set, Value::Simple(b"OK".to_vec()));
    }
    let bytes = own_bytes(&server) - before;
    assert!(bytes < 22_000_000, "{bytes} bytes for 20,000,000 of values");
}
