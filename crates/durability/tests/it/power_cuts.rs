//! Power cuts, ends of the process and device failures, one after the other.

use std::error::Error;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use base::clock::ManualClock;
use base::random::Prng;
use durability::log::Level;
use durability::planted::{self, Bug};
use durability::simulated::{Fault, SimulatedDisk};

use crate::checkpoints;
use crate::ledger::Ledger;
use crate::life::Life;

/// Number of lives per seed.
const LIVES: u64 = 6;

/// How a life ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    PowerCut,
    /// The process ends, the system does not.
    Process,
}

/// What happened in the lives of some seeds.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) power_cuts: u64,
    pub(crate) ends_of_process: u64,
    pub(crate) faults: u64,
    pub(crate) frames: u64,
    /// Number of frames that were rightly lost: they were not reported as durable.
    pub(crate) frames_lost: u64,
}

/// Runs one seed: a device, and lives until all planned failures have happened.
pub(crate) fn run(seed: u64, tally: &mut Tally) {
    let mut random = Prng::seeded(seed);
    let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
    let mut ledger = Ledger::default();
    let mut disk = checkpoints::device(random.next_u64());
    for _ in 0..LIVES {
        let end = match random.below(4) {
            0 => End::Process,
            _ => End::PowerCut,
        };
        let steps_max = if random.below(4) == 0 { 20 } else { 250 };
        let cut_after = random.below(steps_max);
        if end == End::PowerCut {
            disk.cut_power_at(disk.operations() + cut_after);
        }
        if random.below(4) == 0 {
            let first = disk.operations() + random.below(200);
            let count = 1 + random.below(3);
            let fault = Fault::ALL[random.index(Fault::ALL.len())];
            disk.fail(first..first + count, fault);
        }
        tally.faults += live(&disk, &clock, &mut ledger, &mut random, cut_after);
        disk.heal();
        match end {
            End::Process => tally.ends_of_process += 1,
            End::PowerCut => {
                tally.power_cuts += 1;
                disk = disk.crash(random.next_u64());
                ledger.power_was_cut();
            }
        }
    }
    live(&disk, &clock, &mut ledger, &mut random, 0);
    tally.frames += ledger.frames_lost + ledger.entries.len() as u64;
    tally.frames_lost += ledger.frames_lost;
}

/// Runs one life, until the power is cut or the steps are done; returns the number of faults that
/// struck.
fn live(
    disk: &SimulatedDisk,
    clock: &Arc<ManualClock>,
    ledger: &mut Ledger,
    random: &mut Prng,
    steps: u64,
) -> u64 {
    let struck_before = disk.faults_struck();
    let struck = || disk.faults_struck() - struck_before;
    let check = |error: Box<dyn Error>, what: &str| {
        assert!(disk.is_off() || struck() > 0, "{what}: {error}");
    };
    let mut life = match Life::begin(disk, clock, ledger, random) {
        Ok(life) => life,
        Err(error) => {
            check(error, "refused to start");
            return struck();
        }
    };
    for _ in 0..steps {
        if let Err(error) = life.step(random) {
            check(error, "failed for no reason");
        }
        if disk.is_off() {
            break;
        }
    }
    struck()
}

pub(crate) fn run_all(seeds: Range<u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        // Reports the seed of a failure.
        let run = AssertUnwindSafe(|| run(seed, &mut tally));
        if let Err(failure) = panic::catch_unwind(run) {
            eprintln!(
                "To see it again: FIRST_SEED={seed} SEEDS=1 cargo test -p durability --test it power_cuts::"
            );
            panic::resume_unwind(failure);
        }
    }
    tally
}

/// Returns a number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn what_was_promised_comes_back_and_nothing_else() {
    let first = setting("FIRST_SEED", 0);
    let tally = run_all(first..first + setting("SEEDS", 500));
    println!("{tally:?}");
}

/// Returns the longest period of writes, acknowledged at [`Level::EverySecond`], that a power cut
/// loses.
pub(crate) fn window_ms(seeds: Range<u64>) -> u64 {
    let mut window_ms = 0;
    for seed in seeds {
        let mut random = Prng::seeded(seed);
        let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
        let mut ledger = Ledger::default();
        let disk = checkpoints::device(seed);
        let mut life = Life::begin(&disk, &clock, &mut ledger, &mut random).unwrap();
        for _ in 0..random.below(6) {
            // However late the device is, writes wait for it in the end.
            let busy_ms = random.below(3_000);
            life.write_for(busy_ms, Level::EverySecond, &mut random)
                .unwrap();
            life.sync_step();
        }
        life.write_for(random.below(3_000), Level::EverySecond, &mut random)
            .unwrap();
        drop(life);
        let disk = disk.crash(seed);
        ledger.power_was_cut();
        Life::begin(&disk, &clock, &mut ledger, &mut random).unwrap();
        window_ms = window_ms.max(ledger.window_ms);
    }
    window_ms
}

#[test]
fn every_second_loses_no_more_than_a_second_of_writes() {
    let window_ms = window_ms(0..60);
    assert!((500..=1_000).contains(&window_ms), "{window_ms} ms");
}

/// Runs until a failure, with a bug planted.
fn with(bug: Bug) {
    planted::plant(Some(bug));
    run_all(0..2_000);
}

/// Checks that a bug is detected as a loss: either the test or the log itself misses promised
/// frames, whichever happens first.
fn is_noticed_as_a_loss(bug: Bug) {
    let failure = panic::catch_unwind(|| with(bug)).unwrap_err();
    let text = failure.downcast_ref::<String>().unwrap();
    let is_loss = ["lost: ", "refused to start: "].map(|kind| text.starts_with(kind));
    assert!(is_loss.contains(&true), "{text}");
}

#[test]
fn a_sync_that_is_skipped_is_noticed() {
    is_noticed_as_a_loss(Bug::SyncSkipped);
}

#[test]
fn an_early_acknowledgement_is_noticed() {
    is_noticed_as_a_loss(Bug::AcknowledgedEarly);
}

#[test]
fn a_directory_that_is_not_synced_is_noticed() {
    is_noticed_as_a_loss(Bug::DirectorySyncSkipped);
}

#[test]
fn a_failed_sync_that_is_believed_is_noticed() {
    is_noticed_as_a_loss(Bug::FailedSyncBelieved);
}

#[test]
#[should_panic(expected = "wrong: ")]
fn sums_that_are_not_looked_at_are_noticed() {
    with(Bug::NoChecksum);
}

#[test]
#[should_panic(expected = "wrong: a deletion is missing")]
fn a_deletion_that_is_undone_is_noticed() {
    with(Bug::DeletePassedOver);
}

#[test]
#[should_panic(expected = "wrong: ")]
fn a_group_that_lacks_an_effect_is_noticed() {
    with(Bug::GroupCutShort);
}
