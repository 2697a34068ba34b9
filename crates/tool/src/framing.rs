//! Finds the end of a reply while it is received: every byte is scanned once, however often more
//! bytes are received.

/// How far the reply at the front of some bytes was scanned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyEnd {
    /// Position up to which the reply was scanned.
    at: usize,
    /// Number of values still to come.
    left: u64,
}

impl Default for ReplyEnd {
    fn default() -> Self {
        Self { at: 0, left: 1 }
    }
}

impl ReplyEnd {
    /// Returns the end of the reply, if it is complete. For bytes that are not a reply it ends at
    /// once: the decoder reports the fault.
    pub(crate) fn find(&mut self, input: &[u8]) -> Option<usize> {
        while self.left > 0 {
            let rest = input.get(self.at..)?;
            let line_end = rest.windows(2).position(|two| two == b"\r\n")?;
            let line = &rest[..line_end];
            let next = self.at + line_end + 2;
            let (kind, text) = line.split_first()?;
            let count = || {
                let text = std::str::from_utf8(text).ok()?;
                text.parse::<i64>().ok()
            };
            match kind {
                b'$' | b'!' | b'=' => {
                    let Some(count) = count() else {
                        return Some(next);
                    };
                    let length = usize::try_from(count).map_or(0, |count| count + 2);
                    if input.len() - next < length {
                        return None;
                    }
                    self.at = next + length;
                    self.left -= 1;
                }
                b'*' | b'~' | b'>' | b'%' | b'|' => {
                    let Some(count) = count() else {
                        return Some(next);
                    };
                    let count = u64::try_from(count).unwrap_or(0);
                    let values = match kind {
                        b'%' => count.saturating_mul(2),
                        // The decorated value follows the attribute.
                        b'|' => count.saturating_mul(2).saturating_add(1),
                        _ => count,
                    };
                    self.at = next;
                    self.left = (self.left - 1).saturating_add(values);
                }
                _ => {
                    self.at = next;
                    self.left -= 1;
                }
            }
        }
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_whatever_the_pieces() {
        for reply in [
            &b"+OK\r\n"[..],
            b"$5\r\nhe\r\no\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            b"%1\r\n+a\r\n*2\r\n:1\r\n,1.5\r\n",
            b"|1\r\n+a\r\n:1\r\n_\r\n",
            b"=7\r\ntxt:abc\r\n",
        ] {
            let input = [reply, b"+next\r\n"].concat();
            let mut end = ReplyEnd::default();
            for len in 0..reply.len() {
                assert_eq!(
                    end.find(&input[..len]),
                    None,
                    "{} {len}",
                    reply.escape_ascii()
                );
            }
            assert_eq!(end.find(&input), Some(reply.len()));
        }
    }
}
