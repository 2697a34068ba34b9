//! Tests of invalid commands to a cluster of processes.

use testkit::process::free_port;

use super::clusters::{LAST_SLOT, three_primaries, wait_for_agreement};
use super::{Node, wait_until};

#[test]
fn who_meets_nobody_is_told_so_and_stays_by_itself() {
    let a = Node::by_itself();
    a.own(0, LAST_SLOT);
    let (port, link_port) = (free_port().unwrap(), free_port().unwrap());
    let words = [
        "CLUSTER",
        "MEET",
        "127.0.0.1",
        &port.to_string(),
        &link_port.to_string(),
    ];
    let refused = a.text(&words);
    assert!(refused.starts_with("ERR"), "{refused}");
    assert_eq!(a.owners().len(), 1);
    assert_eq!(a.text(&["SET", "a", "1"]), "OK");
}

#[test]
fn a_slot_that_another_shard_has_is_not_given_twice() {
    let [a, b, c] = three_primaries();
    assert_eq!(
        b.text(&["CLUSTER", "ADDSLOTS", "1"]),
        "ERR Slot 1 is already busy"
    );
    assert_eq!(
        c.text(&["CLUSTER", "ADDSLOTSRANGE", "5000", "6000"]),
        "ERR Slot 5000 is already busy"
    );
    // After one node gives the slot up, exactly one of the nodes that concurrently claim it gets
    // it.
    assert_eq!(a.text(&["CLUSTER", "DELSLOTS", "1"]), "OK");
    wait_until("known to be nobody's", &[&a, &b, &c], || {
        [&a, &b, &c].iter().all(|node| !node.is_ok())
    });
    let answers = std::thread::scope(|scope| {
        let asked =
            [&b, &c].map(|node| scope.spawn(move || node.text(&["CLUSTER", "ADDSLOTS", "1"])));
        asked.map(|one| one.join().unwrap())
    });
    let taken = answers.iter().filter(|answer| *answer == "OK").count();
    assert_eq!(taken, 1, "{answers:?}");
    assert!(
        answers.iter().any(|answer| answer.starts_with("ERR")),
        "{answers:?}"
    );
    wait_for_agreement(&[&a, &b, &c], 3);
}
