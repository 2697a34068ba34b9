//! The requests of an append-only file: splits its bytes where one request ends and the next
//! begins.
//!
//! ```text
//!   *3 │ $3 SET │ $1 a │ $1 1      a request, as a client sends it
//!   #TS:1700000000                 when those that follow were made; passed
//! ```
//!
//! Invariants
//!  1. Memory is a small multiple of the longest request that is really there: a stated length is
//!     trusted only as far as bytes arrive.
//!  2. A file that ends within a request is [short](Cut::Short), as a server leaves it that is
//!     stopped at any time. Anything else that is no request is [damage](Cut::Damaged). Both are
//!     reported with the offset of the incomplete request, after all requests before it were
//!     returned.

use std::io::{self, ErrorKind, Read};

use base::number::parse_u64;
use protocol::{Batch, Decoded, Decoder, Limits, Request};

/// Number of bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// A longer buffer is freed once the request that needed it was passed.
const KEPT_BYTES: usize = 4 << 20;
/// Maximum number of requests that are split at once.
const BATCH_MAX: usize = 256;

/// The end of an append-only file that does not end behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Within the request that begins at an offset.
    Short(u64),
    /// The bytes at an offset are no request.
    Damaged(u64),
}

/// Why there are no more requests.
#[derive(Debug)]
pub enum ReadFault {
    /// The file is incomplete.
    Cut(Cut),
    /// The file cannot be read.
    Io(io::Error),
}

/// Reads a file from some offset on.
#[derive(Debug)]
pub struct AofReader<R> {
    source: R,
    decoder: Decoder,
    batch: Batch,
    buffer: Vec<u8>,
    /// Start of the next request in the buffer, and the end of the filled part.
    start: usize,
    filled: usize,
    /// Offset of the buffer's start in the file.
    before: u64,
    is_at_end: bool,
    /// What is behind the requests returned last.
    fault: Option<Cut>,
}

/// A request in a file.
#[derive(Clone, Copy, Debug)]
pub struct AofRequest<'a> {
    /// Its offset.
    pub offset: u64,
    /// Its encoded bytes.
    pub bytes: &'a [u8],
    /// Its arguments.
    pub request: Request<'a>,
}

impl<R: Read> AofReader<R> {
    /// Returns a reader of `source`, which is at `offset` of its file.
    pub fn new(source: R, offset: u64) -> Self {
        Self {
            source,
            decoder: Decoder::new(),
            batch: Batch::new(),
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            before: offset,
            is_at_end: false,
            fault: None,
        }
    }

    /// Returns the offset of the next request in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.before + self.start as u64
    }

    /// Calls `each` for the next requests, at least one. Returns `false` if there are none, behind
    /// the last one.
    ///
    /// # Errors
    /// [`ReadFault`], once all whole requests before it were returned.
    pub fn next(&mut self, mut each: impl FnMut(AofRequest<'_>)) -> Result<bool, ReadFault> {
        loop {
            if let Some(cut) = self.fault {
                return Err(ReadFault::Cut(cut));
            }
            let decoded = self.decode();
            let given = self.give(decoded.consumed, &mut each);
            self.start += decoded.consumed;
            if decoded.error.is_some() && self.fault.is_none() {
                self.fault = Some(Cut::Damaged(self.offset()));
            }
            if given > 0 {
                return Ok(true);
            }
            if self.fault.is_some() || decoded.consumed > 0 {
                continue;
            }
            if self.is_at_end {
                return self.end().map(|()| false);
            }
            self.fill().map_err(ReadFault::Io)?;
        }
    }

    fn decode(&mut self) -> Decoded {
        let limits = Limits {
            multibulk_max: u32::MAX,
            bulk_bytes_max: u64::from(u32::MAX),
            ..Limits::default()
        };
        let input = &self.buffer[self.start..self.filled];
        self.decoder
            .decode(input, &limits, BATCH_MAX, &mut self.batch)
    }

    /// Returns the requests that were decoded from `consumed` bytes, up to one that no server
    /// writes; returns their number.
    fn give(&mut self, consumed: usize, each: &mut impl FnMut(AofRequest<'_>)) -> usize {
        let input = &self.buffer[self.start..self.filled];
        let offset = self.before + self.start as u64;
        let (mut begin, mut given) = (0, 0);
        for request in self.batch.iter(input) {
            let rest = &input[begin..];
            let len = match rest {
                [b'*', b'1'..=b'9', ..] => request.wire_bytes(),
                [b'#', ..] => line_bytes(rest),
                _ => 0,
            };
            let Some(bytes) = rest.get(..len).filter(|bytes| !bytes.is_empty()) else {
                self.fault = Some(Cut::Damaged(offset + begin as u64));
                break;
            };
            if bytes.first() == Some(&b'*') {
                given += 1;
                each(AofRequest {
                    offset: offset + begin as u64,
                    bytes,
                    request,
                });
            }
            begin += len;
        }
        // The decoder skips empty requests.
        if begin != consumed && self.fault.is_none() {
            self.fault = Some(Cut::Damaged(offset + begin as u64));
        }
        given
    }

    /// Checks what is left at the end of the file.
    fn end(&mut self) -> Result<(), ReadFault> {
        let cut = match self.buffer.get(self.start..self.filled) {
            None | Some([]) => return Ok(()),
            Some(rest) if begins_well(rest) => Cut::Short(self.offset()),
            Some(_) => Cut::Damaged(self.offset()),
        };
        self.fault = Some(cut);
        Err(ReadFault::Cut(cut))
    }

    /// Reads more, behind the buffered part of the next request.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.filled, 0);
        self.before += self.start as u64;
        self.filled -= self.start;
        self.start = 0;
        let wanted = (2 * self.filled).max(READ_BYTES);
        if self.buffer.len() > KEPT_BYTES.max(wanted) {
            self.buffer.truncate(wanted);
            self.buffer.shrink_to_fit();
        }
        if self.buffer.len() - self.filled < wanted / 2 {
            self.buffer.resize(wanted, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.is_at_end = true,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

/// Whether `bytes` can be the beginning of a request or of an annotation.
fn begins_well(bytes: &[u8]) -> bool {
    if bytes.first() == Some(&b'#') {
        return !bytes.contains(&0);
    }
    pass_request(bytes) == Err(Flaw::Cut)
}

/// Why bytes are no whole request.
#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    /// They end within it.
    Cut,
    /// Something else is there.
    Wrong,
}

fn pass_request(bytes: &[u8]) -> Result<(), Flaw> {
    let (count, mut rest) = pass_line(bytes, b'*')?;
    for _ in 0..count {
        let (length, argument) = pass_line(rest, b'$')?;
        let behind = argument.get(length..).ok_or(Flaw::Cut)?;
        rest = pass_line_end(behind)?;
    }
    Ok(())
}

/// Returns the number behind its mark on a line, and the bytes behind the line.
fn pass_line(bytes: &[u8], mark: u8) -> Result<(usize, &[u8]), Flaw> {
    let (first, rest) = bytes.split_first().ok_or(Flaw::Cut)?;
    let digits_count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, behind) = rest.split_at(digits_count);
    if *first != mark || digits.is_empty() && !behind.is_empty() {
        return Err(Flaw::Wrong);
    }
    let behind = pass_line_end(behind)?;
    let number = parse_u64(digits).and_then(|number| usize::try_from(number).ok());
    Ok((number.ok_or(Flaw::Wrong)?, behind))
}

fn pass_line_end(bytes: &[u8]) -> Result<&[u8], Flaw> {
    let is_cut = b"\r\n".starts_with(bytes);
    let flaw = if is_cut && bytes.len() < 2 {
        Flaw::Cut
    } else {
        Flaw::Wrong
    };
    bytes.strip_prefix(b"\r\n").ok_or(flaw)
}

/// Returns the length of the first line.
fn line_bytes(bytes: &[u8]) -> usize {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use base::random::Prng;

    use super::*;

    /// Returns a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    /// Returns the requests with their offsets, and how the file ends.
    fn read(bytes: &[u8], step: usize) -> (Vec<(u64, String)>, Option<Cut>) {
        let mut reader = AofReader::new(Trickle(bytes, step), 1000);
        let mut seen = Vec::new();
        loop {
            let next = reader.next(|found| {
                let at = usize::try_from(found.offset - 1000).unwrap();
                assert!(bytes[at..].starts_with(found.bytes));
                let words: Vec<&[u8]> = found.request.iter().collect();
                seen.push((found.offset, words.join(&b' ').escape_ascii().to_string()));
            });
            match next {
                Ok(true) => {}
                Ok(false) => return (seen, None),
                Err(ReadFault::Cut(cut)) => return (seen, Some(cut)),
                Err(ReadFault::Io(error)) => panic!("{error}"),
            }
        }
    }

    const SET: &str = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";

    fn whole() -> (Vec<u8>, Vec<(u64, String)>) {
        let long = "x".repeat(700_000);
        let parts = [
            (SET.to_owned(), "SET a 1"),
            ("#TS:1700000000\r\n".to_owned(), ""),
            (SET.to_owned(), "SET a 1"),
            (
                format!("*2\r\n$4\r\nECHO\r\n${}\r\n{long}\r\n", long.len()),
                "long",
            ),
            (SET.to_owned(), "SET a 1"),
        ];
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (text, shown) in parts {
            let shown = shown.replace("long", &format!("ECHO {long}"));
            if !shown.is_empty() {
                expected.push((1000 + bytes.len() as u64, shown));
            }
            bytes.extend_from_slice(text.as_bytes());
        }
        (bytes, expected)
    }

    #[test]
    fn requests_come_with_their_offsets_however_bytes_arrive() {
        let (bytes, expected) = whole();
        for step in [7919, 1 << 20] {
            assert_eq!(read(&bytes, step), (expected.clone(), None));
        }
        let many = SET.repeat(2000);
        let (seen, cut) = read(many.as_bytes(), 100_000);
        assert_eq!((seen.len(), cut), (2000, None));
        assert_eq!(seen[1999].0, 1000 + 1999 * SET.len() as u64);
        assert_eq!(read(b"", 1), (Vec::new(), None));
        assert_eq!(read(b"#TS:5\r\n", 1), (Vec::new(), None));
    }

    #[test]
    fn a_tail_that_is_cut_off_is_short_at_any_byte() {
        let bytes = [SET, SET].concat();
        for end in SET.len() + 1..bytes.len() {
            let (seen, cut) = read(&bytes.as_bytes()[..end], 1 << 20);
            let offset = 1000 + SET.len() as u64;
            assert_eq!((seen.len(), cut), (1, Some(Cut::Short(offset))), "{end}");
        }
    }

    #[test]
    fn what_is_no_request_is_damage_where_it_begins() {
        for wrong in [
            "\0\0\0\0",
            "\0\0\r\n",
            "\r\n",
            "SET a 1\r\n",
            "SET",
            "*0\r\n",
            "*-1\r\n",
            "*x\r\n",
            "*1\r\n:3\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n$9999999999999\r\n",
            "*1\r\n\0\0\0\0",
        ] {
            for behind in ["", SET] {
                let text = [SET, SET, wrong, behind].concat();
                let offset = 1000 + 2 * SET.len() as u64;
                let (seen, cut) = read(text.as_bytes(), 1 << 20);
                assert_eq!(
                    (seen.len(), cut),
                    (2, Some(Cut::Damaged(offset))),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn the_end_is_the_same_however_bytes_arrive() {
        let parts = [
            SET,
            SET,
            SET,
            "*2\r\n$3\r\nDEL\r\n$1\r\na\r\n",
            "*1\r\n$03\r\nabc\r\n",
            "#TS:1\r\n",
            "#\"x\r\n",
            "*0\r\n",
            "*01\r\n$1\r\na\r\n",
            "\r\n",
            "\n",
            "abc\n",
            "abc",
            "*2\r\n$1\r\nab\r\n",
            "*3\r\n$3\r\nSET\r\n$1",
            "*",
            "#",
            "\0",
        ];
        let mut random = Prng::seeded(5);
        for _ in 0..2_000 {
            let count = 1 + random.below(6);
            let mut draw = || parts[usize::try_from(random.below(parts.len() as u64)).unwrap()];
            let text: String = (0..count).map(|_| draw()).collect();
            let (seen, cut) = read(text.as_bytes(), 1 << 20);
            for step in [1, 3, 20] {
                let other = read(text.as_bytes(), step);
                assert_eq!(other, (seen.clone(), cut), "{text:?} by {step}");
            }
            if let Some(Cut::Short(offset) | Cut::Damaged(offset)) = cut {
                let at = usize::try_from(offset - 1000).unwrap();
                let (behind, _) = read(&text.as_bytes()[at..], 1 << 20);
                assert!(behind.is_empty(), "{text:?}");
            }
        }
    }

    #[test]
    fn claims_take_no_memory() {
        let mut reader = AofReader::new(Trickle(b"*2\r\n$3\r\nSET\r\n$4000000000\r\nabc", 4), 0);
        let cut = reader.next(|_| ());
        assert!(matches!(cut, Err(ReadFault::Cut(Cut::Short(0)))), "{cut:?}");
        assert!(reader.buffer.len() <= READ_BYTES);
    }
}
