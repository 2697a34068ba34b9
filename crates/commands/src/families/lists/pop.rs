//! Removal at the ends.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::{Context, Pace};
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, EventClass, Key};
use structures::{BlockLimit, End, List};

use super::{end_word, pop_event, pop_of};
use crate::structure::write_element;
use engine::keys::KeyList;

pub(super) const TAKEN: KeyAccess = KeyAccess::RW
    .with(KeyAccess::ACCESS)
    .with(KeyAccess::DELETE);

const POP: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(1, TAKEN)],
    group: Group::List,
    history: &[("6.2.0", "Added the `count` argument.")],
    complexity: "O(N) where N is the number of elements returned.",
    syntax: "key [count]",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LPOP",
        summary: "Takes the first elements of a list.",
        handler: |context, args, reply| pop(context, args, reply, End::Front, "lpop"),
        ..POP
    },
    CommandSpec {
        name: "RPOP",
        summary: "Takes the last elements of a list.",
        handler: |context, args, reply| pop(context, args, reply, End::Back, "rpop"),
        ..POP
    },
    CommandSpec {
        name: "LMPOP",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE.with(Flags::MOVABLE_KEYS),
        keys: &[KeySpec {
            begin: Begin::Index(1),
            find: Find::Count {
                count: 0,
                first: 1,
                step: 1,
            },
            access: TAKEN,
            notes: "",
        }],
        group: Group::List,
        since: "7.0.0",
        summary: "Takes elements of the first of several lists that exists.",
        complexity: "O(N+M) where N is the number of keys and M the number of elements returned.",
        syntax: "numkeys:integer key [key ...] <LEFT | RIGHT> [COUNT count]",
        handler: pop_from_several,
        ..CommandSpec::BLANK
    },
];

#[inline]
fn pop(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    end: End,
    name: &'static str,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    if args.remaining() > 0 {
        return pop_several(context, args, reply, end, name, &key);
    }
    let limit = context.shared.settings.thresholds.list_blocks();
    context.store.modify(&key, |entry| {
        if !take_one(entry, reply, end, limit)? {
            reply.null();
        }
        Ok(())
    })
}

/// Writes the element at an end of the list at a key, and removes it. Returns whether there is such
/// a list.
#[inline]
pub(super) fn take_one(
    entry: &mut Entry<'_>,
    reply: &mut Reply<'_>,
    end: End,
    limit: BlockLimit,
) -> Result<bool, CommandError> {
    let was_there = entry.change(|list: &mut List| {
        if let Some(element) = list.peek(end) {
            write_element(reply, element);
        }
        list.pop(end, 1, limit);
    })?;
    if was_there.is_some() {
        let key = entry.key();
        entry.effect(|effect| effect.command(&[pop_of(end), key.bytes()]));
        entry.event_of_taking(EventClass::LIST, pop_event(end));
    }
    Ok(was_there.is_some())
}

/// Pops with a count, which is the next argument and must be the last.
fn pop_several(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    end: End,
    name: &'static str,
    key: &Key<'_>,
) -> CommandResult {
    if args.remaining() > 1 {
        return Err(CommandError::WrongArity(name.into()));
    }
    let count = args.integer().ok();
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(CommandError::fixed(
        "ERR value is out of range, must be positive",
    ))?;
    let (limit, pace) = (
        context.shared.settings.thresholds.list_blocks(),
        context.pace,
    );
    context.store.modify(key, |entry| {
        if take(entry, reply, end, count, limit, pace)?.is_none() {
            reply.null_array();
        }
        Ok(())
    })
}

/// Writes up to `count` elements from an end of the list at a key as an array, and removes them.
/// Returns their number, or `None` if there is no such list.
pub(super) fn take(
    entry: &mut Entry<'_>,
    reply: &mut Reply<'_>,
    end: End,
    count: usize,
    limit: BlockLimit,
    pace: Pace,
) -> Result<Option<usize>, CommandError> {
    if count == 0 {
        // Nothing is changed, but the type is checked.
        let record = entry.record();
        let list = record.map(|record| record.structure::<List>().map(|_| 0));
        let found = list.transpose()?;
        found.into_iter().for_each(|_| reply.array(0));
        return Ok(found);
    }
    let taken = entry.change(|list: &mut List| {
        let count = count.min(list.len());
        pace.admit_steps(count)?;
        reply.array(count);
        match end {
            End::Front => list.for_each(0..count, |element| write_element(reply, element)),
            End::Back => {
                let last = list.iter().rev().take(count);
                last.for_each(|element| write_element(reply, element));
            }
        }
        list.pop(end, count, limit);
        Ok::<_, CommandError>(count)
    })?;
    let taken = taken.transpose()?;
    if let Some(count) = taken {
        let key = entry.key();
        entry.effect(|effect| {
            let count = IntegerText::new_u64(count as u64);
            effect.command(&[pop_of(end), key.bytes(), count.as_bytes()]);
        });
        entry.event_of_taking(EventClass::LIST, pop_event(end));
    }
    Ok(taken)
}

fn pop_from_several(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let keys_count = positive(args, "ERR numkeys should be greater than 0")?;
    if keys_count >= args.remaining() {
        return Err(CommandError::Syntax);
    }
    let keys: KeyList<'_> = args
        .by_ref()
        .take(keys_count)
        .map(|name| context.key(name))
        .collect();
    let end = end_word(args)?;
    let count = count_option(args)?;
    let (limit, pace) = (
        context.shared.settings.thresholds.list_blocks(),
        context.pace,
    );
    context.locked(&keys, |context| {
        for key in &*keys {
            let taken = context.store.modify(key, |entry| {
                if !entry.is_present() {
                    return Ok(false);
                }
                let mark = reply.mark();
                reply.array(2);
                reply.bulk(key.bytes());
                let taken = take(entry, reply, end, count, limit, pace);
                if taken.is_err() {
                    reply.rollback(mark);
                }
                taken.map(|_| true)
            })?;
            if taken {
                return Ok(());
            }
        }
        reply.null_array();
        Ok(())
    })
}

/// Parses COUNT with a number, at most once. Returns 1 without it.
pub(super) fn count_option(args: &mut Args<'_>) -> Result<usize, CommandError> {
    if args.remaining() == 0 {
        return Ok(1);
    }
    if args.remaining() == 1 || !args.take_word("COUNT") {
        return Err(CommandError::Syntax);
    }
    let count = positive(args, "ERR count should be greater than 0")?;
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    Ok(count)
}

/// Takes the next argument as a number above 0.
pub(super) fn positive(
    args: &mut Args<'_>,
    complaint: &'static str,
) -> Result<usize, CommandError> {
    let number = args.integer().ok();
    let number = number.and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| CommandError::fixed(complaint))
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn elements_leave_from_the_end_that_was_named() {
        let mut server = TestServer::new();
        server.run("RPUSH l 1 2 3 4 5 6");
        assert_eq!(server.text("LPOP l"), "1");
        assert_eq!(server.text("RPOP l"), "6");
        assert_eq!(server.texts("RPOP l 2"), ["5", "4"]);
        assert_eq!(server.texts("LPOP l 0"), [""; 0]);
        assert_eq!(server.texts("LPOP l 9"), ["2", "3"]);
        assert_eq!(server.integer("EXISTS l"), 0);
        assert_eq!(server.run("LPOP l"), Value::Null);
        assert_eq!(server.run("LPOP l 2"), Value::NullArray);
        assert_eq!(
            server.effects()[1..],
            ["LPOP l", "RPOP l", "RPOP l 2", "LPOP l 2"]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn counts_are_checked_before_the_key() {
        let mut server = TestServer::new();
        let complaint = "ERR value is out of range, must be positive";
        assert_eq!(server.error("LPOP none -1"), complaint);
        assert_eq!(server.error("LPOP none x"), complaint);
        assert_eq!(
            server.error("RPOP l 1 2"),
            "ERR wrong number of arguments for 'rpop' command"
        );
    }

    #[test]
    fn the_first_list_there_is_gives_its_elements() {
        let mut server = TestServer::new();
        server.run("RPUSH l 1 2 3");
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        assert_eq!(
            server.run("LMPOP 2 none l RIGHT COUNT 2"),
            Value::Array(vec![bulk("l"), Value::Array(vec![bulk("3"), bulk("2")])])
        );
        assert_eq!(server.run("LMPOP 1 none LEFT"), Value::NullArray);
        server.run("SET s v");
        assert!(
            server
                .error("LMPOP 3 none s l LEFT")
                .starts_with("WRONGTYPE")
        );
        assert_eq!(server.error("LMPOP 2 l LEFT"), "ERR syntax error");
        assert_eq!(
            server.error("LMPOP 1 l LEFT COUNT 1 COUNT 1"),
            "ERR syntax error"
        );
        assert_eq!(
            server.error("LMPOP 0 l LEFT"),
            "ERR numkeys should be greater than 0"
        );
        assert_eq!(
            server.error("LMPOP 1 l LEFT COUNT 0"),
            "ERR count should be greater than 0"
        );
        assert_eq!(server.effects(), ["RPUSH l 1 2 3", "RPOP l 2", "SET s v"]);
        server.assert_effects_replay();
    }
}
