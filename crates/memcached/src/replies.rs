//! Translation of replies to the text of memcached.

use base::number::parse_i64;
use protocol::ReplyBuffer;

use crate::front::Broken;
use crate::meta_reply;
use crate::owed::Owed;
use crate::stats;

/// The first part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Null,
    Array(i64),
}

/// Writes texts for replies.
pub(crate) struct Writer<'a> {
    /// The replies that remain.
    pub(crate) replies: &'a [u8],
    /// The commands, which contain the keys.
    pub(crate) requests: &'a [u8],
    pub(crate) out: &'a mut ReplyBuffer,
    pub(crate) line_failed: &'a mut bool,
}

impl Owed {
    /// Returns whether a command runs for this entry.
    pub(crate) const fn has_reply(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Made(_) | Self::EndOfItems)
    }
}

/// Returns the first part of replies, and the rest.
fn part_of(replies: &[u8]) -> Result<(Part<'_>, &[u8]), Broken> {
    let end = replies.windows(2).position(|two| two == b"\r\n");
    let end = end.ok_or(Broken)?;
    let (marker, text) = replies[..end].split_first().ok_or(Broken)?;
    let mut rest = &replies[end + 2..];
    let number = || parse_i64(text).ok_or(Broken);
    let part = match marker {
        b'+' => Part::Simple(text),
        b'-' => Part::Error(text),
        b':' => Part::Integer(number()?),
        b'*' => match number()? {
            -1 => Part::Null,
            len => Part::Array(len),
        },
        b'$' => match number()? {
            -1 => Part::Null,
            len => {
                let len = usize::try_from(len).map_err(|_| Broken)?;
                let (content, after) = rest.split_at_checked(len).ok_or(Broken)?;
                rest = after.strip_prefix(b"\r\n").ok_or(Broken)?;
                Part::Bulk(content)
            }
        },
        _ => return Err(Broken),
    };
    Ok((part, rest))
}

/// Returns the rest after the first of some replies.
pub(crate) fn skip(mut replies: &[u8]) -> Result<&[u8], Broken> {
    let mut parts: i64 = 1;
    while parts > 0 {
        let (part, rest) = part_of(replies)?;
        replies = rest;
        parts -= 1;
        if let Part::Array(len) = part {
            parts = i64::saturating_add(parts, len);
        }
    }
    Ok(replies)
}

impl<'a> Writer<'a> {
    /// Returns the next part of the replies.
    pub(crate) fn part(&mut self) -> Result<Part<'a>, Broken> {
        let (part, rest) = part_of(self.replies)?;
        self.replies = rest;
        Ok(part)
    }

    /// Returns the next part as a number.
    pub(crate) fn integer(&mut self) -> Result<i64, Broken> {
        match self.part()? {
            Part::Integer(number) => Ok(number),
            _ => Err(Broken),
        }
    }

    /// Returns the next part as a string.
    pub(crate) fn bulk(&mut self) -> Result<&'a [u8], Broken> {
        match self.part()? {
            Part::Bulk(text) => Ok(text),
            _ => Err(Broken),
        }
    }

    /// Returns a status such as `STORED`, alone or as the first element of an array if `parts` is
    /// not 0, or the text of an error.
    pub(crate) fn status(&mut self, parts: usize) -> Result<Result<&'a [u8], &'a [u8]>, Broken> {
        let first = match self.part()? {
            Part::Array(_) if parts > 0 => self.part()?,
            first => first,
        };
        match first {
            Part::Simple(text) => Ok(Ok(text)),
            Part::Error(text) => Ok(Err(text)),
            _ => Err(Broken),
        }
    }

    /// Writes the text of the next owed entry.
    pub(crate) fn write(&mut self, owed: &'a Owed) -> Result<(), Broken> {
        match owed {
            Owed::Text(text) => self.out.push_slice(text),
            Owed::Made(text) => self.out.push_slice(text),
            Owed::Item { key, shows_cas } => {
                let key = self.requests.get(key.start..key.start + key.len);
                self.item(key.ok_or(Broken)?, *shows_cas)?;
            }
            Owed::EndOfItems => {
                if !std::mem::take(self.line_failed) {
                    self.out.push_slice(b"END\r\n");
                }
            }
            Owed::Stored { is_quiet } => {
                let status = self.status(1)?;
                if status.is_ok() {
                    self.integer()?;
                }
                self.tell(status, *is_quiet);
            }
            Owed::Counted { is_quiet } => self.counted(*is_quiet)?,
            Owed::Deleted { is_quiet } => {
                let status = self.status(0)?;
                self.tell(status, *is_quiet);
            }
            Owed::Touched { is_quiet } => {
                let status = match self.part()? {
                    Part::Null => Ok(&b"NOT_FOUND"[..]),
                    Part::Array(parts) => {
                        for _ in 0..parts {
                            self.part()?;
                        }
                        Ok(&b"TOUCHED"[..])
                    }
                    Part::Error(text) => Err(text),
                    _ => return Err(Broken),
                };
                self.tell(status, *is_quiet);
            }
            Owed::Ok { is_quiet } => {
                let status = self.status(0)?.map(|_| &b"OK"[..]);
                self.tell(status, *is_quiet);
            }
            Owed::LoggedIn => match self.status(0)? {
                Ok(_) => self.out.push_slice(b"STORED\r\n"),
                Err(_) => self
                    .out
                    .push_slice(b"CLIENT_ERROR authentication failure\r\n"),
            },
            Owed::Reset => {
                let status = self.status(0)?.map(|_| &b"RESET"[..]);
                self.tell(status, false);
            }
            Owed::Stats(version) => match self.part()? {
                Part::Bulk(info) => stats::write(info, version, self.out),
                Part::Error(text) => self.error(text),
                _ => return Err(Broken),
            },
            Owed::Meta(meta) => meta_reply::write(self, meta)?,
        }
        Ok(())
    }

    fn item(&mut self, key: &[u8], shows_cas: bool) -> Result<(), Broken> {
        match self.part()? {
            Part::Null => {}
            Part::Error(text) => {
                if !*self.line_failed {
                    self.error(text);
                }
                *self.line_failed = true;
            }
            Part::Array(_) => {
                let flags = self.integer()?;
                let cas = self.bulk()?;
                let (_deadline, _len) = (self.integer()?, self.integer()?);
                let value = self.bulk()?;
                if *self.line_failed {
                    return Ok(());
                }
                self.out.push_slice(b"VALUE ");
                self.out.push_slice(key);
                self.number(flags);
                self.number(i64::try_from(value.len()).map_err(|_| Broken)?);
                if shows_cas {
                    self.out.push_slice(b" ");
                    self.out.push_slice(cas);
                }
                self.out.push_slice(b"\r\n");
                self.out.push_slice(value);
                self.out.push_slice(b"\r\n");
            }
            _ => return Err(Broken),
        }
        Ok(())
    }

    fn counted(&mut self, is_quiet: bool) -> Result<(), Broken> {
        let status = match self.status(2)? {
            Ok(status) => {
                let number = self.bulk()?;
                self.integer()?;
                Ok(if status == b"STORED" { number } else { status })
            }
            error => error,
        };
        self.tell(status, is_quiet);
        Ok(())
    }

    /// Writes a blank and a number.
    pub(crate) fn number(&mut self, number: i64) {
        self.out.push_slice(b" ");
        self.out
            .push_slice(base::number::IntegerText::new(number).as_bytes());
    }

    /// Writes the line of a status or an error.
    fn tell(&mut self, status: Result<&[u8], &[u8]>, is_quiet: bool) {
        match status {
            _ if is_quiet => {}
            Ok(text) => {
                self.out.push_slice(text);
                self.out.push_slice(b"\r\n");
            }
            Err(text) => self.error(text),
        }
    }

    /// Writes the line of an error.
    pub(crate) fn error(&mut self, text: &[u8]) {
        const OF_CLIENTS: [&[u8]; 2] = [b"NOPERM ", b"NOAUTH "];
        if text.starts_with(b"OOM ") {
            let line = b"SERVER_ERROR out of memory storing object\r\n";
            return self.out.push_slice(line);
        }
        if let Some(text) = text.strip_prefix(b"ERR cannot ") {
            self.out.push_slice(b"CLIENT_ERROR cannot ");
            self.out.push_slice(text);
        } else {
            let is_clients = OF_CLIENTS.iter().any(|word| text.starts_with(word));
            self.out.push_slice(if is_clients {
                b"CLIENT_ERROR "
            } else {
                b"SERVER_ERROR "
            });
            self.out.push_slice(text);
        }
        self.out.push_slice(b"\r\n");
    }
}
