//! Tests of CLUSTER SLOT-STATS: the cost of requests is counted by hash slot, if that is on.

use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, free_port};

fn start(is_counted: &str) -> Server {
    let port = free_port().unwrap().to_string();
    let args = ["--cluster-enabled", "yes", "--cluster-port", &port];
    let builder = ServerBuilder::iolite().args(&args);
    let builder = builder.args(&["--cluster-slot-stats-enabled", is_counted]);
    let server = builder.tcp().start().unwrap();
    let mut client = server.client().unwrap();
    let given = client.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    assert_eq!(given.unwrap(), Value::Simple("OK".into()));
    server
}

fn ask(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    client.command(&words).unwrap()
}

/// Returns each slot with nonzero numbers, and its numbers in order.
fn known(client: &mut Client) -> Vec<(i64, Vec<i64>)> {
    let Value::Array(slots) = ask(client, "CLUSTER SLOT-STATS SLOTSRANGE 0 16383") else {
        panic!("no array");
    };
    let slots = slots.into_iter().map(|slot| {
        let Value::Array(parts) = slot else {
            panic!("no array");
        };
        let [Value::Integer(slot), Value::Array(pairs)] = &parts[..] else {
            panic!("{parts:?}");
        };
        let numbers = pairs.iter().filter_map(|value| match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        });
        (*slot, numbers.collect::<Vec<_>>())
    });
    let has_some = |(_, numbers): &(i64, Vec<i64>)| numbers.iter().any(|number| *number != 0);
    slots.filter(has_some).collect()
}

/// Returns keys, bytes of requests and bytes of replies of the only slot with nonzero numbers.
fn counted(client: &mut Client) -> (i64, i64, i64) {
    match &known(client)[..] {
        [(12_539, numbers)] => (numbers[0], numbers[2], numbers[3]),
        other => panic!("{other:?}"),
    }
}

fn reset(client: &mut Client) {
    ask(client, "FLUSHALL");
    ask(client, "CONFIG RESETSTAT");
    assert!(known(client).is_empty());
}

// `key` is in slot 12,539, `other` in 11,361 and `channel` in 10,328.

#[test]
fn requests_count_for_the_slot_of_their_keys() {
    let server = start("yes");
    let mut client = server.client().unwrap();
    ask(&mut client, "PING");
    ask(&mut client, "SELECT 0");
    assert!(known(&mut client).is_empty());
    // *3 $3 SET $3 key $5 value is 33 bytes, +OK is 5.
    ask(&mut client, "SET key value");
    assert_eq!(counted(&mut client), (1, 33, 5));
    // *2 $3 GET $3 key is 22 bytes, $5 value is 11. Several requests are in one batch.
    for _ in 0..3 {
        client.send(&["GET", "key"]).unwrap();
    }
    for _ in 0..3 {
        client.receive().unwrap();
    }
    assert_eq!(counted(&mut client), (1, 33 + 3 * 22, 5 + 3 * 11));
    // A failed command counts: its reply is the error.
    ask(&mut client, "LPUSH key x");
    let (_, bytes_in, bytes_out) = counted(&mut client);
    assert_eq!(bytes_in, 99 + 31);
    assert!(bytes_out > 38, "{bytes_out}");
    let Value::Array(first) = ask(&mut client, "CLUSTER SLOT-STATS ORDERBY CPU-USEC LIMIT 1")
    else {
        panic!("no array");
    };
    let Value::Array(first) = &first[0] else {
        panic!("no array");
    };
    assert_eq!(first[0], Value::Integer(12_539));
    reset(&mut client);
}

#[test]
fn transactions_count_as_a_whole_and_scripts_by_their_keys() {
    let server = start("yes");
    let mut client = server.client().unwrap();
    ask(&mut client, "MULTI");
    ask(&mut client, "SET key value");
    assert!(known(&mut server.client().unwrap()).is_empty());
    ask(&mut client, "EXEC");
    // MULTI is 15 bytes, EXEC 14; the reply of EXEC is *1 +OK.
    assert_eq!(counted(&mut client), (1, 15 + 33 + 14, 9));
    reset(&mut client);
    let script = "return{redis.call('SET',KEYS[1],'value'),redis.call('GET',KEYS[1])}";
    ask(&mut client, &format!("EVAL {script} 1 key"));
    let (_, bytes_in, bytes_out) = counted(&mut client);
    let expected = 4 + 10 + 5 + script.len() + 2 + 7 + 9;
    assert_eq!(bytes_in, i64::try_from(expected).unwrap());
    assert_eq!(bytes_out, 4 + 5 + 11);
    reset(&mut client);
    // Keys of two slots, if that is allowed, count for neither slot.
    ask(&mut client, "CONFIG SET cluster-cross-slot node");
    ask(&mut client, "MSET key v other v");
    let of_keys = known(&mut client);
    let of_keys: Vec<_> = of_keys
        .iter()
        .map(|(slot, all)| (*slot, &all[..]))
        .collect();
    assert_eq!(
        of_keys,
        [(11_361, &[1, 0, 0, 0][..]), (12_539, &[1, 0, 0, 0][..])]
    );
}

#[test]
fn who_waits_counts_when_it_is_served() {
    let server = start("yes");
    let [mut client, mut waiting] = [(); 2].map(|()| server.client().unwrap());
    waiting.send(&["BLPOP", "key", "0"]).unwrap();
    let patience = Patience::of(Duration::from_secs(60));
    let waits = |client: &mut Client| match ask(client, "INFO clients") {
        Value::Bulk(text) => String::from_utf8_lossy(&text).contains("blocked_clients:1"),
        other => panic!("{other:?}"),
    };
    while !waits(&mut client) {
        assert!(patience.lasts());
    }
    assert!(known(&mut client).is_empty());
    ask(&mut client, "LPUSH key value");
    waiting.receive().unwrap();
    // BLPOP is 31 bytes and LPUSH 35; :1 is 4, *2 $3 key $5 value is 24.
    assert_eq!(counted(&mut client), (0, 66, 28));
}

#[test]
fn messages_of_shard_channels_count_for_each_subscriber() {
    let server = start("yes");
    let mut client = server.client().unwrap();
    let mut subscribers = [(); 2].map(|()| server.client().unwrap());
    for subscriber in &mut subscribers {
        ask(subscriber, "SSUBSCRIBE channel");
    }
    let bytes = |client: &mut Client| match &known(client)[..] {
        [(10_328, numbers)] => (numbers[2], numbers[3]),
        other => panic!("{other:?}"),
    };
    assert_eq!(bytes(&mut client), (2 * 34, 2 * 38));
    ask(&mut client, "CONFIG RESETSTAT");
    assert_eq!(
        ask(&mut client, "SPUBLISH channel hello"),
        Value::Integer(2)
    );
    // Each subscriber is sent 42 bytes; the reply is 4.
    assert_eq!(bytes(&mut client), (42, 2 * 42 + 4));
    ask(&mut client, "CONFIG RESETSTAT");
    // Channels of the whole cluster have no slot.
    ask(&mut client, "PUBLISH channel hello");
    assert!(known(&mut client).is_empty());
}

#[test]
fn a_slot_that_goes_is_forgotten_and_nothing_is_counted_where_that_is_off() {
    let server = start("yes");
    let mut client = server.client().unwrap();
    ask(&mut client, "SET key value");
    ask(&mut client, "DEL key");
    ask(&mut client, "CLUSTER DELSLOTS 12539");
    ask(&mut client, "CLUSTER ADDSLOTS 12539");
    assert!(known(&mut client).is_empty());
    ask(&mut client, "CONFIG SET cluster-slot-stats-enabled no");
    ask(&mut client, "SET key value");
    assert_eq!(known(&mut client), [(12_539, vec![1])]);
    let refused = ask(&mut client, "CLUSTER SLOT-STATS ORDERBY network-bytes-in");
    let text = "ERR Unrecognized sort metric for ORDERBY.";
    assert_eq!(refused, Value::Error(text.into()));
}
