//! The same at full size, with a record of the results.
//!
//! ```text
//! RECORD=target/power-cuts.md SEEDS=20000 \
//!     cargo test --release -p durability --test it soak -- --ignored
//! ```

use std::fmt::Write as _;
use std::panic;
use std::path::Path;

use durability::planted::{self, Bug};
use durability::simulated::Fault;

use crate::power_cuts::{Tally, run_all, setting, window_ms};
use crate::{io_errors, power_cuts};

/// Each bug, with its name in the record.
const BUGS: [(Bug, &str); 7] = [
    (Bug::SyncSkipped, "segments are not synced"),
    (Bug::DirectorySyncSkipped, "their directory is not synced"),
    (Bug::AcknowledgedEarly, "acknowledged before the sync"),
    (Bug::FailedSyncBelieved, "a failed sync is believed"),
    (Bug::NoChecksum, "sums of frames are not looked at"),
    (Bug::DeletePassedOver, "deletions are not replayed"),
    (Bug::GroupCutShort, "a transaction lacks its last effect"),
];

#[test]
#[ignore = "takes minutes; writes a record"]
fn soak() {
    let seeds = setting("SEEDS", 20_000);
    let tally = run_all(0..seeds);
    let mut record = head(seeds, &tally);
    errors(&mut record);
    bugs(&mut record);
    match std::env::var("RECORD") {
        Ok(path) => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, record).unwrap();
        }
        Err(_) => println!("{record}"),
    }
}

fn head(seeds: u64, tally: &Tally) -> String {
    let window_seeds = 1_000;
    let window_ms = window_ms(0..window_seeds);
    format!(
        "# Power cuts and failing devices, simulated

`SEEDS={seeds} RECORD=FILE cargo test --release -p durability --test it soak -- --ignored`
wrote this. Log, checkpoints and manifest together on the simulated device (`durability::simulated`): what
was not synced is dropped, torn at 512 B or 4 KiB, zeroed, replaced by what lay there before, or arrives
in another order; names that were not synced are lost or come back. Each seed has several lives; each life
begins with recovery, which may itself be cut.

| | |
|---|---|
| seeds | {seeds} |
| power cuts | {cuts} |
| ends of the process alone | {ends} |
| operations that failed meanwhile | {faults} |
| frames appended | {frames} |
| frames lost that nobody had been promised | {lost} |
| **frames lost that were called durable** | **0** |
| **frames wrong, in part, or back from the dead** | **0** |
| **starts refused** | **0** |
| `everysec`: longest stretch of acknowledged writes lost, of {window_seeds} seeds with a device that is up to 3 s late | {window_ms} ms |

",
        cuts = tally.power_cuts,
        ends = tally.ends_of_process,
        faults = tally.faults,
        frames = tally.frames,
        lost = tally.frames_lost,
    )
}

fn errors(record: &mut String) {
    /// Number of histories whose every operation fails.
    const HISTORIES: u64 = 10;
    *record += &format!(
        "## Every operation failing

{HISTORIES} histories, each run once for every operation that it has, with that operation failing. Nothing
acknowledged was lost, the log said what was wrong, and all of it was durable again without a restart.

| fault | points |
|---|---|
"
    );
    for fault in Fault::ALL {
        let points = io_errors::every_operation(0..HISTORIES, fault, 1);
        writeln!(record, "| {fault:?} | {points} |").unwrap();
    }
}

fn bugs(record: &mut String) {
    *record += "
## Planted bugs

| bug | noticed at seed | as |
|---|---|---|
";
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    for (bug, name) in BUGS {
        let (seed, what) = noticed(bug);
        writeln!(record, "| {name} | {seed} | {what} |").unwrap();
    }
    panic::set_hook(hook);
}

/// Returns the first seed that detects a bug, and its message.
fn noticed(bug: Bug) -> (u64, String) {
    planted::plant(Some(bug));
    let found = (0..2_000).find_map(|seed| {
        let failure = panic::catch_unwind(|| power_cuts::run(seed, &mut Tally::default())).err()?;
        let text = failure.downcast_ref::<String>().unwrap();
        let line = text.lines().next().unwrap().replace('|', "/");
        Some((seed, line))
    });
    planted::plant(None);
    found.unwrap()
}
