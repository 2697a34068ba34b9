//! MurmurHash64A by Austin Appleby, the 64-bit hash that the format of sketches depends on.

/// The seed that Redis uses.
const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// Returns the hash of an element. It is the same on every machine.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let length = (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(SEED ^ length, |hash, word| {
        let mixed = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        let mixed = (mixed ^ mixed >> SHIFT).wrapping_mul(MULTIPLIER);
        (hash ^ mixed).wrapping_mul(MULTIPLIER)
    });
    let hash = if tail.is_empty() {
        hash
    } else {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER)
    };
    let hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
