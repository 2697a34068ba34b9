//! The replies of meta commands.

use crate::front::Broken;
use crate::owed::{Meta, MetaKind};
use crate::replies::{Part, Writer};

/// The properties of an item that its reply needs.
#[derive(Clone, Copy, Default)]
struct Known<'a> {
    flags: i64,
    cas: &'a [u8],
    deadline_unix_ms: i64,
    len: i64,
    value: Option<&'a [u8]>,
    marks: i64,
}

/// The bits of an item's marks.
const STALE: i64 = 1;
const SENT: i64 = 2;
const WON: i64 = 4;

impl<'a> Known<'a> {
    /// Reads the rest of an item's array after its head.
    fn read(writer: &mut Writer<'a>) -> Result<Self, Broken> {
        Ok(Self {
            flags: writer.integer()?,
            cas: writer.bulk()?,
            deadline_unix_ms: writer.integer()?,
            len: writer.integer()?,
            value: match writer.part()? {
                Part::Bulk(value) => Some(value),
                _ => None,
            },
            marks: writer.integer()?,
        })
    }
}

/// Returns the length of the first reply if it is an outdated item that no client was asked to
/// fetch.
pub(crate) fn stale_bytes(writer: &mut Writer<'_>) -> Result<Option<usize>, Broken> {
    let before = writer.replies.len();
    let Part::Array(_) = writer.part()? else {
        return Ok(None);
    };
    let known = Known::read(writer)?;
    let is_open = known.marks & (STALE | SENT) == STALE;
    Ok(is_open.then_some(before - writer.replies.len()))
}

/// Writes the reply of a meta command.
pub(crate) fn write<'a>(writer: &mut Writer<'a>, meta: &'a Meta) -> Result<(), Broken> {
    match meta.kind {
        MetaKind::Get | MetaKind::Debug => item(writer, meta),
        MetaKind::Set => {
            let status = writer.status(1)?;
            let cas = match status {
                Ok(_) => writer.integer()?,
                Err(_) => 0,
            };
            changed(writer, meta, status, cas, None)
        }
        MetaKind::Delete => {
            let status = writer.status(0)?;
            changed(writer, meta, status, 0, None)
        }
        MetaKind::Arithmetic => {
            let status = writer.status(2)?;
            let (number, cas) = match status {
                Ok(_) => (Some(writer.bulk()?), writer.integer()?),
                Err(_) => (None, 0),
            };
            changed(writer, meta, status, cas, number)
        }
    }
}

fn item<'a>(writer: &mut Writer<'a>, meta: &'a Meta) -> Result<(), Broken> {
    match writer.part()? {
        Part::Null => {
            if !meta.flags.is_quiet {
                writer.out.push_slice(b"EN\r\n");
            }
        }
        // No client can win here (on a replica, for example): the item is outdated, and the client
        // that may fetch it is elsewhere.
        Part::Error(_) if !meta.first.is_empty() => {
            let replies = std::mem::replace(&mut writer.replies, &meta.first);
            writer.part()?;
            let mut known = Known::read(writer)?;
            known.marks |= SENT;
            hit(writer, meta, &known);
            writer.replies = replies;
        }
        Part::Error(text) => writer.error(text),
        Part::Array(_) => {
            let known = Known::read(writer)?;
            if meta.kind == MetaKind::Debug {
                described(writer, meta, &known);
            } else {
                hit(writer, meta, &known);
            }
        }
        _ => return Err(Broken),
    }
    Ok(())
}

fn hit(writer: &mut Writer<'_>, meta: &Meta, known: &Known<'_>) {
    match known.value.filter(|_| meta.flags.wants_value) {
        Some(value) => {
            writer.out.push_slice(b"VA");
            writer.number(i64::try_from(value.len()).unwrap_or(i64::MAX));
            returned(writer, meta, known);
            writer.out.push_slice(b"\r\n");
            writer.out.push_slice(value);
        }
        None => {
            writer.out.push_slice(b"HD");
            returned(writer, meta, known);
        }
    }
    writer.out.push_slice(b"\r\n");
}

fn described(writer: &mut Writer<'_>, meta: &Meta, known: &Known<'_>) {
    writer.out.push_slice(b"ME ");
    writer.out.push_slice(&meta.key);
    let text = format!(
        " exp={} cas={} size={}\r\n",
        left_s(meta, known),
        String::from_utf8_lossy(known.cas),
        known.len
    );
    writer.out.push_slice(text.as_bytes());
}

fn changed(
    writer: &mut Writer<'_>,
    meta: &Meta,
    status: Result<&[u8], &[u8]>,
    cas: i64,
    number: Option<&[u8]>,
) -> Result<(), Broken> {
    let status = match status {
        Ok(status) => status,
        Err(text) => {
            writer.error(text);
            return Ok(());
        }
    };
    let code: &[u8] = match status {
        b"STORED" | b"DELETED" => b"HD",
        b"NOT_STORED" => b"NS",
        b"EXISTS" => b"EX",
        b"NOT_FOUND" => b"NF",
        _ => return Err(Broken),
    };
    let is_nominal = match meta.kind {
        MetaKind::Set => code == b"HD",
        _ => code == b"HD" || code == b"NF",
    };
    if meta.flags.is_quiet && is_nominal {
        return Ok(());
    }
    let cas = base::number::IntegerText::new(cas);
    let known = Known {
        cas: cas.as_bytes(),
        len: i64::try_from(meta.data_bytes).unwrap_or(i64::MAX),
        value: number.filter(|_| code == b"HD" && meta.flags.wants_value),
        ..Known::default()
    };
    if known.value.is_some() {
        hit(writer, meta, &known);
    } else {
        writer.out.push_slice(code);
        returned(writer, meta, &known);
        writer.out.push_slice(b"\r\n");
    }
    Ok(())
}

/// Returns the seconds until an item expires, -1 for never.
fn left_s(meta: &Meta, known: &Known<'_>) -> i64 {
    if known.deadline_unix_ms == 0 {
        return -1;
    }
    let now_unix_ms = i64::try_from(meta.now_unix_ms).unwrap_or(i64::MAX);
    known.deadline_unix_ms.saturating_sub(now_unix_ms).max(0) / 1000
}

/// Writes the flags that return something.
fn returned(writer: &mut Writer<'_>, meta: &Meta, known: &Known<'_>) {
    for flag in &meta.flags.returned {
        let text;
        let token: &[u8] = match flag {
            b'O' => &meta.flags.opaque,
            b'k' => &meta.key,
            b'c' => known.cas,
            b'f' => {
                text = known.flags.to_string();
                text.as_bytes()
            }
            b's' => {
                text = known.len.to_string();
                text.as_bytes()
            }
            b't' => {
                text = left_s(meta, known).to_string();
                text.as_bytes()
            }
            // b: returned only together with the key.
            _ if meta.flags.returned.contains(&b'k') => b"",
            _ => continue,
        };
        writer.out.push_slice(b" ");
        writer.out.push_slice(&[*flag]);
        writer.out.push_slice(token);
    }
    let won = known.marks & WON != 0;
    for (is_so, mark) in [
        (won, b" W"),
        (known.marks & STALE != 0, b" X"),
        (known.marks & SENT != 0 && !won, b" Z"),
    ] {
        if is_so {
            writer.out.push_slice(mark);
        }
    }
}
