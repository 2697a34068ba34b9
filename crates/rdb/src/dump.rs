//! The payload of DUMP and RESTORE: one value followed by a version and a checksum.
//!
//! ```text
//!   metadata, or none │ type (1) │ body │ auxiliary fields, or none │ version (2) │ CRC-64 of all before (8)
//! ```
//!
//! A payload is written in the oldest version from [`VERSION`] on that preserves the whole value,
//! so that servers of that version can load it if possible.
//!
//! From version 15 on, a checksum of 0 means that there is none: Redis 8.10 writes such payloads to
//! its replicas. From version 13 on, metadata of modules may precede the value; it is skipped.
//! Auxiliary fields after the value come from KeyDB: the time of writing, which is skipped, and
//! [deadlines of members](member_deadlines).

use base::crc::crc64;

use crate::reader::{Limits, Malformed, Reader};
use crate::value::{self, Value};
use crate::writer::Style;
use crate::{VERSION_MAX, VERSION_VALKEY, is_read, member_deadlines, metadata};
use structures::Object;

/// The oldest version in which payloads are written: that of Redis 7.0.
pub const VERSION: u16 = 10;

const FOOTER_BYTES: usize = 10;
/// The first version whose payloads may lack a checksum.
const SUMLESS_VERSION: u16 = 15;

/// Why a payload was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is too short, of an unknown version, or its checksum is wrong.
    Footer,
    /// Its value is malformed.
    Malformed(Malformed),
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Writes the payload of a value.
pub fn write(value: &Value, compresses: bool, out: &mut Vec<u8>) {
    let version = value::version_needed(value).max(VERSION);
    write_in(value, version, compresses, out);
}

/// Writes the payload of a value in the oldest version that has its type, for servers from Redis
/// 5.0 on. For a stream this omits the number of entries ever added and the highest deleted id.
pub fn write_oldest(value: &Value, out: &mut Vec<u8>) {
    write_in(value, value::version_needed(value), false, out);
}

fn write_in(value: &Value, version: u16, compresses: bool, out: &mut Vec<u8>) {
    let style = Style {
        version,
        compresses,
    };
    let start = out.len();
    out.push(value::type_code(value, style));
    value::write(value, style, out);
    out.extend_from_slice(&style.version.to_le_bytes());
    let sum = crc64(0, &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Writes the payload of an object without a copy of the whole.
pub fn write_object(object: &Object, out: &mut Vec<u8>) {
    let style = Style {
        version: value::version_needed_of(object).max(VERSION),
        compresses: false,
    };
    let start = out.len();
    out.push(value::type_code_of(object, style));
    value::write_object(object, style, out);
    out.extend_from_slice(&style.version.to_le_bytes());
    let sum = crc64(0, &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Checks version and checksum. Returns the version and the part before both. O(n).
///
/// # Errors
/// [`Refused::Footer`].
pub fn verify(payload: &[u8]) -> Result<(u16, &[u8]), Refused> {
    let Some((content, footer)) = payload.split_last_chunk::<FOOTER_BYTES>() else {
        return Err(Refused::Footer);
    };
    let [low, high, sum @ ..] = *footer;
    let version = u16::from_le_bytes([low, high]);
    let stated = u64::from_le_bytes(sum);
    let is_sumless = stated == 0 && version >= SUMLESS_VERSION && version != VERSION_VALKEY;
    let is_right = || is_sumless || stated == crc64(crc64(0, content), &[low, high]);
    // No server writes version 0, but it was never refused.
    if (version == 0 || is_read(version)) && is_right() {
        Ok((version, content))
    } else {
        Err(Refused::Footer)
    }
}

/// Whether a payload has a version that is read but never written: a server that receives the
/// payload may not know that version.
#[must_use]
pub fn is_foreign(payload: &[u8]) -> bool {
    let footer = payload.last_chunk::<FOOTER_BYTES>();
    footer.is_some_and(|&[low, high, ..]| u16::from_le_bytes([low, high]) > VERSION_MAX)
}

/// Reads the value of a payload.
///
/// # Errors
/// [`Refused::Footer`] before the content is read, [`Refused::Malformed`] if the value is
/// malformed.
pub fn read(payload: &[u8], limits: &Limits) -> Result<Value, Refused> {
    let (version, content) = verify(payload)?;
    let mut reader = Reader::new(content, version, limits);
    let mut code = reader.byte()?;
    if code == metadata::CODE && metadata::is_of(version) {
        metadata::pass(&mut reader)?;
        code = reader.byte()?;
    }
    let mut value = value::read(code, &mut reader)?;
    member_deadlines::apply(reader.rest(), limits, &mut value)?;
    Ok(value)
}
