//! Devices that fail and lose power: the checkpoint found is the old one or the new one, whole.

use durability::simulated::Fault;

use super::*;

/// Returns a device with a first checkpoint, and a store that has changed since.
fn second_attempt(seed: u64) -> (Arc<Store>, SimulatedDisk, [Contents; 2]) {
    let (store, disk) = (store(), device(seed));
    let mut handle = store.handle();
    let mut set = |first: u32, last: u32| {
        for number in first..last {
            let name = format!("key:{number}");
            let key = handle.key(0, name.as_bytes());
            let value = vec![b'v'; 40];
            handle
                .upsert(&key, &value, Deadline::Never, |_| ())
                .unwrap();
        }
    };
    set(0, 100);
    let before = contents(&store);
    make(&checkpointer(&store, disk.clone())).unwrap();
    set(50, 150);
    let after = contents(&store);
    (store, disk, [before, after])
}

/// Returns the number of operations of an attempt without faults.
fn operations() -> u64 {
    let (store, disk, _) = second_attempt(0);
    let before = disk.operations();
    make(&checkpointer(&store, disk.clone())).unwrap();
    disk.operations() - before
}

/// Checks that the loaded content is one of the two, and the new one if that was reported as made.
fn check(disk: &SimulatedDisk, expected: &[Contents; 2], made: &Result<Arc<Manifest>, Failure>) {
    let (loaded, _) = load(disk, 2).unwrap();
    let found = contents(&loaded);
    if made.is_ok() {
        assert_eq!(found, expected[1]);
    } else {
        assert!(expected.contains(&found));
    }
}

#[test]
fn any_operation_may_fail() {
    let operations = operations();
    assert!(operations > 20, "{operations}");
    for number in 0..operations {
        for fault in Fault::ALL {
            let (store, disk, expected) = second_attempt(number);
            let at = disk.operations() + number;
            disk.fail(at..at + 1, fault);
            let checkpointer = checkpointer(&store, disk.clone());
            let made = make(&checkpointer);
            disk.heal();
            check(&disk, &expected, &made);
            // The next attempt works, and leaves nothing behind.
            let manifest = make(&checkpointer).unwrap();
            check(&disk, &expected, &Ok(Arc::clone(&manifest)));
            let names = disk.list("/data".as_ref()).unwrap();
            assert_eq!(
                names,
                [MANIFEST_NAME, &manifest.directory],
                "{number} {fault:?}"
            );
        }
    }
}

#[test]
fn power_may_be_cut_at_any_operation() {
    let operations = operations();
    for number in 0..=operations {
        for seed in 0..4 {
            let (store, disk, expected) = second_attempt(seed);
            disk.cut_power_at(disk.operations() + number);
            let made = make(&checkpointer(&store, disk.clone()));
            let found = disk.crash(seed + 100);
            check(&found, &expected, &made);
            let manifest = make(&checkpointer(&store, found.clone())).unwrap();
            assert_eq!(
                found.list("/data".as_ref()).unwrap(),
                [MANIFEST_NAME, &manifest.directory]
            );
        }
    }
}

#[test]
fn a_full_device_keeps_what_it_has() {
    let (store, disk, expected) = second_attempt(1);
    let used = disk.used_bytes();
    disk.set_capacity(used + 1_000);
    let checkpointer = checkpointer(&store, disk.clone());
    let made = make(&checkpointer);
    assert!(matches!(made, Err(Failure::System(_))), "{made:?}");
    assert_eq!(disk.used_bytes(), used, "what was written of it is gone");
    check(&disk, &expected, &made);
    disk.set_capacity(u64::MAX);
    check(&disk, &expected, &make(&checkpointer));
}
