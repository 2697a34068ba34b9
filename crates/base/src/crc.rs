//! Checksums that are part of an interface: cluster slots and the classic dump format.
//!
//! Neither resists an adversary; both are computed from tables made at compile time.

/// CRC-16/XMODEM, which spreads keys over cluster slots: polynomial 0x1021, initial value 0.
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = crc16_table();
    bytes.iter().fold(0, |crc: u16, &byte| {
        let [high, low] = crc.to_be_bytes();
        u16::from_be_bytes([low, 0]) ^ TABLE[usize::from(high ^ byte)]
    })
}

/// CRC-64/Jones over `bytes`, going on from `crc` (0 at the start).
///
/// Polynomial 0xad93d23594c935a9, reflected, no final inversion: the checksum at the end of RDB
/// files and DUMP payloads. Eight bytes a step.
#[must_use]
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    static TABLES: [[u64; 256]; 8] = crc64_tables();
    let (eights, rest) = bytes.as_chunks::<8>();
    let crc = eights.iter().fold(crc, |crc, eight| {
        let word = (crc ^ u64::from_le_bytes(*eight)).to_le_bytes();
        // The first byte is followed by seven others, so it takes the table of seven zero bytes.
        word.iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)])
    });
    rest.iter().fold(crc, |crc, &byte| {
        let [low, ..] = crc.to_le_bytes();
        TABLES[0][usize::from(low ^ byte)] ^ (crc >> 8)
    })
}

const fn crc16_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ (if crc & 0x8000 != 0 { 0x1021 } else { 0 });
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
}

/// Table `n` gives the effect of a byte that is followed by `n` zero bytes.
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
    use proptest::prelude::*;

    #[test]
    fn crc16_golden() {
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // CLUSTER KEYSLOT foo, bar and hello of a reference server.
        assert_eq!(crc16(b"foo") % 16384, 12182);
        assert_eq!(crc16(b"bar") % 16384, 5061);
        assert_eq!(crc16(b"hello") % 16384, 866);
    }

    #[test]
    fn crc64_golden() {
        assert_eq!(crc64(0, b""), 0);
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        // The payload of DUMP of the string "a", as a reference server gives it.
        assert_eq!(crc64(0, b"\x00\x01a\x0a\x00"), 0xb47d_368f_9bef_febf);
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
