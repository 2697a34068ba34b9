//! The file that keeps how far a copy is, so that it goes on there after any end of the process.
//!
//! A line a database: its number, the cursor from which on it is not copied, and the keys that were. It is written beside
//! its place and renamed, so that it is whole at any time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::BenchError;

/// The first line: what the file is, and for which servers.
const HEAD: &str = "iolite migrate 1";
/// The cursor of a database that is copied.
pub(super) const DONE: &str = "done";

/// How far a copy is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    path: Option<PathBuf>,
    servers: String,
    /// Cursor and keys of each database that was begun.
    pub(super) databases: BTreeMap<u32, (String, u64)>,
}

impl Ledger {
    /// What was kept, if it was for the same servers.
    pub(super) fn open(path: Option<&Path>, servers: &str) -> Result<Self, BenchError> {
        let mut ledger = Self {
            path: path.map(Path::to_owned),
            servers: servers.to_owned(),
            databases: BTreeMap::new(),
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
        for line in lines {
            let mut words = line.split(' ');
            let mut word = || {
                words
                    .next()
                    .ok_or_else(|| refuse(format!("a line is damaged: {line}")))
            };
            let (database, cursor, keys) = (word()?, word()?, word()?);
            let number = |text: &str| {
                text.parse()
                    .map_err(|_| refuse(format!("a line is damaged: {line}")))
            };
            let keys: u64 = number(keys)?;
            let database = database
                .parse()
                .map_err(|_| refuse(format!("a line is damaged: {line}")))?;
            ledger.databases.insert(database, (cursor.to_owned(), keys));
        }
        Ok(ledger)
    }

    pub(super) fn is_begun(&self) -> bool {
        !self.databases.is_empty()
    }

    /// Notes that all keys before a cursor are copied.
    pub(super) fn note(
        &mut self,
        database: u32,
        cursor: &str,
        keys: u64,
    ) -> Result<(), BenchError> {
        self.databases.insert(database, (cursor.to_owned(), keys));
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut text = format!("{HEAD}\n{}\n", self.servers);
        for (database, (cursor, keys)) in &self.databases {
            // Writing to a string does not fail.
            let _written = writeln!(text, "{database} {cursor} {keys}");
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
        ledger.note(0, "1234", 50).unwrap();
        ledger.note(3, DONE, 7).unwrap();
        let again = Ledger::open(Some(&path), "a:1 b:2").unwrap();
        let others = Ledger::open(Some(&path), "a:1 b:3")
            .unwrap_err()
            .to_string();
        std::fs::write(&path, "something").unwrap();
        let wrong = Ledger::open(Some(&path), "a:1 b:2")
            .unwrap_err()
            .to_string();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(again, ledger);
        assert_eq!(again.databases[&0], ("1234".to_owned(), 50));
        assert!(others.contains("other servers"), "{others}");
        assert!(wrong.contains("no state"), "{wrong}");
    }
}
