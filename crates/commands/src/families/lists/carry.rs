//! Moves of an element from one list to another.

use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Deprecation, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{EventClass, Key};
use structures::{Element, End, List};

use super::{end_word, pop_event, push_event, word_of};
use crate::structure::write_element;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LMOVE",
        arity: Arity::Exactly(5),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[
            KeySpec::one(
                1,
                KeyAccess::RW
                    .with(KeyAccess::ACCESS)
                    .with(KeyAccess::DELETE),
            ),
            KeySpec::one(2, KeyAccess::RW.with(KeyAccess::INSERT)),
        ],
        group: Group::List,
        since: "6.2.0",
        summary: "Takes an element from one end of a list and adds it to an end of another.",
        syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        handler: |context, args, reply| {
            let (source, target) = (context.key(args.bytes()?), context.key(args.bytes()?));
            let ends = (end_word(args)?, end_word(args)?);
            carry(context, reply, &source, &target, ends)
        },
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "RPOPLPUSH",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[
            KeySpec::one(
                1,
                KeyAccess::RW
                    .with(KeyAccess::ACCESS)
                    .with(KeyAccess::DELETE),
            ),
            KeySpec::one(2, KeyAccess::RW.with(KeyAccess::INSERT)),
        ],
        group: Group::List,
        since: "1.2.0",
        deprecated: Some(Deprecation {
            since: "6.2.0",
            replaced_by: "`LMOVE` with the `RIGHT` and `LEFT` arguments",
        }),
        summary: "Takes the last element of a list and adds it before the first of another.",
        syntax: "source destination",
        handler: |context, args, reply| {
            let (source, target) = (context.key(args.bytes()?), context.key(args.bytes()?));
            carry(context, reply, &source, &target, (End::Back, End::Front))
        },
        ..CommandSpec::BLANK
    },
];

pub(super) fn carry(
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
    source: &Key<'_>,
    target: &Key<'_>,
    ends: (End, End),
) -> CommandResult {
    let (from, to) = ends;
    context.locked(&[*source, *target], |context| {
        let Some(text) = first_of(context, source, from)? else {
            reply.null();
            return Ok(());
        };
        let element = Element::parse(&text);
        let limit = context.shared.settings.thresholds.list_blocks();
        // The target first: if it cannot take the element, the source keeps it. If source and
        // target are the same list, it must be shortened before it grows at the same end.
        let is_same = source.bytes() == target.bytes();
        if !is_same {
            context.store.modify(target, |entry| {
                entry.change_or_create(|list: &mut List| list.push(to, element, limit))?;
                entry.announce();
                entry.event(EventClass::LIST, push_event(to));
                Ok::<_, CommandError>(())
            })?;
        }
        context.store.modify(source, |entry| {
            if is_same {
                entry.event(EventClass::LIST, push_event(to));
            }
            entry.change(|list: &mut List| {
                if is_same && from != to {
                    list.push(to, element, limit);
                }
                if !is_same || from != to {
                    list.pop(from, 1, limit);
                }
            })?;
            entry.effect(|effect| {
                let (from, to) = (word_of(from), word_of(to));
                effect.command(&[b"LMOVE", source.bytes(), target.bytes(), from, to]);
            });
            entry.event_of_taking(EventClass::LIST, pop_event(from));
            Ok::<_, CommandError>(())
        })?;
        write_element(reply, element);
        Ok(())
    })
}

/// Returns a copy of the element at an end of the list at a key, or `None` if there is no such
/// list.
fn first_of(
    context: &mut Context<'_>,
    key: &Key<'_>,
    end: End,
) -> Result<Option<Vec<u8>>, CommandError> {
    context.store.inspect(key, |record| {
        let Some(record) = record else {
            return Ok(None);
        };
        let list = record.structure::<List>()?;
        Ok(list.peek(end).map(|element| element.to_vec()))
    })
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn an_element_goes_from_any_end_to_any_end() {
        let mut server = TestServer::new();
        server.run("RPUSH a 1 2 3");
        assert_eq!(server.text("LMOVE a b LEFT RIGHT"), "1");
        assert_eq!(server.text("LMOVE a b RIGHT LEFT"), "3");
        assert_eq!(server.text("RPOPLPUSH a b"), "2");
        assert_eq!(server.texts("LRANGE b 0 -1"), ["2", "3", "1"]);
        assert_eq!(server.integer("EXISTS a"), 0);
        assert_eq!(server.run("LMOVE a b LEFT LEFT"), Value::Null);
        assert_eq!(
            server.effects()[1..],
            [
                "LMOVE a b LEFT RIGHT",
                "LMOVE a b RIGHT LEFT",
                "LMOVE a b RIGHT LEFT"
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn a_list_is_carried_around_in_itself() {
        let mut server = TestServer::new();
        server.run("RPUSH a 1 2 3");
        assert_eq!(server.text("RPOPLPUSH a a"), "3");
        assert_eq!(server.text("LMOVE a a LEFT LEFT"), "3");
        assert_eq!(server.texts("LRANGE a 0 -1"), ["3", "1", "2"]);
        server.run("RPUSH one 1");
        assert_eq!(server.text("LMOVE one one LEFT RIGHT"), "1");
        assert_eq!(server.integer("LLEN one"), 1);
        server.assert_effects_replay();
    }

    #[test]
    fn both_ends_of_the_way_must_be_lists() {
        let mut server = TestServer::new();
        server.run("SET s v");
        server.run("RPUSH a 1");
        assert!(server.error("LMOVE s a LEFT LEFT").starts_with("WRONGTYPE"));
        assert!(server.error("LMOVE a s LEFT LEFT").starts_with("WRONGTYPE"));
        assert_eq!(server.run("LMOVE none s LEFT LEFT"), Value::Null);
        assert_eq!(server.error("LMOVE a b UP LEFT"), "ERR syntax error");
        assert_eq!(server.integer("LLEN a"), 1);
    }
}
