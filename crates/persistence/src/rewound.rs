//! The end of a log that a replica discards, because its primary's history differs from there on.
//! It is kept in files of its own before it is discarded, and reported to the operator.
//!
//! ```text
//!   <dir>/iolite-data/rewound-1/0000000004000010.log      a log that begins where the histories fork
//! ```
//!
//! `iolite check` reads such a directory. Nothing here removes one.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use base::clock::Clock;
use base::os_error::system_reason;
use durability::log::{Effect, Frame, Log, Options, READ_BYTES_MAX, Read, frames};

use crate::recovery::Place;

const PREFIX: &str = "rewound-";
/// Maximum number of different keys that are distinguished.
const KEYS_MAX: usize = 1 << 20;

/// The kept end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffix {
    /// Its directory, or `None` if it is empty.
    pub path: Option<PathBuf>,
    /// Its first sequence.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// Number of its frames that changed data.
    pub frames: u64,
    /// Number of different keys that they changed, up to a million.
    pub keys: u64,
    /// When the first and the last of them were written, in milliseconds since 1970 UTC.
    pub unix_ms: Option<(u64, u64)>,
}

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            frames,
            keys,
            from,
            to,
            ..
        } = self;
        let Some(path) = &self.path else {
            return write!(f, "Nothing is given up behind sequence {from}");
        };
        let (first, last) = self.unix_ms.unwrap_or_default();
        write!(
            f,
            "{frames} writes of {keys} keys, sequences {from} to {to}, made from {first} to {last} (ms since 1970), are \
             not in the primary's history and were kept in {}",
            path.display()
        )
    }
}

/// Keeps the frames of `log` from a sequence on, which is the start of a frame. They are durable on
/// return.
///
/// # Errors
/// Why they are not kept; then nothing of the log may be discarded.
pub fn suffix(
    log: &Arc<Log>,
    place: &Place,
    clock: &Arc<dyn Clock>,
    from: u64,
) -> Result<Suffix, String> {
    let mut kept = Suffix {
        path: None,
        from,
        to: log.tail_complete(),
        frames: 0,
        keys: 0,
        unix_ms: None,
    };
    if kept.to <= from {
        return Ok(kept);
    }
    let path = free(place)?;
    let options = Options {
        ring_bytes: 0,
        // Little is written to it.
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let (disk, clock) = (Arc::clone(&place.disk), Arc::clone(clock));
    let copy =
        Log::open(disk, clock, &path, from, options).map_err(|error| system_reason(&error))?;
    let mut follower = copy.follower(u64::MAX).ok_or("a log has other appenders")?;
    let mut keys = Keys::default();
    let (mut cursor, mut bytes, mut at) = (log.cursor(), Vec::new(), from);
    loop {
        match cursor.read(at, READ_BYTES_MAX, &mut bytes) {
            Read::Frames { end, .. } => {
                // Pieces of a long frame are kept, but not examined.
                for frame in frames(at, &bytes) {
                    kept.note(&frame, &mut keys);
                }
                let appended = follower.append_frames(at, &bytes);
                appended.map_err(|error| error.to_string())?;
                copy.write_out(copy.tail())
                    .map_err(|fault| fault.to_string())?;
                at = end;
            }
            Read::AtTail => break,
            Read::Lapped { oldest } => return Err(format!("the log begins at sequence {oldest}")),
            Read::Damaged(error) => return Err(error.to_string()),
        }
    }
    copy.close().map_err(|fault| fault.to_string())?;
    let synced = place.disk.sync_directory(&place.directory);
    synced.map_err(|error| system_reason(&error))?;
    kept.keys = keys.seen.len() as u64;
    kept.path = Some(path);
    Ok(kept)
}

/// The keys found, by their hashes: the keys of a gigabyte of log need not be in memory.
#[derive(Default)]
struct Keys {
    hasher: RandomState,
    seen: HashSet<u64>,
}

impl Keys {
    fn note(&mut self, effect: &Effect<'_>) {
        if self.seen.len() < KEYS_MAX
            && let Some(key) = effect.parts.into_iter().nth(1)
        {
            let sum = self.hasher.hash_one((effect.database, key));
            self.seen.insert(sum);
        }
    }
}

impl Suffix {
    /// Counts a kept frame.
    fn note(&mut self, frame: &Frame<'_>, keys: &mut Keys) {
        let mut is_write = false;
        for effect in frame.effects() {
            is_write = true;
            keys.note(&effect);
        }
        if is_write {
            self.frames += 1;
            let first = self.unix_ms.map_or(frame.unix_ms, |(first, _)| first);
            self.unix_ms = Some((first, frame.unix_ms));
        }
    }
}

/// Returns the first unused name.
fn free(place: &Place) -> Result<PathBuf, String> {
    let names = place.disk.list(&place.directory);
    let names = names.map_err(|error| system_reason(&error))?;
    let mut free = (1_u64..).map(|number| format!("{PREFIX}{number}"));
    let name = free.find(|name| !names.contains(name));
    name.map(|name| place.directory.join(name))
        .ok_or_else(|| "no name is free".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::path::Path;

    use base::clock::ManualClock;
    use durability::log::Reader;
    use durability::simulated::SimulatedDisk;

    use super::*;

    #[test]
    fn the_end_of_a_log_is_kept_at_its_sequences_and_told() {
        let disk: Arc<dyn durability::disk::Disk> = Arc::new(SimulatedDisk::new(1));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_unix_ms(1_000));
        let place = Place {
            disk: Arc::clone(&disk),
            directory: PathBuf::from("data"),
            log_directory: PathBuf::from("data/log"),
        };
        disk.create_directory(Path::new("data")).unwrap();
        let log = Log::open(
            Arc::clone(&disk),
            Arc::clone(&clock),
            &place.log_directory,
            0,
            Options::default(),
        )
        .unwrap();
        let mut appender = log.appender();
        appender.set_time(5);
        appender.command(0, &[b"SET", b"a", b"1"]);
        let fork = appender.end();
        appender.set_time(7);
        appender.command(0, &[b"SET", b"b", b"2"]);
        appender.set_time(9);
        appender.command(0, &[b"APPEND", b"b", b"3"]);
        log.write_out(appender.end()).unwrap();
        let kept = suffix(&log, &place, &clock, fork).unwrap();
        assert_eq!((kept.frames, kept.keys, kept.unix_ms), (2, 1, Some((7, 9))));
        assert_eq!((kept.from, kept.to), (fork, log.tail()));
        let path = kept.path.unwrap();
        assert_eq!(path, Path::new("data/rewound-1"));
        let mut reader = Reader::open(disk, &path, fork).unwrap();
        assert_eq!(reader.next_frame().unwrap().unwrap().sequence, fork);
        assert!(reader.next_frame().unwrap().is_some());
        assert!(reader.next_frame().unwrap().is_none());
        let nothing = suffix(&log, &place, &clock, log.tail()).unwrap();
        assert_eq!(nothing.path, None);
    }
}
