//! The payload of FUNCTION DUMP and FUNCTION RESTORE: the sources of libraries.
//!
//! ```text
//!   (245 │ source)… │ version (2) │ CRC-64 of all before (8)
//! ```

use base::crc::crc64;

use crate::dump::{self, Refused, VERSION};
use crate::reader::{Limits, Malformed, Reader};
use crate::writer::{Style, write_text};

/// The code before the source of a library, here and in files.
pub const LIBRARY: u8 = 245;

/// Writes the payload of libraries.
pub fn write<'a>(sources: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let style = Style {
        version: VERSION,
        compresses: true,
    };
    let start = out.len();
    for source in sources {
        out.push(LIBRARY);
        write_text(source, style, out);
    }
    out.extend_from_slice(&VERSION.to_le_bytes());
    let sum = crc64(0, &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Reads the sources of the libraries in a payload.
///
/// # Errors
/// [`Refused::Footer`] before the content is read, [`Refused::Malformed`] if it contains something
/// else.
pub fn read(payload: &[u8], limits: &Limits) -> Result<Vec<Vec<u8>>, Refused> {
    let (version, content) = dump::verify(payload)?;
    let mut reader = Reader::new(content, version, limits);
    let mut sources = Vec::new();
    while !reader.rest().is_empty() {
        let code = reader.byte()?;
        if code != LIBRARY {
            return Err(Malformed::Type(code).into());
        }
        sources.push(reader.text()?.into_vec());
    }
    Ok(sources)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let sources: [&[u8]; 2] = [b"#!lua name=a\n", &[b'x'; 4000]];
        let mut payload = Vec::new();
        write(sources.into_iter(), &mut payload);
        let limits = crate::tests::limits(128);
        assert_eq!(read(&payload, &limits).unwrap(), sources);
        payload[3] ^= 1;
        assert_eq!(read(&payload, &limits), Err(Refused::Footer));
        assert_eq!(read(b"", &limits), Err(Refused::Footer));
    }
}
