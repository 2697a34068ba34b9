//! The flags of meta commands.

use base::number::{parse_i64, parse_u64};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::limits::OPAQUE_BYTES_MAX;
use crate::owed::MetaKind;
use crate::words::{deadline_unix_ms, is_key, number32};

/// The flags of a meta command, and the order in which the client wants values returned.
#[derive(Debug, Default)]
pub(crate) struct MetaFlags {
    /// The flags that return something, in their order.
    pub(crate) returned: Vec<u8>,
    pub(crate) opaque: Box<[u8]>,
    pub(crate) is_quiet: bool,
    pub(crate) wants_value: bool,
    pub(crate) has_base64_key: bool,
    pub(crate) cas: Option<u64>,
    pub(crate) client_flags: u32,
    /// T: the deadline, in milliseconds since 1970; 0 for none.
    pub(crate) deadline_unix_ms: Option<u64>,
    /// N: the deadline of an item that is created because it does not exist; 0 for none.
    pub(crate) made_deadline_unix_ms: Option<u64>,
    pub(crate) initial: u64,
    pub(crate) delta: Option<u64>,
    /// R: an item whose deadline is before this time is to be fetched anew; in milliseconds since
    /// 1970.
    pub(crate) recache_unix_ms: Option<u64>,
    /// I: outdated items are marked, or may be stored.
    pub(crate) is_stale: bool,
    /// x: the item loses its value.
    pub(crate) empties: bool,
    pub(crate) mode: Option<u8>,
}

/// Returns the flags of each command.
const fn known(kind: MetaKind) -> &'static [u8] {
    match kind {
        MetaKind::Get => b"bcfkOqstvTNR",
        MetaKind::Set => b"bcCFkOqsTMSI",
        MetaKind::Delete => b"bCkOqITx",
        MetaKind::Arithmetic => b"bcCNJDTMkOqv",
        MetaKind::Debug => b"b",
    }
}

/// Flags of memcached that are not supported here, with or without a token.
const UNSERVED: &[u8] = b"hlE";

impl MetaFlags {
    /// Parses the flags of a line.
    ///
    /// # Errors
    /// The text of the error reply.
    pub(crate) fn parse<'a>(
        kind: MetaKind,
        words: impl Iterator<Item = &'a [u8]>,
        now_unix_ms: u64,
    ) -> Result<Self, &'static [u8]> {
        let mut flags = Self::default();
        for word in words {
            let Some((flag, token)) = word.split_first() else {
                continue;
            };
            if !known(kind).contains(flag) {
                return Err(if UNSERVED.contains(flag) {
                    b"CLIENT_ERROR flag is not served\r\n"
                } else {
                    b"CLIENT_ERROR invalid flag\r\n"
                });
            }
            flags.take(*flag, token, now_unix_ms)?;
        }
        Ok(flags)
    }

    fn take(&mut self, flag: u8, token: &[u8], now_unix_ms: u64) -> Result<(), &'static [u8]> {
        let bad = &b"CLIENT_ERROR bad token in command line format\r\n"[..];
        match flag {
            b'q' => self.is_quiet = true,
            b'v' => self.wants_value = true,
            b'I' => self.is_stale = true,
            b'x' => self.empties = true,
            b'b' => {
                self.has_base64_key = true;
                self.returned.push(flag);
            }
            b'c' | b'f' | b'k' | b's' | b't' => self.returned.push(flag),
            b'O' => {
                if token.is_empty() || token.len() > OPAQUE_BYTES_MAX {
                    return Err(b"CLIENT_ERROR opaque token too long\r\n");
                }
                self.opaque = token.into();
                self.returned.push(flag);
            }
            b'C' => self.cas = Some(parse_u64(token).ok_or(bad)?),
            b'F' => self.client_flags = number32(token).ok_or(bad)?,
            b'T' => self.deadline_unix_ms = Some(deadline_unix_ms(token, now_unix_ms).ok_or(bad)?),
            b'N' => {
                let deadline = deadline_unix_ms(token, now_unix_ms).ok_or(bad)?;
                self.made_deadline_unix_ms = Some(deadline);
            }
            b'R' => {
                let seconds = number32(token).ok_or(bad)?;
                let unix_ms = now_unix_ms.saturating_add(u64::from(seconds) * 1_000);
                self.recache_unix_ms = Some(unix_ms);
            }
            b'J' => self.initial = parse_u64(token).ok_or(bad)?,
            b'D' => self.delta = Some(parse_u64(token).ok_or(bad)?),
            b'M' => self.mode = Some(*token.first().ok_or(bad)?),
            // The length in the syntax of older clients, which is now before the flags.
            b'S' => {
                parse_i64(token).ok_or(bad)?;
            }
            _ => return Err(bad),
        }
        Ok(())
    }

    /// Returns the key that a word names.
    pub(crate) fn key(&self, word: &[u8]) -> Option<Vec<u8>> {
        if !is_key(word) {
            return None;
        }
        if !self.has_base64_key {
            return Some(word.to_vec());
        }
        let key = STANDARD.decode(word).ok()?;
        (!key.is_empty()).then_some(key)
    }
}
