//! A device that fails: writes are refused at once, nothing is lost, and it heals.

use std::io;
use std::path::Path;

use super::running::{DIRECTORY, Running, disk};
use crate::disk::Disk;
use crate::simulated::Fault;

#[test]
fn a_failed_write_is_said_at_once_and_heals() {
    let mut running = Running::new();
    running.append();
    running.log.request_sync(u64::MAX);
    running.log.sync_step();
    let now = running.disk.operations();
    running.disk.fail(now..now + 100, Fault::Device);
    running.append();
    assert!(running.log.write_out(running.log.tail()).is_err());
    let fault = running.log.fault().unwrap();
    assert!(fault.text.contains(".log: "), "{fault}");
    assert!(!running.log.has_room());
    // Reading works on; the fault lasts while the device fails.
    running.append();
    running.log.sync_step();
    let fault = running.log.fault().unwrap();
    assert!(fault.text.contains("healing.new: "), "{fault}");
    assert!(running.log.write_out(running.log.tail()).is_err());
    running.disk.heal();
    running.log.sync_step();
    assert_eq!(running.log.fault(), None);
    assert!(running.log.has_room());
    assert_eq!(running.log.durable(), running.log.tail());
    running.check(&running.disk.crash(3), running.log.tail());
}

#[test]
fn a_file_whose_sync_failed_is_not_believed_again() {
    for seed in 0..50 {
        let mut running = Running::open(disk(seed), 0);
        running.append();
        running.log.write_out(running.log.tail()).unwrap();
        let now = running.disk.operations();
        running.disk.fail(now..now + 1, Fault::Device);
        running.log.request_sync(u64::MAX);
        running.log.sync_step();
        assert!(running.log.fault().is_some());
        assert_eq!(running.log.durable(), 0);
        running.log.sync_step();
        assert_eq!(running.log.fault(), None);
        assert_eq!(running.log.durable(), running.log.tail());
        running.append();
        running.log.request_sync(u64::MAX);
        running.log.sync_step();
        running.check(&running.disk.crash(seed), running.log.tail());
    }
}

#[test]
fn a_full_device_heals_when_there_is_room() {
    let mut running = Running::new();
    running.disk.set_capacity(2_000);
    let mut refused = None;
    for _ in 0..200 {
        running.append();
        if running.log.write_out(running.log.tail()).is_err() {
            refused = running.log.fault();
            break;
        }
        running.log.request_sync(u64::MAX);
        running.log.sync_step();
    }
    assert_eq!(refused.unwrap().kind, io::ErrorKind::StorageFull);
    running.log.sync_step();
    assert!(running.log.fault().is_some());
    let durable = running.log.durable();
    running.check(&running.disk.crash(1), durable);

    let mut running = Running::new();
    running.disk.set_capacity(2_000);
    while running.log.write_out(running.log.tail()).is_ok() {
        running.append();
    }
    running.disk.set_capacity(100_000);
    running.log.sync_step();
    assert_eq!(running.log.fault(), None);
    running.append();
    running.log.write_out(running.log.tail()).unwrap();
    running.log.close().unwrap();
    running.check(&running.disk.crash(2), running.log.tail());
}

#[test]
fn files_kept_to_be_used_again_make_room_on_a_full_device() {
    let mut running = Running::new();
    for _ in 0..100 {
        running.append();
        running.log.write_out(running.log.tail()).unwrap();
        running.log.request_sync(u64::MAX);
        running.log.sync_step();
    }
    let spares = |running: &Running| {
        let names = running.disk.list(Path::new(DIRECTORY)).unwrap();
        let is_spare = |name: &&String| name.starts_with('0') && name.ends_with(".new");
        names.iter().filter(is_spare).count()
    };
    running.log.cut(running.log.tail()).unwrap();
    assert!(spares(&running) > 3);
    running.disk.set_capacity(running.disk.used_bytes());
    // A block that does not fit into any file kept for reuse.
    for _ in 0..60 {
        running.append();
    }
    assert!(running.log.write_out(running.log.tail()).is_err());
    let kind = running.log.fault().map(|fault| fault.kind);
    assert_eq!(kind, Some(io::ErrorKind::StorageFull));
    running.log.sync_step();
    assert_eq!((running.log.fault(), spares(&running)), (None, 0));
    assert_eq!(running.log.durable(), running.log.tail());
}

/// Returns the log of a process that ended with frames in its files that were not durable. The
/// device has no more space left than the process had not yet used.
fn ended_on_a_full_device(frames: u64, bytes_left: u64) -> Running {
    let mut running = Running::new();
    for _ in 0..frames {
        running.append();
        running.log.write_out(running.log.tail()).unwrap();
    }
    assert_eq!(running.log.durable(), 0);
    let directory = Path::new(DIRECTORY);
    for name in running.disk.list(directory).unwrap() {
        if name.ends_with(".new") {
            running.disk.remove(&directory.join(name)).unwrap();
        }
    }
    let used_bytes = running.disk.used_bytes();
    running.disk.set_capacity(used_bytes + bytes_left);
    running
}

#[test]
fn a_log_is_opened_on_a_full_device_and_heals_when_there_is_room() {
    for bytes_left in [0, 100, 1_000] {
        let mut before = ended_on_a_full_device(60, bytes_left);
        let (end, used_bytes) = (before.log.tail(), before.disk.used_bytes());
        let mut running = Running::open(before.disk.clone(), end);
        running.frames = std::mem::take(&mut before.frames);
        drop(before);
        for _ in 0..2 {
            let kind = running.log.fault().map(|fault| fault.kind);
            assert_eq!(kind, Some(io::ErrorKind::StorageFull));
            assert!(!running.log.has_room());
            assert_eq!((running.log.durable(), running.log.tail()), (0, end));
            // The frames are still there, and attempts do not use up the remaining space.
            assert_eq!(running.check(&running.disk, end), end);
            assert!(running.disk.used_bytes() <= used_bytes);
            running.log.sync_step();
        }
        // A write had begun before the fault was known.
        running.append();
        assert!(running.log.write_out(running.log.tail()).is_err());
        running.disk.set_capacity(u64::MAX);
        running.log.sync_step();
        assert_eq!(running.log.fault(), None);
        assert!(running.log.has_room());
        running.append();
        running.log.close().unwrap();
        assert_eq!(running.log.durable(), running.log.tail());
        running.check(&running.disk.crash(bytes_left), running.log.tail());
    }
}

#[test]
fn a_log_that_is_opened_on_a_full_device_comes_back_after_any_power_cut() {
    for seed in 0..50 {
        let mut before = ended_on_a_full_device(60, 0);
        before.log.request_sync(before.log.tail());
        // A part of the frames in the files may be durable, and some files gone.
        let synced = seed % 2 == 0 && before.log.sync_step() > 0;
        let durable = before.log.durable();
        assert_eq!(synced, durable > 0);
        let mut running = Running::open(before.disk.clone(), before.log.tail());
        running.frames = std::mem::take(&mut before.frames);
        running.check(&running.disk.crash(seed), durable);
    }
}

#[test]
fn room_that_was_reserved_for_a_log_is_given_back_when_it_is_opened() {
    let before = ended_on_a_full_device(2, 0);
    let end = before.log.tail();
    let mut running = Running::open(before.disk, end);
    assert_eq!((running.log.fault(), running.log.durable()), (None, end));
    running.append();
    running.log.write_out(running.log.tail()).unwrap();
    running.log.close().unwrap();
    assert_eq!(running.log.durable(), running.log.tail());
}

/// Appends, writes and syncs with a failing operation, and cuts the power in the middle or at the
/// end: all durable frames are there. Returns whether there was such an operation.
fn fail_at(operation: u64, fault: Fault, rounds: u64) -> bool {
    let device = disk(operation);
    device.fail(operation..operation + 1, fault);
    let Ok(mut running) = Running::try_open(device, 0) else {
        // Refused at the start, with an error; there is nothing to lose.
        return true;
    };
    for round in 0..rounds {
        running.append();
        let _refused = running.log.write_out(running.log.tail());
        assert!(running.log.fault().is_none() || !running.log.has_room());
        running.clock.advance_ms(200);
        if round % 3 == 0 {
            running.log.sync_step();
        }
    }
    let was_met = running.disk.operations() > operation;
    if rounds == ROUNDS {
        running.disk.heal();
        running.log.sync_step();
        assert_eq!(running.log.fault(), None, "it heals");
        running.log.close().unwrap();
        assert_eq!(running.log.durable(), running.log.tail());
    }
    let durable = running.log.durable();
    running.check(&running.disk.crash(operation), durable);
    was_met
}

const ROUNDS: u64 = 30;

#[test]
fn every_operation_fails_once_in_each_way() {
    for fault in Fault::ALL {
        let mut operation = 0;
        while fail_at(operation, fault, ROUNDS) {
            fail_at(operation, fault, operation % ROUNDS);
            operation += 1;
        }
        assert!(operation > 50, "{fault:?} {operation}");
    }
}
