//! Choice of the client that may fetch an item again: one of all clients that ask.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags};
use protocol::Reply;
use store::{Deadline, Entry, Record};

use super::change::{CHANGER, put};
use super::item::{Marks, etag_behind, number_of};
use super::read::{Wanted, move_deadline};
use super::{deadline_argument, is_over};
use crate::families::etags::state_etag;
use crate::families::strings::shared::check_string;

/// The reply's mark that this client was chosen.
const WON: i64 = 4;

/// The row.
pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "MCWIN",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    summary: "Gives an item of memcached, and one client the right to fetch it anew.",
    syntax: "key [CAS] [NOVALUE] [VIVIFY unix-time-milliseconds] [RECACHE unix-time-milliseconds] \
             [PXAT unix-time-milliseconds]",
    handler: win,
    ..CHANGER
}];

/// The arguments of MCWIN.
struct Request {
    wanted: Wanted,
    /// Deadline of an empty item that is created if none exists.
    vivify: Option<Deadline>,
    /// An item with an earlier deadline is to be fetched again.
    recache_unix_ms: u64,
    deadline: Deadline,
}

impl Request {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut request = Self {
            wanted: Wanted {
                marks: true,
                ..Wanted::default()
            },
            vivify: None,
            recache_unix_ms: 0,
            deadline: Deadline::Keep,
        };
        while let Some(word) = args.option_word() {
            match word.as_bytes() {
                b"CAS" => request.wanted.cas = true,
                b"NOVALUE" => request.wanted.hides_value = true,
                b"VIVIFY" => request.vivify = Some(deadline_argument(args)?),
                b"RECACHE" => {
                    if let Deadline::At(unix_ms) = deadline_argument(args)? {
                        request.recache_unix_ms = unix_ms;
                    }
                }
                b"PXAT" => request.deadline = deadline_argument(args)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(request)
    }

    /// Whether the asking client is chosen.
    fn wins(&self, record: &Record<'_>) -> bool {
        let marks = Marks::of(record.etag());
        let deadline_unix_ms = record.deadline_unix_ms();
        let is_about_to_end = deadline_unix_ms.is_some_and(|at| at < self.recache_unix_ms);
        !marks.is_sent && (marks.is_stale || is_about_to_end)
    }
}

fn win(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let request = Request::parse(args)?;
    let (random, now_unix_ms) = (&mut *context.random, context.now_unix_ms);
    let mark = reply.mark();
    let done = context.store.modify(&key, |entry| {
        let record = entry.record();
        entry.note_look();
        check_string(record.as_ref())?;
        let is_there = record.is_some();
        let wins = match &record {
            Some(record) => request.wins(record),
            None => request.vivify.is_some_and(|at| !is_over(at, now_unix_ms)),
        };
        if let (false, true, Some(deadline)) = (is_there, wins, request.vivify) {
            let etag = sent(etag_behind(0, 0, random));
            put(entry, b"", deadline, etag)?;
        }
        let won = if wins { WON } else { 0 };
        let deadline_unix_ms = match request.deadline {
            Deadline::At(unix_ms) if is_there => Some(unix_ms),
            Deadline::Never if is_there => None,
            _ => entry.record().and_then(|record| record.deadline_unix_ms()),
        };
        if is_there && wins {
            mark_sent(entry, random)?;
        }
        let record = entry.record();
        request
            .wanted
            .write_won(record.as_ref(), deadline_unix_ms, won, reply);
        match is_there {
            true => move_deadline(entry, request.deadline, now_unix_ms),
            false => Ok(()),
        }
    });
    if done.is_err() {
        reply.rollback(mark);
    }
    done
}

/// Returns an etag with the mark that a client was chosen.
fn sent(etag: u64) -> u64 {
    let marks = Marks {
        is_sent: true,
        ..Marks::of(etag)
    };
    marks.on(etag)
}

/// Records that a client was chosen. A string of Redis clients gets an etag for that.
fn mark_sent(entry: &mut Entry<'_>, random: &mut base::random::Prng) -> CommandResult {
    let before = entry.record().map_or(0, |record| record.etag());
    let etag = match number_of(before) {
        0 => etag_behind(0, 0, random),
        _ => before,
    };
    entry.set_etag(sent(etag))?;
    state_etag(entry, sent(etag));
    Ok(())
}
