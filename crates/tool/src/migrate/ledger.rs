//! The file that records the progress of a copy, so that the copy continues there after the process
//! ended in any way.
//!
//! ```text
//!   iolite migrate 2
//!   127.0.0.1:6379 127.0.0.1:6380                source and target
//!   target empty                                 or `target used`: it had keys of its own
//!   events KE$                                   what `notify-keyspace-events` of the source was before; `-` for nothing
//!   walk 0 8d0c…e1 1234 50                       database, process, the cursor from which on it is not copied, keys that were
//! ```
//!
//! The file exists before the first key is written. It is written beside its place and renamed, so
//! that it is complete at any time. Only the process that issued a cursor understands it, so the
//! file names the process by its `run_id`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::BenchError;

/// The first line, which identifies the file.
const HEAD: &str = "iolite migrate 2";
/// The cursor of a database that is copied completely.
pub(super) const DONE: &str = "done";
/// Stands for an empty text.
const NOTHING: &str = "-";

/// The progress of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    path: Option<PathBuf>,
    servers: String,
    /// Whether an earlier run wrote it.
    is_begun: bool,
    /// Whether all keys of the target came from the source.
    target_was_empty: bool,
    /// The original `notify-keyspace-events` of the source.
    events: Option<String>,
    /// Cursor and number of keys for each database of a process that was begun.
    walks: BTreeMap<(u32, String), (String, u64)>,
}

impl Ledger {
    /// Opens the file, if it is for the same servers.
    pub(super) fn open(path: Option<&Path>, servers: &str) -> Result<Self, BenchError> {
        let mut ledger = Self {
            path: path.map(Path::to_owned),
            servers: servers.to_owned(),
            ..Self::default()
        };
        let Some(path) = path else {
            return Ok(ledger);
        };
        let refuse = |reason: String| BenchError::File(path.to_owned(), reason);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ledger),
            Err(error) => return Err(refuse(error.to_string())),
        };
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(refuse("this is no state of iolite migrate".to_owned()));
        }
        if lines.next() != Some(servers) {
            return Err(refuse(
                "this is the state of a migration of other servers".to_owned(),
            ));
        }
        ledger.is_begun = true;
        for line in lines {
            let read = ledger.take(line);
            read.ok_or_else(|| refuse(format!("a line is damaged: {line}")))?;
        }
        Ok(ledger)
    }

    /// Parses a line. Returns `None` if it is damaged.
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["target", "empty"] => self.target_was_empty = true,
            ["target", "used"] => self.target_was_empty = false,
            ["events", classes] => {
                let classes = if classes == NOTHING { "" } else { classes };
                self.events = Some(classes.to_owned());
            }
            ["walk", database, process, cursor, keys] => {
                let walk = (database.parse().ok()?, process.to_owned());
                let how_far = (cursor.to_owned(), keys.parse().ok()?);
                self.walks.insert(walk, how_far);
            }
            _ => return None,
        }
        Some(())
    }

    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    pub(super) fn target_was_empty(&self) -> bool {
        self.target_was_empty
    }

    /// Records that a copy begins, before it writes anything.
    pub(super) fn begin(&mut self, target_was_empty: bool) -> Result<(), BenchError> {
        self.target_was_empty = target_was_empty;
        self.save()
    }

    /// Returns the directive's original value: the recorded one, or else `now`, which is recorded
    /// then. The servers of a cluster may share the file, so that only the first one counts.
    pub(super) fn events_before(&mut self, now: &str) -> Result<String, BenchError> {
        if let Some(before) = &self.events {
            return Ok(before.clone());
        }
        self.events = Some(now.to_owned());
        self.save()?;
        Ok(now.to_owned())
    }

    /// Returns the cursor from which a database of a process is not copied yet, and the number of
    /// copied keys. Nothing is known of a process without a name.
    pub(super) fn how_far(&self, database: u32, process: &str) -> (String, u64) {
        let walk = self.walks.get(&(database, process.to_owned()));
        walk.cloned().unwrap_or_else(|| ("0".to_owned(), 0))
    }

    /// Records that all keys before a cursor are copied.
    pub(super) fn note(
        &mut self,
        database: u32,
        process: &str,
        cursor: &str,
        keys: u64,
    ) -> Result<(), BenchError> {
        let walk = (database, process.to_owned());
        self.walks.insert(walk, (cursor.to_owned(), keys));
        self.save()
    }

    fn save(&self) -> Result<(), BenchError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let target = if self.target_was_empty {
            "empty"
        } else {
            "used"
        };
        let mut text = format!("{HEAD}\n{}\ntarget {target}\n", self.servers);
        if let Some(classes) = &self.events {
            let classes = if classes.is_empty() { NOTHING } else { classes };
            // Writing to a string does not fail.
            let _written = writeln!(text, "events {classes}");
        }
        for ((database, process), (cursor, keys)) in &self.walks {
            if !process.is_empty() {
                let _written = writeln!(text, "walk {database} {process} {cursor} {keys}");
            }
        }
        let beside = path.with_extension("tmp");
        let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
        written.map_err(|error| BenchError::File(path.clone(), error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_there_again() {
        let path = std::env::temp_dir().join(format!("iolite-ledger-{}", std::process::id()));
        let mut ledger = Ledger::open(Some(&path), "a:1 b:2").unwrap();
        assert!(!ledger.is_begun());
        ledger.begin(true).unwrap();
        assert_eq!(ledger.events_before("").unwrap(), "");
        ledger.note(0, "run", "1234", 50).unwrap();
        ledger.note(3, "run", DONE, 7).unwrap();
        ledger.note(0, "", "9", 9).unwrap();
        let mut again = Ledger::open(Some(&path), "a:1 b:2").unwrap();
        let others = Ledger::open(Some(&path), "a:1 b:3")
            .unwrap_err()
            .to_string();
        assert!(again.is_begun() && again.target_was_empty());
        assert_eq!(again.how_far(0, "run"), ("1234".to_owned(), 50));
        assert_eq!(again.how_far(3, "run"), (DONE.to_owned(), 7));
        // Cursors of another process, or of one that cannot be identified, are worthless.
        assert_eq!(again.how_far(0, "other"), ("0".to_owned(), 0));
        assert_eq!(again.how_far(0, ""), ("0".to_owned(), 0));
        // The value that a killed run has set is not the original one.
        assert_eq!(again.events_before("AK").unwrap(), "");
        std::fs::write(&path, "something").unwrap();
        let wrong = Ledger::open(Some(&path), "a:1 b:2")
            .unwrap_err()
            .to_string();
        std::fs::write(&path, format!("{HEAD}\na:1 b:2\nwalk 0 run\n")).unwrap();
        let damaged = Ledger::open(Some(&path), "a:1 b:2")
            .unwrap_err()
            .to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(others.contains("other servers"), "{others}");
        assert!(wrong.contains("no state"), "{wrong}");
        assert!(damaged.contains("a line is damaged"), "{damaged}");
    }
}
