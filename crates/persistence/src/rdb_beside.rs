//! The RDB file that a save leaves beside its checkpoint (`checkpoint-format rdb`), for use by
//! other programs.
//!
//! ```text
//!   SAVE, BGSAVE, save points, SHUTDOWN ──► checkpoint in force ──► temp-iolite.rdb ──► dump.rdb
//!                                              a start loads this        synced, renamed
//! ```
//!
//! It is written after the checkpoint from a snapshot of its own: in no more memory than the
//! checkpoint may have, and as of a moment that is no earlier. If it fails, the previous file stays
//! whole, the save has failed, and the checkpoint counts nevertheless.

use std::path::{Path, PathBuf};

use durability::disk::Disk;
use store::SnapshotLimits;

use super::checkpointer::Failure;
use super::export::{Export, ExportError, ExportOptions};
use crate::environment::Environment;

/// Name of the file until it is whole. It is always the same, so that the remains of a crash are
/// overwritten. No other process writes it, because the lock of the data directory is held.
const DRAFT_NAME: &str = "temp-iolite.rdb";

/// How a save leaves an RDB file beside its checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdbBeside {
    /// The name of the file (`dbfilename`).
    pub file_name: PathBuf,
    /// Whether long texts are compressed (`rdbcompression`).
    pub compresses: bool,
}

/// Writes all data into the file of this name in `directory`; returns the maximum memory held for
/// it at any time.
///
/// # Errors
/// Why there is no new file; the previous one is whole.
pub fn save(
    env: &Environment,
    disk: &dyn Disk,
    directory: &Path,
    beside: &RdbBeside,
    limits: SnapshotLimits,
    is_given_up: &dyn Fn() -> bool,
) -> Result<u64, Failure> {
    let path = directory.join(&beside.file_name);
    let started_ns = env.clock.monotonic_ns();
    let export = Export {
        env,
        disk,
        draft: directory.join(DRAFT_NAME),
        options: ExportOptions {
            version: None,
            compresses: beside.compresses,
            sums_up: true,
        },
        limits,
        is_given_up,
    };
    match export.write_to(&path) {
        Ok(exported) => {
            let ms = (env.clock.monotonic_ns() - started_ns) / 1_000_000;
            env.log.notice(format_args!(
                "RDB file saved: {}, version {}, {} keys, {} bytes in {ms} ms",
                path.display(),
                exported.version,
                exported.keys,
                exported.bytes,
            ));
            Ok(exported.held_bytes_max)
        }
        Err(error) => {
            let failure = match error {
                ExportError::Cancelled => Failure::Cancelled,
                ExportError::OverLimit => Failure::OverLimit,
                error => Failure::System(format!("{}: {error}", path.display())),
            };
            env.log
                .warning(format_args!("RDB file not saved: {failure}"));
            Err(failure)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::sync::Arc;

    use base::clock::ManualClock;
    use durability::simulated::{Fault, SimulatedDisk};
    use store::{Deadline, Options, Store};

    use super::*;
    use crate::import::{ImportOptions, import_stream};

    fn env() -> Environment {
        let store = Store::new(&Options { databases: 4 }).unwrap();
        let clock = ManualClock::at_unix_ms(1_800_000_000_000);
        Environment::new(testkit::table(), store, Arc::new(clock))
    }

    fn put(env: &Environment, key: &str) {
        let mut handle = env.store.handle();
        let key = handle.key(0, key.as_bytes());
        let value = [b'x'; 40_000];
        handle
            .upsert(&key, &value, Deadline::Never, |_| ())
            .unwrap();
    }

    fn disk() -> SimulatedDisk {
        let disk = SimulatedDisk::new(1);
        disk.create_directory("/data".as_ref()).unwrap();
        disk.settle();
        disk
    }

    fn save_unless(
        env: &Environment,
        disk: &SimulatedDisk,
        is_given_up: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let limits = SnapshotLimits::default();
        let beside = RdbBeside {
            file_name: "dump.rdb".into(),
            compresses: false,
        };
        save(env, disk, "/data".as_ref(), &beside, limits, is_given_up)
    }

    fn save_on(env: &Environment, disk: &SimulatedDisk) -> Result<u64, Failure> {
        save_unless(env, disk, &|| false)
    }

    /// Returns the number of keys in the file, which is whole, or `None` without one.
    fn keys_in(disk: &SimulatedDisk) -> Option<u64> {
        let file = disk.open("/data/dump.rdb".as_ref()).ok()?;
        let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        let options = ImportOptions {
            keeps_expired: true,
        };
        let (loaded, _) = import_stream(&env(), bytes.as_slice(), options).unwrap();
        assert!(loaded.is_summed);
        Some(loaded.keys)
    }

    #[test]
    fn whatever_fails_a_whole_file_stays() {
        let env = env();
        for key in ["a", "b", "c"] {
            put(&env, key);
        }
        let whole = disk();
        save_on(&env, &whole).unwrap();
        assert_eq!(whole.list("/data".as_ref()).unwrap(), ["dump.rdb"]);
        let before = whole.operations();
        save_on(&env, &whole).unwrap();
        let operations = whole.operations() - before;
        assert!(operations > 5, "{operations}");
        put(&env, "d");
        for fault in Fault::ALL {
            let mut struck = 0;
            for failing in 0..operations {
                let disk = disk();
                // The previous file has three keys, and the new one has four.
                let former = self::env();
                for key in ["a", "b", "c"] {
                    put(&former, key);
                }
                save_on(&former, &disk).unwrap();
                let at = disk.operations() + failing;
                disk.fail(at..at + 1, fault);
                let saved = save_on(&env, &disk);
                struck += disk.faults_struck();
                disk.heal();
                match (saved, keys_in(&disk)) {
                    (Ok(_), Some(4)) => assert_eq!(disk.faults_struck(), 0),
                    // The name exists but may not be durable.
                    (Err(Failure::System(reason)), Some(3 | 4)) => {
                        assert!(reason.starts_with("/data/dump.rdb: "), "{reason}");
                    }
                    other => panic!("{fault:?} at {failing}: {other:?}"),
                }
                save_on(&env, &disk).unwrap();
                assert_eq!(keys_in(&disk), Some(4));
                let names = disk.list("/data".as_ref()).unwrap();
                assert_eq!(names, ["dump.rdb"], "{fault:?} at {failing}");
            }
            assert!(struck > 0, "{fault:?}");
        }
    }

    #[test]
    fn what_is_given_up_leaves_the_former_file() {
        let (env, disk) = (env(), disk());
        put(&env, "a");
        let given_up = save_unless(&env, &disk, &|| true);
        assert_eq!(given_up, Err(Failure::Cancelled));
        assert_eq!(disk.list("/data".as_ref()).unwrap(), [""; 0]);
        save_on(&env, &disk).unwrap();
        put(&env, "b");
        assert!(save_unless(&env, &disk, &|| true).is_err());
        assert_eq!(keys_in(&disk), Some(1));
        assert_eq!(disk.list("/data".as_ref()).unwrap(), ["dump.rdb"]);
    }
}
