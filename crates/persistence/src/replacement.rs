//! Replaces checkpoint and log by those of another history, both at once: the result of a replica's
//! full sync.
//!
//! ```text
//!   parts durable ─► MANIFEST.sync ─► the old log goes ─► MANIFEST ─► the new log begins ─► MANIFEST.sync goes
//!                    └── from here on a start does the rest ([`finish`])
//! ```
//!
//! The old log and the new one use the same sequences for different frames. So neither manifest may
//! ever be found beside the other one's log: the presence of `MANIFEST.sync` decides, and
//! everything after that step may be repeated.

use std::io;
use std::sync::Arc;

use base::clock::Clock;
use durability::checkpoint::{
    CheckpointFault, Manifest, encode_manifest, read_manifest_at, remove_replaced, replace_manifest,
};
use durability::log::{Log, Options};
use durability::whole_file;

use crate::recovery::Place;

/// A manifest that is about to be put in force.
const DECIDED_NAME: &str = "MANIFEST.sync";

/// Decides that a checkpoint replaces all present data. Its parts must be durable. Nothing may be
/// removed before this, and the old log may not be read afterwards.
///
/// # Errors
/// Those of the system: then the decision is uncertain, and the next start finds out.
pub fn decide(place: &Place, manifest: &Manifest) -> io::Result<()> {
    let bytes = encode_manifest(manifest)?;
    whole_file::replace(&*place.disk, &place.directory, DECIDED_NAME, &bytes).map(drop)
}

/// Withdraws a decision that [`decide`] could not complete.
///
/// # Errors
/// Those of the system: then the decision is uncertain, and the next start finds out.
pub fn take_back(place: &Place) -> io::Result<()> {
    match place.disk.remove(&place.directory.join(DECIDED_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => place.disk.sync_directory(&place.directory),
    }
}

/// Whether there is a [decided](decide), unfinished replacement.
#[must_use]
pub fn is_decided(place: &Place) -> bool {
    place.disk.open(&place.directory.join(DECIDED_NAME)).is_ok()
}

/// Completes a [decided](decide) replacement; returns whether there was one. The log must not be
/// open.
///
/// # Errors
/// Those of the system; the call must be repeated before anything is read.
pub fn finish(place: &Place, clock: &Arc<dyn Clock>) -> Result<bool, CheckpointFault> {
    let path = place.directory.join(DECIDED_NAME);
    let Some(manifest) = decided(place)? else {
        return Ok(false);
    };
    let done = || -> io::Result<()> {
        place.remove_log()?;
        replace_manifest(&*place.disk, &place.directory, &manifest)?;
        if let Some(sequence) = manifest.log_sequence {
            begin_log(place, clock, sequence)?;
        }
        place.disk.remove(&path)?;
        place.disk.sync_directory(&place.directory)?;
        remove_replaced(&*place.disk, &place.directory, &manifest)
    };
    done().map_err(CheckpointFault::system(&path))?;
    Ok(true)
}

/// Returns the decided manifest, or `None` if there is none.
///
/// # Errors
/// Those of the system, or a flaw of the manifest.
pub fn decided(place: &Place) -> Result<Option<Manifest>, CheckpointFault> {
    read_manifest_at(&*place.disk, &place.directory.join(DECIDED_NAME))
}

/// Creates an empty log that begins at a sequence.
fn begin_log(place: &Place, clock: &Arc<dyn Clock>, sequence: u64) -> io::Result<()> {
    let options = Options {
        ring_bytes: 0,
        // Little is written to it.
        segment_bytes: 64 << 10,
        ..Options::default()
    };
    let (disk, clock) = (Arc::clone(&place.disk), Arc::clone(clock));
    let log = Log::open(disk, clock, &place.log_directory, sequence, options)?;
    log.close()
        .map_err(|fault| io::Error::new(fault.kind, fault.text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::path::{Path, PathBuf};

    use base::clock::ManualClock;
    use durability::disk::Disk;
    use durability::log::has_file_of;
    use durability::simulated::SimulatedDisk;

    use super::*;

    fn place(disk: &SimulatedDisk) -> Place {
        Place {
            disk: Arc::new(disk.clone()),
            directory: PathBuf::from("data"),
            log_directory: PathBuf::from("data/log"),
        }
    }

    fn manifest(directory: &str, sequence: u64) -> Manifest {
        Manifest {
            generation: sequence,
            log_sequence: Some(sequence),
            directory: directory.to_owned(),
            ..Manifest::default()
        }
    }

    /// Regression test: more than 1 MiB was decided, and could not be read any more.
    #[test]
    fn a_long_manifest_can_be_finished() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_unix_ms(1));
        let disk = SimulatedDisk::new(1);
        let place = place(&disk);
        disk.create_directory(Path::new("data")).unwrap();
        let new = Manifest {
            libraries: vec![vec![b'x'; 600 << 10]],
            ..manifest("checkpoint-9-1", 8_000)
        };
        decide(&place, &new).unwrap();
        assert!(finish(&place, &clock).unwrap());
        assert_eq!(place.manifest().unwrap(), Some(new));
    }

    #[test]
    fn a_manifest_beyond_the_maximum_is_not_decided() {
        let disk = SimulatedDisk::new(1);
        let place = place(&disk);
        disk.create_directory(Path::new("data")).unwrap();
        let new = Manifest {
            libraries: vec![vec![b'x'; 33 << 20]],
            ..manifest("checkpoint-9-1", 8_000)
        };
        let error = decide(&place, &new).unwrap_err();
        assert!(
            error.to_string().contains("67108864 are the maximum"),
            "{error}"
        );
        assert!(!is_decided(&place));
    }

    /// A power cut at any operation leaves the old checkpoint and the old log, or the new ones.
    #[test]
    fn a_power_cut_never_leaves_a_manifest_beside_the_log_of_another() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_unix_ms(1));
        let mut operation = 0;
        loop {
            let disk = SimulatedDisk::new(operation);
            let before = place(&disk);
            disk.create_directory(Path::new("data")).unwrap();
            begin_log(&before, &clock, 64).unwrap();
            replace_manifest(&disk, Path::new("data"), &manifest("checkpoint-1-1", 64)).unwrap();
            disk.settle();
            let started = disk.operations();
            disk.cut_power_at(started + operation);
            let new = manifest("checkpoint-9-1", 8_000);
            let done = decide(&before, &new).and_then(|()| {
                let finished = finish(&before, &clock);
                finished
                    .map(drop)
                    .map_err(|fault| io::Error::other(fault.to_string()))
            });
            let is_over = !disk.is_off();
            assert!(is_over == done.is_ok() || disk.is_off());
            let after = place(&disk.crash(operation + 1));
            let _finished = finish(&after, &clock).unwrap();
            let found = after.manifest().unwrap().unwrap();
            let sequence = found.log_sequence.unwrap();
            assert!(found == new || sequence == 64, "{found:?}");
            let has = |at| has_file_of(&*after.disk, &after.log_directory, at).unwrap();
            assert!(
                has(sequence),
                "no log at {sequence} (power cut at {operation})"
            );
            assert!(
                sequence == 64 || !has(64),
                "the old log is there (power cut at {operation})"
            );
            if is_over {
                assert_eq!(found, new);
                break;
            }
            operation += 1;
        }
    }
}
