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
        table: &'static Table,
        request: Request<'_>,
        long: Option<&LongArgument>,
        client: &ClientRecord,
    ) -> Self {
        Self {
            arguments: shortened(table, request, long),
            address: client.address.to_string(),
            client_name: client.names().name,
        }
    }
}

fn shortened(
    table: &'static Table,
    request: Request<'_>,
    long: Option<&LongArgument>,
) -> Vec<Vec<u8>> {
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
pub(crate) fn secrets(table: &'static Table, request: Request<'_>) -> impl Fn(usize) -> bool {
    // By its own name, if its client calls it by none that is known.
    let name = request.name();
    let found = table.find(name).or_else(|| table.original().find(name));
    let row = found.and_then(|found| {
        let container = (found.index, found.spec);
        let word = request.arg(1).unwrap_or_default();
        match table.find_subcommand(container, word) {
            Some((_, spec)) => spec.secrets,
            None => found.spec.secrets,
        }
    });
    move |index| row.is_some_and(|is_secret| is_secret(&request, index))
}

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
    use crate::spec::CommandSpec;

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
        static ROWS: [CommandSpec; 1] = [CommandSpec {
            name: "CONFIG",
            subcommands: &[CommandSpec {
                name: "SET",
                secrets: Some(|_, at| at == 3),
                ..CommandSpec::BLANK
            }],
            ..CommandSpec::BLANK
        }];
        let request = OwnedRequest::new(&["config", "set", "requirepass", "pw", "port", "1"]);
        let shown = shortened(Table::build(&ROWS), request.request(), None);
        assert_eq!(shown[2..4], [&b"requirepass"[..], REDACTED]);
        assert_eq!(shown[5], b"1");
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
