//! The meta commands: `mg`, `ms`, `md`, `ma`, `mn` and `me`.

use base::number::IntegerText;

use crate::classic::{BAD_DATA, BAD_LINE, TOO_LARGE};
use crate::data::{Data, data};
use crate::front::{Sink, Taken};
use crate::meta_flags::MetaFlags;
use crate::owed::{Meta, MetaKind, Owed};
use crate::words::{number32, words};

const BAD_MODE: &[u8] = b"CLIENT_ERROR invalid mode for meta command\r\n";

/// Parses a line and the data after it.
pub(crate) fn take(sink: &mut Sink<'_>, line: &[u8], behind: &[u8]) -> Taken {
    let mut words = words(line);
    let kind = match words.next() {
        Some(b"mn") => {
            sink.say(b"MN\r\n");
            return Taken::All(0);
        }
        Some(b"mg") => MetaKind::Get,
        Some(b"ms") => MetaKind::Set,
        Some(b"md") => MetaKind::Delete,
        Some(b"ma") => MetaKind::Arithmetic,
        Some(b"me") => MetaKind::Debug,
        _ => {
            sink.say(b"ERROR\r\n");
            return Taken::All(0);
        }
    };
    let Some(word) = words.next() else {
        sink.say(BAD_LINE);
        return Taken::All(0);
    };
    let data_bytes = if kind == MetaKind::Set {
        let len = words.next().and_then(number32);
        let Some(len) = len.and_then(|len| usize::try_from(len).ok()) else {
            sink.say(BAD_DATA);
            return Taken::All(0);
        };
        len
    } else {
        0
    };
    let request = match MetaFlags::parse(kind, words, sink.now_unix_ms) {
        Ok(flags) => Request::new(sink, kind, word, flags, data_bytes),
        Err(text) => Err(text),
    };
    match request {
        Ok(request) if kind == MetaKind::Set => request.store(sink, behind),
        Ok(request) => request.ask(sink),
        Err(text) => {
            if kind == MetaKind::Set {
                sink.skip_data(data_bytes);
            }
            sink.say(text);
            Taken::All(0)
        }
    }
}

/// Appends the request by which a client may win the right to fetch an outdated item.
pub(crate) fn ask_to_win(requests: &mut Vec<u8>, meta: &Meta) {
    // The first request had the same key, so it is valid.
    let key = meta.flags.key(&meta.key).unwrap_or_default();
    let mut words = vec![&b"MCWIN"[..], &key];
    if meta.flags.returned.contains(&b'c') {
        words.push(b"CAS");
    }
    if !meta.flags.wants_value {
        words.push(b"NOVALUE");
    }
    protocol::encode_request(requests, &words);
}

/// A parsed meta command.
struct Request {
    key: Vec<u8>,
    /// The mode for MCSET and MCINCR.
    mode: &'static [u8],
    meta: Meta,
}

impl Request {
    fn new(
        sink: &Sink<'_>,
        kind: MetaKind,
        word: &[u8],
        flags: MetaFlags,
        data_bytes: usize,
    ) -> Result<Self, &'static [u8]> {
        let key = flags.key(word).ok_or(BAD_LINE)?;
        if data_bytes > sink.item_bytes_max {
            return Err(TOO_LARGE);
        }
        let mode: &[u8] = match (kind, flags.mode) {
            (MetaKind::Set, None | Some(b'S' | b's')) => b"SET",
            (MetaKind::Set, Some(b'E' | b'e')) => b"ADD",
            (MetaKind::Set, Some(b'A' | b'a')) => b"APPEND",
            (MetaKind::Set, Some(b'P' | b'p')) => b"PREPEND",
            (MetaKind::Set, Some(b'R' | b'r')) => b"REPLACE",
            (MetaKind::Arithmetic, None | Some(b'I' | b'i' | b'+')) => b"INCR",
            (MetaKind::Arithmetic, Some(b'D' | b'd' | b'-')) => b"DECR",
            (MetaKind::Set | MetaKind::Arithmetic, _) => return Err(BAD_MODE),
            _ => b"",
        };
        // If the item turns out to be outdated, it is requested once more, because this client may
        // win the right to fetch it.
        let is_plain = flags.made_deadline_unix_ms.is_none() && flags.recache_unix_ms.is_none();
        let asks_again = kind == MetaKind::Get && is_plain;
        Ok(Self {
            key,
            mode,
            meta: Meta {
                kind,
                key: word.into(),
                flags,
                data_bytes,
                now_unix_ms: sink.now_unix_ms,
                asks_again,
                first: Box::default(),
            },
        })
    }

    /// Adds `ms` with its data.
    fn store(self, sink: &mut Sink<'_>, behind: &[u8]) -> Taken {
        let (block, taken) = match data(behind, self.meta.data_bytes) {
            Data::Whole(block, taken) => (block, taken),
            Data::Partial(needed) => return Taken::Needs(needed),
            Data::Bad(taken) => {
                sink.say(BAD_DATA);
                return Taken::All(taken);
            }
        };
        let flags = &self.meta.flags;
        let client_flags = IntegerText::new_u64(u64::from(flags.client_flags));
        let deadline = IntegerText::new_u64(flags.deadline_unix_ms.unwrap_or_default());
        let cas = flags.cas.map(IntegerText::new_u64);
        let mut request = vec![
            &b"MCSET"[..],
            &self.key,
            block,
            client_flags.as_bytes(),
            deadline.as_bytes(),
            self.mode,
        ];
        if let Some(cas) = &cas {
            request.extend([&b"CAS"[..], cas.as_bytes()]);
            if flags.is_stale {
                request.push(b"STALE");
            }
        }
        sink.ask(&request, Owed::Meta(Box::new(self.meta)));
        Taken::All(taken)
    }

    /// Adds one of the other commands.
    fn ask(self, sink: &mut Sink<'_>) -> Taken {
        let flags = &self.meta.flags;
        let cas = flags.cas.map(IntegerText::new_u64);
        let deadline = flags.deadline_unix_ms.map(IntegerText::new_u64);
        let made_deadline = flags.made_deadline_unix_ms.map(IntegerText::new_u64);
        let delta = IntegerText::new_u64(flags.delta.unwrap_or(1));
        let initial = IntegerText::new_u64(flags.initial);
        let recache = flags.recache_unix_ms.map(IntegerText::new_u64);
        let mut request = vec![&b"MCDEL"[..], &self.key];
        match self.meta.kind {
            MetaKind::Get | MetaKind::Debug => {
                let may_win = made_deadline.is_some() || recache.is_some();
                request[0] = if may_win { b"MCWIN" } else { b"MCGET" };
                match &deadline {
                    Some(deadline) if may_win => {
                        request.extend([&b"PXAT"[..], deadline.as_bytes()]);
                    }
                    Some(deadline) => {
                        request[0] = b"MCGAT";
                        request.push(deadline.as_bytes());
                    }
                    None => {}
                }
                for (word, time) in [(&b"VIVIFY"[..], &made_deadline), (b"RECACHE", &recache)] {
                    if let Some(time) = time {
                        request.extend([word, time.as_bytes()]);
                    }
                }
                if !may_win {
                    request.push(b"MARKS");
                }
                if flags.returned.contains(&b'c') {
                    request.push(b"CAS");
                }
                if !flags.wants_value {
                    request.push(b"NOVALUE");
                }
            }
            MetaKind::Arithmetic => {
                request[0] = b"MCINCR";
                request.extend([self.mode, delta.as_bytes()]);
                if let Some(deadline) = &made_deadline {
                    request.extend([&b"INIT"[..], initial.as_bytes(), deadline.as_bytes()]);
                }
                if let Some(deadline) = &deadline {
                    request.extend([&b"PXAT"[..], deadline.as_bytes()]);
                }
            }
            MetaKind::Delete => {
                if flags.empties {
                    request.push(b"EMPTY");
                }
                if flags.is_stale {
                    request.push(b"STALE");
                    if let Some(deadline) = &deadline {
                        request.extend([&b"PXAT"[..], deadline.as_bytes()]);
                    }
                }
            }
            MetaKind::Set => {}
        }
        if let Some(cas) = &cas {
            request.extend([&b"CAS"[..], cas.as_bytes()]);
        }
        sink.ask(&request, Owed::Meta(Box::new(self.meta)));
        Taken::All(0)
    }
}
