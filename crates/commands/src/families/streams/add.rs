//! XADD, and the options that it shares with XTRIM.

use base::number::IntegerText;
use engine::args::{Args, Rest};
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use engine::thresholds::{Threshold, Thresholds};
use protocol::Reply;
use store::EventClass;
use structures::stream::{ENTRY_BYTES_MAX, EntryId, EntryLog, Stream, StreamLimits, Trim, TrimTo};

use super::ids::{self, IdText, Wanted};
use super::shared::write_id;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "XADD",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec {
        notes: "UPDATE instead of INSERT because of the optional trimming feature",
        ..KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))
    }],
    group: Group::Stream,
    since: "5.0.0",
    history: &[
        ("6.2.0", "Added `NOMKSTREAM`, `MINID` and `LIMIT`."),
        ("7.0.0", "Takes ids of the form `ms-*`."),
    ],
    summary: "Adds an entry to a stream, which is made if there is none.",
    complexity: "O(1), and O(N) for the N entries that are trimmed.",
    syntax: "key [NOMKSTREAM] [<MAXLEN | MINID> [=:equal | ~:approximately] threshold \
             [LIMIT count]] <*:auto_id | id> field value [field value ...]",
    tips: &["nondeterministic_output"],
    handler: add,
    ..CommandSpec::BLANK
}];

/// Number of blocks that an approximate trim removes by default …
const TRIMMED_BLOCKS_MAX: u64 = 100;
/// … and of entries, if blocks have no limit, or a large one.
const TRIMMED_ENTRIES: u64 = 10_000;
const TRIMMED_ENTRIES_MAX: u64 = 1_000_000;

/// The options before an entry's id, or all options of XTRIM.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// NOMKSTREAM.
    is_for_existing: bool,
    pub(super) trim: Option<Trim>,
    /// `None` if there is no id: XTRIM has none.
    id: Option<Wanted>,
}

impl Options {
    pub(super) fn parse(
        args: &mut Args<'_>,
        thresholds: &Thresholds,
        is_xadd: bool,
        is_of_primary: bool,
    ) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut limit = None;
        while let Some(argument) = args.next() {
            let has_more = args.remaining() > 0;
            if is_xadd && argument == b"*" {
                options.id = Some(Wanted::Next);
                break;
            }
            let is = |word: &[u8]| argument.eq_ignore_ascii_case(word);
            if has_more && (is(b"MAXLEN") || is(b"MINID")) {
                options.take_trim(args, is(b"MAXLEN"))?;
            } else if has_more && is(b"LIMIT") {
                let count = args.integer()?;
                let negative = CommandError::fixed("ERR The LIMIT argument must be >= 0.");
                limit = Some(u64::try_from(count).map_err(|_| negative)?);
            } else if is_xadd && is(b"NOMKSTREAM") {
                options.is_for_existing = true;
            } else if is_xadd {
                options.id = Some(Wanted::parse(argument)?);
                break;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        // A primary states exactly what it did, but leaves its client's LIMIT in place.
        let limit = limit.filter(|_| !is_of_primary);
        options.limit(limit, thresholds, is_xadd)?;
        Ok(options)
    }

    /// Parses the arguments after MAXLEN or MINID.
    fn take_trim(&mut self, args: &mut Args<'_>, is_len: bool) -> CommandResult {
        if self.trim.is_some() {
            return Err(CommandError::fixed(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let mark = args.peek().filter(|_| args.remaining() > 1);
        let is_approximate = mark == Some(b"~");
        if is_approximate || mark == Some(b"=") {
            args.bytes()?;
        }
        let to = if is_len {
            let negative = CommandError::fixed("ERR The MAXLEN argument must be >= 0.");
            TrimTo::Len(u64::try_from(args.integer()?).map_err(|_| negative)?)
        } else {
            TrimTo::Id(ids::next(args)?)
        };
        self.trim = Some(Trim {
            to,
            is_approximate,
            count_max: None,
        });
        Ok(())
    }

    /// Checks LIMIT, and sets the maximum that an approximate trim removes.
    fn limit(
        &mut self,
        limit: Option<u64>,
        thresholds: &Thresholds,
        is_xadd: bool,
    ) -> CommandResult {
        let is_approximate = self.trim.is_some_and(|trim| trim.is_approximate);
        let complaint = match (limit, self.trim) {
            (Some(1..), None) => {
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
            }
            (_, None) if !is_xadd => {
                "ERR syntax error, XTRIM must be called with a trimming strategy"
            }
            (Some(_), _) if !is_approximate => {
                "ERR syntax error, LIMIT cannot be used without the special ~ option"
            }
            _ => "",
        };
        if !complaint.is_empty() {
            return Err(CommandError::fixed(complaint));
        }
        if let Some(trim) = self.trim.as_mut().filter(|_| is_approximate) {
            let blocks = thresholds.count(Threshold::StreamNodeMaxEntries) as u64;
            let usual = match TRIMMED_BLOCKS_MAX.saturating_mul(blocks) {
                0 => TRIMMED_ENTRIES,
                count => count.min(TRIMMED_ENTRIES_MAX),
            };
            trim.count_max = Some(limit.unwrap_or(usual)).filter(|count| *count > 0);
        }
        Ok(())
    }
}

/// Fields and values, which can be iterated over more than once.
#[derive(Clone)]
struct Pairs<'a>(Rest<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}

const NOT_ABOVE_LAST: CommandError = CommandError::fixed(
    "ERR The ID specified in XADD is equal or smaller than the target stream top item",
);
const TOO_LARGE: CommandError = CommandError::fixed("ERR Elements are too large to be stored");

#[inline]
fn add(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let thresholds = &context.shared.settings.thresholds;
    let is_of_primary = context.session.is_of_primary;
    let options = Options::parse(args, thresholds, true, is_of_primary)?;
    let count = args.remaining();
    let Some(wanted) = options.id.filter(|_| count >= 2 && count.is_multiple_of(2)) else {
        return Err(CommandError::WrongArity("xadd".into()));
    };
    if wanted == Wanted::Exactly(EntryId::MIN) {
        return Err(CommandError::fixed(
            "ERR The ID specified in XADD must be greater than 0-0",
        ));
    }
    if args.rest().map(<[u8]>::len).sum::<usize>() > ENTRY_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let fields = Pairs(args.rest());
    let entry = New {
        wanted,
        fields: fields.clone(),
        trim: options.trim,
        limits: thresholds.stream_blocks(),
        now_unix_ms: context.now_unix_ms,
    };
    context.store.modify(&key, |place| {
        if options.is_for_existing && !place.is_present() {
            reply.null();
            return Ok(());
        }
        let added = place.change_or_create(|stream: &mut Stream| entry.add_to(stream.log_mut()));
        let (id, trimmed_to) = added??;
        write_id(reply, id);
        place.effect(|effect| {
            let id = IdText::new(id);
            let len = IntegerText::new_u64(trimmed_to.unwrap_or(0) as u64);
            let mut parts: Vec<&[u8]> = vec![b"XADD", key.bytes()];
            if trimmed_to.is_some() {
                parts.extend([b"MAXLEN", &b"="[..], len.as_bytes()]);
            }
            parts.push(id.as_bytes());
            parts.extend(fields.0);
            effect.command(&parts);
        });
        place.event(EventClass::STREAM, "xadd");
        if trimmed_to.is_some() {
            place.event(EventClass::STREAM, "xtrim");
        }
        Ok(())
    })
}

/// An entry to be added, and the trim that comes with it.
struct New<'a> {
    wanted: Wanted,
    fields: Pairs<'a>,
    trim: Option<Trim>,
    limits: StreamLimits,
    now_unix_ms: u64,
}

impl New<'_> {
    /// Adds the entry. Returns its id, and the number of remaining entries if some were trimmed.
    #[inline]
    fn add_to(self, log: &mut EntryLog) -> Result<(EntryId, Option<usize>), CommandError> {
        if log.last_id() == EntryId::MAX {
            return Err(CommandError::fixed(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        }
        let id = self.wanted.after(log.last_id(), self.now_unix_ms);
        let id = id.ok_or(NOT_ABOVE_LAST)?;
        log.append(id, self.fields, self.limits)
            .map_err(|_| TOO_LARGE)?;
        let trimmed = self.trim.map_or(0, |trim| log.trim(&trim));
        Ok((id, (trimmed > 0).then(|| log.len())))
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::{START_UNIX_MS, TestServer};

    #[test]
    fn entries_get_ids_behind_the_last() {
        let mut server = TestServer::new();
        assert_eq!(server.text("XADD s * a 1"), format!("{START_UNIX_MS}-0"));
        assert_eq!(server.text("XADD s * a 1"), format!("{START_UNIX_MS}-1"));
        server.advance_ms(5);
        assert_eq!(
            server.text("XADD s * a 1"),
            format!("{}-0", START_UNIX_MS + 5)
        );
        assert_eq!(server.text("XADD t 5-* a 1"), "5-0");
        assert_eq!(server.text("XADD t 5-* a 1"), "5-1");
        assert_eq!(server.text("XADD t 7 a 1"), "7-0");
        assert!(server.error("XADD t 7 a 1").contains("equal or smaller"));
        assert!(server.error("XADD t 0-0 a 1").contains("greater than 0-0"));
        assert_eq!(server.run("XADD none NOMKSTREAM * a 1"), Value::Null);
        assert_eq!(server.integer("EXISTS none"), 0);
        assert_eq!(server.effects()[3], "XADD t 5-0 a 1");
        server.assert_effects_replay();
    }

    #[test]
    fn a_trim_is_stated_as_what_is_left() {
        let mut server = TestServer::new();
        for number in 1..=5 {
            server.run(&format!("XADD s {number} a 1"));
        }
        server.run("XADD s MAXLEN 3 6 a 1");
        server.run("XADD s MINID = 6 7 a 1");
        server.run("XADD s MAXLEN ~ 0 8 a 1");
        assert_eq!(
            server.effects()[5..],
            [
                "XADD s MAXLEN = 3 6-0 a 1",
                "XADD s MAXLEN = 2 7-0 a 1",
                "XADD s MAXLEN = 0 8-0 a 1"
            ]
        );
        assert_eq!(server.integer("EXISTS s"), 1, "an empty stream stays");
        server.assert_effects_replay();
    }

    #[test]
    fn blocks_are_as_long_as_configured() {
        let mut server = TestServer::new();
        let entries = engine::Threshold::StreamNodeMaxEntries;
        server.shared.settings.thresholds.set(entries, 10);
        for number in 1..=100 {
            server.run(&format!("XADD s {number} a 1"));
        }
        server.shared.settings.thresholds.set(entries, 1);
        assert_eq!(server.integer("XTRIM s MAXLEN ~ 55"), 40);
        assert_eq!(server.integer("XTRIM s MAXLEN ~ 0 LIMIT 25"), 20);
        assert_eq!(server.integer("XLEN s"), 40);
        server.assert_effects_replay();
    }
}
