//! Sums of a store's content at a cut, to be compared with those of another server at the same
//! position of one log.
//!
//! ```text
//!   key ─► CRC-64, its upper bits ─► one of 4,096 groups        record ─► 64 bits ─► added to the sum of its group
//! ```
//!
//! A sum does not depend on the order of keys, on the order of members of sets and hashes, or on
//! the encoding of values. Deadlines, etags and consumer groups count. If two servers differ in
//! some groups, the keys of these can be listed with the sums of their records, up to a limit.

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::crc::crc64;
use base::number::IntegerText;
use store::{
    Batch, DatabaseId, Ending, Handle, Saved, SavedValue, SnapshotInProgress, SnapshotLimits,
    SnapshotSink, SnapshotStep, Totals,
};
use structures::Object;

/// Number of groups of keys; each has a sum.
pub const GROUPS: usize = 4_096;
const GROUP_BITS: u32 = GROUPS.ilog2();
/// Maximum bytes of listed keys.
const LISTED_BYTES_MAX: usize = 512 << 10;
/// Buckets that a snapshot walks at a time.
const STEP_BUCKETS: usize = 256;
/// Time that the walk pauses if it cannot continue.
const REST: Duration = Duration::from_micros(500);

/// A listed key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedKey {
    /// Its database.
    pub database: DatabaseId,
    /// The key.
    pub key: Vec<u8>,
    /// The sum of its record.
    pub sum: u64,
}

/// The digest of a store's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The sum of each group.
    pub sums: Vec<u64>,
    /// The keys of the listed groups.
    pub keys: Vec<ListedKey>,
    /// Whether there are more of them.
    pub has_more_keys: bool,
}

/// Returns the group of a key.
#[must_use]
pub fn group_of(key: &[u8]) -> usize {
    usize::try_from(mix(crc64(0, key)) >> (u64::BITS - GROUP_BITS)).unwrap_or(0)
}

/// A digest in progress: its cut was made already.
pub struct Making {
    taken: Arc<Taken>,
}

impl Making {
    /// Makes the cut. Keys of `listed` groups are listed.
    ///
    /// # Errors
    /// If another snapshot is in progress.
    pub fn begin(handle: &mut Handle, listed: &[u16]) -> Result<Self, SnapshotInProgress> {
        let mut lists = vec![false; GROUPS];
        for group in listed {
            if let Some(lists) = lists.get_mut(usize::from(*group)) {
                *lists = true;
            }
        }
        let digest = Digest {
            sums: vec![0; GROUPS],
            ..Digest::default()
        };
        let taken = Arc::new(Taken {
            state: Mutex::new((digest, None)),
            ended: Condvar::new(),
        });
        let sink = Sink {
            taken: Arc::clone(&taken),
            lists,
            listed_bytes: 0,
        };
        handle.begin_snapshot(Box::new(sink), SnapshotLimits::default())?;
        Ok(Self { taken })
    }

    /// Walks through the store until everything is summed; `None` if more was changed meanwhile
    /// than may be held.
    pub fn finish(self, handle: &mut Handle) -> Option<Digest> {
        loop {
            if let (digest, Some(ending)) = &mut *lock(&self.taken.state) {
                return (*ending == Ending::Complete).then(|| std::mem::take(digest));
            }
            match handle.advance_snapshot(STEP_BUCKETS) {
                SnapshotStep::More => {}
                SnapshotStep::Idle | SnapshotStep::Later => {
                    let waited = self.taken.ended.wait_timeout(lock(&self.taken.state), REST);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
        }
    }
}

struct Taken {
    state: Mutex<(Digest, Option<Ending>)>,
    ended: Condvar,
}

struct Sink {
    taken: Arc<Taken>,
    /// Whether each group is listed.
    lists: Vec<bool>,
    listed_bytes: usize,
}

impl SnapshotSink for Sink {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let (digest, _) = &mut *lock(&self.taken.state);
        for saved in batch.records() {
            let (group, sum) = (group_of(saved.key), sum_of(&saved));
            digest.sums[group] = digest.sums[group].wrapping_add(sum);
            if !self.lists[group] {
                continue;
            }
            self.listed_bytes += saved.key.len() + 32;
            if self.listed_bytes > LISTED_BYTES_MAX {
                digest.has_more_keys = true;
                continue;
            }
            digest.keys.push(ListedKey {
                database: saved.database,
                key: saved.key.to_vec(),
                sum,
            });
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, _: &Totals) {
        lock(&self.taken.state).1 = Some(ending);
        self.taken.ended.notify_all();
    }
}

/// Spreads the bits of a sum, so that sums of sums do not cancel each other.
fn mix(sum: u64) -> u64 {
    let sum = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let sum = (sum ^ (sum >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    sum ^ (sum >> 31)
}

/// A sum of ordered items: each one is added after those before.
struct Sum(u64);

impl Sum {
    fn number(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    fn text(&mut self, text: &[u8]) {
        self.number(crc64(0, text));
        self.number(text.len() as u64);
    }

    /// Adds items without an order.
    fn all(&mut self, each: impl Iterator<Item = u64>) {
        self.number(each.fold(0, u64::wrapping_add));
    }
}

fn of(add: impl FnOnce(&mut Sum)) -> u64 {
    let mut sum = Sum(0);
    add(&mut sum);
    mix(sum.0)
}

fn sum_of(saved: &Saved<'_>) -> u64 {
    of(|sum| {
        sum.number(saved.database.into());
        sum.text(saved.key);
        sum.number(saved.deadline_unix_ms.map_or(0, |at| at.wrapping_add(1)));
        sum.number(saved.etag);
        match saved.value {
            SavedValue::Integer(number) => sum.text(IntegerText::new(number).as_bytes()),
            SavedValue::Bytes(bytes) => sum.text(bytes),
            SavedValue::Blob(blob) => {
                let (mut crc, mut length) = (0, 0);
                for chunk in blob.chunks() {
                    crc = crc64(crc, chunk);
                    length += chunk.len() as u64;
                }
                sum.number(crc);
                sum.number(length);
            }
            SavedValue::Object(object) => add_object(sum, object),
            // A value that no readable value's sum equals.
            SavedValue::Unreadable => sum.number(u64::MAX),
        }
    })
}

fn add_object(sum: &mut Sum, object: &Object) {
    match object {
        Object::List(list) => {
            sum.number(1);
            list.for_each(0..list.len(), |element| {
                sum.text(element.text().as_bytes());
            });
        }
        Object::Set(set) => {
            sum.number(2);
            sum.all(
                set.iter()
                    .map(|member| of(|sum| sum.text(member.as_bytes()))),
            );
        }
        Object::SortedSet(set) => {
            sum.number(3);
            sum.all(set.iter().map(|scored| {
                of(|sum| {
                    sum.text(scored.member.as_bytes());
                    // There are two zeros.
                    sum.number((scored.score + 0.0).to_bits());
                })
            }));
        }
        Object::Hash(hash) => {
            sum.number(4);
            // Including expired fields, because the log states their removal.
            sum.all(hash.iter(0).map(|field| {
                of(|sum| {
                    sum.text(field.name.as_bytes());
                    sum.text(field.value.as_bytes());
                    sum.number(field.deadline_unix_ms.map_or(0, |at| at.wrapping_add(1)));
                })
            }));
        }
        Object::Stream(stream) => {
            sum.number(6);
            let last = stream.log().last_id();
            sum.number(last.ms);
            sum.number(last.seq);
            for entry in stream.log().iter() {
                sum.number(entry.id.ms);
                sum.number(entry.id.seq);
                for (field, value) in entry.fields() {
                    sum.text(field.text().as_bytes());
                    sum.text(value.text().as_bytes());
                }
            }
            sum.all(stream.groups().map(|(name, group)| {
                of(|sum| {
                    sum.text(name);
                    sum.number(group.last_delivered().ms);
                    sum.number(group.last_delivered().seq);
                    sum.number(group.pending_count() as u64);
                })
            }));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use testkit::engine_server::TestServer;

    use super::*;

    fn digest(server: &mut TestServer, listed: &[u16]) -> Digest {
        let mut handle = server.another_handle();
        let making = Making::begin(&mut handle, listed).unwrap();
        assert!(Making::begin(&mut handle, &[]).is_err());
        making.finish(&mut handle).unwrap()
    }

    fn made(lines: &[&str]) -> Digest {
        let mut server = TestServer::new();
        for line in lines {
            server.run(line);
        }
        digest(&mut server, &[])
    }

    #[test]
    fn the_way_to_the_data_does_not_matter_and_the_data_does() {
        let one = made(&["SADD s a b 1", "HSET h f 1 g 2", "SET k 12", "ZADD z 0 m"]);
        let other = made(&[
            "SET k 1",
            "APPEND k 2",
            "HSET h g 2",
            "HSET h f 1",
            "SADD s 1 b",
            "SADD s a",
            "ZADD z -0 m",
        ]);
        assert_eq!(one, other);
        assert!(one.sums.iter().any(|sum| *sum != 0));
        // Values that swap places do not cancel each other.
        assert_ne!(made(&["SET a 1", "SET b 2"]), made(&["SET a 2", "SET b 1"]));
        for line in [
            "SET k 13",
            "SADD s c",
            "PEXPIREAT k 99999999999999",
            "DEL h",
            "RPUSH l x",
        ] {
            let lines = [
                "SADD s a b 1",
                "HSET h f 1 g 2",
                "SET k 12",
                "ZADD z 0 m",
                line,
            ];
            assert_ne!(made(&lines), one, "{line}");
        }
    }

    #[test]
    fn keys_of_a_group_are_listed() {
        let mut server = TestServer::new();
        server.run("SET here 1");
        server.run("SET elsewhere 2");
        let group = group_of(b"here");
        assert_ne!(group, group_of(b"elsewhere"));
        let listed = digest(&mut server, &[u16::try_from(group).unwrap(), u16::MAX]);
        let keys: Vec<_> = listed.keys.iter().map(|it| it.key.as_slice()).collect();
        assert_eq!((keys, listed.has_more_keys), (vec![&b"here"[..]], false));
        assert_eq!(listed.sums[group], listed.keys[0].sum);
    }
}
