//! Finds the ends of replies in a stream and counts failures, without keeping the replies.
//!
//! Most replies are short and complete in what was read; those cost a few comparisons. The others
//! go through a state machine that may stop at any byte: a line is kept until its end, a string is
//! skipped.

use std::fmt;

use base::number::parse_i64;

/// Maximum number of bytes of a line that are kept, which bounds the text of an error.
const LINE_BYTES_MAX: usize = 256;

/// Findings in replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Replies that are errors or contain one.
    pub(crate) errors: u64,
    /// Nulls: requests for missing keys.
    pub(crate) misses: u64,
    /// The text of the first error.
    pub(crate) first_error: Option<String>,
}

/// The bytes are not replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAReply(String);

impl fmt::Display for NotAReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server sent what is no reply: '{}'", self.0)
    }
}

impl std::error::Error for NotAReply {}

/// The replies of one connection.
#[derive(Debug, Default)]
pub(crate) struct ReplyScanner {
    /// Number of values missing until the present reply is complete; 0 between replies.
    missing: u64,
    /// Number of remaining bytes of a string, including its line end.
    skip: usize,
    /// The received part of a line.
    line: Vec<u8>,
    /// Whether the present reply answers no request.
    is_push: bool,
}

impl ReplyScanner {
    /// Scans received bytes. Returns how many replies ended in them.
    ///
    /// # Errors
    /// [`NotAReply`]; the connection is unusable afterwards.
    #[inline]
    pub(crate) fn scan(&mut self, bytes: &[u8], tally: &mut Tally) -> Result<u64, NotAReply> {
        let mut complete = 0;
        let mut rest = bytes;
        loop {
            if self.missing == 0 {
                while let Some(after) = after_short_reply(rest) {
                    rest = after;
                    complete += 1;
                }
            }
            if rest.is_empty() {
                return Ok(complete);
            }
            rest = self.step(rest, &mut complete, tally)?;
        }
    }

    /// Takes a string, a line, or the available part of one. Returns what follows.
    fn step<'a>(
        &mut self,
        bytes: &'a [u8],
        complete: &mut u64,
        tally: &mut Tally,
    ) -> Result<&'a [u8], NotAReply> {
        if self.skip > 0 {
            let taken = self.skip.min(bytes.len());
            self.skip -= taken;
            if self.skip == 0 {
                *complete += self.value_ended();
            }
            return Ok(&bytes[taken..]);
        }
        if self.missing == 0 {
            self.missing = 1;
            self.is_push = bytes.first() == Some(&b'>');
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        let Some(end) = end else {
            return Ok(&[]);
        };
        let line = std::mem::take(&mut self.line);
        *complete += self.take_line(line.strip_suffix(b"\r").unwrap_or(&line), tally)?;
        self.line = line;
        self.line.clear();
        Ok(&bytes[end + 1..])
    }

    fn take_line(&mut self, line: &[u8], tally: &mut Tally) -> Result<u64, NotAReply> {
        let not_a_reply = || NotAReply(line.escape_ascii().to_string());
        let (&marker, text) = line.split_first().ok_or_else(not_a_reply)?;
        match marker {
            b'+' | b':' | b',' | b'#' | b'(' => return Ok(self.value_ended()),
            b'-' => {
                tally.errors += 1;
                let shown = || String::from_utf8_lossy(text).into_owned();
                tally.first_error.get_or_insert_with(shown);
                return Ok(self.value_ended());
            }
            b'_' => {
                tally.misses += 1;
                return Ok(self.value_ended());
            }
            b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|' => {}
            _ => return Err(not_a_reply()),
        }
        let length = parse_i64(text).ok_or_else(not_a_reply)?;
        let Ok(length) = usize::try_from(length) else {
            tally.misses += 1;
            return Ok(self.value_ended());
        };
        match marker {
            b'$' | b'=' | b'!' => {
                tally.errors += u64::from(marker == b'!');
                self.skip = length.checked_add(2).ok_or_else(not_a_reply)?;
                Ok(0)
            }
            _ => self.open(marker, length as u64).ok_or_else(not_a_reply),
        }
    }

    /// Begins an aggregate of `length` elements: so many more values are missing.
    fn open(&mut self, marker: u8, length: u64) -> Option<u64> {
        let values = match marker {
            b'%' | b'|' => length.checked_mul(2)?,
            _ => length,
        };
        self.missing = self.missing.checked_add(values)?;
        // The decorated value follows an attribute, which is not a value itself.
        Some(if marker == b'|' {
            0
        } else {
            self.value_ended()
        })
    }

    /// Ends a value. Returns 1 if that completes a reply to a request.
    fn value_ended(&mut self) -> u64 {
        self.missing -= 1;
        u64::from(self.missing == 0 && !self.is_push)
    }
}

/// Returns what follows the reply at the front, if it is simple, complete, and neither an error nor
/// null.
#[inline]
fn after_short_reply(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [b'+', b'O', b'K', b'\r', b'\n', rest @ ..] => Some(rest),
        [b'$', digits @ ..] => after_string(digits),
        [b':' | b'+', line @ ..] => {
            let end = line.iter().position(|&byte| byte == b'\n')?;
            line.get(end + 1..)
        }
        _ => None,
    }
}

/// Returns what follows a string whose length begins `bytes`.
#[inline]
fn after_string(bytes: &[u8]) -> Option<&[u8]> {
    let mut length = 0_usize;
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            digit @ b'0'..=b'9' if at < 9 => length = length * 10 + usize::from(digit - b'0'),
            b'\r' if at > 0 => break,
            _ => return None,
        }
        at += 1;
    }
    match bytes.get(at + 2 + length..)? {
        [b'\r', b'\n', rest @ ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scanned(bytes: &[u8], piece_bytes: usize) -> Result<(u64, Tally), NotAReply> {
        let mut scanner = ReplyScanner::default();
        let mut tally = Tally::default();
        let mut complete = 0;
        for piece in bytes.chunks(piece_bytes) {
            complete += scanner.scan(piece, &mut tally)?;
        }
        Ok((complete, tally))
    }

    #[test]
    fn replies_are_counted_wherever_they_are_cut() {
        let replies: &[(&str, u64, u64)] = &[
            ("+OK\r\n", 0, 0),
            ("+PONG\r\n", 0, 0),
            (":-12\r\n", 0, 0),
            ("$5\r\nhello\r\n", 0, 0),
            ("$0\r\n\r\n", 0, 0),
            ("$12\r\n+OK\r\n-ERR\r\n$\r\n", 0, 0),
            ("$-1\r\n", 0, 1),
            ("_\r\n", 0, 1),
            ("*-1\r\n", 0, 1),
            ("-ERR unknown command\r\n", 1, 0),
            ("!5\r\nERR x\r\n", 1, 0),
            ("*0\r\n", 0, 0),
            ("*3\r\n$1\r\na\r\n$-1\r\n*2\r\n:1\r\n:2\r\n", 0, 1),
            ("%2\r\n+a\r\n:1\r\n+b\r\n_\r\n", 0, 1),
            ("~1\r\n,1.5\r\n", 0, 0),
            ("|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n", 0, 0),
            ("#t\r\n", 0, 0),
            ("=7\r\ntxt:abc\r\n", 0, 0),
        ];
        for piece_bytes in 1..40 {
            let all: String = replies.iter().map(|(text, _, _)| *text).collect();
            let (complete, tally) = scanned(all.as_bytes(), piece_bytes).unwrap();
            assert_eq!(complete, replies.len() as u64);
            assert_eq!(
                tally.errors,
                replies.iter().map(|reply| reply.1).sum::<u64>()
            );
            assert_eq!(
                tally.misses,
                replies.iter().map(|reply| reply.2).sum::<u64>()
            );
            assert_eq!(tally.first_error.as_deref(), Some("ERR unknown command"));
        }
    }

    #[test]
    fn pushed_messages_answer_nothing() {
        let (complete, _) = scanned(b">2\r\n+invalidate\r\n*1\r\n+k\r\n+OK\r\n", 3).unwrap();
        assert_eq!(complete, 1);
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            "OK\r\n",
            "$x\r\n",
            "\r\n",
            "%9223372036854775807\r\n".repeat(2).as_str(),
        ] {
            assert!(scanned(bytes.as_bytes(), 64).is_err(), "{bytes}");
        }
        assert_eq!(
            scanned(b"hello\r\n", 64).unwrap_err().to_string(),
            "the server sent what is no reply: 'hello'"
        );
    }

    proptest! {
        #[test]
        fn agrees_with_the_decoder(
            texts in prop::collection::vec("[a-z\r\n$+:*-]{0,20}", 1..20),
            piece_bytes in 1_usize..50,
        ) {
            let mut bytes = Vec::new();
            for text in &texts {
                bytes.extend_from_slice(format!("${}\r\n{text}\r\n", text.len()).as_bytes());
            }
            let (complete, tally) = scanned(&bytes, piece_bytes).unwrap();
            prop_assert_eq!(complete, texts.len() as u64);
            prop_assert_eq!(tally, Tally::default());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..20) {
            let _outcome = scanned(&bytes, piece);
        }
    }
}
