//! What was asked to be kept, and what was promised of it: held outside of the device.

use std::collections::BTreeMap;

/// One change of a key. Values are never used twice, so that nothing old can pass for something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Set(u8, u64),
    Delete(u8),
}

impl Change {
    /// The words of its command.
    pub(crate) fn words(self) -> Vec<Vec<u8>> {
        match self {
            // As long as that: a change of several sectors is torn in more ways than a short one.
            Self::Set(key, value) => {
                vec![b"SET".to_vec(), key.to_string().into_bytes(), body(value)]
            }
            Self::Delete(key) => vec![b"DEL".to_vec(), key.to_string().into_bytes()],
        }
    }
}

/// A value's bytes, which follow from it: a few, or several sectors of them.
pub(crate) fn body(value: u64) -> Vec<u8> {
    const LENGTHS: [usize; 5] = [8, 60, 400, 1_500, 6_000];
    let text = format!("{value}.");
    let kind = usize::try_from(value).unwrap() % LENGTHS.len();
    text.bytes().cycle().take(LENGTHS[kind]).collect()
}

/// What all keys hold.
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

/// Everything that was appended since the first write ever, but for what was rightly lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Entry>,
    /// Everything below was promised to outlive a power cut.
    pub(crate) durable: u64,
    /// Everything below was promised to outlive the end of the process.
    pub(crate) written: u64,
    pub(crate) frames_lost: u64,
    /// From the first to the last frame that a power cut took, at most.
    pub(crate) window_ms: u64,
    next_value: u64,
}

impl Ledger {
    /// A value that was never used.
    pub(crate) fn value(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    /// The sequence of the next frame.
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

    /// The entries from a sequence on, which must be the beginning of one, or the end.
    pub(crate) fn from(&self, sequence: u64) -> &[Entry] {
        let index = self.entries.partition_point(|entry| entry.start < sequence);
        let start = self
            .entries
            .get(index)
            .map_or_else(|| self.end(), |entry| entry.start);
        assert_eq!(start, sequence, "no frame begins there");
        &self.entries[index..]
    }

    /// What all keys held when the log was so long.
    pub(crate) fn state_at(&self, sequence: u64) -> State {
        let mut state = State::new();
        let later = self.from(sequence).len();
        for entry in &self.entries[..self.entries.len() - later] {
            apply(&mut state, &entry.changes);
        }
        state
    }

    /// This is where the log ends now: what was behind is lost.
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

    /// Promises that held until then hold no more.
    pub(crate) fn power_was_cut(&mut self) {
        self.written = self.durable;
    }
}
