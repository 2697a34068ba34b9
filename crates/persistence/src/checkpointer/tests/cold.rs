//! Checkpoints that must contain values which are not in memory.

use store::{ColdKind, ColdValue, ColdValues, Locator};

use tier::{Entry, Tier, TierOptions};

use super::*;

/// A cold value is its key, repeated.
#[derive(Debug)]
struct Repeated;

impl ColdValues for Repeated {
    fn load(&self, key: &[u8], _: Locator) -> Option<Arc<ColdValue>> {
        Some(Arc::new(ColdValue::Text(key.repeat(3))))
    }

    fn encode(&self, _: &Object) -> Option<Vec<u8>> {
        None
    }

    fn forget(&self, _: Locator) {}

    fn pin(&self, _: Locator) {}

    fn unpin(&self, _: Locator) {}
}

/// Returns a store with `count` keys, none of which has its value in memory.
fn cold_store(count: u32) -> Arc<Store> {
    let store = store();
    assert!(store.set_cold_values(Arc::new(Repeated)));
    let mut handle = store.handle();
    for number in 0..count {
        let name = format!("key:{number:06}");
        let key = handle.key(0, name.as_bytes());
        let place = Locator::new(1, ColdKind::BYTES, 0, number).unwrap();
        let put = handle.modify(&key, |entry| entry.set_cold(place, 30, None, 0));
        put.unwrap();
    }
    drop(handle);
    store
}

#[test]
fn values_are_read_within_the_memory_that_a_checkpoint_may_hold() {
    let store = cold_store(30_000);
    let disk = device(3);
    let checkpointer = checkpointer(&store, disk.clone());
    // Less than the batches that could be kept until their values are read.
    checkpointer.set_buffer_limit(1 << 20);
    assert_eq!(make(&checkpointer).unwrap().records(), 30_000);
    let (loaded, _) = load(&disk, 2).unwrap();
    let mut handle = loaded.handle();
    for number in [0, 1, 777, 29_999] {
        let name = format!("key:{number:06}");
        let key = handle.key(0, name.as_bytes());
        let value = handle.read(&key, |record| record.unwrap().to_vec());
        assert_eq!(value, name.repeat(3).into_bytes());
    }
}

/// The tier with the values of a cold store.
struct WithTier(Arc<Tier>);

impl Surroundings for WithTier {
    fn tier(&self) -> Option<Arc<Tier>> {
        Some(Arc::clone(&self.0))
    }
}

#[test]
fn a_wish_for_all_values_ends_with_the_checkpoint_that_was_asked_for() {
    let (store, disk) = (cold_store(20), device(4));
    let options = TierOptions {
        directory: "/data/tier".into(),
        bytes_max: 1 << 30,
        segment_bytes: 1 << 20,
    };
    let tier = Tier::open(Arc::new(disk.clone()), &options).unwrap();
    let entry = Entry {
        kind: 0,
        keyspace: 0,
        key: b"key:000000",
        body: &[1; 300],
    };
    assert_eq!(tier.append(&entry).unwrap().slot, 0);
    let mut setup = setup(&store, disk);
    setup.surroundings = Arc::new(WithTier(Arc::new(tier)));
    let checkpointer = Checkpointer::new(setup);
    checkpointer.schedule_with_values(Why::Rewrite).unwrap();
    assert!(checkpointer.cancel());
    let manifest = make(&checkpointer).unwrap();
    assert_eq!(manifest.segments[0].records, 20, "none of them has a value");
}
