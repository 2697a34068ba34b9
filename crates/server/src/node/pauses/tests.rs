//! Effects of threads that change the node concurrently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::clock::ManualClock;
use store::{Options, Store};

use super::Node;
use crate::config::{Loader, Origin, SharedConfig};

const NOW_UNIX_MS: u64 = 1_800_000_000_000;

fn node() -> Node {
    let store = Store::new(&Options { databases: 1 }).unwrap();
    let settings = Loader::new().finish().unwrap().settings;
    let config = SharedConfig::new(settings, Origin::default());
    let clock = ManualClock::at_unix_ms(NOW_UNIX_MS);
    Node::new(testkit::table(), store, Arc::new(config), Arc::new(clock))
}

/// The upkeep of another worker checks for the end of a pause at the moment when one begins. A
/// former version saw no pause, and let removals continue after CLIENT PAUSE had answered.
#[test]
fn a_pause_that_begins_during_upkeep_holds_removals() {
    let node = node();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                node.end_pause(NOW_UNIX_MS);
            }
        });
        let holds = (0..200_000).all(|_| {
            node.unpause_clients();
            node.pause_clients(NOW_UNIX_MS + 1000, true);
            (0..20).all(|_| node.core.store.holds_removals())
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(holds);
    });
}

#[test]
fn the_end_of_loading_leaves_a_pause_alone() {
    let node = node();
    node.begin_loading(1);
    node.pause_clients(NOW_UNIX_MS + 1000, true);
    node.end_loading();
    assert!(node.core.store.holds_removals());
    node.unpause_clients();
    assert!(!node.core.store.holds_removals());
}
