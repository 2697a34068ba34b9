//! Changes of existing elements: LSET LINSERT LREM LTRIM.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::EventClass;
use structures::{Element, End, List};

use super::{CUT_KEY, GROWN_KEY, SCANNED_PER_STEP, position, range};
use crate::structure::{element, write_count};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LSET",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))],
        group: Group::List,
        summary: "Puts another element in place of the one with a number.",
        complexity: "O(N) where N is the number of blocks between the element and the nearer end.",
        syntax: "key index element",
        handler: set,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "LINSERT",
        arity: Arity::Exactly(5),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: GROWN_KEY,
        group: Group::List,
        since: "2.2.0",
        summary: "Adds an element before or behind the first that equals another.",
        complexity: "O(N) where N is the number of elements before it.",
        syntax: "key <BEFORE | AFTER> pivot element",
        handler: insert,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "LREM",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE,
        keys: CUT_KEY,
        group: Group::List,
        summary: "Removes elements that equal another.",
        complexity: "O(N+M) where N is the length of the list and M the number of elements removed.",
        syntax: "key count element",
        handler: remove,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "LTRIM",
        arity: Arity::Exactly(4),
        flags: Flags::WRITE,
        keys: CUT_KEY,
        group: Group::List,
        summary: "Removes all elements but those between two numbers.",
        complexity: "O(N) where N is the number of blocks removed.",
        syntax: "key start stop:integer",
        handler: trim,
        ..CommandSpec::BLANK
    },
];

fn set(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let index_text = args.peek().unwrap_or_default();
    let index = args.integer();
    let text = args.bytes()?;
    let new = element(text)?;
    let limit = context.shared.settings.thresholds.list_blocks();
    context.store.modify(&key, |entry| {
        let is_set = entry.change(|list: &mut List| {
            let at = position(index?, list.len());
            Ok::<_, CommandError>(at.is_some_and(|at| list.set(at, new, limit)))
        })?;
        let is_set = is_set.ok_or(CommandError::NoSuchKey)?;
        if !is_set? {
            return Err(CommandError::fixed("ERR index out of range"));
        }
        entry.effect(|effect| effect.command(&[b"LSET", key.bytes(), index_text, text]));
        entry.event(EventClass::LIST, "lset");
        reply.ok();
        Ok(())
    })
}

fn insert(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let before = args.take_word("BEFORE");
    if !before && !args.take_word("AFTER") {
        return Err(CommandError::Syntax);
    }
    let (pivot, text) = (args.bytes()?, args.bytes()?);
    let new = element(text)?;
    let (limit, pace) = (
        context.shared.settings.thresholds.list_blocks(),
        context.pace,
    );
    let len = context.store.modify(&key, |entry| {
        let len = entry.change(|list: &mut List| {
            pace.admit_steps(list.len() / SCANNED_PER_STEP)?;
            let inserted = list.insert_beside(Element::parse(pivot), before, new, limit);
            Ok::<_, CommandError>(inserted.then_some(list.len()))
        })?;
        let len = len.transpose()?;
        if let Some(Some(_)) = len {
            entry.effect(|effect| {
                let side: &[u8] = if before { b"BEFORE" } else { b"AFTER" };
                effect.command(&[b"LINSERT", key.bytes(), side, pivot, text]);
            });
            entry.event(EventClass::LIST, "linsert");
        }
        Ok::<_, CommandError>(len)
    })?;
    match len {
        None => reply.integer(0),
        Some(None) => reply.integer(-1),
        Some(Some(len)) => write_count(reply, len),
    }
    Ok(())
}

fn remove(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let count = args.integer()?;
    if count == i64::MIN {
        return Err(CommandError::fixed(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ));
    }
    let text = args.bytes()?;
    let from = if count < 0 { End::Back } else { End::Front };
    let most = match usize::try_from(count.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(most) => most,
    };
    let (limit, pace) = (
        context.shared.settings.thresholds.list_blocks(),
        context.pace,
    );
    let removed = context.store.modify(&key, |entry| {
        let wanted = Element::parse(text);
        let removed = entry.change(|list: &mut List| {
            pace.admit_steps(list.len() / SCANNED_PER_STEP)?;
            Ok::<_, CommandError>(list.remove_equal(wanted, most, from, limit))
        })?;
        let removed = removed.transpose()?.unwrap_or(0);
        if removed > 0 {
            entry.effect(|effect| {
                let count = IntegerText::new(count);
                effect.command(&[b"LREM", key.bytes(), count.as_bytes(), text]);
            });
            entry.event_of_taking(EventClass::LIST, "lrem");
        }
        Ok::<_, CommandError>(removed)
    })?;
    write_count(reply, removed);
    Ok(())
}

fn trim(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (start, end) = (args.integer()?, args.integer()?);
    let (limit, pace) = (
        context.shared.settings.thresholds.list_blocks(),
        context.pace,
    );
    context.store.modify(&key, |entry| {
        let removed = entry.change(|list: &mut List| {
            let len = list.len();
            let kept = range(start, end, len);
            pace.admit_steps((len - kept.len()) / SCANNED_PER_STEP)?;
            list.pop(End::Back, len - kept.end, limit);
            list.pop(End::Front, kept.start, limit);
            Ok::<_, CommandError>(len - list.len())
        })?;
        let Some(removed) = removed.transpose()? else {
            return Ok(());
        };
        if removed > 0 {
            entry.effect(|effect| {
                let (start, end) = (IntegerText::new(start), IntegerText::new(end));
                effect.command(&[b"LTRIM", key.bytes(), start.as_bytes(), end.as_bytes()]);
            });
        }
        entry.event_of_taking(EventClass::LIST, "ltrim");
        Ok::<_, CommandError>(())
    })?;
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::thresholds::Threshold;
    use testkit::engine_server::TestServer;

    #[test]
    fn an_element_is_replaced_where_it_stands() {
        let mut server = TestServer::new();
        server.run("RPUSH l 1 2 3");
        server.run("LSET l -1 three");
        server.run("LSET l 0 ''");
        assert_eq!(server.texts("LRANGE l 0 -1"), ["", "2", "three"]);
        assert_eq!(server.error("LSET l 3 x"), "ERR index out of range");
        assert_eq!(server.error("LSET none x x"), "ERR no such key");
        assert_eq!(
            server.error("LSET l x x"),
            "ERR value is not an integer or out of range"
        );
        assert_eq!(server.effects()[1..], ["LSET l -1 three", "LSET l 0 "]);
        server.assert_effects_replay();
    }

    #[test]
    fn a_full_block_is_left_for_a_replacement() {
        let mut server = TestServer::new();
        server
            .shared
            .settings
            .thresholds
            .set(Threshold::ListMaxListpackSize, 3);
        server.run("RPUSH l a b c");
        server.run("LSET l 0 x");
        assert_eq!(server.text("OBJECT ENCODING l"), "quicklist");
    }

    #[test]
    fn an_element_is_added_beside_the_first_match() {
        let mut server = TestServer::new();
        server.run("RPUSH l a b a");
        assert_eq!(server.integer("LINSERT l BEFORE a x"), 4);
        assert_eq!(server.integer("LINSERT l after a y"), 5);
        assert_eq!(server.integer("LINSERT l AFTER none y"), -1);
        assert_eq!(server.integer("LINSERT none AFTER a y"), 0);
        assert_eq!(server.texts("LRANGE l 0 -1"), ["x", "a", "y", "b", "a"]);
        assert_eq!(server.error("LINSERT l BESIDE a y"), "ERR syntax error");
        assert_eq!(server.effects().len(), 3);
        server.assert_effects_replay();
    }

    #[test]
    fn matches_are_removed_from_the_end_that_the_sign_says() {
        let mut server = TestServer::new();
        server.run("RPUSH l a b a c a");
        assert_eq!(server.integer("LREM l 1 a"), 1);
        assert_eq!(server.integer("LREM l -1 a"), 1);
        assert_eq!(server.texts("LRANGE l 0 -1"), ["b", "a", "c"]);
        assert_eq!(server.integer("LREM l 0 none"), 0);
        server.run("RPUSH l c c");
        assert_eq!(server.integer("LREM l 0 c"), 3);
        assert_eq!(server.integer("LREM l 0 a"), 1);
        assert_eq!(server.integer("LREM l 5 b"), 1);
        assert_eq!(server.integer("EXISTS l"), 0);
        server.assert_effects_replay();
    }

    #[test]
    fn a_list_is_cut_at_both_ends() {
        let mut server = TestServer::new();
        server.run("RPUSH l 1 2 3 4 5");
        server.run("LTRIM l 0 -1");
        server.run("LTRIM l 1 -2");
        assert_eq!(server.texts("LRANGE l 0 -1"), ["2", "3", "4"]);
        server.run("LTRIM l 5 10");
        assert_eq!(server.integer("EXISTS l"), 0);
        server.run("LTRIM none 0 1");
        assert_eq!(server.effects()[1..], ["LTRIM l 1 -2", "LTRIM l 5 10"]);
        server.assert_effects_replay();
    }
}
