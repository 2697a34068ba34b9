//! Checksums that are part of an interface: cluster slots, the RDB format, and frames of the log.
//!
//! None resists an adversary. The first two use tables made at compile time, the last uses
//! processor instructions.

use crate::sync::atomic::AtomicU64;

/// Computes the CRC-16/XMODEM that assigns keys to cluster slots: polynomial 0x1021, initially 0.
/// Eight bytes per step.
#[inline]
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    static TABLES: [[u16; 256]; 8] = crc16_tables();
    let (eights, rest) = bytes.as_chunks::<8>();
    let crc = eights.iter().fold(0, |crc: u16, eight| {
        let [high, low] = crc.to_be_bytes();
        let [first, second, others @ ..] = *eight;
        // Seven bytes follow the first one, so it uses the table of seven zero bytes.
        let whole = TABLES[7][usize::from(first ^ high)] ^ TABLES[6][usize::from(second ^ low)];
        let tables = TABLES[..6].iter().rev();
        others
            .iter()
            .zip(tables)
            .fold(whole, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    });
    rest.iter().fold(crc, |crc, &byte| {
        let [high, low] = crc.to_be_bytes();
        u16::from_be_bytes([low, 0]) ^ TABLES[0][usize::from(high ^ byte)]
    })
}

/// Computes the CRC-64/Jones of `bytes`, continuing from `crc` (0 at the start).
///
/// Polynomial 0xad93d23594c935a9, reflected, no final inversion: the checksum at the end of RDB
/// files and DUMP payloads. Eight bytes per step.
#[must_use]
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    static TABLES: [[u64; 256]; 8] = crc64_tables();
    let (eights, rest) = bytes.as_chunks::<8>();
    let crc = eights.iter().fold(crc, |crc, eight| {
        let word = (crc ^ u64::from_le_bytes(*eight)).to_le_bytes();
        // Seven bytes follow the first one, so it uses the table of seven zero bytes.
        word.iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    });
    rest.iter().fold(crc, |crc, &byte| {
        let [low, ..] = crc.to_le_bytes();
        TABLES[0][usize::from(low ^ byte)] ^ (crc >> 8)
    })
}

/// Computes the CRC-32C (Castagnoli) of whole words followed by `last`, all ones at the start and
/// inverted at the end. `None` if the processor has no instruction for it.
///
/// The instruction takes three cycles per word, but one cycle per word for sums that do not depend
/// on each other. So three parts of the words are summed in parallel, and one carry-less
/// multiplication each moves the first two behind the third: for pieces of some hundred bytes.
///
/// Source: V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011.
#[inline]
#[must_use]
pub fn crc32c_of_words(words: &[[u8; 8]], last: [u8; 8]) -> Option<u32> {
    by_instruction(words, &[(); usize::MAX][..words.len()], last)
}

/// Like [`crc32c_of_words`], but also stores each word except `last` in a place, relaxed, with its
/// bytes in memory order. There are as many places as words.
///
/// # Panics
/// If the numbers of places and words differ.
#[inline]
#[must_use]
pub fn crc32c_of_stored_words(
    words: &[[u8; 8]],
    places: &[AtomicU64],
    last: [u8; 8],
) -> Option<u32> {
    assert_eq!(words.len(), places.len(), "a place for each word");
    by_instruction(words, places, last)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn by_instruction<P: by_instruction::CopyTarget>(
    words: &[[u8; 8]],
    places: &[P],
    last: [u8; 8],
) -> Option<u32> {
    // SAFETY: the processor has the instructions.
    by_instruction::is_there().then(|| unsafe { by_instruction::crc32c(words, places, last) })
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn by_instruction<P>(_: &[[u8; 8]], _: &[P], _: [u8; 8]) -> Option<u32> {
    None
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod by_instruction {
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
        _mm_xor_si128,
    };
    // Not from the model checker: the result never changes.
    use std::sync::atomic::{AtomicU8, Ordering};

    use crate::sync::atomic::AtomicU64;

    /// The destination of a word that was summed.
    pub(super) trait CopyTarget {
        fn put(&self, word: [u8; 8]);
    }

    /// No destination.
    impl CopyTarget for () {
        #[inline(always)]
        fn put(&self, _: [u8; 8]) {}
    }

    impl CopyTarget for AtomicU64 {
        #[inline(always)]
        fn put(&self, word: [u8; 8]) {
            self.store(u64::from_le_bytes(word).to_le(), Ordering::Relaxed);
        }
    }

    /// Maximum number of words of one of the three parts: longer pieces are processed in several
    /// rounds.
    const PART_WORDS_MAX: usize = 64;
    /// Minimum number of words for which parts are worthwhile.
    const PARTED_WORDS_MIN: usize = 9;
    /// Factors that move a sum past so many words, minus the word that it is added to.
    static MOVES: [u32; 2 * PART_WORDS_MAX + 1] = moves();

    /// Whether the processor has the instructions. Cached, because the standard library looks up
    /// each instruction separately.
    #[inline]
    pub(super) fn is_there() -> bool {
        match KNOWN.load(Ordering::Relaxed) {
            YES => true,
            NO => false,
            _ => find_out(),
        }
    }

    static KNOWN: AtomicU8 = AtomicU8::new(0);
    const YES: u8 = 1;
    const NO: u8 = 2;

    #[cold]
    fn find_out() -> bool {
        let is_there = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq");
        KNOWN.store(if is_there { YES } else { NO }, Ordering::Relaxed);
        is_there
    }

    /// Computes the checksum. There are as many places as words.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn crc32c<P: CopyTarget>(words: &[[u8; 8]], places: &[P], last: [u8; 8]) -> u32 {
        let mut sum = u64::from(u32::MAX);
        let (mut rest, mut places) = (words, places);
        while rest.len() >= PARTED_WORDS_MIN {
            let part_words = (rest.len() / 3).min(PART_WORDS_MAX);
            let (parted, behind) = rest.split_at(3 * part_words);
            let (parted_places, places_behind) = places.split_at(3 * part_words);
            sum = in_parts(sum, parted, parted_places, part_words);
            (rest, places) = (behind, places_behind);
        }
        for (word, place) in rest.iter().zip(places) {
            sum = summed(sum, word, place);
        }
        sum = _mm_crc32_u64(sum, u64::from_le_bytes(last));
        let [a, b, c, d, ..] = sum.to_le_bytes();
        !u32::from_le_bytes([a, b, c, d])
    }

    /// Continues `sum` over three parts of `part_words` words each, at least one.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn in_parts<P: CopyTarget>(
        sum: u64,
        words: &[[u8; 8]],
        places: &[P],
        part_words: usize,
    ) -> u64 {
        let (first, behind) = words.split_at(part_words);
        let (second, third) = behind.split_at(part_words);
        let (first_places, behind) = places.split_at(part_words);
        let (second_places, third_places) = behind.split_at(part_words);
        let (third, third_places) = (&third[..part_words], &third_places[..part_words]);
        let (mut a, mut b, mut c) = (sum, 0, 0);
        let last = part_words - 1;
        // By index: iterators for all six slices would check each length.
        for at in 0..last {
            a = summed(a, &first[at], &first_places[at]);
            b = summed(b, &second[at], &second_places[at]);
            c = summed(c, &third[at], &third_places[at]);
        }
        a = summed(a, &first[last], &first_places[last]);
        b = summed(b, &second[last], &second_places[last]);
        let moved = _mm_xor_si128(moved(a, 2 * part_words), moved(b, part_words));
        let moved = _mm_cvtsi128_si64(moved).cast_unsigned();
        third_places[last].put(third[last]);
        _mm_crc32_u64(c, u64::from_le_bytes(third[last]) ^ moved)
    }

    /// Returns the sum continued by one word, and stores the word in its place.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn summed<P: CopyTarget>(sum: u64, word: &[u8; 8], place: &P) -> u64 {
        place.put(*word);
        _mm_crc32_u64(sum, u64::from_le_bytes(*word))
    }

    /// Returns the sum moved past `words` words. The result is to be XORed into the last of those
    /// words.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn moved(sum: u64, words: usize) -> __m128i {
        let factor = _mm_cvtsi64_si128(i64::from(MOVES[words]));
        _mm_clmulepi64_si128(_mm_cvtsi64_si128(sum.cast_signed()), factor, 0)
    }

    /// For `n` words: x to the power of `64 n - 33` modulo the polynomial, lowest bit first. 64 for
    /// each word, minus 32 for what summing the last word adds, minus one because the product of
    /// two bit-reversed numbers is off by one bit.
    const fn moves() -> [u32; 2 * PART_WORDS_MAX + 1] {
        const REFLECTED: u32 = 0x1edc_6f41_u32.reverse_bits();
        let mut moves = [0; 2 * PART_WORDS_MAX + 1];
        let (mut power, mut exponent, mut words) = (1_u32 << 31, 0, 1);
        while words < moves.len() {
            while exponent < 64 * words - 33 {
                power = (power >> 1) ^ (if power & 1 == 1 { REFLECTED } else { 0 });
                exponent += 1;
            }
            moves[words] = power;
            words += 1;
        }
        moves
    }
}

/// Table `n` has the effect of a byte that is followed by `n` zero bytes.
const fn crc16_tables() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 64 {
            crc = (crc << 1) ^ (if crc & 0x8000 != 0 { 0x1021 } else { 0 });
            bit += 1;
            if bit % 8 == 0 {
                tables[bit / 8 - 1][index as usize] = crc;
            }
        }
        index += 1;
    }
    tables
}

/// Table `n` has the effect of a byte that is followed by `n` zero bytes.
const fn crc64_tables() -> [[u64; 256]; 8] {
    const REFLECTED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
    let mut tables = [[0; 256]; 8];
    let mut index: usize = 0;
    while index < 256 {
        let mut crc = index as u64;
        let mut bit = 0;
        while bit < 64 {
            crc = (crc >> 1) ^ (if crc & 1 != 0 { REFLECTED } else { 0 });
            bit += 1;
            if bit % 8 == 0 {
                tables[bit / 8 - 1][index] = crc;
            }
        }
        index += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::Ordering;
    use proptest::prelude::*;

    #[test]
    fn crc16_golden() {
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let by_bit = |bytes: &[u8]| {
            bytes.iter().fold(0_u16, |crc, &byte| {
                (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                    (crc << 1) ^ (if crc & 0x8000 != 0 { 0x1021 } else { 0 })
                })
            })
        };
        let text = b"any number of bytes, in steps of eight and a rest";
        for len in 0..text.len() {
            assert_eq!(crc16(&text[..len]), by_bit(&text[..len]), "{len}");
        }
        // CLUSTER KEYSLOT foo, bar and hello on a reference server.
        assert_eq!(crc16(b"foo") % 16384, 12182);
        assert_eq!(crc16(b"bar") % 16384, 5061);
        assert_eq!(crc16(b"hello") % 16384, 866);
    }

    #[test]
    fn crc64_golden() {
        assert_eq!(crc64(0, b""), 0);
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        // The DUMP payload of the string "a" from a reference server.
        assert_eq!(crc64(0, b"\x00\x01a\x0a\x00"), 0xb47d_368f_9bef_febf);
    }

    #[test]
    fn crc32c_golden() {
        // RFC 3720, appendix B.4. Without the instruction there is no checksum.
        assert!(matches!(
            crc32c_of_words(&[[0; 8]; 3], [0; 8]),
            None | Some(0x8a91_36aa)
        ));
        assert!(matches!(
            crc32c_of_words(&[[0xff; 8]; 3], [0xff; 8]),
            None | Some(0x62a8_ab43)
        ));
    }

    #[test]
    fn words_are_stored_where_they_are_summed() {
        let words: Vec<[u8; 8]> = (1..300_u64).map(|n| (n * n).to_be_bytes()).collect();
        for count in (0..40).chain([191, 192, 193, 201, 299]) {
            let places: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let sum = crc32c_of_stored_words(&words[..count], &places, [7; 8]);
            assert_eq!(
                sum,
                crc32c_of_words(&words[..count], [7; 8]),
                "{count} words"
            );
            let stored = places
                .iter()
                .map(|place| place.load(Ordering::Relaxed).to_le().to_le_bytes());
            if sum.is_some() {
                assert!(stored.eq(words[..count].iter().copied()), "{count} words");
            }
        }
    }

    proptest! {
        #[test]
        fn crc64_goes_on_anywhere(bytes: Vec<u8>, split: prop::sample::Index) {
            let at = split.index(bytes.len() + 1);
            let (front, back) = bytes.split_at(at);
            prop_assert_eq!(crc64(crc64(0, front), back), crc64(0, &bytes));
        }
    }
}
