//! Removal of entries, and changes of a stream's counters: XTRIM XDEL XSETID.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use store::EventClass;
use structures::stream::{BadCounters, Counters, EntryId, EntryLog, Stream};

use super::add::Options;
use super::ids::{self, IdText};
use super::shared::{CHANGED_KEY, CUT_KEY, state_ids};
use crate::structure::write_count;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "XTRIM",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE,
        keys: CUT_KEY,
        group: Group::Stream,
        since: "5.0.0",
        history: &[("6.2.0", "Added `MINID` and `LIMIT`.")],
        summary: "Removes the oldest entries of a stream.",
        complexity: "O(N) for the N entries removed, most of them with their whole block.",
        syntax: "key <<MAXLEN | MINID> [=:equal | ~:approximately] threshold [LIMIT count]>",
        tips: &["nondeterministic_output"],
        handler: trim,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "XDEL",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: CUT_KEY,
        group: Group::Stream,
        since: "5.0.0",
        summary: "Removes entries of a stream by their ids.",
        complexity: "O(log(N)) for each id.",
        syntax: "key id [id ...]",
        handler: delete,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "XSETID",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: CHANGED_KEY,
        group: Group::Stream,
        since: "5.0.0",
        history: &[("7.0.0", "Added `ENTRIESADDED` and `MAXDELETEDID`.")],
        summary: "Sets the last id of a stream.",
        syntax: "key last-id [ENTRIESADDED entries_added:integer] \
                 [MAXDELETEDID max_deleted_entry_id]",
        handler: set_id,
        ..CommandSpec::BLANK
    },
];

fn trim(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (thresholds, is_of_primary) = (
        &context.shared.settings.thresholds,
        context.session.is_of_primary,
    );
    let options = Options::parse(args, thresholds, false, is_of_primary)?;
    let Some(trim) = options.trim else {
        return Err(CommandError::Syntax);
    };
    context.store.modify(&key, |entry| {
        let removed = entry.change(|stream: &mut Stream| {
            let count = stream.log_mut().trim(&trim);
            (count, stream.len())
        })?;
        let (count, left) = removed.unwrap_or_default();
        if count > 0 {
            entry.effect(|effect| {
                let left = IntegerText::new_u64(left as u64);
                effect.command(&[b"XTRIM", key.bytes(), b"MAXLEN", b"=", left.as_bytes()]);
            });
            entry.event(EventClass::STREAM, "xtrim");
        }
        write_count(reply, count);
        Ok(())
    })
}

fn delete(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    // All ids are parsed before one is removed; the key is checked before them.
    let wanted = args.rest().map(|argument| ids::parse(argument, 0));
    context.store.modify(&key, |entry| {
        let removed = entry.change(|stream: &mut Stream| {
            let mut ids = wanted.collect::<Result<Vec<EntryId>, _>>()?;
            ids.retain(|id| stream.log_mut().remove(*id));
            Ok::<_, CommandError>(ids)
        })?;
        let removed = removed.transpose()?.unwrap_or_default();
        if !removed.is_empty() {
            entry.effect(|effect| state_ids(effect, &[b"XDEL", key.bytes()], &removed));
            entry.event(EventClass::STREAM, "xdel");
        }
        write_count(reply, removed.len());
        Ok(())
    })
}

fn set_id(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let wanted = Wanted::parse(args)?;
    context.store.modify(&key, |entry| {
        let set = entry.change(|stream: &mut Stream| wanted.set(stream.log_mut()))?;
        let counters = set.ok_or(CommandError::NoSuchKey)??;
        entry.effect(|effect| {
            let last = IdText::new(counters.last_id);
            let added = IntegerText::new_u64(counters.entries_added);
            let deleted = IdText::new(counters.max_deleted_id);
            effect.command(&[
                b"XSETID",
                key.bytes(),
                last.as_bytes(),
                b"ENTRIESADDED",
                added.as_bytes(),
                b"MAXDELETEDID",
                deleted.as_bytes(),
            ]);
        });
        entry.event(EventClass::STREAM, "xsetid");
        reply.ok();
        Ok(())
    })
}

/// The parsed arguments of XSETID.
struct Wanted {
    last_id: EntryId,
    entries_added: Option<u64>,
    max_deleted_id: Option<EntryId>,
}

impl Wanted {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut wanted = Self {
            last_id: ids::next(args)?,
            entries_added: None,
            max_deleted_id: None,
        };
        while args.remaining() > 1 {
            if args.take_word("ENTRIESADDED") {
                let count = args.integer()?;
                let negative = CommandError::fixed("ERR entries_added must be positive");
                wanted.entries_added = Some(u64::try_from(count).map_err(|_| negative)?);
            } else if args.take_word("MAXDELETEDID") {
                let id = ids::next(args)?;
                if wanted.last_id < id {
                    return Err(CommandError::fixed(
                        "ERR The ID specified in XSETID is smaller than the provided \
                         max_deleted_entry_id",
                    ));
                }
                // The lowest id means none.
                wanted.max_deleted_id = Some(id).filter(|id| *id != EntryId::MIN);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        match args.remaining() {
            0 => Ok(wanted),
            _ => Err(CommandError::Syntax),
        }
    }

    fn set(&self, log: &mut EntryLog) -> Result<Counters, CommandError> {
        let before = log.counters();
        if self.last_id < before.max_deleted_id {
            return Err(CommandError::fixed(
                "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
            ));
        }
        let counters = Counters {
            last_id: self.last_id,
            entries_added: self.entries_added.unwrap_or(before.entries_added),
            max_deleted_id: self.max_deleted_id.unwrap_or(before.max_deleted_id),
        };
        let complaint = |bad| match bad {
            BadCounters::LastId | BadCounters::MaxDeletedId => {
                "ERR The ID specified in XSETID is smaller than the target stream top item"
            }
            BadCounters::EntriesAdded => {
                "ERR The entries_added specified in XSETID is smaller than the target stream length"
            }
        };
        log.set_counters(counters)
            .map_err(|bad| CommandError::fixed(complaint(bad)))?;
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn what_went_is_stated() {
        let mut server = TestServer::new();
        for number in 1..=6 {
            server.run(&format!("XADD s {number} a 1"));
        }
        assert_eq!(server.integer("XDEL s 2 9 2 4-0"), 2);
        assert_eq!(server.integer("XTRIM s MINID 5"), 2);
        assert_eq!(server.integer("XTRIM s MAXLEN 5"), 0);
        assert_eq!(server.integer("XTRIM none MAXLEN 5"), 0);
        assert!(server.error("XDEL s 5 x").contains("Invalid stream ID"));
        assert_eq!(server.integer("XLEN s"), 2);
        server.run("XSETID s 9 ENTRIESADDED 12");
        assert_eq!(
            server.effects()[6..],
            [
                "XDEL s 2-0 4-0",
                "XTRIM s MAXLEN = 2",
                "XSETID s 9-0 ENTRIESADDED 12 MAXDELETEDID 4-0"
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn counters_must_fit_the_entries() {
        let mut server = TestServer::new();
        assert_eq!(server.error("XSETID s 5"), "ERR no such key");
        server.run("XADD s 5 a 1");
        assert!(server.error("XSETID s 4").contains("top item"));
        assert!(
            server
                .error("XSETID s 5 ENTRIESADDED 0")
                .contains("target stream length")
        );
        assert!(
            server
                .error("XSETID s 5 MAXDELETEDID 6")
                .contains("provided max_deleted")
        );
        server.run("XDEL s 5");
        assert!(server.error("XSETID s 4").contains("current max_deleted"));
        assert_eq!(server.error("XSETID s 5 ENTRIESADDED"), "ERR syntax error");
    }
}
