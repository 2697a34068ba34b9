//! Every operation fails once, in every way, and for a while: nothing acknowledged is lost, the
//! fault is reported, and it heals by itself.

use std::ops::Range;
use std::panic;
use std::sync::Arc;

use base::clock::ManualClock;
use base::random::Prng;
use durability::simulated::{Fault, SimulatedDisk};

use crate::checkpoints;
use crate::ledger::Ledger;
use crate::life::Life;

/// Enough for some segments and a whole checkpoint.
const STEPS: u64 = 80;

/// Runs a small history with a fault at some operations; returns the number of operations, and of
/// failures.
fn run(seed: u64, operations: Range<u64>, fault: Fault) -> (u64, u64) {
    let mut random = Prng::seeded(seed);
    let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
    let mut ledger = Ledger::default();
    let disk = checkpoints::device(seed);
    disk.fail(operations, fault);
    let mut life = loop {
        // A failed start is repeated until the device allows it.
        let struck = disk.faults_struck();
        match Life::begin(&disk, &clock, &mut ledger, &mut random) {
            Ok(life) => break life,
            Err(error) => assert!(disk.faults_struck() > struck, "{error}"),
        }
    };
    for _ in 0..STEPS {
        if let Err(error) = life.step(&mut random) {
            assert!(disk.faults_struck() > 0, "failed for no reason: {error}");
        }
    }
    let (count, struck) = (disk.operations(), disk.faults_struck());
    disk.heal();
    life.heal();
    drop(life);
    let appended = ledger.end();
    let disk = disk.crash(random.next_u64());
    ledger.power_was_cut();
    Life::begin(&disk, &clock, &mut ledger, &mut random).unwrap();
    assert_eq!(ledger.end(), appended, "all of it had become durable");
    (count, struck)
}

/// Fails every operation of some histories; returns the number of failures.
pub(crate) fn every_operation(seeds: Range<u64>, fault: Fault, in_a_row: u64) -> u64 {
    let mut failed = 0;
    for seed in seeds {
        let (operations, _) = run(seed, 0..0, fault);
        for operation in 0..operations {
            let operations = operation..operation + in_a_row;
            let run = || run(seed, operations.clone(), fault);
            let (_, struck) = panic::catch_unwind(run).unwrap_or_else(|failure| {
                eprintln!("seed {seed}, operations {operations:?}, {fault:?}");
                panic::resume_unwind(failure)
            });
            failed += u64::from(struck > 0);
        }
    }
    failed
}

#[test]
fn every_operation_fails_once_in_every_way() {
    for fault in Fault::ALL {
        let failed = every_operation(0..2, fault, 1);
        println!("{fault:?}: {failed} operations");
        assert!(failed > 40, "{fault:?}: {failed}");
    }
}

#[test]
fn every_operation_begins_a_time_without_room_or_with_errors() {
    for fault in [Fault::Device, Fault::Full] {
        let failed = every_operation(2..3, fault, 12);
        assert!(failed > 40, "{fault:?}: {failed}");
    }
}

#[test]
fn a_full_device_refuses_writes_and_takes_them_again_when_there_is_room() {
    for seed in 0..40 {
        let mut random = Prng::seeded(seed);
        let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
        let mut ledger = Ledger::default();
        let disk = checkpoints::device(seed);
        let mut life = Life::begin(&disk, &clock, &mut ledger, &mut random).unwrap();
        disk.set_capacity(disk.used_bytes() + random.below(60_000));
        let refused = fill(&disk, &mut life, &mut random);
        assert!(refused, "seed {seed}: it is never full");
        disk.set_capacity(u64::MAX);
        life.heal();
        life.step(&mut random).unwrap();
    }
}

/// Continues until the log refuses; returns whether it did.
fn fill(disk: &SimulatedDisk, life: &mut Life<'_>, random: &mut Prng) -> bool {
    for _ in 0..2_000 {
        let is_refused = life.step(random).is_err();
        if is_refused && life.refuses() {
            assert!(disk.used_bytes() > 0);
            return true;
        }
    }
    false
}
