//! A log of commands (SLOWLOG, COMMANDLOG): the latest ones of a subject, newest first, with their
//! truncated arguments.

use std::collections::VecDeque;

use base::spans::Span;

/// Maximum number of bytes of an argument that are kept.
pub(crate) const ARGUMENT_BYTES_MAX: usize = 128;

/// The description of a command in a log, besides its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its arguments, the name first.
    pub arguments: Vec<Vec<u8>>,
    /// The client's address.
    pub address: String,
    /// The client's name.
    pub client_name: String,
}

impl Shown {
    /// Returns the command as a span, without keys or values, which a collector need not know.
    pub(super) fn span(self, ended_unix_us: u64, us: u64) -> Span {
        let name = self.arguments.first().map_or(&b""[..], Vec::as_slice);
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        Span {
            name: name.clone(),
            begun_unix_us: ended_unix_us.saturating_sub(us),
            ended_unix_us,
            failure: None,
            attributes: vec![
                ("db.system", "redis".to_owned()),
                ("db.operation", name),
                ("client.address", self.address),
            ],
        }
    }
}

/// One command in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, counted from the start of the server.
    pub id: u64,
    /// When it ran, in seconds since 1970 UTC.
    pub unix_s: u64,
    /// Microseconds or bytes.
    pub value: u64,
    /// Its description.
    pub shown: Shown,
}

/// The latest commands of one subject.
#[derive(Debug, Default)]
pub struct Log {
    /// Newest first.
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl Log {
    /// Adds a command at the front, and drops the oldest ones beyond `entries_max`.
    pub(super) fn add(&mut self, unix_s: u64, value: u64, shown: Shown, entries_max: u64) {
        let id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(Entry {
            id,
            unix_s,
            value,
            shown,
        });
        self.entries
            .truncate(usize::try_from(entries_max).unwrap_or(usize::MAX));
    }

    /// Returns the newest entries, newest first.
    pub fn newest(&self, count: usize) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().take(count)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Drops all entries. Numbering continues.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_numbers_go_on() {
        let mut log = Log::default();
        for value in 0..5 {
            log.add(1, value, Shown::default(), 3);
        }
        let ids = |log: &Log| -> Vec<u64> { log.newest(10).map(|entry| entry.id).collect() };
        assert_eq!(ids(&log), [4, 3, 2]);
        log.clear();
        assert!(log.is_empty());
        log.add(1, 0, Shown::default(), 3);
        assert_eq!(ids(&log), [5]);
        log.add(1, 0, Shown::default(), 0);
        assert!(log.is_empty());
    }
}
