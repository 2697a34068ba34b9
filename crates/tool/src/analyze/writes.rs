//! Sums over the commands of a log: what was written, and to which keys. The parts of a command are
//! added one at a time.
//!
//! The log is not replayed: the final contents of keys would take as much memory as a server. A
//! bounded number of counters finds the keys that are written most; when it is reached, the smaller
//! half is dropped. So rarely written keys may be missed, and a key's count begins when its counter
//! was last created.

use std::collections::{BTreeMap, HashMap};

use super::tally::{PREFIXES_MAX, Rules, prefix_of};

/// Maximum number of keys counted at a time.
const COUNTERS_MAX: usize = 20_000;
/// Maximum number of distinct command names; other commands are counted together.
const NAMES_MAX: usize = 1_000;
/// The name for the other commands.
const OTHER: &str = "(other)";
/// Maximum number of bytes of a part that are used: longer keys are cut off.
pub(super) const HEAD_BYTES_MAX: usize = 1_024;
/// Maximum number of distinct keys of one command.
const KEYS_MAX: usize = 1_000;

/// Number of commands, and their bytes in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) writes: u64,
    pub(super) bytes: u64,
}

impl Written {
    fn add(&mut self, bytes: u64) {
        self.writes += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Positions of a command's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// No keys.
    None,
    /// One key at this position.
    At(usize),
    /// All parts from this position on.
    All,
    /// Every second part.
    Pairs,
    /// As many parts behind this position as it states.
    Counted(usize),
}

/// Commands in logs whose keys are not just the first part.
const PLACES: [(&str, Keys); 24] = [
    ("SELECT", Keys::None),
    ("MULTI", Keys::None),
    ("EXEC", Keys::None),
    ("FLUSHALL", Keys::None),
    ("FLUSHDB", Keys::None),
    ("SWAPDB", Keys::None),
    ("SCRIPT", Keys::None),
    ("FUNCTION", Keys::None),
    ("PUBLISH", Keys::None),
    ("SPUBLISH", Keys::None),
    ("DEL", Keys::All),
    ("UNLINK", Keys::All),
    ("MSET", Keys::Pairs),
    ("MSETNX", Keys::Pairs),
    ("MSETEX", Keys::Counted(1)),
    ("XGROUP", Keys::At(2)),
    ("BITOP", Keys::At(2)),
    ("EVAL", Keys::Counted(2)),
    ("EVALSHA", Keys::Counted(2)),
    ("FCALL", Keys::Counted(2)),
    ("LMPOP", Keys::Counted(1)),
    ("ZMPOP", Keys::Counted(1)),
    ("PFMERGE", Keys::All),
    ("RENAME", Keys::All),
];

/// The command that is being added.
#[derive(Clone, Debug, Default)]
struct Current {
    name: String,
    keys: Option<Keys>,
    /// The number that [`Keys::Counted`] refers to.
    counted: usize,
    found: Vec<Vec<u8>>,
    found_count: u64,
    bytes: u64,
    /// Position of the next part.
    at: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Writes {
    rules: Rules,
    current: Current,
    database: u32,
    pub(super) total: Written,
    by_command: BTreeMap<String, Written>,
    pub(super) by_database: BTreeMap<u32, Written>,
    prefixes: HashMap<Vec<u8>, Written>,
    /// Keys of prefixes beyond [`PREFIXES_MAX`].
    pub(super) beyond: Written,
    keys: HashMap<(u32, Vec<u8>), Written>,
}

impl Writes {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            current: Current::default(),
            database: 0,
            total: Written::default(),
            by_command: BTreeMap::new(),
            by_database: BTreeMap::new(),
            prefixes: HashMap::new(),
            beyond: Written::default(),
            keys: HashMap::new(),
        }
    }

    /// Sets the database of the following commands.
    pub(super) fn select(&mut self, database: u32) {
        self.database = database;
    }

    /// Begins a command.
    pub(super) fn begin(&mut self) {
        self.current = Current::default();
    }

    /// Adds the next part of the command, by its head and its total length. At most
    /// [`HEAD_BYTES_MAX`] of a key are kept.
    pub(super) fn part(&mut self, head: &[u8], len: u64) {
        let current = &mut self.current;
        let at = current.at;
        current.at += 1;
        current.bytes = current.bytes.saturating_add(len);
        let text = || String::from_utf8_lossy(head).into_owned();
        if at == 0 {
            current.name = text().to_ascii_uppercase();
            let placed = PLACES.iter().find(|(name, _)| *name == current.name);
            current.keys = Some(placed.map_or(Keys::At(1), |(_, keys)| *keys));
            return;
        }
        if at == 1 && current.name == "SELECT" {
            self.database = text().parse().unwrap_or(self.database);
        }
        let is_key = match current.keys {
            None | Some(Keys::None) => false,
            Some(Keys::At(place)) => at == place,
            Some(Keys::All) => true,
            Some(Keys::Pairs) => at % 2 == 1,
            Some(Keys::Counted(place)) if at == place => {
                current.counted = text().parse().unwrap_or(0);
                false
            }
            // Keys and values of MSETEX alternate.
            Some(Keys::Counted(place)) if current.name == "MSETEX" => {
                at > place && at - place <= current.counted * 2 && (at - place) % 2 == 1
            }
            Some(Keys::Counted(place)) => at > place && at - place <= current.counted,
        };
        if is_key {
            current.found_count += 1;
            if current.found.len() < KEYS_MAX {
                current
                    .found
                    .push(head[..head.len().min(HEAD_BYTES_MAX)].to_vec());
            }
        }
    }

    /// Ends the command.
    pub(super) fn end(&mut self) {
        let current = std::mem::take(&mut self.current);
        // Commands that only say how to read the others are not writes.
        if matches!(current.name.as_str(), "" | "SELECT" | "MULTI" | "EXEC") {
            return;
        }
        self.total.add(current.bytes);
        self.by_database
            .entry(self.database)
            .or_default()
            .add(current.bytes);
        let is_full = self.by_command.len() >= NAMES_MAX;
        let name = match is_full && !self.by_command.contains_key(&current.name) {
            true => OTHER.to_owned(),
            false => current.name,
        };
        self.by_command.entry(name).or_default().add(current.bytes);
        let share = current.bytes / current.found_count.max(1);
        for key in current.found {
            self.count(key, share);
        }
    }

    fn count(&mut self, key: Vec<u8>, bytes: u64) {
        let prefix = prefix_of(&self.rules, &key);
        let is_full = self.prefixes.len() >= PREFIXES_MAX;
        match self.prefixes.get_mut(prefix) {
            Some(written) => written.add(bytes),
            None if is_full => self.beyond.add(bytes),
            None => {
                let written = Written { writes: 1, bytes };
                self.prefixes.insert(prefix.to_vec(), written);
            }
        }
        if self.keys.len() >= COUNTERS_MAX {
            self.make_room();
        }
        self.keys
            .entry((self.database, key))
            .or_default()
            .add(bytes);
    }

    /// Forgets the half of the keys with the fewest bytes written.
    fn make_room(&mut self) {
        let mut sizes: Vec<u64> = self.keys.values().map(|written| written.bytes).collect();
        let (_, middle, _) = sizes.select_nth_unstable(COUNTERS_MAX / 2);
        let middle = *middle;
        self.keys.retain(|_, written| written.bytes > middle);
    }

    /// Returns commands by their bytes, the largest first.
    pub(super) fn commands(&self) -> Vec<(&str, Written)> {
        let named = self.by_command.iter();
        sorted(named.map(|(name, written)| (name.as_str(), *written)))
    }

    /// Returns prefixes by bytes written, the largest first.
    pub(super) fn prefixes(&self) -> Vec<(&[u8], Written)> {
        let named = self.prefixes.iter();
        sorted(named.map(|(prefix, written)| (prefix.as_slice(), *written)))
    }

    /// Returns the keys that were written most, with their databases.
    pub(super) fn most_written(&self) -> Vec<((u32, &[u8]), Written)> {
        let named = self.keys.iter();
        let named = named.map(|((database, key), written)| ((*database, key.as_slice()), *written));
        let mut most = sorted(named);
        most.truncate(self.rules.top);
        most
    }
}

fn sorted<N: Ord>(all: impl Iterator<Item = (N, Written)>) -> Vec<(N, Written)> {
    let mut all: Vec<(N, Written)> = all.collect();
    all.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes() -> Writes {
        Writes::new(Rules {
            top: 2,
            depth: 1,
            delimiter: b":".to_vec(),
        })
    }

    fn see(writes: &mut Writes, line: &str) {
        writes.begin();
        for word in line.split(' ') {
            writes.part(word.as_bytes(), word.len() as u64);
        }
        writes.end();
    }

    #[test]
    fn commands_are_counted_by_their_keys() {
        let mut writes = writes();
        for line in [
            "SELECT 3",
            "set a:1 xxxxxxxxxx",
            "MSET a:1 x b:1 y",
            "DEL a:1 b:2",
            "XGROUP CREATE c:1 g 0",
            "EVALSHA sha 2 d:1 d:2 argument",
            "MSETEX 2 e:1 v e:2 w EX 5",
            "FLUSHALL",
        ] {
            see(&mut writes, line);
        }
        let prefixes = writes.prefixes();
        let mut counts: Vec<(&[u8], u64)> = prefixes
            .iter()
            .map(|(name, of)| (*name, of.writes))
            .collect();
        counts.sort_unstable();
        let expected: [(&[u8], u64); 5] =
            [(b"a:", 3), (b"b:", 2), (b"c:", 1), (b"d:", 2), (b"e:", 2)];
        assert_eq!(counts, expected);
        assert_eq!(writes.total.writes, 7);
        assert_eq!(writes.by_database.keys().collect::<Vec<_>>(), [&3]);
        assert!(
            writes
                .commands()
                .iter()
                .any(|(name, of)| *name == "SET" && of.bytes == 16)
        );
        assert_eq!(writes.most_written()[0].0, (3, &b"a:1"[..]));
        assert_eq!(writes.most_written().len(), 2);
    }

    #[test]
    fn a_key_that_is_written_most_is_found_among_many() {
        let mut writes = writes();
        for number in 0..50_000 {
            see(&mut writes, &format!("SET k:{number} x"));
            if number % 10 == 0 {
                see(
                    &mut writes,
                    "SET hot xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                );
            }
        }
        assert!(writes.keys.len() <= COUNTERS_MAX);
        assert_eq!(writes.most_written()[0].0, (0, &b"hot"[..]));
        assert_eq!(writes.most_written()[0].1.writes, 5_000);
    }
}
