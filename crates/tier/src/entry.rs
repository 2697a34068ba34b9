//! One entry of a segment: a key with its value, as bytes.
//!
//! ```text
//!   0    4       8    12   16    17     18  20          24        32
//!   │ sum│ stored│ raw│ key│ kind│ codec│ 0 │ dictionary│ keyspace│ key … │ body … │ zeroes to 16 bytes
//! ```
//!
//! The body is stored uncompressed (codec 0), or compressed by LZ4 (codec 1) or zstd (codec 2) if
//! that makes it a tenth shorter. `raw` is its uncompressed length. `dictionary` is the number of
//! the dictionary that zstd needs, if any. Numbers are little-endian. `sum` is the CRC-32C of the
//! segment's salt and ordinal, the entry's offset, and the entry from byte 4 to the end of the
//! body.

use std::borrow::Cow;
use std::sync::Arc;

use durability::checksum;

use crate::codecs::{Codec, Codecs, Packer, SHORT_BYTES_MAX};
use crate::dictionary::Dictionary;

/// Unit of the places of entries.
pub const UNIT_BYTES: usize = 16;

/// Codecs: uncompressed, LZ4, and zstd.
const PLAIN: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Maximum length of a body, before and after compression.
const RAW_BYTES_MAX: usize = 1 << 24;

/// Bytes before the key.
pub(crate) const HEAD_BYTES: usize = 32;

/// A key with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'e> {
    /// Kind and encoding of the value, as the caller that appends it numbers them.
    pub kind: u8,
    /// The keyspace of the key.
    pub keyspace: u64,
    /// The key.
    pub key: &'e [u8],
    /// The value.
    pub body: &'e [u8],
}

/// An entry without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHead<'e> {
    /// The same as [`Entry::kind`].
    pub kind: u8,
    /// The same as [`Entry::keyspace`].
    pub keyspace: u64,
    /// The key.
    pub key: &'e [u8],
}

/// An entry as stored in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredEntry<'e> {
    pub(crate) head: EntryHead<'e>,
    stored: Cow<'e, [u8]>,
    raw_bytes: usize,
    codec: Codec,
}

impl<'e> StoredEntry<'e> {
    /// Creates an entry, compressed if that is configured and pays.
    pub(crate) fn new(entry: &Entry<'e>, packer: &mut Packer) -> Self {
        let head = EntryHead {
            kind: entry.kind,
            keyspace: entry.keyspace,
            key: entry.key,
        };
        let (stored, codec) = packer.pack(entry.body);
        Self {
            head,
            stored,
            raw_bytes: entry.body.len(),
            codec,
        }
    }

    /// Returns the same entry compressed in another way, unless that makes it longer.
    pub(crate) fn again(&self, codecs: &Codecs, packer: &mut Packer) -> Result<Self, &'static str> {
        let body = self.body(codecs)?;
        let (stored, codec) = packer.pack(&body);
        if stored.len() > self.stored.len() {
            return Ok(self.clone());
        }
        Ok(Self {
            head: self.head,
            stored: Cow::Owned(stored.into_owned()),
            raw_bytes: self.raw_bytes,
            codec,
        })
    }

    /// Returns the bytes it takes, padded to a unit.
    pub(crate) fn padded_bytes(&self) -> Option<usize> {
        padded_bytes(self.head.key.len(), self.stored.len())
    }

    /// Returns the uncompressed length of the body.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// Returns the dictionary that it needs, or `None`.
    pub(crate) fn dictionary(&self) -> Option<&Arc<Dictionary>> {
        match &self.codec {
            Codec::Zstd(dictionary) => dictionary.as_ref(),
            _ => None,
        }
    }

    /// Returns the uncompressed body.
    pub(crate) fn body(&self, codecs: &Codecs) -> Result<Cow<'_, [u8]>, &'static str> {
        codecs.unpack(&self.stored, &self.codec, self.raw_bytes)
    }
}

/// An entry that was read for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedEntry {
    /// The same as [`Entry::kind`].
    pub kind: u8,
    /// The same as [`Entry::keyspace`].
    pub keyspace: u64,
    /// The value.
    pub body: Vec<u8>,
}

/// The position of an entry, which its sum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pub(crate) salt: u64,
    pub(crate) ordinal: u64,
    pub(crate) offset_bytes: u64,
}

impl Whereabouts {
    fn sum(self, entry: &[u8]) -> u32 {
        let words = [self.salt, self.ordinal, self.offset_bytes];
        let before = words
            .iter()
            .fold(0, |sum, word| checksum::append(sum, &word.to_le_bytes()));
        checksum::append(before, entry)
    }
}

/// Returns the bytes that an entry takes, padded to a unit, or `None` on overflow.
pub(crate) fn padded_bytes(key_bytes: usize, body_bytes: usize) -> Option<usize> {
    let bytes = HEAD_BYTES.checked_add(key_bytes)?.checked_add(body_bytes)?;
    bytes.checked_next_multiple_of(UNIT_BYTES)
}

/// Appends an entry to `out`. Returns `None` and appends nothing if it is too long.
pub(crate) fn encode(entry: &StoredEntry<'_>, at: Whereabouts, out: &mut Vec<u8>) -> Option<usize> {
    let padded = entry.padded_bytes()?;
    let stored_bytes = u32::try_from(entry.stored.len()).ok()?;
    let raw_bytes = u32::try_from(entry.raw_bytes).ok()?;
    let head = &entry.head;
    let key_bytes = u32::try_from(head.key.len()).ok()?;
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&stored_bytes.to_le_bytes());
    out.extend_from_slice(&raw_bytes.to_le_bytes());
    out.extend_from_slice(&key_bytes.to_le_bytes());
    let number = entry.dictionary().map_or(0, |one| one.name.number);
    let codec = match entry.codec {
        Codec::Plain => PLAIN,
        Codec::Lz4 => LZ4,
        Codec::Zstd(_) => ZSTD,
    };
    out.extend_from_slice(&[head.kind, codec, 0, 0]);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&head.keyspace.to_le_bytes());
    out.extend_from_slice(head.key);
    out.extend_from_slice(&entry.stored);
    let sum = at.sum(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    out.resize(start + padded, 0);
    Some(padded)
}

/// Returns the lengths of key and stored body in a head. For garbage, they are arbitrary.
pub(crate) fn lengths(head: &[u8]) -> Option<(usize, usize)> {
    let number = |at: usize| {
        let bytes = head.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    Some((number(12)?, number(4)?))
}

/// Decodes the entry at the start of `bytes`. `dictionary` returns those of its segment, by number.
pub(crate) fn decode(
    bytes: &[u8],
    at: Whereabouts,
    dictionary: impl FnOnce(u32) -> Option<Arc<Dictionary>>,
) -> Result<StoredEntry<'_>, &'static str> {
    let short = "it ends too soon";
    let (key_bytes, body_bytes) = lengths(bytes).ok_or(short)?;
    let padded = padded_bytes(key_bytes, body_bytes).ok_or("its lengths are wrong")?;
    if padded > bytes.len() {
        return Err(short);
    }
    let end = HEAD_BYTES + key_bytes + body_bytes;
    let sum = bytes[..4].try_into().map_err(|_| short)?;
    if u32::from_le_bytes(sum) != at.sum(&bytes[4..end]) {
        return Err("its sum is wrong");
    }
    let raw = bytes[8..12].try_into().map_err(|_| short)?;
    let raw_bytes = usize::try_from(u32::from_le_bytes(raw)).unwrap_or(usize::MAX);
    let number = bytes[20..24].try_into().map_err(|_| short)?;
    let codec = match (bytes[17], u32::from_le_bytes(number)) {
        (PLAIN, _) if raw_bytes == body_bytes => Codec::Plain,
        (LZ4, _) if raw_bytes <= RAW_BYTES_MAX => Codec::Lz4,
        (ZSTD, 0) if raw_bytes <= RAW_BYTES_MAX => Codec::Zstd(None),
        (ZSTD, number) if raw_bytes <= SHORT_BYTES_MAX => Codec::Zstd(Some(
            dictionary(number).ok_or("its dictionary is not there")?,
        )),
        _ => return Err("its codec is unknown"),
    };
    let keyspace = bytes[24..32].try_into().map_err(|_| short)?;
    let head = EntryHead {
        kind: bytes[16],
        keyspace: u64::from_le_bytes(keyspace),
        key: &bytes[HEAD_BYTES..HEAD_BYTES + key_bytes],
    };
    Ok(StoredEntry {
        head,
        stored: Cow::Borrowed(&bytes[HEAD_BYTES + key_bytes..end]),
        raw_bytes,
        codec,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::codecs::Compression;
    use crate::dictionaries::Table;

    fn packer(compression: Compression) -> Packer {
        Packer::new(compression, None)
    }

    fn none(_: u32) -> Option<Arc<Dictionary>> {
        None
    }

    const AT: Whereabouts = Whereabouts {
        salt: 0x0102_0304_0506_0708,
        ordinal: 9,
        offset_bytes: 4096,
    };

    const ENTRY: Entry<'static> = Entry {
        kind: 1,
        keyspace: 3,
        key: b"key",
        body: b"value",
    };

    #[test]
    fn an_entry_is_these_bytes() {
        let mut bytes = Vec::new();
        let stored = StoredEntry::new(&ENTRY, &mut packer(Compression::Auto));
        assert_eq!(encode(&stored, AT, &mut bytes), Some(48));
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // The golden vector of docs/formats/tier.md.
        assert_eq!(
            text,
            concat!(
                "6b79641a",
                "050000000500000003000000",
                "0100000000000000",
                "0300000000000000",
                "6b6579",
                "76616c7565",
                "0000000000000000"
            )
        );
        assert_eq!(decode(&bytes, AT, none), Ok(stored));
    }

    #[test]
    fn what_is_compressed_comes_back_and_what_gains_nothing_is_not() {
        let long = b"abcdefgh".repeat(100);
        let entry = Entry {
            body: &long,
            ..ENTRY
        };
        let (packed, plain) = (
            StoredEntry::new(&entry, &mut packer(Compression::Auto)),
            StoredEntry::new(&entry, &mut packer(Compression::No)),
        );
        assert!(packed.padded_bytes().unwrap() * 10 < plain.padded_bytes().unwrap());
        let mut bytes = Vec::new();
        encode(&packed, AT, &mut bytes).unwrap();
        let codecs = Codecs::new(Table::default());
        let read = decode(&bytes, AT, none).unwrap();
        assert_eq!(read.body(&codecs).unwrap(), long);
        let mut random = base::random::Prng::seeded(3);
        let mut noise = vec![0; 1_000];
        random.fill(&mut noise);
        let entry = Entry {
            body: &noise,
            ..ENTRY
        };
        let stored = StoredEntry::new(&entry, &mut packer(Compression::Auto));
        assert_eq!(stored.codec, Codec::Plain);
        // Whoever can write files can also compute sums.
        for (raw_bytes, stored) in [
            (1 << 30, &long[..]),
            (800, &long[..9]),
            (801, &packed.stored),
        ] {
            let forged = StoredEntry {
                raw_bytes,
                stored: Cow::Borrowed(stored),
                ..packed.clone()
            };
            let mut bytes = Vec::new();
            encode(&forged, AT, &mut bytes).unwrap();
            let read = decode(&bytes, AT, none);
            let read = read.and_then(|read| read.body(&codecs).map(Cow::into_owned));
            assert!(read.is_err(), "{raw_bytes}");
        }
    }

    #[test]
    fn any_flipped_bit_and_any_other_place_is_found() {
        let mut bytes = Vec::new();
        let stored = StoredEntry::new(&ENTRY, &mut packer(Compression::Auto));
        encode(&stored, AT, &mut bytes).unwrap();
        for bit in 0..(HEAD_BYTES + 8) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged, AT, none).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], AT, none).is_err(), "{len} bytes");
        }
        for other in [
            Whereabouts { salt: 1, ..AT },
            Whereabouts { ordinal: 8, ..AT },
            Whereabouts {
                offset_bytes: 4112,
                ..AT
            },
        ] {
            assert_eq!(decode(&bytes, other, none), Err("its sum is wrong"));
        }
    }
}
