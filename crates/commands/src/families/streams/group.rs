//! XGROUP: groups, their positions, and their consumers.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult, subcommand_syntax};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, EventClass, Key};
use structures::stream::{EntryId, Group as ConsumerGroup, Stream};

use super::ids::{self, IdText};
use super::shared::{CONSUMER_EVENT, Position, entries_read_text, no_group_at, state_consumer};
use crate::help;
use crate::structure::write_count;

const CREATOR: CommandSpec = CommandSpec {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(2, KeyAccess::RW.with(KeyAccess::INSERT))],
    group: Group::Stream,
    since: "5.0.0",
    ..CommandSpec::BLANK
};

const REMOVER: CommandSpec = CommandSpec {
    flags: Flags::WRITE,
    keys: &[KeySpec::one(2, KeyAccess::RW.with(KeyAccess::DELETE))],
    ..CREATOR
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "XGROUP",
    arity: Arity::AtLeast(2),
    group: Group::Stream,
    since: "5.0.0",
    summary: "Makes, moves and removes groups of consumers.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "CREATE",
            arity: Arity::AtLeast(5),
            history: &[("7.0.0", "Added `ENTRIESREAD`.")],
            summary: "Makes a group.",
            syntax: "key groupname <id | $:new_id> [MKSTREAM] \
                     [ENTRIESREAD entries_read:integer]",
            handler: create,
            ..CREATOR
        },
        CommandSpec {
            name: "CREATECONSUMER",
            arity: Arity::Exactly(5),
            since: "6.2.0",
            summary: "Makes a consumer in a group.",
            syntax: "key groupname consumername",
            handler: create_consumer,
            ..CREATOR
        },
        CommandSpec {
            name: "DELCONSUMER",
            arity: Arity::Exactly(5),
            summary: "Removes a consumer, with what is pending for it.",
            syntax: "key groupname consumername",
            handler: remove_consumer,
            ..REMOVER
        },
        CommandSpec {
            name: "DESTROY",
            arity: Arity::Exactly(4),
            summary: "Removes a group.",
            complexity: "O(N) for the N entries that are pending in it.",
            syntax: "key groupname",
            handler: destroy,
            ..REMOVER
        },
        CommandSpec::help(Group::Stream, "5.0.0", |_, _, reply| {
            help::write(reply, "XGROUP", HELP)
        }),
        CommandSpec {
            name: "SETID",
            arity: Arity::AtLeast(5),
            flags: Flags::WRITE,
            keys: &[KeySpec::one(2, KeyAccess::RW.with(KeyAccess::UPDATE))],
            history: &[("7.0.0", "Added `ENTRIESREAD`.")],
            summary: "Says from where on a group reads.",
            syntax: "key groupname <id | $:new_id> [ENTRIESREAD entries_read:integer]",
            handler: set_id,
            ..CREATOR
        },
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
];

const NO_KEY: CommandError = CommandError::fixed(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to \
     use the MKSTREAM option to create an empty stream automatically.",
);

/// The options after the id of CREATE or SETID.
struct Options {
    makes_stream: bool,
    entries_read: Option<u64>,
    /// Whether there are more words than even repeated options need.
    is_too_long: bool,
}

impl Options {
    fn parse(args: &mut Args<'_>, is_create: bool) -> Result<Self, CommandError> {
        let words = args.remaining();
        let mut options = Self {
            makes_stream: false,
            entries_read: None,
            is_too_long: if is_create { words > 3 } else { words > 2 },
        };
        while args.remaining() > 0 {
            if is_create && args.take_word("MKSTREAM") {
                options.makes_stream = true;
            } else if args.remaining() > 1 && args.take_word("ENTRIESREAD") {
                let count = args.integer()?;
                if count < -1 {
                    return Err(CommandError::fixed(
                        "ERR value for ENTRIESREAD must be positive or -1",
                    ));
                }
                options.entries_read = u64::try_from(count).ok();
            } else {
                return Err(subcommand_syntax(args.request()));
            }
        }
        Ok(options)
    }
}

/// Returns the last id of the stream at a key, or `None` if there is no stream.
fn last_id(entry: &Entry<'_>) -> Result<Option<EntryId>, CommandError> {
    let record = entry.record();
    let stream = record.as_ref().map(|record| record.structure::<Stream>());
    Ok(stream.transpose()?.map(|stream| stream.log().last_id()))
}

fn create(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (name, id) = (args.bytes()?, args.bytes()?);
    let options = Options::parse(args, true)?;
    let request = args.request();
    context.store.modify(&key, |entry| {
        let last = last_id(entry)?;
        if last.is_none() && !options.makes_stream {
            return Err(NO_KEY);
        }
        if options.is_too_long {
            return Err(subcommand_syntax(request));
        }
        let id = match id {
            b"$" => last.unwrap_or_default(),
            id => ids::parse(id, 0)?,
        };
        let read = options.entries_read;
        if !entry.change_or_create(|stream: &mut Stream| stream.create_group(name, id, read))? {
            return Err(CommandError::fixed(
                "BUSYGROUP Consumer Group name already exists",
            ));
        }
        entry.effect(|effect| {
            let (id, read) = (IdText::new(id), entries_read_text(read));
            let mut parts: Vec<&[u8]> =
                vec![b"XGROUP", b"CREATE", key.bytes(), name, id.as_bytes()];
            if last.is_none() {
                parts.push(b"MKSTREAM");
            }
            parts.extend([b"ENTRIESREAD", read.as_bytes()]);
            effect.command(&parts);
        });
        entry.event(EventClass::STREAM, "xgroup-create");
        reply.ok();
        Ok(())
    })
}

fn set_id(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (name, id) = (args.bytes()?, args.bytes()?);
    let options = Options::parse(args, false)?;
    let request = args.request();
    context.store.modify(&key, |entry| {
        let last = last_id(entry)?.ok_or(NO_KEY)?;
        let position = change(entry, name, |group| {
            if options.is_too_long {
                return Err(subcommand_syntax(request));
            }
            let id = match id {
                b"$" => last,
                id => ids::parse_or_end(id, 0)?,
            };
            group.set_position(id, options.entries_read);
            Ok(Position::of(group))
        })??;
        entry.effect(|effect| position.state(effect, &key, name));
        entry.event(EventClass::STREAM, "xgroup-setid");
        reply.ok();
        Ok(())
    })
}

fn destroy(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let name = args.bytes()?;
    context.store.modify(&key, |entry| {
        let removed = entry.change(|stream: &mut Stream| stream.remove_group(name))?;
        let is_removed = removed.ok_or(NO_KEY)?;
        if is_removed {
            entry.effect(|effect| effect.command(&[b"XGROUP", b"DESTROY", key.bytes(), name]));
            entry.event(EventClass::STREAM, "xgroup-destroy");
        }
        reply.integer(i64::from(is_removed));
        Ok(())
    })
}

fn create_consumer(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let (key, name, consumer) = consumer_words(context, args)?;
    let now_unix_ms = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        let created = change(entry, name, |group| {
            group.create_consumer(consumer, now_unix_ms).is_some()
        })?;
        if created {
            entry.effect(|effect| state_consumer(effect, &key, name, consumer));
            entry.event(EventClass::STREAM, CONSUMER_EVENT);
        }
        reply.integer(i64::from(created));
        Ok(())
    })
}

fn remove_consumer(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let (key, name, consumer) = consumer_words(context, args)?;
    context.store.modify(&key, |entry| {
        let pending = change(entry, name, |group| group.remove_consumer(consumer))?;
        if pending.is_some() {
            entry.effect(|effect| {
                effect.command(&[b"XGROUP", b"DELCONSUMER", key.bytes(), name, consumer]);
            });
            entry.event(EventClass::STREAM, "xgroup-delconsumer");
        }
        write_count(reply, pending.unwrap_or(0));
        Ok(())
    })
}

/// Takes a key, a group and a consumer.
fn consumer_words<'a>(
    context: &Context<'_>,
    args: &mut Args<'a>,
) -> Result<(Key<'a>, &'a [u8], &'a [u8]), CommandError> {
    let key = context.key(args.bytes()?);
    Ok((key, args.bytes()?, args.bytes()?))
}

/// Changes a group that must exist.
fn change<R>(
    entry: &mut Entry<'_>,
    name: &[u8],
    change: impl FnOnce(&mut ConsumerGroup) -> R,
) -> Result<R, CommandError> {
    let changed =
        entry.change(|stream: &mut Stream| stream.change_group(name, |group, _| change(group)))?;
    let key = entry.key();
    changed
        .ok_or(NO_KEY)?
        .ok_or_else(|| no_group_at(key.bytes(), name))
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn groups_and_consumers_come_and_go() {
        let mut server = TestServer::new();
        assert!(
            server
                .error("XGROUP CREATE s g $")
                .contains("requires the key to exist")
        );
        server.run("XGROUP CREATE s g $ MKSTREAM");
        assert_eq!(server.integer("XLEN s"), 0);
        assert!(server.error("XGROUP CREATE s g 0").starts_with("BUSYGROUP"));
        assert_eq!(server.integer("XGROUP CREATECONSUMER s g c"), 1);
        assert_eq!(server.integer("XGROUP CREATECONSUMER s g c"), 0);
        assert!(
            server
                .error("XGROUP CREATECONSUMER s h c")
                .starts_with("NOGROUP")
        );
        server.run("XADD s 5-1 a 1");
        server.run("XGROUP SETID s g $ ENTRIESREAD 1");
        assert_eq!(server.integer("XGROUP DELCONSUMER s g c"), 0);
        assert_eq!(server.integer("XGROUP DESTROY s g"), 1);
        assert_eq!(server.integer("XGROUP DESTROY s g"), 0);
        assert_eq!(
            server.effects(),
            [
                "XGROUP CREATE s g 0-0 MKSTREAM ENTRIESREAD -1",
                "XGROUP CREATECONSUMER s g c",
                "XADD s 5-1 a 1",
                "XGROUP SETID s g 5-1 ENTRIESREAD 1",
                "XGROUP DELCONSUMER s g c",
                "XGROUP DESTROY s g",
            ]
        );
        server.assert_effects_replay();
    }
}
