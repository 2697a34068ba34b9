//! What was to be kept, and what was promised of it: kept outside of the device.

use std::collections::BTreeMap;

/// One change of a key. Values are never reused, so that an old value cannot pass for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Set(u8, u64),
    Delete(u8),
}

impl Change {
    /// Returns the words of its command.
    pub(crate) fn words(self) -> Vec<Vec<u8>> {
        match self {
            // The body is long, because a change of several sectors is torn in more ways than a
            // short one.
            Self::Set(key, value) => {
                vec![b"SET".to_vec(), key.to_string().into_bytes(), body(value)]
            }
            Self::Delete(key) => vec![b"DEL".to_vec(), key.to_string().into_bytes()],
        }
    }
}

/// Returns a value's bytes, which follow from it: a few, or several sectors of them.
pub(crate) fn body(value: u64) -> Vec<u8> {
    const LENGTHS: [usize; 5] = [8, 60, 400, 1_500, 6_000];
    let text = format!("{value}.");
    let kind = usize::try_from(value).unwrap() % LENGTHS.len();
    text.bytes().cycle().take(LENGTHS[kind]).collect()
}

/// The values of all keys.
pub(crate) type State = BTreeMap<u8, u64>;

pub(crate) fn apply(state: &mut State, changes: &[Change]) {
    for change in changes {
        match *change {
            Change::Set(key, value) => state.insert(key, value),
            Change::Delete(key) => state.remove(&key),
        };
    }
}

/// A frame that was appended.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) changes: Vec<Change>,
    unix_ms: u64,
}

/// All frames appended since the first write, except those that were rightly lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Entry>,
    /// Everything below was promised to survive a power cut.
    pub(crate) durable: u64,
    /// Everything below was promised to survive the end of the process.
    pub(crate) written: u64,
    pub(crate) frames_lost: u64,
    /// Maximum time from the first to the last frame that a power cut lost.
    pub(crate) window_ms: u64,
    next_value: u64,
}

impl Ledger {
    /// Returns a value that was never used.
    pub(crate) fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    /// Returns the sequence of the next frame.
    pub(crate) fn end(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    pub(crate) fn add(&mut self, end: u64, changes: Vec<Change>, unix_ms: u64) {
        let start = self.end();
        assert!(start < end, "sequences grow");
        self.entries.push(Entry {
            start,
            end,
            changes,
            unix_ms,
        });
    }

    /// Returns the entries from a sequence on, which must be the start of an entry, or the end.
    pub(crate) fn from(&self, sequence: u64) -> &[Entry] {
        let index = self.entries.partition_point(|entry| entry.start < sequence);
        let start = self
            .entries
            .get(index)
            .map_or_else(|| self.end(), |entry| entry.start);
        assert_eq!(start, sequence, "no frame begins there");
        &self.entries[index..]
    }

    /// Returns the values of all keys when the log ended at `sequence`.
    pub(crate) fn state_at(&self, sequence: u64) -> State {
        let mut state = State::new();
        let later = self.from(sequence).len();
        for entry in &self.entries[..self.entries.len() - later] {
            apply(&mut state, &entry.changes);
        }
        state
    }

    /// Sets the end of the log: everything behind it is lost.
    pub(crate) fn ends_at(&mut self, sequence: u64) {
        let lost = self.from(sequence);
        let window_ms = match lost {
            [first, .., last] => last.unix_ms - first.unix_ms,
            _ => 0,
        };
        let lost = lost.len();
        self.window_ms = self.window_ms.max(window_ms);
        self.entries.truncate(self.entries.len() - lost);
        self.frames_lost += lost as u64;
    }

    /// Withdraws the promises that did not cover a power cut.
    pub(crate) fn power_was_cut(&mut self) {
        self.written = self.durable;
    }
}
