//! The mapping from keys to the 16,384 hash slots of a cluster.

use crate::crc::crc16;

/// Number of hash slots.
pub const HASH_SLOTS: usize = 16_384;
/// The last hash slot, and the mask of a checksum's bits that count.
pub const LAST: u16 = 16_383;

/// Returns the hash slot of a key: that of the bytes between its first `{` and the next `}`, if
/// there are any, otherwise that of the whole key.
#[inline]
#[must_use]
pub fn of(key: &[u8]) -> u16 {
    crc16(tagged(key).unwrap_or(key)) & LAST
}

#[inline]
fn tagged(key: &[u8]) -> Option<&[u8]> {
    let from = key.iter().position(|byte| *byte == b'{')? + 1;
    let rest = &key[from..];
    let len = rest.iter().position(|byte| *byte == b'}')?;
    (len > 0).then(|| &rest[..len])
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_tag_decides_where_there_is_one() {
        assert_eq!(of(b"foo"), 12_182);
        for same in [&b"{foo}"[..], b"a{foo}b", b"{foo}{bar}", b"}{foo}"] {
            assert_eq!(of(same), 12_182);
        }
        for whole in [&b"{}foo"[..], b"foo{}{foo}", b"{foo", b"foo}"] {
            assert_eq!(of(whole), crate::crc::crc16(whole) % 16_384);
        }
        // Only the first matching pair of brackets is removed.
        assert_eq!(of(b"{{foo}}"), of(b"{foo"));
    }
}
