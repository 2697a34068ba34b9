//! Where the replies of another node end, without a copy of them.

/// What is known of a reply that comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner {
    /// Up to where it was looked at.
    at: usize,
    /// So many elements are still to come.
    left: u64,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { at: 0, left: 1 }
    }
}

/// What is at the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// A reply of so many bytes. The scanner begins anew behind it.
    Reply(usize),
    /// A part of one. So many bytes have to be there, as far as is known, before there can be more.
    Needs(usize),
    /// Nothing that a server sends.
    Malformed,
}

/// A line is not longer, but for errors and simple strings.
const HEADER_BYTES_MAX: usize = 32;

impl Scanner {
    /// Looks on. `input` begins with the reply.
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
                // An attribute is followed by what it is about.
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

/// The elements of an array, or none where `reply` is no whole array.
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

/// The number of an integer reply.
pub(crate) fn integer(reply: &[u8]) -> Option<i64> {
    base::number::parse_i64(reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?)
}

/// Whether a reply says that its request was not run, since the node does not serve the slot, or not yet: it can be sent again.
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
            // A byte at a time, with what is known kept.
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
