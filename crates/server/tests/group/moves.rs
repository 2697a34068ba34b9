//! Tests of clients whose slots move away, and of a move for which the target has no memory.

use protocol::Value;

use super::clusters::{LAST_SLOT, wait_for_agreement};
use super::{Node, wait_until};

/// Starts two nodes in one cluster. The first has all slots.
fn two() -> [Node; 2] {
    let nodes = [Node::by_itself(), Node::by_itself()];
    let [a, b] = &nodes;
    a.own(0, LAST_SLOT);
    assert_eq!(b.meet(a), "OK");
    wait_for_agreement(&[a, b], 2);
    nodes
}

fn begin_to_give_all(from: &Node, to: &Node) {
    let to = to.id();
    let words = [
        "CLUSTER",
        "MIGRATESLOTS",
        "SLOTSRANGE",
        "0",
        "16383",
        "NODE",
        &to,
    ];
    assert_eq!(from.text(&words), "OK");
}

fn give_all(from: &Node, to: &Node) {
    begin_to_give_all(from, to);
    wait_until("given", &[from, to], || {
        let moved = from.run(&["GET", "none"]);
        let is_gone = matches!(moved, Value::Error(text) if text.starts_with(b"MOVED"));
        is_gone && to.run(&["GET", "none"]) == Value::Null
    });
}

/// Returns a field of the last move that this node lists.
fn last_move(node: &Node, field: &str) -> String {
    let Value::Array(moves) = node.run(&["CLUSTER", "GETSLOTMIGRATIONS"]) else {
        panic!("no moves");
    };
    let Some(Value::Array(fields)) = moves.last() else {
        panic!("{moves:?}");
    };
    let name = Value::Bulk(field.into());
    let at = fields.iter().position(|one| *one == name).unwrap();
    match &fields[at + 1] {
        Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_transaction_whose_slot_has_moved_is_not_run() {
    let nodes = two();
    let [a, b] = &nodes;
    let ok = Value::Simple(b"OK".to_vec());
    let mut queued = a.client();
    let mut watching = a.client();
    let ask = |client: &mut testkit::client::Client, line: &str| {
        client
            .command(&line.split(' ').collect::<Vec<_>>())
            .unwrap()
    };
    assert_eq!(ask(&mut watching, "SET k before"), ok);
    assert_eq!(ask(&mut watching, "WATCH k"), ok);
    assert_eq!(ask(&mut queued, "MULTI"), ok);
    assert_eq!(
        ask(&mut queued, "SET k queued"),
        Value::Simple(b"QUEUED".to_vec())
    );
    give_all(a, b);
    let Value::Error(told) = ask(&mut queued, "EXEC") else {
        panic!("it was run");
    };
    let told = String::from_utf8(told).unwrap();
    assert!(
        told.starts_with("MOVED") || told.starts_with("EXECABORT"),
        "{told}"
    );
    assert_eq!(b.text(&["GET", "k"]), "before");
    // The slot belonged to another node meanwhile: this node does not know what happened to the key
    // there.
    assert_eq!(b.text(&["SET", "k", "there"]), "OK");
    give_all(b, a);
    assert_eq!(ask(&mut watching, "MULTI"), ok);
    assert_eq!(
        ask(&mut watching, "SET k watched"),
        Value::Simple(b"QUEUED".to_vec())
    );
    let told = ask(&mut watching, "EXEC");
    assert!(matches!(told, Value::Null | Value::NullArray), "{told:?}");
    assert_eq!(a.text(&["GET", "k"]), "there");
}

#[test]
fn a_target_without_memory_refuses_with_the_number_and_takes_the_slots_when_it_has_some() {
    let nodes = two();
    let [a, b] = &nodes;
    let value = "v".repeat(1 << 20);
    for number in 0..8 {
        assert_eq!(a.text(&["SET", &format!("key:{number}"), &value]), "OK");
    }
    assert_eq!(b.text(&["CONFIG", "SET", "maxmemory", "4mb"]), "OK");
    begin_to_give_all(a, b);
    wait_until("refused", &[a, b], || {
        let message = last_move(a, "message");
        message.contains("the target would need") && message.contains("maxmemory there is 4194304")
    });
    assert_eq!(a.text(&["GET", "key:0"]), value);
    assert_eq!(b.run(&["DBSIZE"]), Value::Integer(0));
    assert_eq!(b.text(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    wait_until("taken", &[a, b], || last_move(a, "state") == "success");
    assert_eq!(b.text(&["GET", "key:0"]), value);
    wait_until("removed", &[a, b], || {
        a.run(&["DBSIZE"]) == Value::Integer(0)
    });
    assert_eq!(b.run(&["DBSIZE"]), Value::Integer(8));
}
