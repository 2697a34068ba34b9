//! Tests of a restarted node that knows only an old control state while no reachable node knows a
//! newer one.

use std::fs;
use std::path::Path;
use std::time::Duration;

use protocol::Value;

use super::clusters::{LAST_SLOT, wait_for_agreement};
use super::{Node, has, wait_until, writes};

/// Replaces the content of a directory by that of another directory.
fn put(from: &Path, to: &Path) {
    let _was_there = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Otherwise the node would lose what it acknowledged in its current shard.
#[test]
fn who_went_over_does_not_follow_the_primary_that_it_left() {
    let [a, mut b, mut c, mut d, mut e] = [(); 5].map(|()| Node::by_itself());
    a.own(0, 8_191);
    b.own(8_192, LAST_SLOT);
    for node in [&b, &c, &d, &e] {
        assert_eq!(node.meet(&a), "OK");
    }
    wait_for_agreement(&[&a, &b, &c, &d, &e], 5);
    assert_eq!(c.text(&["CLUSTER", "REPLICATE", &a.id()]), "OK");
    // `b` and `c` are in slots 3,300 and 7,365, of the first shard; `a` is in slot 15,495, of the
    // second shard.
    wait_until("a replica of the first", &[&a, &c], || {
        c.is_synced() && writes(&a, "b") && writes(&a, "c") && writes(&b, "a")
    });
    c.kill();
    let before = c.directory.join("before");
    put(&c.directory.join("iolite-data/control"), &before);
    c.start();
    wait_until("it goes over", &[&b, &c], || {
        c.text(&["CLUSTER", "REPLICATE", &b.id()]) == "OK"
    });
    wait_until("a replica of the second", &[&b, &c], || {
        c.is_synced() && c.run(&["DBSIZE"]) == Value::Integer(1)
    });
    for node in [&mut b, &mut c, &mut d, &mut e] {
        node.kill();
    }
    put(&before, &c.directory.join("iolite-data/control"));
    c.start();
    wait_until("it serves clients, though nobody leads", &[&c], || {
        matches!(c.run(&["DBSIZE"]), Value::Integer(_))
    });
    // Longer than it takes to follow a primary.
    std::thread::sleep(Duration::from_secs(3));
    assert!(!c.is_synced(), "{}", c.log());
    for node in [&mut b, &mut d, &mut e] {
        node.start();
    }
    wait_until("it goes on where it was", &[&a, &b, &c], || {
        let has_it = c.run(&["DBSIZE"]) == Value::Integer(1);
        c.is_synced() && has_it && writes(&b, "a") && has(&a, "b")
    });
    assert!(!c.log().contains("A full sync begins"), "{}", c.log());
}
