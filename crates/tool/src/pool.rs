//! Requests built before the run, so that sending a batch costs the generator little more than the
//! system call: only the digits of the keys are rewritten.
//!
//! ```text
//!   bytes    *3..SET..key:000000000000..$8..xxxxxxxx..*2..GET..key:000000000000..*2..GET..
//!   requests ^─────────────────────────────────────^ ^────────────────────────^ ^───
//!   digits                ^──────────^                        ^──────────^
//!            a batch is `pipeline` requests in a row; the next batch follows it, and so around
//! ```

use base::random::Prng;

use crate::digits::{write_digits, write_last_digits};
use crate::keys::KeyChooser;
use crate::template::{DigitSpan, Filling};
use crate::workload::Workload;

/// Minimum number of requests in a pool, so that a mix has its shares and values have their
/// lengths.
const REQUESTS_MIN: usize = 1024;
/// Bytes of a pool, if fewer requests than [`REQUESTS_MIN`] reach that size: half of a second-level
/// cache.
const POOL_BYTES: usize = 512 * 1024;

/// The requests of one thread.
#[derive(Debug)]
pub(crate) struct RequestPool {
    bytes: Vec<u8>,
    requests: Vec<RequestEnd>,
    digits: Vec<DigitSpan>,
    /// Whether every key is below 10^8, so that digits before the last eight never change.
    has_short_keys: bool,
    keys_per_request: u64,
    /// Index of the next batch.
    next: usize,
    /// Number of requests in a full batch.
    pipeline: usize,
}

/// End of a request in the bytes and among the digits.
#[derive(Clone, Copy, Debug, Default)]
struct RequestEnd {
    bytes: usize,
    digits: usize,
}

impl RequestPool {
    pub(crate) fn new(workload: &Workload, prng: &mut Prng) -> Self {
        let pipeline = workload.pipeline.max(1);
        let mut pool = Self {
            bytes: Vec::new(),
            requests: Vec::new(),
            digits: Vec::new(),
            has_short_keys: workload.key_space <= 100_000_000,
            keys_per_request: 1,
            next: 0,
            pipeline,
        };
        // Adds whole batches, so that the pool exceeds its limits by at most one batch.
        while pool.requests.len() < REQUESTS_MIN.max(pipeline)
            && (pool.requests.len() < pipeline || pool.bytes.len() < POOL_BYTES)
        {
            (0..pipeline).for_each(|_| pool.push(workload, prng));
        }
        pool.keys_per_request = pool
            .requests
            .first()
            .map_or(1, |end| end.digits as u64)
            .max(1);
        pool
    }

    fn push(&mut self, workload: &Workload, prng: &mut Prng) {
        let data = random_text(value_length(workload, prng), prng);
        let filling = Filling {
            key_bytes: workload.key_bytes,
            data: &data,
        };
        let total: u64 = workload
            .mix
            .iter()
            .map(|(_, weight)| u64::from(*weight))
            .sum();
        let mut chosen = prng.below(total);
        for (template, weight) in &workload.mix {
            match chosen.checked_sub(u64::from(*weight)) {
                Some(rest) => chosen = rest,
                None => {
                    template.encode(&filling, &mut self.bytes, &mut self.digits);
                    break;
                }
            }
        }
        self.requests.push(RequestEnd {
            bytes: self.bytes.len(),
            digits: self.digits.len(),
        });
    }

    /// Returns the next batch, of `count` requests or a full batch if that is fewer, with new keys.
    /// `first` is the number of requests that all threads sent before it.
    pub(crate) fn next_batch(&mut self, count: usize, first: u64, keys: &mut KeyChooser) -> &[u8] {
        let start = match self.next.checked_sub(1) {
            Some(before) => self.requests[before],
            None => RequestEnd::default(),
        };
        let end = self.requests[self.next + count.clamp(1, self.pipeline) - 1];
        self.next += self.pipeline;
        if self.next >= self.requests.len() {
            self.next = 0;
        }
        keys.start_at(first * self.keys_per_request);
        let write = if self.has_short_keys {
            write_last_digits
        } else {
            write_digits
        };
        for span in &self.digits[start.digits..end.digits] {
            let number = span.number(keys.next_key());
            write(&mut self.bytes[span.start..span.end], number);
        }
        &self.bytes[start.bytes..end.bytes]
    }
}

fn value_length(workload: &Workload, prng: &mut Prng) -> usize {
    let lengths = workload.value_bytes;
    lengths.min + prng.index(lengths.max.saturating_sub(lengths.min) + 1)
}

/// Returns random letters, which compress a little and never look like a number.
fn random_text(bytes: usize, prng: &mut Prng) -> Vec<u8> {
    let mut text = vec![0; bytes];
    prng.fill(&mut text);
    for byte in &mut text {
        *byte = b'A' + *byte % 26;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyOrder, Keys};
    use crate::template::Template;
    use crate::workload::ValueBytes;

    /// Decodes the requests in `bytes` into words.
    fn decoded(bytes: &[u8]) -> Vec<Vec<String>> {
        let mut requests = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (value, used) = protocol::decode_value(rest).unwrap().unwrap();
            let protocol::Value::Array(words) = value else {
                panic!("{value:?}")
            };
            let text = |word| match word {
                protocol::Value::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
                other => panic!("{other:?}"),
            };
            requests.push(words.into_iter().map(text).collect());
            rest = &rest[used..];
        }
        requests
    }

    fn chooser(workload: &Workload) -> KeyChooser {
        Keys::new(workload.key_space, workload.key_order, 1).chooser(1)
    }

    #[test]
    fn a_mix_has_its_shares_and_values_their_lengths() {
        let workload = Workload {
            mix: Workload::set_get_mix(1, 9),
            value_bytes: ValueBytes { min: 50, max: 149 },
            key_space: 1_000_000,
            pipeline: 16,
            ..Workload::default()
        };
        let mut pool = RequestPool::new(&workload, &mut Prng::seeded(1));
        let mut keys = chooser(&workload);
        let (mut sets, mut distinct) = (Vec::new(), std::collections::HashSet::new());
        for _ in 0..640 {
            let requests = decoded(pool.next_batch(16, 0, &mut keys));
            assert_eq!(requests.len(), 16);
            for request in requests {
                distinct.insert(request[1].clone());
                sets.extend(request.get(2).map(String::len));
            }
        }
        assert!((700..1_400).contains(&sets.len()), "{}", sets.len());
        assert!(sets.iter().all(|length| (50..=149).contains(length)));
        assert!(distinct.len() > 10_000, "{}", distinct.len());
    }

    #[test]
    fn sequential_batches_cover_each_key_once() {
        let workload = Workload {
            mix: vec![(Template::new(&["SET", "__key__", "__data__"]), 1)],
            key_space: 2_500,
            key_order: KeyOrder::Sequential,
            pipeline: 100,
            ..Workload::default()
        };
        let mut pool = RequestPool::new(&workload, &mut Prng::seeded(1));
        let mut keys = chooser(&workload);
        let mut seen = Vec::new();
        for first in (0..2_450_u64).step_by(100) {
            let count = usize::try_from(2_450 - first).unwrap();
            seen.extend(decoded(pool.next_batch(count, first, &mut keys)));
        }
        let expected = (0..2_450).map(|key| format!("key:{key:012}"));
        assert!(seen.iter().map(|request| request[1].clone()).eq(expected));
    }

    #[test]
    fn a_batch_larger_than_a_pool_is_one_pool() {
        let workload = Workload {
            mix: Workload::set_get_mix(1, 0),
            value_bytes: ValueBytes::exactly(2_000),
            pipeline: 3_000,
            ..Workload::default()
        };
        let mut pool = RequestPool::new(&workload, &mut Prng::seeded(1));
        let mut keys = chooser(&workload);
        for _ in 0..2 {
            assert_eq!(decoded(pool.next_batch(9_999, 0, &mut keys)).len(), 3_000);
        }
    }
}
