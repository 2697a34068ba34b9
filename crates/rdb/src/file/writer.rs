//! The writer of files, in one pass.

use std::io::{self, Write};

use base::crc::crc64;
use structures::Object;

use super::{Usage, opcode};
use crate::VERSION_VALKEY;
use crate::value;
use crate::writer::{Style, write_length, write_length_u64, write_text};

/// Number of bytes written at a time.
const WRITE_BYTES: usize = 64 << 10;

/// Writes a file once, from its start.
#[derive(Debug)]
pub struct FileWriter<W> {
    sink: W,
    style: Style,
    /// The checksum so far, or `None` if none is computed.
    sum: Option<u64>,
    /// Bytes that were not passed to the sink yet.
    buffer: Vec<u8>,
    written: u64,
    database: Option<u32>,
}

/// A record to write.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// When it expires, in milliseconds since 1970 UTC.
    pub deadline_unix_ms: Option<u64>,
    /// Its use, if that is to be kept.
    pub usage: Option<Usage>,
    /// Its content.
    pub content: Content<'a>,
}

/// The content of a record.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A string.
    Text(&'a [u8]),
    /// Any other value.
    Object(&'a Object),
    /// Any other value, already encoded in the version of the file.
    Encoded {
        /// The code of its type.
        type_code: u8,
        /// Its body.
        body: &'a [u8],
    },
}

/// Numbers of keys of a database, as a hint for readers that allocate tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Number of all keys.
    pub keys: u64,
    /// Number of keys with a deadline.
    pub expiring: u64,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file in the style's version, with or without a checksum.
    pub fn new(sink: W, style: Style, sums_up: bool) -> Self {
        let buffer = match style.version {
            VERSION_VALKEY => format!("VALKEY{VERSION_VALKEY:03}").into_bytes(),
            version => format!("REDIS{version:04}").into_bytes(),
        };
        Self {
            sink,
            style,
            sum: sums_up.then_some(0),
            buffer,
            written: 0,
            database: None,
        }
    }

    /// Returns the length of the file so far, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes a fact about the writer, such as `redis-ver`.
    ///
    /// # Errors
    /// Those of the sink, here and below.
    pub fn aux(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        self.buffer.push(opcode::AUX);
        write_text(name.as_bytes(), self.style, &mut self.buffer);
        write_text(value, self.style, &mut self.buffer);
        self.flush_full()
    }

    /// Writes the code of a library of functions.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn function(&mut self, library: &[u8]) -> io::Result<()> {
        self.buffer.push(opcode::FUNCTION);
        write_text(library, self.style, &mut self.buffer);
        self.flush_full()
    }

    /// Ensures that the following records are in this database. `sizes` is called only if the
    /// database changes.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn database(
        &mut self,
        number: u32,
        sizes: impl FnOnce() -> Option<Sizes>,
    ) -> io::Result<()> {
        if self.database == Some(number) {
            return Ok(());
        }
        self.database = Some(number);
        self.buffer.push(opcode::DATABASE);
        write_length_u64(number.into(), &mut self.buffer);
        if let Some(sizes) = sizes() {
            self.buffer.push(opcode::SIZES);
            write_length_u64(sizes.keys, &mut self.buffer);
            write_length_u64(sizes.expiring, &mut self.buffer);
        }
        self.flush_full()
    }

    /// Writes a record. Omits what the version cannot hold; [`value::version_needed_of`] returns
    /// the version that holds all.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn record(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let (style, out) = (self.style, &mut self.buffer);
        if let Some(at) = entry.deadline_unix_ms {
            out.push(opcode::DEADLINE_MS);
            let at = i64::try_from(at).unwrap_or(i64::MAX);
            out.extend_from_slice(&at.to_le_bytes());
        }
        match entry.usage {
            Some(Usage::IdleSeconds(seconds)) => {
                out.push(opcode::IDLE);
                write_length_u64(seconds, out);
            }
            Some(Usage::Frequency(count)) => out.extend_from_slice(&[opcode::FREQUENCY, count]),
            None => {}
        }
        match entry.content {
            Content::Text(text) => {
                out.push(value::STRING);
                write_text(entry.key, style, out);
                return self.long_text(text);
            }
            Content::Object(object) => {
                out.push(value::type_code_of(object, style));
                write_text(entry.key, style, out);
                value::write_object(object, style, out);
            }
            Content::Encoded { type_code, body } => {
                out.push(type_code);
                write_text(entry.key, style, out);
                out.extend_from_slice(body);
            }
        }
        self.flush_full()
    }

    /// Ends the file: writes the checksum and all buffered bytes to the sink. Returns the file's
    /// length in bytes. Nothing may be written afterwards.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn finish(&mut self) -> io::Result<u64> {
        self.buffer.push(opcode::END);
        let sum = self.sum.map_or(0, |sum| crc64(sum, &self.buffer));
        self.buffer.extend_from_slice(&sum.to_le_bytes());
        self.flush()?;
        self.sink.flush()?;
        Ok(self.written)
    }

    /// Returns the sink.
    pub fn into_sink(self) -> W {
        self.sink
    }

    /// Writes a text without copying it, if it is long and not compressed.
    fn long_text(&mut self, text: &[u8]) -> io::Result<()> {
        if self.style.compresses || text.len() < WRITE_BYTES {
            write_text(text, self.style, &mut self.buffer);
            return self.flush_full();
        }
        write_length(text.len(), &mut self.buffer);
        self.flush()?;
        self.put(text)
    }

    fn flush_full(&mut self) -> io::Result<()> {
        if self.buffer.len() < WRITE_BYTES {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let put = self.put(&buffer);
        buffer.clear();
        // A large value must not keep its memory allocated.
        buffer.shrink_to(4 * WRITE_BYTES);
        self.buffer = buffer;
        put
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes)?;
        self.sum = self.sum.map(|sum| crc64(sum, bytes));
        self.written += bytes.len() as u64;
        Ok(())
    }
}
