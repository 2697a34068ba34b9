//! Values that change their key or their database: RENAME RENAMENX COPY MOVE.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::{Reply, Request};
use store::{DatabaseId, Entry, Event, EventClass, Key, Owned};

use super::whole::has_one_database;

const MOVED_AWAY: KeyAccess = KeyAccess::RW
    .with(KeyAccess::ACCESS)
    .with(KeyAccess::DELETE);
const SAME_OBJECTS: CommandError =
    CommandError::fixed("ERR source and destination objects are the same");

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "RENAME",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE,
        keys: &[
            KeySpec::one(1, MOVED_AWAY),
            KeySpec::one(2, KeyAccess::OW.with(KeyAccess::UPDATE)),
        ],
        group: Group::Generic,
        categories: &["keyspace"],
        summary: "Gives a key another name; what had that name before is gone.",
        syntax: "key newkey",
        handler: |context, args, reply| {
            rename(context, args, true)?;
            reply.ok();
            Ok(())
        },
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "RENAMENX",
        history: &[("3.2.0", "A key may be given the name it has.")],
        arity: Arity::Exactly(3),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[
            KeySpec::one(1, MOVED_AWAY),
            KeySpec::one(2, KeyAccess::OW.with(KeyAccess::INSERT)),
        ],
        group: Group::Generic,
        categories: &["keyspace"],
        summary: "Gives a key another name, unless that name is taken.",
        syntax: "key newkey",
        handler: |context, args, reply| {
            reply.integer(i64::from(rename(context, args, false)?));
            Ok(())
        },
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "COPY",
        other_databases: Some(|request| {
            let is_db = |at: &usize| is_word(request, *at, b"DB");
            // The last DB option counts, and all of them may be locked.
            (3..request.len())
                .filter(is_db)
                .map(|at| (2, at + 1))
                .collect()
        }),
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[
            KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS)),
            KeySpec::one(2, KeyAccess::OW.with(KeyAccess::UPDATE)),
        ],
        group: Group::Generic,
        categories: &["keyspace"],
        since: "6.2.0",
        summary: "Copies the value and deadline of a key to another key or database.",
        complexity: "O(1) for strings.",
        syntax: "source destination [DB destination-db] [REPLACE]",
        handler: copy,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "MOVE",
        other_databases: Some(|_| vec![(1, 2)]),
        arity: Arity::Exactly(3),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec::one(
            1,
            KeyAccess::RW
                .with(KeyAccess::ACCESS)
                .with(KeyAccess::UPDATE),
        )],
        group: Group::Generic,
        categories: &["keyspace"],
        summary: "Moves a key to another database, unless that has such a key.",
        syntax: "key db",
        handler: relocate,
        ..CommandSpec::BLANK
    },
];

/// Whether an argument is this word, ignoring case.
fn is_word(request: &Request<'_>, at: usize, word: &[u8]) -> bool {
    let argument = request.arg(at).unwrap_or_default();
    argument.eq_ignore_ascii_case(word)
}

fn rename(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    overwrite: bool,
) -> Result<bool, CommandError> {
    let source = context.key(args.bytes()?);
    let target = context.key(args.bytes()?);
    context.locked(&[source, target], |context| {
        if !is_present(context, &source) {
            return Err(CommandError::NoSuchKey);
        }
        if source.bytes() == target.bytes() {
            return Ok(overwrite);
        }
        if !overwrite && is_present(context, &target) {
            return Ok(false);
        }
        shift(context, &source, &target)?;
        context.store.modify(&source, |entry| {
            entry.effect(|effect| {
                effect.command(&[b"RENAME", source.bytes(), target.bytes()]);
            });
            entry.event(EventClass::GENERIC, "rename_from");
        });
        let store = &mut context.store;
        store.event(&target, EventClass::GENERIC, "rename_to");
        Ok(true)
    })
}

fn copy(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let source = context.key(args.bytes()?);
    let mut target = context.key(args.bytes()?);
    let mut replace = false;
    while args.remaining() > 0 {
        if args.take_word("REPLACE") {
            replace = true;
        } else if args.remaining() >= 2 && args.take_word("DB") {
            target = target.in_database(database_index(context, args)?);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if source.database() == target.database() && source.bytes() == target.bytes() {
        return Err(SAME_OBJECTS);
    }
    let pace = context.pace;
    let copied = context.locked(&[source, target], |context| {
        let is_there = context.store.modify(&source, |entry| {
            // An offloaded request holds the keys that it names in its own database.
            if source.database() == target.database() {
                let record = entry.record();
                let nodes = record.and_then(|record| Some(record.object()?.allocations()));
                pace.admit_steps(nodes.unwrap_or(0))?;
            }
            entry.note_look();
            Ok::<_, CommandError>(entry.is_present())
        })?;
        if !is_there || (!replace && is_present(context, &target)) {
            return Ok(false);
        }
        place(context, &source, &target)?;
        context.store.modify(&source, |entry| {
            entry.effect_elsewhere(|effect| {
                let database = IntegerText::new_u64(u64::from(target.database()));
                effect.command(&[
                    b"COPY",
                    source.bytes(),
                    target.bytes(),
                    b"DB",
                    database.as_bytes(),
                    b"REPLACE",
                ]);
            });
        });
        let store = &mut context.store;
        store.event(&target, EventClass::GENERIC, "copy_to");
        Ok::<_, CommandError>(true)
    })?;
    reply.integer(i64::from(copied));
    Ok(())
}

fn relocate(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let source = context.key(args.bytes()?);
    if has_one_database(context) {
        return Err(CommandError::fixed(
            "ERR MOVE is not allowed in cluster mode",
        ));
    }
    let target = source.in_database(database_index(context, args)?);
    if source.database() == target.database() {
        return Err(SAME_OBJECTS);
    }
    let moved = context.locked(&[source, target], |context| {
        if !is_present(context, &source) || is_present(context, &target) {
            return Ok(false);
        }
        shift(context, &source, &target)?;
        context.store.modify(&source, |entry| {
            entry.effect(|effect| {
                let database = IntegerText::new_u64(u64::from(target.database()));
                effect.command(&[b"MOVE", source.bytes(), database.as_bytes()]);
            });
            entry.event(EventClass::GENERIC, "move_from");
        });
        let store = &mut context.store;
        store.event(&target, EventClass::GENERIC, "move_to");
        Ok::<_, CommandError>(true)
    })?;
    reply.integer(i64::from(moved));
    Ok(())
}

/// Moves the value and deadline of `source` to `target`. If memory does not suffice, the value is
/// not lost: a string stays until its copy is made, and an object, which is not copied, stays until
/// its new record is made.
fn shift(context: &mut Context<'_>, source: &Key<'_>, target: &Key<'_>) -> CommandResult {
    let found = context.store.modify(source, |entry| {
        let record = entry.record()?;
        Some((
            record.object().map(|object| object.to_empty()),
            record.deadline_unix_ms(),
        ))
    });
    let (empty, deadline_unix_ms) = found.ok_or(CommandError::NoSuchKey)?;
    let Some(empty) = empty else {
        place(context, source, target)?;
        context.store.modify(source, |entry| entry.remove());
        return Ok(());
    };
    let kept = Owned::of_object(empty, deadline_unix_ms);
    context.store.modify(target, |entry| put_new(entry, kept))?;
    if let Some(value) = context.store.modify(source, |entry| entry.take()) {
        context.store.modify(target, |entry| entry.put(value))?;
    }
    Ok(())
}

/// Copies the value and deadline of `source` to `target`.
fn place(context: &mut Context<'_>, source: &Key<'_>, target: &Key<'_>) -> CommandResult {
    let value = context.store.modify(source, |entry| entry.duplicate());
    let value = value.ok_or(CommandError::NoSuchKey)?;
    context.store.modify(target, |entry| put_new(entry, value))
}

/// Stores a value at a key as new: the previous value counts as deleted first.
fn put_new(entry: &mut Entry<'_>, value: Owned) -> CommandResult {
    let existed = entry.is_present();
    entry.put(value)?;
    if existed {
        entry.event(EventClass::NEW, Event::CREATED);
    }
    Ok(())
}

fn is_present(context: &mut Context<'_>, key: &Key<'_>) -> bool {
    context.store.modify(key, |entry| entry.is_present())
}

/// Takes the next argument as a database number.
fn database_index(context: &Context<'_>, args: &mut Args<'_>) -> Result<DatabaseId, CommandError> {
    context.database(i64::from(args.integer32()?))
}

#[cfg(test)]
mod tests {
    use engine::{Next, Threshold};
    use testkit::engine_server::TestServer;

    /// A clone takes a reference to each node: ten million members have more than a hundred
    /// thousand nodes.
    #[test]
    fn a_worker_leaves_the_copy_of_many_nodes_aside() {
        let mut server = TestServer::of_worker();
        let thresholds = &server.shared.settings.thresholds;
        thresholds.set(Threshold::ListMaxListpackSize, 1);
        for (elements, next) in [(1_000, Next::Read), (20_000, Next::Aside)] {
            for _ in 0..elements / 1_000 {
                server.run(&format!("RPUSH list{}", " element".repeat(1_000)));
            }
            assert_eq!(server.pipeline(&["COPY list copy REPLACE"]).1, next);
        }
        assert_eq!(server.integer("LLEN copy"), 1_000);
        server.run("COPY list copy DB 1");
        server.run("SELECT 1");
        assert_eq!(server.integer("LLEN copy"), 21_000);
    }

    #[test]
    fn values_take_their_deadline_and_encoding_along() {
        let mut server = TestServer::new();
        server.run("SET a 12 PXAT 1700000009000");
        server.run("RENAME a b");
        server.run("COPY b c");
        server.run("COPY b b DB 3");
        server.run("MOVE c 2");
        server.assert_effects_replay();
        let at: Vec<(u16, Option<u64>)> = server
            .dump()
            .into_iter()
            .map(|record| (record.0, record.3))
            .collect();
        let deadline = Some(1_700_000_009_000);
        assert_eq!(at, [(0, deadline), (2, deadline), (3, deadline)]);
    }

    #[test]
    fn nothing_is_overwritten_unless_asked_to() {
        let mut server = TestServer::new();
        server.run("MSET a 1 b 2");
        assert_eq!(server.integer("RENAMENX a b"), 0);
        assert_eq!(server.integer("COPY a b"), 0);
        server.run("COPY a a DB 1");
        assert_eq!(server.integer("MOVE a 1"), 0);
        assert_eq!(server.integer("COPY a b REPLACE"), 1);
        assert_eq!(server.text("GET b"), "1");
        server.assert_effects_replay();
    }

    #[test]
    fn expired_keys_are_neither_source_nor_in_the_way() {
        let mut server = TestServer::new();
        server.run("SET gone 1 PX 5");
        server.run("SET other 1 PX 5");
        server.run("SET a 1");
        server.advance_ms(5);
        assert_eq!(server.error("RENAME gone b"), "ERR no such key");
        assert_eq!(server.integer("COPY gone b"), 0);
        assert_eq!(server.integer("MOVE gone 1"), 0);
        assert_eq!(server.integer("RENAMENX a other"), 1);
        server.assert_effects_replay();
    }

    #[test]
    fn long_values_move_too() {
        let mut server = TestServer::new();
        let long = vec![b'x'; 1 << 20];
        server.run_args(&[b"SET", b"a", &long]);
        server.run("COPY a b");
        server.run("APPEND b y");
        server.run("RENAME a c");
        assert_eq!(server.integer("STRLEN c"), 1 << 20);
        assert_eq!(server.integer("STRLEN b"), (1 << 20) + 1);
        server.assert_effects_replay();
    }
}
