//! Power cuts at every operation: durable frames come back, in order and whole.

use std::path::Path;
use std::sync::Arc;

use super::running::{DIRECTORY, Running, disk};
use crate::disk::Disk as _;
use crate::log::{Level, Reader};
use crate::planted::{self, Bug};
use crate::simulated::{Fault, SimulatedDisk};

/// Appends, writes and syncs as a server would, until the power is cut or the work is done.
fn work(running: &mut Running, seed: u64) {
    let level = [Level::Os, Level::EverySecond, Level::Always][(seed % 3) as usize];
    running.log.set_level(level);
    for round in 0..40 {
        running.append();
        if (seed >> (round % 16)) & 1 == 0 {
            let _refused = running.log.write_out(running.log.tail());
        }
        running.clock.advance_ms(100 + seed % 200);
        running.log.sync_step();
        if running.disk.is_off() {
            return;
        }
    }
}

fn cut_at(seed: u64, operation: u64) -> u64 {
    let device = disk(seed);
    device.cut_power_at(operation);
    let Ok(mut running) = Running::try_open(device, 0) else {
        return 0;
    };
    work(&mut running, seed);
    let durable = running.log.durable();
    let after = running.disk.crash(seed ^ operation);
    let end = running.check(&after, durable);
    // The log continues from there; the same again.
    let mut again = Running::open(after, end);
    let kept = running
        .frames
        .iter()
        .take_while(|(_, behind)| *behind <= end);
    again.frames = kept.cloned().collect();
    work(&mut again, seed ^ 1);
    let durable = again.log.durable();
    again.check(&again.disk.crash(seed.wrapping_add(operation)), durable)
}

/// Cuts the power at some operations of each seed, and at all of them over the seeds; returns the
/// number of cuts.
fn cuts(seeds: std::ops::Range<u64>) -> u64 {
    let mut count = 0;
    for seed in seeds {
        let mut running = Running::open(disk(seed), 0);
        work(&mut running, seed);
        let operations = running.disk.operations();
        assert!(operations > 20);
        // A step without a common factor with their number reaches all of them in the end.
        let mut operation = seed % 7;
        while operation < operations {
            cut_at(seed, operation);
            count += 1;
            operation += 1 + seed % 5;
        }
    }
    count
}

/// More seeds with `LOG_POWER_SEEDS=1000` in the environment; `LOG_POWER_SEED=7` sets the first of
/// them.
#[test]
fn what_was_durable_survives_a_power_cut_at_any_operation() {
    let setting = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
    };
    let first = setting("LOG_POWER_SEED", 0);
    let seeds = setting("LOG_POWER_SEEDS", 24);
    let count = cuts(first..first + seeds);
    assert!(count >= 40 * seeds, "{count} power cuts over {seeds} seeds");
    if seeds > 24 {
        eprintln!("{count} power cuts over {seeds} seeds: nothing that was durable is missing");
    }
}

fn segments(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.list(Path::new(DIRECTORY)).unwrap();
    names.retain(|name| name.ends_with(".log"));
    names
}

/// Several segments are filled before a sync: their names are not durable, and a device may keep
/// only the later ones.
#[test]
fn names_of_segments_survive_in_any_order() {
    let (mut is_gap_met, mut is_all_met) = (false, false);
    for seed in 0..200 {
        let mut running = Running::open(disk(seed), 0);
        for _ in 0..5 {
            running.append();
            running.log.write_out(running.log.tail()).unwrap();
        }
        running.log.sync_step();
        let durable = running.log.durable();
        let before = segments(&running.disk).len();
        while segments(&running.disk).len() < before + 3 {
            running.append();
            running.log.write_out(running.log.tail()).unwrap();
        }
        let all = segments(&running.disk);
        let after = running.disk.crash(seed);
        let kept = segments(&after);
        is_gap_met |= !all.starts_with(&kept);
        is_all_met |= kept == all;
        let end = running.check(&after, durable);
        // The log continues from there, whatever is behind.
        let mut again = Running::open(after, end);
        let frames = running.frames.iter();
        again.frames = frames
            .take_while(|(_, behind)| *behind <= end)
            .cloned()
            .collect();
        work(&mut again, seed);
        let durable = again.log.durable();
        again.check(&again.disk.crash(seed ^ 7), durable);
    }
    assert!(is_gap_met && is_all_met, "{is_gap_met} {is_all_met}");
}

/// A sync fails once, then the power is cut.
fn fails_and_crashes(seed: u64) {
    let mut running = Running::open(disk(seed), 0);
    let at = running.disk.operations() + seed % 60;
    running.disk.fail(at..at + 1, Fault::Device);
    work(&mut running, seed);
    let durable = running.log.durable();
    running.check(&running.disk.crash(seed), durable);
}

#[test]
fn what_was_durable_survives_a_failure_and_a_power_cut() {
    (0..300).for_each(fails_and_crashes);
}

#[test]
fn believing_a_sync_that_failed_is_noticed() {
    planted::plant(Some(Bug::FailedSyncBelieved));
    let caught = std::panic::catch_unwind(|| (0..300).for_each(fails_and_crashes));
    planted::plant(None);
    assert!(caught.is_err());
}

/// Frames that were passed to the system come back if only the process ends.
#[test]
fn what_was_written_survives_the_end_of_the_process() {
    for seed in 0..60 {
        let mut running = Running::open(disk(seed), 0);
        let at = running.disk.operations() + seed;
        running.disk.fail(at..at + 2, Fault::Device);
        let mut promised = 0;
        for _ in 0..40 {
            running.append();
            if running.log.write_out(running.log.tail()).is_ok() {
                promised = running.log.tail();
            }
            running.clock.advance_ms(130);
            running.log.sync_step();
        }
        running.check(&running.disk, promised);
    }
}

#[test]
fn a_reader_of_what_a_cut_left_says_where_it_ends() {
    let mut running = Running::new();
    work(&mut running, 1);
    let after = running.disk.crash(9);
    let mut reader = Reader::open(Arc::new(after), Path::new(DIRECTORY), 0).unwrap();
    while reader.next_frame().unwrap().is_some() {}
    assert_eq!(reader.tail().unwrap().end, reader.sequence());
}

/// A fast writer fills many files before a sync reaches them.
#[test]
fn a_start_reads_no_file_again_for_each_that_was_not_durable() {
    let operations = |frames: u64| {
        let mut running = Running::new();
        for _ in 0..frames {
            running.append();
            running.log.write_out(running.log.tail()).unwrap();
        }
        let (before, tail) = (running.disk.operations(), running.log.tail());
        let again = Running::open(running.disk.clone(), tail);
        assert_eq!(again.log.durable(), tail);
        running.disk.operations() - before
    };
    let (few, many) = (operations(100), operations(400));
    assert!(many < 5 * few, "{few} operations, then {many}");
}
