//! Finds the ends of another node's replies, without copying them.

/// State of an incomplete reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner {
    /// Position up to which it was scanned.
    at: usize,
    /// Number of elements still to come.
    left: u64,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { at: 0, left: 1 }
    }
}

/// What some bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// A reply of this many bytes. The scanner then starts over after it.
    Reply(usize),
    /// Part of a reply. At least this many bytes are needed, as far as is known, before scanning
    /// can go on.
    Needs(usize),
    /// Not a valid reply.
    Malformed,
}

/// Maximum length of a line, except of errors and simple strings.
const HEADER_BYTES_MAX: usize = 32;

impl Scanner {
    /// Continues scanning. `input` begins with the reply.
    pub(crate) fn next(&mut self, input: &[u8]) -> Scanned {
        while self.left > 0 {
            let rest = input.get(self.at..).unwrap_or_default();
            let Some(&kind) = rest.first() else {
                return Scanned::Needs(self.at + 1);
            };
            let Some(end) = memchr::memchr(b'\n', rest) else {
                let is_text = matches!(kind, b'+' | b'-' | b'(');
                return match rest.len() > HEADER_BYTES_MAX && !is_text {
                    true => Scanned::Malformed,
                    false => Scanned::Needs(input.len() + 1),
                };
            };
            let line = rest.get(1..end.saturating_sub(1)).unwrap_or_default();
            let number = || base::number::parse_i64(line);
            let (more, body) = match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => (0, 0),
                b'$' | b'=' | b'!' => match number().map(usize::try_from) {
                    Some(Ok(len)) => (0, len + 2),
                    // A null of RESP2.
                    Some(Err(_)) => (0, 0),
                    None => return Scanned::Malformed,
                },
                b'*' | b'~' | b'>' => match number() {
                    Some(count) => (u64::try_from(count).unwrap_or(0), 0),
                    None => return Scanned::Malformed,
                },
                b'%' => match number() {
                    Some(count) => (u64::try_from(count).unwrap_or(0).saturating_mul(2), 0),
                    None => return Scanned::Malformed,
                },
                // An attribute is followed by the value that it describes.
                b'|' => match number() {
                    Some(count) => (u64::try_from(count).unwrap_or(0).saturating_mul(2) + 1, 0),
                    None => return Scanned::Malformed,
                },
                _ => return Scanned::Malformed,
            };
            let past = self.at + end + 1 + body;
            if past > input.len() {
                return Scanned::Needs(past);
            }
            self.at = past;
            self.left = (self.left - 1).saturating_add(more);
        }
        let len = self.at;
        *self = Self::default();
        Scanned::Reply(len)
    }
}

/// Returns the elements of an array, or `None` if `reply` is not a complete array.
pub(crate) fn elements(reply: &[u8]) -> Option<Vec<&[u8]>> {
    let end = memchr::memchr(b'\n', reply)?;
    let count = match reply.first() {
        Some(b'*' | b'~') => base::number::parse_i64(reply.get(1..end.checked_sub(1)?)?)?,
        _ => return None,
    };
    let mut rest = reply.get(end + 1..)?;
    let mut found = Vec::new();
    for _ in 0..count.max(0) {
        let Scanned::Reply(len) = Scanner::default().next(rest) else {
            return None;
        };
        let (one, others) = rest.split_at(len);
        found.push(one);
        rest = others;
    }
    Some(found)
}

/// Parses an integer reply.
pub(crate) fn integer(reply: &[u8]) -> Option<i64> {
    base::number::parse_i64(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?)
}

/// Whether a reply says that its request was not run because the node does not serve the slot
/// (yet). Then the request can be sent again.
pub(crate) fn is_refusal(reply: &[u8]) -> bool {
    const REFUSALS: &[&[u8]] = &[
        b"-MOVED ",
        b"-CLUSTERDOWN ",
        b"-TRYAGAIN ",
        b"-ASK ",
        b"-LOADING ",
    ];
    REFUSALS.iter().any(|refusal| reply.starts_with(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_ends_however_it_comes() {
        let replies: &[&[u8]] = &[
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":12\r\n",
            b"$-1\r\n",
            b"$3\r\na\nb\r\n",
            b"$0\r\n\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            b"%1\r\n+a\r\n*2\r\n_\r\n#t\r\n",
            b"|1\r\n+ttl\r\n:1\r\n,1.5\r\n",
            b"=7\r\ntxt:abc\r\n",
            b">2\r\n+a\r\n+b\r\n",
            b"(123456789012345678901234567890\r\n",
        ];
        for reply in replies {
            let mut input = reply.to_vec();
            input.extend_from_slice(b"+NEXT\r\n");
            assert_eq!(
                Scanner::default().next(&input),
                Scanned::Reply(reply.len()),
                "{reply:?}"
            );
            // One byte at a time, with the scanner's state kept.
            let mut scanner = Scanner::default();
            for end in 0..reply.len() {
                let needs = scanner.next(&reply[..end]);
                assert!(
                    matches!(needs, Scanned::Needs(more) if more > end),
                    "{reply:?} {end}"
                );
            }
            assert_eq!(scanner.next(reply), Scanned::Reply(reply.len()));
        }
    }

    #[test]
    fn what_no_server_sends_is_said_to_be_that() {
        for wrong in [&b"x\r\n"[..], b"*x\r\n", b"$\r\n", b"%a\r\n"] {
            assert_eq!(Scanner::default().next(wrong), Scanned::Malformed);
        }
        let endless = [&b"*"[..], &[b'1'; 40]].concat();
        assert_eq!(Scanner::default().next(&endless), Scanned::Malformed);
        let huge = b"*9223372036854775807\r\n:1\r\n";
        assert!(matches!(Scanner::default().next(huge), Scanned::Needs(_)));
        let long = b"$9223372036854775807\r\n";
        assert!(matches!(
            Scanner::default().next(long),
            Scanned::Needs(_) | Scanned::Malformed
        ));
    }

    #[test]
    fn arrays_are_taken_apart() {
        let reply = b"*3\r\n$1\r\na\r\n$-1\r\n*1\r\n:1\r\n";
        let parts: [&[u8]; 3] = [b"$1\r\na\r\n", b"$-1\r\n", b"*1\r\n:1\r\n"];
        assert_eq!(elements(reply), Some(parts.to_vec()));
        assert_eq!(elements(b"*2\r\n:1\r\n"), None);
        assert_eq!(elements(b"-ERR\r\n"), None);
        assert_eq!(integer(b":-3\r\n"), Some(-3));
        assert_eq!(integer(b"+3\r\n"), None);
    }
}
