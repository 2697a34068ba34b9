//! Bytes of entries, messages and snapshots: little-endian numbers, and strings preceded by their
//! length.
//!
//! The reader checks everything. Malformed input gives an error, never a panic, and takes no more
//! memory than the input's own size.

use std::fmt;

use durability::checksum::crc32c;

/// Maximum length of a string, a document or a secret.
pub const STRING_BYTES_MAX: usize = 1 << 20;
/// Bytes of a record's head: length and checksum.
pub const RECORD_HEAD_BYTES: usize = 8;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They are too short or too long.
    Length,
    /// The checksum does not match.
    Sum,
    /// A newer version wrote them.
    Version(u8),
    /// They have an unknown kind.
    Kind(u8),
    /// They contain an invalid value.
    Value,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("wrong length"),
            Self::Sum => f.write_str("wrong checksum"),
            Self::Version(version) => write!(f, "version {version} is not known to this server"),
            Self::Kind(kind) => write!(f, "kind {kind} is not known to this server"),
            Self::Value => f.write_str("a value that cannot be"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Appends values to a byte buffer.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends bytes whose number the reader knows.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends bytes preceded by their length. Cuts them off at [`STRING_BYTES_MAX`]; code that
    /// accepts strings checks the length before.
    pub fn string(&mut self, bytes: &[u8]) -> &mut Self {
        let bytes = &bytes[..bytes.len().min(STRING_BYTES_MAX)];
        self.u32(u32::try_from(bytes.len()).unwrap_or(0)).raw(bytes)
    }

    /// Appends the number of items that follow.
    pub fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

/// Reads values from bytes.
#[derive(Debug)]
pub struct Reader<'b>(pub &'b [u8]);

impl<'b> Reader<'b> {
    /// Starts to read bytes that begin with a version, up to `newest`.
    ///
    /// # Errors
    /// If the version is missing or unknown.
    pub fn versioned(bytes: &'b [u8], newest: u8) -> Result<Self, Malformed> {
        let mut reader = Self(bytes);
        match reader.u8()? {
            version if version == 0 || version > newest => Err(Malformed::Version(version)),
            _ => Ok(reader),
        }
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn raw(&mut self, count: usize) -> Result<&'b [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed::Length)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Like [`Reader::raw`], with the number in the type.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N)?);
        Ok(array)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// If there is none.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Reads two bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads four bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads 0 or 1.
    ///
    /// # Errors
    /// If it is neither.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value),
        }
    }

    /// Reads bytes preceded by their length.
    ///
    /// # Errors
    /// If the length exceeds the maximum or the available bytes.
    pub fn string(&mut self) -> Result<&'b [u8], Malformed> {
        let length = self.u32()? as usize;
        if length > STRING_BYTES_MAX {
            return Err(Malformed::Length);
        }
        self.raw(length)
    }

    /// Reads a string of text.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.string()?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed::Value)
    }

    /// Reads the number of items that follow, each of at least one byte.
    ///
    /// # Errors
    /// If the remaining bytes are fewer.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return Err(Malformed::Length);
        }
        Ok(count)
    }

    /// Checks that the end is reached.
    ///
    /// # Errors
    /// If bytes remain.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Malformed::Length),
        }
    }
}

/// Returns a body as a record, preceded by its length and its checksum.
#[must_use]
pub fn record(body: &[u8]) -> Vec<u8> {
    let mut writer = Writer(Vec::with_capacity(RECORD_HEAD_BYTES + body.len()));
    writer.count(body.len()).u32(sum(body)).raw(body);
    writer.0
}

/// Takes a record from the front.
///
/// # Errors
/// If it is incomplete or its checksum is wrong.
pub fn take_record<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], Malformed> {
    let mut reader = Reader(bytes);
    let (length, expected) = (reader.u32()? as usize, reader.u32()?);
    let body = reader.raw(length)?;
    if sum(body) != expected {
        return Err(Malformed::Sum);
    }
    *bytes = reader.0;
    Ok(body)
}

/// Computes the checksum. It covers the length too, so a run of zeroes is not a valid record.
fn sum(body: &[u8]) -> u32 {
    let length = (body.len() as u64).to_le_bytes();
    durability::checksum::append(crc32c(&length), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_damage_is_seen() {
        let mut bytes = record(b"abc");
        bytes.extend(record(b""));
        let mut rest = bytes.as_slice();
        assert_eq!(take_record(&mut rest), Ok(&b"abc"[..]));
        assert_eq!(take_record(&mut rest), Ok(&b""[..]));
        assert_eq!(take_record(&mut rest), Err(Malformed::Length));
        for at in 0..bytes.len() - RECORD_HEAD_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(take_record(&mut damaged.as_slice()).is_err(), "{at}");
        }
        assert!(take_record(&mut &[0; 64][..]).is_err());
    }
}
