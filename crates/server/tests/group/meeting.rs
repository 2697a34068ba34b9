//! Two nodes that meet each other at the same moment are one cluster, and both are told so.

use super::Node;
use super::clusters::{LAST_SLOT, wait_for_agreement};

#[test]
fn two_that_meet_each_other_at_once_are_one_cluster() {
    for round in 0..3 {
        let (a, b) = (Node::by_itself(), Node::by_itself());
        a.own(0, 8_191);
        b.own(8_192, LAST_SLOT);
        let start = std::sync::Barrier::new(2);
        let meet = |one: &Node, other: &Node| {
            start.wait();
            one.meet(other)
        };
        let told = std::thread::scope(|scope| {
            let of_a = scope.spawn(|| meet(&a, &b));
            let of_b = scope.spawn(|| meet(&b, &a));
            [of_a.join().unwrap(), of_b.join().unwrap()]
        });
        let logs = || format!("round {round}\n{}\n======\n{}", a.log(), b.log());
        assert_eq!(told, ["OK", "OK"], "{}", logs());
        wait_for_agreement(&[&a, &b], 2);
    }
}
