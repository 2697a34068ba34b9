//! LZF: the compression of long texts.
//!
//! ```text
//!   000lllll + data             the next l + 1 bytes as they are
//!   lllooooo oooooooo           l + 2 bytes again, from o + 1 bytes before (l from 1 to 6)
//!   111ooooo llllllll oooooooo  l + 9 bytes again
//! ```
//!
//! The compressor looks up the last position with the same three bytes in a hash table, and uses
//! the repetition that it finds there. Any expander reads its output, but another compressor may
//! produce other bytes for the same text.
//!
//! Source of the format: Marc Lehmann's liblzf.

/// Maximum length of a run of literal bytes.
const RUN_MAX: usize = 32;
/// Minimum length of a repetition …
const REPEAT_MIN: usize = 3;
/// … its maximum length,
const REPEAT_MAX: usize = 264;
/// and its maximum distance.
const DISTANCE_MAX: usize = 8192;
/// The minimum length that takes another byte.
const REPEAT_LONG: usize = 9;

/// Bits of the largest and of the smallest hash table.
const TABLE_BITS_MAX: u32 = 14;
const TABLE_BITS_MIN: u32 = 8;
/// After so many bytes without a repetition the compressor checks fewer positions.
const HASTE_SHIFT: u32 = 6;

/// Returns the length to which `packed` expands, or `None` if it is incomplete.
#[must_use]
pub fn expanded_len(packed: &[u8]) -> Option<usize> {
    let (mut rest, mut len) = (packed, 0_usize);
    while let Some(part) = next_part(&mut rest)? {
        len = match part {
            Part::Run(run) => len.checked_add(run.len())?,
            Part::Repeat {
                distance,
                len: more,
            } => {
                if distance > len {
                    return None;
                }
                len.checked_add(more)?
            }
        };
    }
    Some(len)
}

/// Returns the `len` bytes to which `packed` expands, or `None` if their number differs.
///
/// Allocates only after checking the length.
#[must_use]
pub fn expand(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    if expanded_len(packed)? != len {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    let mut rest = packed;
    while let Some(part) = next_part(&mut rest)? {
        match part {
            Part::Run(run) => out.extend_from_slice(run),
            Part::Repeat { distance, len } => {
                let start = out.len().checked_sub(distance)?;
                // A repetition may overlap its own output: then it is copied piece by piece.
                let mut left = len;
                while left > 0 {
                    let piece = left.min(out.len() - start);
                    out.extend_from_within(start..start + piece);
                    left -= piece;
                }
            }
        }
    }
    Some(out)
}

enum Part<'a> {
    Run(&'a [u8]),
    Repeat { distance: usize, len: usize },
}

/// Returns the next part of a compressed text: `Some(None)` at its end, or `None` if it is
/// incomplete.
#[allow(clippy::option_option, reason = "an end is no error")]
fn next_part<'a>(rest: &mut &'a [u8]) -> Option<Option<Part<'a>>> {
    let Some((&head, behind)) = rest.split_first() else {
        return Some(None);
    };
    let length = usize::from(head >> 5);
    if length == 0 {
        let (run, behind) = behind.split_at_checked(usize::from(head) + 1)?;
        *rest = behind;
        return Some(Some(Part::Run(run)));
    }
    let (more, behind) = match length {
        7 => behind.split_first().map(|(more, rest)| (*more, rest))?,
        _ => (0, behind),
    };
    let (low, behind) = behind.split_first()?;
    *rest = behind;
    Some(Some(Part::Repeat {
        distance: (usize::from(head & 0x1f) << 8 | usize::from(*low)) + 1,
        len: length + usize::from(more) + 2,
    }))
}

/// Compresses `text`, if the result takes at most `bytes_max` bytes. O(n).
#[must_use]
pub fn compress(text: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut writer = Compressor::new(text, bytes_max)?;
    let (mut at, mut misses) = (0, 0_usize);
    while at + REPEAT_MIN <= text.len() {
        match writer.find(at) {
            Some((distance, len)) => {
                writer.repeat(at, distance, len)?;
                at += len;
                misses = 0;
            }
            None => {
                at += 1 + (misses >> HASTE_SHIFT);
                misses += 1;
            }
        }
    }
    writer.runs_to(text.len())?;
    Some(writer.out)
}

struct Compressor<'a> {
    text: &'a [u8],
    out: Vec<u8>,
    bytes_max: usize,
    /// Up to where the text has been written.
    written: usize,
    /// By the hash of three bytes: their last position plus one.
    table: Vec<u32>,
    shift: u32,
}

impl<'a> Compressor<'a> {
    fn new(text: &'a [u8], bytes_max: usize) -> Option<Self> {
        u32::try_from(text.len()).ok()?;
        let bits = text.len().max(1).ilog2();
        let bits = bits.clamp(TABLE_BITS_MIN, TABLE_BITS_MAX);
        Some(Self {
            text,
            out: Vec::new(),
            bytes_max,
            written: 0,
            table: vec![0; 1 << bits],
            shift: u32::BITS - bits,
        })
    }

    /// Returns distance and length of a repetition that begins at `at`.
    #[inline]
    fn find(&mut self, at: usize) -> Option<(usize, usize)> {
        let here = &self.text[at..];
        let before = self.remember(at)?;
        let distance = at - before;
        let there = &self.text[before..];
        if distance > DISTANCE_MAX || here[..REPEAT_MIN] != there[..REPEAT_MIN] {
            return None;
        }
        let pairs = here.iter().zip(there).take(REPEAT_MAX);
        let len = pairs.take_while(|(one, other)| one == other).count();
        Some((distance, len))
    }

    /// Stores the position of the three bytes at `at`. Returns a possible earlier position of them.
    #[inline]
    fn remember(&mut self, at: usize) -> Option<usize> {
        let [one, two, three] = *self.text[at..].first_chunk()?;
        let word = u32::from_le_bytes([one, two, three, 0]);
        // Multiplication by a prime near 2^32 divided by the golden ratio.
        let hash = word.wrapping_mul(2_654_435_761) >> self.shift;
        let slot = &mut self.table[hash as usize];
        let before = std::mem::replace(slot, u32::try_from(at + 1).ok()?);
        (before as usize).checked_sub(1)
    }

    /// Writes the text before `at`, and the repetition there. Returns `None` if the output gets too
    /// long.
    fn repeat(&mut self, at: usize, distance: usize, len: usize) -> Option<()> {
        self.runs_to(at)?;
        let back = u16::try_from(distance - 1).ok()?;
        let [high, low] = back.to_be_bytes();
        if len < REPEAT_LONG {
            let length = u8::try_from(len - 2).ok()?;
            self.out.extend_from_slice(&[length << 5 | high, low]);
        } else {
            let more = u8::try_from(len - REPEAT_LONG).ok()?;
            self.out.extend_from_slice(&[7 << 5 | high, more, low]);
        }
        self.written = at + len;
        // The end of a repetition is the likeliest start of the next.
        self.remember(self.written - 1);
        self.remember(self.written - 2);
        (self.out.len() <= self.bytes_max).then_some(())
    }

    /// Writes the text up to `end` literally. Returns `None` if the output gets too long.
    fn runs_to(&mut self, end: usize) -> Option<()> {
        for run in self.text[self.written..end].chunks(RUN_MAX) {
            self.out.push(u8::try_from(run.len() - 1).ok()?);
            self.out.extend_from_slice(run);
        }
        self.written = end;
        (self.out.len() <= self.bytes_max).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use base::random::Prng;
    use proptest::prelude::*;

    use super::*;

    /// Expands byte by byte, as the format is described.
    fn naive_expand(packed: &[u8]) -> Option<Vec<u8>> {
        let (mut at, mut out) = (0, Vec::<u8>::new());
        while at < packed.len() {
            let head = usize::from(packed[at]);
            at += 1;
            if head < 32 {
                for _ in 0..=head {
                    out.push(*packed.get(at)?);
                    at += 1;
                }
                continue;
            }
            let mut len = (head >> 5) + 2;
            if len == 9 {
                len += usize::from(*packed.get(at)?);
                at += 1;
            }
            let distance = ((head & 31) << 8) + usize::from(*packed.get(at)?) + 1;
            at += 1;
            for _ in 0..len {
                let from = out.len().checked_sub(distance)?;
                out.push(out[from]);
            }
        }
        Some(out)
    }

    fn round(text: &[u8]) -> Option<usize> {
        let packed = compress(text, usize::MAX).unwrap();
        assert_eq!(naive_expand(&packed).as_deref(), Some(text));
        assert_eq!(expand(&packed, text.len()).as_deref(), Some(text));
        assert!(
            compress(text, packed.len() - usize::from(!packed.is_empty())).is_none()
                || packed.is_empty()
        );
        Some(packed.len())
    }

    #[test]
    fn repetitions_take_little() {
        assert!(round(&[b'a'; 100]).unwrap() < 10);
        assert!(round(&[b'a'; 1 << 20]).unwrap() < (1 << 20) / 80);
        let text = b"the same words, and again the same words, and again".repeat(50);
        assert!(round(&text).unwrap() < text.len() / 10);
        let mut random = Prng::seeded(1);
        let mut noise = vec![0; 100_000];
        random.fill(&mut noise);
        assert!(compress(&noise, noise.len() - 4).is_none());
        round(&noise);
        // Repetitions just out of reach, and just within.
        let far = [&noise[..DISTANCE_MAX], &noise[..DISTANCE_MAX]].concat();
        assert!(round(&far).unwrap() < DISTANCE_MAX + 1000);
        let farther = [&noise[..DISTANCE_MAX + 1], &noise[..DISTANCE_MAX + 1]].concat();
        assert!(round(&farther).unwrap() > 2 * DISTANCE_MAX);
    }

    #[test]
    fn a_length_that_is_not_so_is_refused_before_memory_is_taken() {
        let packed = compress(&[b'a'; 1000], usize::MAX).unwrap();
        for len in [0, 999, 1001, 1 << 40, usize::MAX] {
            assert!(expand(&packed, len).is_none(), "{len}");
        }
        for bad in [
            &b"\x20\x00"[..],
            b"\x00a\x20\x01",
            b"\x05a",
            b"\xe0",
            b"\xe0\x00",
            b"\x00a\x3f\xff",
        ] {
            assert!(expanded_len(bad).is_none());
        }
        assert_eq!(expand(b"\x00a\xe0\xff\x00", 265), Some(vec![b'a'; 265]));
    }

    proptest! {
        #[test]
        fn texts_come_back(text: Vec<u8>, alphabet in 1_u8..=255) {
            round(&text);
            let few: Vec<u8> = text.iter().map(|byte| byte % alphabet).collect();
            round(&few);
        }

        #[test]
        fn strangers_bytes_expand_as_described(packed in prop::collection::vec(prop_oneof![0_u8..4, 32_u8..40, any::<u8>()], 0..60)) {
            let naive = naive_expand(&packed);
            prop_assert_eq!(expanded_len(&packed), naive.as_ref().map(Vec::len));
            if let Some(naive) = naive {
                prop_assert_eq!(expand(&packed, naive.len()), Some(naive));
            }
        }
    }
}
