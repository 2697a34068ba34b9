//! The classic commands.

use base::number::{IntegerText, parse_i64, parse_u64};

use crate::data::{Data, data};
use crate::front::{Sink, Taken};
use crate::owed::Owed;
use crate::words::{deadline_unix_ms, is_key, number32, words};

const ERROR: &[u8] = b"ERROR\r\n";
pub(crate) const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
pub(crate) const BAD_DATA: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
pub(crate) const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const NO_STATS: &[u8] = b"CLIENT_ERROR no such statistics\r\n";
const NOREPLY: &[u8] = b"noreply";

/// Parses a line and the data after it.
pub(crate) fn take(sink: &mut Sink<'_>, line: &[u8], behind: &[u8]) -> Taken {
    let mut all = words(line);
    let Some(name) = all.next() else {
        return refuse(sink, ERROR);
    };
    let words: Vec<&[u8]> = all.collect();
    let (words, is_quiet) = match words.as_slice() {
        [words @ .., last] if *last == NOREPLY => (words, true),
        words => (words, false),
    };
    match name {
        b"get" => get(sink, words, None, false),
        b"gets" => get(sink, words, None, true),
        b"gat" | b"gats" => get_and_touch(sink, words, name == b"gats"),
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            store(sink, name, words, is_quiet, behind)
        }
        b"incr" | b"decr" => count(sink, name, words, is_quiet),
        b"delete" => delete(sink, words, is_quiet),
        b"touch" => touch(sink, words, is_quiet),
        b"flush_all" => flush(sink, words, is_quiet),
        b"version" => {
            let text = format!("VERSION {}\r\n", sink.version);
            sink.owe(Owed::Made(text.into_bytes().into()));
            Taken::All(0)
        }
        b"verbosity" if is_quiet => Taken::All(0),
        b"verbosity" if words.len() == 1 => refuse(sink, b"OK\r\n"),
        b"stats" if !is_quiet => stats(sink, words),
        b"quit" => Taken::Quit,
        _ => refuse(sink, ERROR),
    }
}

/// Parses a line by which a client logs in: `set` of any key whose data are a user's name and
/// password. Returns `None` for any other line.
pub(crate) fn log_in(sink: &mut Sink<'_>, line: &[u8], behind: &[u8]) -> Option<Taken> {
    let words: Vec<&[u8]> = words(line).collect();
    match words.as_slice() {
        [b"version" | b"quit"] => Some(take(sink, line, behind)),
        [b"set", _, _, _, len] | [b"set", _, _, _, len, _] => {
            let len = parse_u64(len).and_then(|len| usize::try_from(len).ok())?;
            // The data are a name and a password, so they may be no longer than a line.
            if len > crate::limits::LINE_BYTES_MAX {
                sink.skip_data(len);
                return None;
            }
            Some(match data(behind, len) {
                Data::Partial(needed) => Taken::Needs(needed),
                Data::Bad(taken) => {
                    sink.say(BAD_DATA);
                    Taken::All(taken)
                }
                Data::Whole(block, taken) => {
                    let at = block.iter().position(|byte| *byte == b' ');
                    let (name, password) = block.split_at(at.unwrap_or(block.len()));
                    let password = password.strip_prefix(b" ").unwrap_or(password);
                    sink.ask(&[b"AUTH", name, password], Owed::LoggedIn);
                    Taken::All(taken)
                }
            })
        }
        _ => None,
    }
}

fn refuse(sink: &mut Sink<'_>, text: &'static [u8]) -> Taken {
    sink.say(text);
    Taken::All(0)
}

fn get(sink: &mut Sink<'_>, keys: &[&[u8]], deadline: Option<u64>, shows_cas: bool) -> Taken {
    if keys.is_empty() {
        return refuse(sink, ERROR);
    }
    if !keys.iter().all(|key| is_key(key)) {
        return refuse(sink, BAD_LINE);
    }
    for key in keys {
        let deadline = deadline.map(IntegerText::new_u64);
        let mut words = vec![&b"MCGET"[..], key];
        if let Some(deadline) = &deadline {
            words[0] = b"MCGAT";
            words.push(deadline.as_bytes());
        }
        if shows_cas {
            words.push(b"CAS");
        }
        sink.ask_item(&words, key, shows_cas);
    }
    sink.owe(Owed::EndOfItems);
    Taken::All(0)
}

fn get_and_touch(sink: &mut Sink<'_>, words: &[&[u8]], shows_cas: bool) -> Taken {
    let Some((time, keys)) = words.split_first() else {
        return refuse(sink, ERROR);
    };
    match deadline_unix_ms(time, sink.now_unix_ms) {
        Some(deadline) => get(sink, keys, Some(deadline), shows_cas),
        None => refuse(sink, BAD_EXPTIME),
    }
}

/// Parses a length as memcached does. A negative one is invalid.
fn length(word: &[u8]) -> Option<usize> {
    parse_i64(word).and_then(|len| usize::try_from(len).ok())
}

fn store(
    sink: &mut Sink<'_>,
    name: &[u8],
    words: &[&[u8]],
    is_quiet: bool,
    behind: &[u8],
) -> Taken {
    let (key, flags, time, len, cas) = match *words {
        [key, flags, time, len] if name != b"cas" => (key, flags, time, len, None),
        [key, flags, time, len, cas] if name == b"cas" => (key, flags, time, len, Some(cas)),
        _ => return refuse(sink, ERROR),
    };
    let Some(len) = length(len) else {
        return refuse(sink, BAD_LINE);
    };
    let deadline = deadline_unix_ms(time, sink.now_unix_ms);
    let is_number = cas.is_none_or(|cas| parse_u64(cas).is_some());
    let (Some(_), Some(deadline), true, true) = (number32(flags), deadline, is_number, is_key(key))
    else {
        sink.skip_data(len);
        return refuse(sink, BAD_LINE);
    };
    if len > sink.item_bytes_max {
        sink.skip_data(len);
        return refuse(sink, TOO_LARGE);
    }
    let (block, taken) = match data(behind, len) {
        Data::Whole(block, taken) => (block, taken),
        Data::Partial(needed) => return Taken::Needs(needed),
        Data::Bad(taken) => {
            sink.say(BAD_DATA);
            return Taken::All(taken);
        }
    };
    let mode: &[u8] = match name {
        b"add" => b"ADD",
        b"replace" => b"REPLACE",
        b"append" => b"APPEND",
        b"prepend" => b"PREPEND",
        _ => b"SET",
    };
    let deadline = IntegerText::new_u64(deadline);
    let mut request = vec![b"MCSET", key, block, flags, deadline.as_bytes(), mode];
    if let Some(cas) = cas {
        request.extend([b"CAS", cas]);
    }
    sink.ask(&request, Owed::Stored { is_quiet });
    Taken::All(taken)
}

fn count(sink: &mut Sink<'_>, name: &[u8], words: &[&[u8]], is_quiet: bool) -> Taken {
    let [key, delta] = *words else {
        return refuse(sink, ERROR);
    };
    if !is_key(key) {
        return refuse(sink, BAD_LINE);
    }
    if parse_u64(delta).is_none() {
        return refuse(sink, BAD_DELTA);
    }
    let direction: &[u8] = if name == b"incr" { b"INCR" } else { b"DECR" };
    let request = [b"MCINCR", key, direction, delta];
    sink.ask(&request, Owed::Counted { is_quiet });
    Taken::All(0)
}

fn delete(sink: &mut Sink<'_>, words: &[&[u8]], is_quiet: bool) -> Taken {
    match *words {
        [key] | [key, b"0"] if is_key(key) => {
            sink.ask(&[b"MCDEL", key], Owed::Deleted { is_quiet });
            Taken::All(0)
        }
        [] => refuse(sink, ERROR),
        _ => refuse(sink, BAD_DELETE),
    }
}

fn touch(sink: &mut Sink<'_>, words: &[&[u8]], is_quiet: bool) -> Taken {
    let [key, time] = *words else {
        return refuse(sink, ERROR);
    };
    if !is_key(key) {
        return refuse(sink, BAD_LINE);
    }
    let Some(deadline) = deadline_unix_ms(time, sink.now_unix_ms) else {
        return refuse(sink, BAD_EXPTIME);
    };
    let deadline = IntegerText::new_u64(deadline);
    let request = [b"MCGAT", key, deadline.as_bytes(), b"NOVALUE"];
    sink.ask(&request, Owed::Touched { is_quiet });
    Taken::All(0)
}

fn flush_now(sink: &mut Sink<'_>, is_quiet: bool) -> Taken {
    sink.ask(&[b"FLUSHDB"], Owed::Ok { is_quiet });
    Taken::All(0)
}

fn flush(sink: &mut Sink<'_>, words: &[&[u8]], is_quiet: bool) -> Taken {
    match *words {
        // The delay is in seconds up to 30 days, or a time beyond, as for items. A delay of at most
        // 0 means now.
        [] => flush_now(sink, is_quiet),
        [delay] if parse_i64(delay).is_some_and(|delay| delay <= 0) => flush_now(sink, is_quiet),
        [delay] => match deadline_unix_ms(delay, sink.now_unix_ms) {
            Some(unix_ms) => {
                let unix_ms = IntegerText::new_u64(unix_ms);
                sink.ask(&[b"MCFLUSH", unix_ms.as_bytes()], Owed::Ok { is_quiet });
                Taken::All(0)
            }
            None => refuse(sink, BAD_EXPTIME),
        },
        _ => refuse(sink, BAD_LINE),
    }
}

fn stats(sink: &mut Sink<'_>, words: &[&[u8]]) -> Taken {
    match *words {
        [] => sink.ask(&[b"INFO", b"everything"], Owed::Stats(sink.version)),
        [b"reset"] => sink.ask(&[b"CONFIG", b"RESETSTAT"], Owed::Reset),
        [b"items" | b"slabs" | b"sizes" | b"conns" | b"extstore"] => sink.say(b"END\r\n"),
        [b"settings"] => {
            let text = format!(
                "STAT item_size_max {}\r\nSTAT cas_enabled yes\r\nEND\r\n",
                sink.item_bytes_max
            );
            sink.owe(Owed::Made(text.into_bytes().into()));
        }
        _ => sink.say(NO_STATS),
    }
    Taken::All(0)
}
