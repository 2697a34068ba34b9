//! Reads of entries: XLEN XRANGE XREVRANGE XREAD.

use engine::args::Args;
use engine::context::{Context, Pace};
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec};
use engine::waiting;
use protocol::{Deferred, OwnedRequest, Reply, Resp};
use store::{Key, Record, Wanted};
use structures::stream::{EntryId, EntryLog, Stream};

use super::ids::{self, IdText};
use super::shared::{READ_KEY, write_entries};
use crate::structure;
use engine::keys::KeyList;

/// Maximum number of entries of a range that are counted to decide whether they are too many.
const ENTRIES_COUNTED: usize = 1 << 16;

/// The access to keys after STREAMS: reading and waiting.
pub(super) const STREAMS_ACCESS: KeyAccess = KeyAccess::RO.with(KeyAccess::ACCESS);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "XLEN",
        needs_values: false,
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RO)],
        group: Group::Stream,
        since: "5.0.0",
        summary: "Counts the entries of a stream.",
        syntax: "key",
        handler: len,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "XRANGE",
        syntax: "key start:string end:string [COUNT count]",
        summary: "Gives the entries between two ids.",
        handler: |context, args, reply| range(context, args, reply, false),
        ..RANGE
    },
    CommandSpec {
        name: "XREVRANGE",
        syntax: "key end:string start:string [COUNT count]",
        summary: "Gives the entries between two ids, the last first.",
        handler: |context, args, reply| range(context, args, reply, true),
        ..RANGE
    },
    CommandSpec {
        name: "XREAD",
        arity: Arity::AtLeast(4),
        flags: Flags::READONLY
            .with(Flags::BLOCKING)
            .with(Flags::MOVABLE_KEYS),
        keys: &[streams_keys(1)],
        group: Group::Stream,
        since: "5.0.0",
        summary: "Gives the entries of several streams behind an id of each.",
        complexity: "O(log(N)+M) for each stream of N entries, M of which are returned.",
        syntax: "[COUNT count] [BLOCK milliseconds] STREAMS <key [key ...] id [id ...]>",
        handler: read,
        ..CommandSpec::BLANK
    },
];

const RANGE: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::Stream,
    since: "5.0.0",
    history: &[("6.2.0", "Takes ids that are left out themselves.")],
    complexity: "O(log(N)+M) with N entries, M of which are returned.",
    ..CommandSpec::BLANK
};

/// Returns the specification of the keys: the first half of the arguments after STREAMS, which is
/// searched from argument `from` on.
pub(super) const fn streams_keys(from: i16) -> KeySpec {
    KeySpec {
        begin: Begin::Keyword("STREAMS", from),
        find: Find::Range {
            last: -1,
            step: 1,
            limit: 2,
        },
        access: STREAMS_ACCESS,
        notes: "",
    }
}

fn len(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    structure::count(context, &key, reply, Stream::len)
}

fn range(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    is_reverse: bool,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (one, other) = (args.bytes()?, args.bytes()?);
    let (start, end) = if is_reverse {
        (other, one)
    } else {
        (one, other)
    };
    let (from, to) = (ids::range_start(start)?, ids::range_end(end)?);
    let mut count = None;
    while args.remaining() > 0 {
        if args.remaining() == 1 || !args.take_word("COUNT") {
            return Err(CommandError::Syntax);
        }
        count = Some(usize::try_from(args.integer()?.max(0)).unwrap_or(usize::MAX));
    }
    let pace = context.pace;
    structure::read(context, &key, reply, |stream: Option<&Stream>, reply| {
        let Some(stream) = stream else {
            reply.array(0);
            return Ok(());
        };
        let (log, count_max) = (stream.log(), count.unwrap_or(usize::MAX));
        admit_range(pace, log, from, to, count_max)?;
        match count {
            Some(0) => reply.null_array(),
            _ if is_reverse => {
                let entries = log.range_backwards(from, to);
                write_entries(reply, entries.take(count_max));
            }
            _ => {
                write_entries(reply, log.range(from, to).take(count_max));
            }
        }
        Ok(())
    })?
}

/// Checks whether up to `count_max` of the entries from `from` to `to` may be written here.
pub(super) fn admit_range(
    pace: Pace,
    log: &EntryLog,
    from: EntryId,
    to: EntryId,
    count_max: usize,
) -> CommandResult {
    // A small maximum needs no count.
    pace.admit(count_max)
        .or_else(|_| pace.admit(log.count_about(from, to, ENTRIES_COUNTED)))
}

/// The parsed arguments of XREAD and XREADGROUP.
pub(super) struct Reading<'a> {
    /// `None` for all.
    pub(super) count: Option<usize>,
    /// GROUP: the names of the group and the consumer.
    pub(super) group: Option<(&'a [u8], &'a [u8])>,
    pub(super) has_noack: bool,
    /// BLOCK: how long to wait; the inner `None` for no limit.
    pub(super) timeout_ms: Option<Option<u64>>,
    pub(super) streams: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Reading<'a> {
    /// # Errors
    /// Also if it waits in a script, which cannot wait.
    pub(super) fn parse(
        context: &Context<'_>,
        args: &mut Args<'a>,
        is_group: bool,
    ) -> Result<Self, CommandError> {
        let mut reading = Self {
            count: None,
            group: None,
            has_noack: false,
            timeout_ms: None,
            streams: Vec::new(),
        };
        while let Some(argument) = args.next() {
            let more = args.remaining();
            let is = |word: &[u8]| argument.eq_ignore_ascii_case(word);
            if more > 0 && is(b"BLOCK") {
                let timeout = waiting::milliseconds(args.bytes()?, context.now_unix_ms)?;
                // A script does not wait: it reads the existing entries.
                reading.timeout_ms = Some(timeout).filter(|_| !context.session.in_script);
            } else if more > 0 && is(b"COUNT") {
                let count = usize::try_from(args.integer()?).unwrap_or(0);
                reading.count = Some(count).filter(|count| *count > 0);
            } else if more > 0 && is(b"STREAMS") {
                reading.take_streams(args, is_group)?;
                break;
            } else if more > 1 && is(b"GROUP") {
                refuse_unless(is_group, "GROUP")?;
                reading.group = Some((args.bytes()?, args.bytes()?));
            } else if is(b"NOACK") {
                refuse_unless(is_group, "NOACK")?;
                reading.has_noack = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if reading.streams.is_empty() {
            return Err(CommandError::Syntax);
        }
        Ok(reading)
    }

    fn take_streams(&mut self, args: &Args<'a>, is_group: bool) -> CommandResult {
        let count = args.remaining() / 2;
        if !args.remaining().is_multiple_of(2) {
            let (name, symbol) = if is_group {
                ("xreadgroup", '>')
            } else {
                ("xread", '$')
            };
            let text = format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or \
                 '{symbol}' must be specified."
            );
            return Err(CommandError::Text(text.into()));
        }
        let rest = args.rest();
        self.streams = rest.take(count).zip(rest.skip(count)).collect();
        Ok(())
    }
}

fn refuse_unless(is_group: bool, option: &str) -> CommandResult {
    if is_group {
        return Ok(());
    }
    let text = format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    );
    Err(CommandError::Text(text.into()))
}

/// A reply of streams with their entries, written stream by stream: a map, or pairs.
pub(super) struct Answer {
    mark: usize,
    slot: Deferred,
    count: usize,
}

impl Answer {
    pub(super) fn begin(reply: &mut Reply<'_>) -> Self {
        let mark = reply.mark();
        let slot = match reply.version() {
            Resp::V2 => reply.begin_array(),
            Resp::V3 => reply.begin_map(),
        };
        Self {
            mark,
            slot,
            count: 0,
        }
    }

    /// Begins a stream's part. The caller writes its entries next.
    pub(super) fn add(&mut self, reply: &mut Reply<'_>, key: &[u8]) {
        self.count += 1;
        if reply.version() == Resp::V2 {
            reply.array(2);
        }
        reply.bulk(key);
    }

    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ends the reply: null if there was no stream.
    pub(super) fn end(self, reply: &mut Reply<'_>) {
        match (self.count, reply.version()) {
            (0, _) => {
                reply.rollback(self.mark);
                reply.null_array();
            }
            (count, Resp::V2) => reply.end_array(self.slot, count),
            (count, Resp::V3) => reply.end_map(self.slot, count),
        }
    }
}

fn read(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let reading = Reading::parse(context, args, false)?;
    let keys = reading.streams.iter().map(|(name, _)| context.key(name));
    let keys: KeyList<'_> = keys.collect();
    context.locked(&keys, |context| {
        let mut starts = Vec::with_capacity(keys.len());
        for (key, (_, id)) in keys.iter().zip(&reading.streams) {
            let ends = structure::read(context, key, reply, |stream: Option<&Stream>, _| {
                stream.map_or_else(Ends::default, |stream| Ends::of(stream, id))
            })?;
            starts.push(behind(id, ends)?);
            admit_behind(context, key, starts.last(), reading.count)?;
        }
        let mut answer = Answer::begin(reply);
        for (key, start) in keys.iter().zip(&starts) {
            let Some(start) = start.next() else { continue };
            let count = reading.count.unwrap_or(usize::MAX);
            let served = answer.count;
            let answer = &mut answer;
            structure::read(context, key, reply, |stream: Option<&Stream>, reply| {
                answer.count = served;
                let log = stream.map(Stream::log);
                let entries = log.map(|log| log.range(start, EntryId::MAX));
                let Some(mut entries) = entries.map(Iterator::peekable) else {
                    return;
                };
                if entries.peek().is_some() {
                    answer.add(reply, key.bytes());
                    write_entries(reply, entries.take(count));
                }
            })?;
        }
        if answer.is_empty()
            && context.may_block
            && let Some(timeout_ms) = reading.timeout_ms
        {
            let later = || with_ids(args, &starts);
            return context.wait_with(&keys, Wanted::Stream, timeout_ms, later);
        }
        answer.end(reply);
        Ok(())
    })
}

/// Checks whether the entries of a stream above an id may be written here.
fn admit_behind(
    context: &mut Context<'_>,
    key: &Key<'_>,
    id: Option<&EntryId>,
    count: Option<usize>,
) -> CommandResult {
    let (pace, from) = (context.pace, id.and_then(|id| id.next()));
    let Some(from) = from else { return Ok(()) };
    context.store.inspect(key, |record| {
        let stream = record.map(Record::structure::<Stream>).transpose()?;
        stream.map_or(Ok(()), |stream| {
            let count_max = count.unwrap_or(usize::MAX);
            admit_range(pace, stream.log(), from, EntryId::MAX, count_max)
        })
    })
}

/// Returns the request with these concrete ids: some of its own mean the last id at present.
fn with_ids(args: &Args<'_>, ids: &[EntryId]) -> OwnedRequest {
    let ids: Vec<IdText> = ids.iter().map(|id| IdText::new(*id)).collect();
    let request = args.request();
    let before = request.iter().take(request.len() - ids.len());
    let all: Vec<&[u8]> = before.chain(ids.iter().map(IdText::as_bytes)).collect();
    OwnedRequest::new(&all)
}

/// The end of a stream.
#[derive(Clone, Copy, Default)]
struct Ends {
    /// The last id that was assigned.
    last_id: EntryId,
    /// The id of the last entry, if requested.
    last_entry: Option<EntryId>,
}

impl Ends {
    fn of(stream: &Stream, argument: &[u8]) -> Self {
        let log = stream.log();
        let last = || log.range_backwards(EntryId::MIN, EntryId::MAX).next();
        Self {
            last_id: log.last_id(),
            last_entry: (argument == b"+")
                .then(last)
                .flatten()
                .map(|entry| entry.id),
        }
    }
}

/// Returns the id that entries must be above.
fn behind(argument: &[u8], ends: Ends) -> Result<EntryId, CommandError> {
    match argument {
        b"$" => Ok(ends.last_id),
        // No id lies between this one and the last entry. Without an entry, the client waits for
        // the next one.
        b"+" => Ok(ends
            .last_entry
            .and_then(EntryId::previous)
            .unwrap_or(ends.last_id)),
        b">" => Err(CommandError::fixed(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
             <consumer> option.",
        )),
        id => ids::parse(id, 0),
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn shown(value: &Value) -> String {
        testkit::transcript::show(value)
    }

    #[test]
    fn entries_come_from_both_ends() {
        let mut server = TestServer::new();
        for number in 1..=4 {
            server.run(&format!("XADD s {number} a {number}"));
        }
        let entry = |number: &u8| format!("[\"{number}-0\", [\"a\", \"{number}\"]]");
        let ask = |server: &mut TestServer, line: &str| shown(&server.run(line));
        let list = |numbers: &[u8]| {
            let entries: Vec<String> = numbers.iter().map(entry).collect();
            format!("[{}]", entries.join(", "))
        };
        assert_eq!(ask(&mut server, "XRANGE s 2 3"), list(&[2, 3]));
        assert_eq!(ask(&mut server, "XRANGE s (2-0 + COUNT 1"), list(&[3]));
        assert_eq!(ask(&mut server, "XREVRANGE s + - COUNT 2"), list(&[4, 3]));
        assert_eq!(ask(&mut server, "XREVRANGE s (4-0 3"), list(&[3]));
        assert_eq!(ask(&mut server, "XRANGE s 4 1"), "[]");
        assert_eq!(server.run("XRANGE s - + COUNT 0"), Value::NullArray);
        assert_eq!(
            ask(&mut server, "XREAD COUNT 1 STREAMS s none s 0 0 3"),
            format!("[[\"s\", {}], [\"s\", {}]]", list(&[1]), list(&[4]))
        );
    }
}
