//! A log of commands (SLOWLOG, COMMANDLOG): the last ones of a matter, newest first, with what they
//! were asked, cut short.

use std::collections::VecDeque;

use protocol::Request;

use crate::arrival::LongArgument;
use crate::session::ClientRecord;
use crate::table::Table;

/// So many arguments of a request are kept, the last one then says how many more there were.
const ARGUMENTS_MAX: usize = 32;
/// So many bytes of an argument are kept.
pub(crate) const ARGUMENT_BYTES_MAX: usize = 128;

/// What stands where an argument is nobody's business.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// What is told of a command beside its figure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its arguments, the name first.
    pub arguments: Vec<Vec<u8>>,
    /// Where the client is.
    pub address: String,
    /// What the client calls itself.
    pub client_name: String,
}

impl Shown {
    /// A request cut short, and who sent it.
    #[must_use]
    pub(crate) fn new(
        table: &Table,
        request: Request<'_>,
        long: Option<&LongArgument>,
        client: &ClientRecord,
    ) -> Self {
        Self {
            arguments: shortened(table, request, long),
            address: client.address.clone(),
            client_name: client.names().name.clone(),
        }
    }
}

fn shortened(table: &Table, request: Request<'_>, long: Option<&LongArgument>) -> Vec<Vec<u8>> {
    let count = request.len();
    let kept = if count > ARGUMENTS_MAX {
        ARGUMENTS_MAX - 1
    } else {
        count
    };
    let is_secret = secrets(table, request);
    let argument = |(index, bytes)| match long {
        _ if is_secret(index) => REDACTED.to_vec(),
        Some(long) if long.index == index => shortened_argument(&long.beginning, long.len),
        _ => shortened_argument(bytes, bytes.len()),
    };
    let mut arguments: Vec<_> = request
        .iter()
        .enumerate()
        .take(kept)
        .map(argument)
        .collect();
    if count > kept {
        arguments.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    arguments
}

/// An argument of `len` bytes that begins so.
fn shortened_argument(beginning: &[u8], len: usize) -> Vec<u8> {
    if len <= ARGUMENT_BYTES_MAX {
        return beginning.to_vec();
    }
    let shown = &beginning[..ARGUMENT_BYTES_MAX.min(beginning.len())];
    let mut text = shown.to_vec();
    text.extend_from_slice(format!("... ({} more bytes)", len - shown.len()).as_bytes());
    text
}

/// Which arguments of a request hold names and passwords that nobody else may see.
pub(crate) fn secrets(table: &Table, request: Request<'_>) -> impl Fn(usize) -> bool {
    let word = |index: usize| request.arg(index).unwrap_or_default();
    // By its own name, whatever clients call it.
    let name = table
        .find(word(0))
        .map_or_else(|| word(0), |found| found.spec.name.as_bytes());
    let is = |index: usize, text: &str| {
        let word = if index == 0 { name } else { word(index) };
        word.eq_ignore_ascii_case(text.as_bytes())
    };
    let range = if is(0, "AUTH") {
        1..request.len()
    } else if is(0, "HELLO") {
        let at = (2..request.len()).find(|at| is(*at, "AUTH"));
        at.map_or(0..0, |at| at + 1..at + 3)
    } else if is(0, "ACL") && is(1, "SETUSER") {
        2..request.len()
    } else if is(0, "MIGRATE") {
        let at = (6..request.len()).find(|at| is(*at, "AUTH") || is(*at, "AUTH2"));
        at.map_or(0..0, |at| {
            let words = if is(at, "AUTH2") { 2 } else { 1 };
            at + 1..at + 1 + words
        })
    } else {
        0..0
    };
    let is_setting = is(0, "CONFIG") && is(1, "SET");
    move |index| {
        let names_secret = |name: &&str| {
            let name_at = request.arg(index - 1).unwrap_or_default();
            name_at.eq_ignore_ascii_case(name.as_bytes())
        };
        let is_value = is_setting && index > 2 && index % 2 == 1;
        range.contains(&index) || is_value && SECRET_DIRECTIVES.iter().any(names_secret)
    }
}

/// Directives whose values are secrets.
const SECRET_DIRECTIVES: [&str; 7] = [
    "requirepass",
    "masterauth",
    "primaryauth",
    "masteruser",
    "primaryuser",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
];

/// One command in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, counted from the start of the server.
    pub id: u64,
    /// When it ran, in seconds since 1970 UTC.
    pub unix_s: u64,
    /// Microseconds or bytes.
    pub value: u64,
    /// What is told of it.
    pub shown: Shown,
}

/// The last commands of one matter.
#[derive(Debug, Default)]
pub struct Log {
    /// Newest first.
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl Log {
    /// Adds a command in front, and forgets the oldest ones beyond `entries_max`.
    pub(super) fn add(&mut self, unix_s: u64, value: u64, shown: Shown, entries_max: u64) {
        let id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(Entry {
            id,
            unix_s,
            value,
            shown,
        });
        self.entries
            .truncate(usize::try_from(entries_max).unwrap_or(usize::MAX));
    }

    /// The newest entries, newest first.
    pub fn newest(&self, count: usize) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter().take(count)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all entries; numbers go on.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use protocol::OwnedRequest;

    use super::*;

    fn shown(args: &[&str]) -> Vec<String> {
        let request = OwnedRequest::new(args);
        let arguments = shortened(Table::build([]), request.request(), None);
        let text = |argument: Vec<u8>| String::from_utf8(argument).unwrap();
        arguments.into_iter().map(text).collect()
    }

    #[test]
    fn long_requests_are_cut_short() {
        let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let short = shown(&many);
        assert_eq!((short.len(), short[30].as_str()), (32, "30"));
        assert_eq!(short[31], "... (2 more arguments)");
        assert_eq!(shown(&many[..32]).last().unwrap(), "31");
        let long = "x".repeat(131);
        let argument = format!("{}... (3 more bytes)", &long[..128]);
        assert_eq!(shown(&["SET", "k", &long]), ["SET", "k", &argument]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let hidden = "(redacted)";
        assert_eq!(shown(&["auth", "pw"]), ["auth", hidden]);
        assert_eq!(
            shown(&["HELLO", "3", "SETNAME", "x", "auth", "me", "pw"]),
            ["HELLO", "3", "SETNAME", "x", "auth", hidden, hidden]
        );
        assert_eq!(
            shown(&["CONFIG", "SET", "port", "1", "requirepass", "pw"]),
            ["CONFIG", "SET", "port", "1", "requirepass", hidden]
        );
        assert_eq!(
            shown(&["CONFIG", "SET", "primaryuser", "me"]),
            ["CONFIG", "SET", "primaryuser", hidden]
        );
        assert_eq!(shown(&["SET", "auth", "pw"]), ["SET", "auth", "pw"]);
    }

    #[test]
    fn the_oldest_go_first_and_numbers_go_on() {
        let mut log = Log::default();
        for value in 0..5 {
            log.add(1, value, Shown::default(), 3);
        }
        let ids = |log: &Log| -> Vec<u64> { log.newest(10).map(|entry| entry.id).collect() };
        assert_eq!(ids(&log), [4, 3, 2]);
        log.clear();
        assert!(log.is_empty());
        log.add(1, 0, Shown::default(), 3);
        assert_eq!(ids(&log), [5]);
        log.add(1, 0, Shown::default(), 0);
        assert!(log.is_empty());
    }
}
