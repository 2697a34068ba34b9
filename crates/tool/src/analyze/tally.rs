//! Sums over keys, which are added one at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::writes::Writes;

/// Maximum number of distinct prefixes; keys of further prefixes are counted together.
pub(super) const PREFIXES_MAX: usize = 100_000;

/// Rules of counting.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Number of keys that are listed.
    pub(super) top: usize,
    /// Number of parts in a prefix.
    pub(super) depth: usize,
    pub(super) delimiter: Vec<u8>,
}

/// A key.
#[derive(Clone, Debug)]
pub(super) struct Seen<'k> {
    pub(super) database: u32,
    pub(super) key: &'k [u8],
    pub(super) type_name: &'static str,
    pub(super) encoding: &'static str,
    pub(super) bytes: u64,
    pub(super) elements: u64,
    /// Remaining time to live in milliseconds, or `None` without a deadline.
    pub(super) ttl_ms: Option<u64>,
}

/// Number of keys, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) elements: u64,
}

impl Sum {
    fn add(&mut self, seen: &Seen<'_>) {
        self.keys += 1;
        self.bytes = self.bytes.saturating_add(seen.bytes);
        self.elements = self.elements.saturating_add(seen.elements);
    }
}

/// A key that is listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Big {
    /// The rank criterion: bytes or elements.
    pub(super) size: u64,
    pub(super) database: u32,
    pub(super) key: Vec<u8>,
    pub(super) type_name: &'static str,
    pub(super) bytes: u64,
    pub(super) elements: u64,
}

/// The keys with the largest sizes.
#[derive(Clone, Debug, Default)]
struct Top(BinaryHeap<Reverse<Big>>);

impl Top {
    fn offer(&mut self, size: u64, seen: &Seen<'_>, count: usize) {
        let is_full = self.0.len() >= count;
        if is_full
            && self
                .0
                .peek()
                .is_none_or(|Reverse(least)| least.size >= size)
        {
            return;
        }
        if is_full {
            self.0.pop();
        }
        self.0.push(Reverse(Big {
            size,
            database: seen.database,
            key: seen.key.to_vec(),
            type_name: seen.type_name,
            bytes: seen.bytes,
            elements: seen.elements,
        }));
    }

    fn sorted(&self) -> Vec<Big> {
        let mut all: Vec<Big> = self.0.iter().map(|Reverse(big)| big.clone()).collect();
        all.sort_by(|a, b| b.cmp(a));
        all
    }
}

/// Times to live: upper limits in milliseconds, and their names.
pub(super) const SPANS: [(u64, &str); 6] = [
    (60_000, "up to 1 minute"),
    (3_600_000, "up to 1 hour"),
    (86_400_000, "up to 1 day"),
    (7 * 86_400_000, "up to 1 week"),
    (30 * 86_400_000, "up to 30 days"),
    (u64::MAX, "longer"),
];

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    rules: Rules,
    pub(super) total: Sum,
    pub(super) by_type: BTreeMap<&'static str, Sum>,
    pub(super) by_encoding: BTreeMap<(&'static str, &'static str), Sum>,
    pub(super) by_database: BTreeMap<u32, Sum>,
    /// By [`SPANS`]; the last entry is for keys without a deadline.
    pub(super) by_ttl: [Sum; SPANS.len() + 1],
    prefixes: HashMap<Vec<u8>, Sum>,
    /// Keys of prefixes beyond [`PREFIXES_MAX`].
    pub(super) beyond: Sum,
    by_bytes: Top,
    by_elements: Top,
    /// The writes of a log, if there is one.
    pub(super) writes: Option<Writes>,
}

impl Tally {
    /// Returns the counters for a log's writes.
    pub(super) fn writes(&mut self) -> &mut Writes {
        let rules = &self.rules;
        self.writes
            .get_or_insert_with(|| Writes::new(rules.clone()))
    }

    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            total: Sum::default(),
            by_type: BTreeMap::new(),
            by_encoding: BTreeMap::new(),
            by_database: BTreeMap::new(),
            by_ttl: Default::default(),
            prefixes: HashMap::new(),
            beyond: Sum::default(),
            by_bytes: Top::default(),
            by_elements: Top::default(),
            writes: None,
        }
    }

    pub(super) fn add(&mut self, seen: &Seen<'_>) {
        self.total.add(seen);
        self.by_type.entry(seen.type_name).or_default().add(seen);
        let encoding = (seen.type_name, seen.encoding);
        self.by_encoding.entry(encoding).or_default().add(seen);
        self.by_database.entry(seen.database).or_default().add(seen);
        let span = match seen.ttl_ms {
            None => SPANS.len(),
            Some(ttl_ms) => SPANS
                .iter()
                .position(|(most, _)| ttl_ms <= *most)
                .unwrap_or(0),
        };
        self.by_ttl[span].add(seen);
        let prefix = prefix_of(&self.rules, seen.key);
        let is_full = self.prefixes.len() >= PREFIXES_MAX;
        match self.prefixes.get_mut(prefix) {
            Some(sum) => sum.add(seen),
            None if !is_full => {
                let mut sum = Sum::default();
                sum.add(seen);
                self.prefixes.insert(prefix.to_vec(), sum);
            }
            None => self.beyond.add(seen),
        }
        self.by_bytes.offer(seen.bytes, seen, self.rules.top);
        if seen.type_name != "string" {
            self.by_elements.offer(seen.elements, seen, self.rules.top);
        }
    }

    /// Returns prefixes by memory, the largest first.
    pub(super) fn prefixes(&self) -> Vec<(&[u8], Sum)> {
        let mut all: Vec<(&[u8], Sum)> = self
            .prefixes
            .iter()
            .map(|(prefix, sum)| (prefix.as_slice(), *sum))
            .collect();
        all.sort_by(|a, b| (b.1.bytes, a.0).cmp(&(a.1.bytes, b.0)));
        all
    }

    pub(super) fn biggest(&self) -> Vec<Big> {
        self.by_bytes.sorted()
    }

    pub(super) fn longest(&self) -> Vec<Big> {
        self.by_elements.sorted()
    }
}

/// Returns the first parts of a key including the delimiter, or nothing for a key without one.
pub(super) fn prefix_of<'k>(rules: &Rules, key: &'k [u8]) -> &'k [u8] {
    let delimiter = &rules.delimiter;
    let mut end = 0;
    for _ in 0..rules.depth {
        let rest = &key[end..];
        let found = rest
            .windows(delimiter.len())
            .position(|part| part == delimiter);
        match found {
            Some(at) => end += at + delimiter.len(),
            None => break,
        }
    }
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(key: &str, bytes: u64, ttl_ms: Option<u64>) -> Seen<'_> {
        Seen {
            database: 0,
            key: key.as_bytes(),
            type_name: "string",
            encoding: "raw",
            bytes,
            elements: 1,
            ttl_ms,
        }
    }

    fn rules(depth: usize) -> Rules {
        Rules {
            top: 2,
            depth,
            delimiter: b":".to_vec(),
        }
    }

    #[test]
    fn sums_agree() {
        let mut tally = Tally::new(rules(1));
        for (key, bytes, ttl_ms) in [
            ("user:1:name", 10, None),
            ("user:2", 30, Some(1000)),
            ("order:1", 20, Some(u64::MAX)),
            ("plain", 5, Some(86_400_000)),
        ] {
            tally.add(&seen(key, bytes, ttl_ms));
        }
        assert_eq!((tally.total.keys, tally.total.bytes), (4, 65));
        let prefixes = tally.prefixes();
        let names: Vec<&[u8]> = prefixes.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [&b"user:"[..], b"order:", b""]);
        assert_eq!(prefixes[0].1.bytes, 40);
        let spans: Vec<u64> = tally.by_ttl.iter().map(|sum| sum.keys).collect();
        assert_eq!(spans, [1, 0, 1, 0, 0, 1, 1]);
        let biggest: Vec<u64> = tally.biggest().iter().map(|big| big.bytes).collect();
        assert_eq!(biggest, [30, 20]);
        assert!(tally.longest().is_empty());
    }

    #[test]
    fn a_prefix_has_as_many_parts_as_wanted() {
        let rules = rules(2);
        assert_eq!(prefix_of(&rules, b"a:b:c"), b"a:b:");
        assert_eq!(prefix_of(&rules, b"a:b"), b"a:");
        assert_eq!(prefix_of(&rules, b"a"), b"");
    }
}
