//! Whole databases: SELECT SWAPDB FLUSHDB FLUSHALL.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, Scatter};
use protocol::Reply;
use store::DatabaseId;

const FLUSH: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(1),
    flags: Flags::WRITE,
    group: Group::Server,
    history: &[("4.0.0", "Added `ASYNC`."), ("6.2.0", "Added `SYNC`.")],
    categories: &["keyspace", "dangerous"],
    complexity: "O(1); the memory is given back behind.",
    syntax: "[ASYNC | SYNC]",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    scatter: Scatter::DoneByAll,
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "FLUSHDB",
        summary: "Deletes all keys of the database.",
        handler: |context, args, reply| {
            check_flush_mode(args)?;
            let database = context.session.database;
            flush(context, Some(database), b"FLUSHDB", reply)
        },
        ..FLUSH
    },
    CommandSpec {
        name: "FLUSHALL",
        summary: "Deletes all keys of all databases.",
        handler: |context, args, reply| {
            check_flush_mode(args)?;
            flush_all(context, reply)
        },
        ..FLUSH
    },
    CommandSpec {
        name: "SWAPDB",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE.with(Flags::FAST).with(Flags::HAS_STORE_ALONE),
        group: Group::Server,
        categories: &["keyspace", "dangerous"],
        since: "4.0.0",
        summary: "Exchanges the keys of two databases.",
        complexity: "O(1)",
        syntax: "index1 index2",
        handler: swap,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "SELECT",
        arity: Arity::Exactly(2),
        flags: Flags::LOADING
            .with(Flags::STALE)
            .with(Flags::FAST)
            .with(Flags::SELECTS_DATABASE),
        group: Group::Connection,
        categories: &["connection"],
        summary: "Chooses the database that the connection works on.",
        syntax: "index",
        handler: select,
        ..CommandSpec::BLANK
    },
];

/// Checks the mode. Both modes are the same here: the keys are gone at once, and the memory is
/// freed later.
fn check_flush_mode(args: &mut Args<'_>) -> CommandResult {
    if args.remaining() > 0 && !args.take_word("ASYNC") && !args.take_word("SYNC") {
        return Err(CommandError::Syntax);
    }
    if args.remaining() > 0 {
        Err(CommandError::Syntax)
    } else {
        Ok(())
    }
}

/// Flushes all databases. If save points decide when data is saved, the flush is saved soon:
/// otherwise the data would return with the next start.
fn flush_all(context: &mut Context<'_>, reply: &mut Reply<'_>) -> CommandResult {
    flush(context, None, b"FLUSHALL", reply)?;
    context.server.flushed_all();
    Ok(())
}

/// The error while this node has keys that another node has served until now.
const TAKING: CommandError =
    CommandError::fixed("TRYAGAIN hash slots are being taken over: nothing was removed");

fn flush(
    context: &mut Context<'_>,
    database: Option<DatabaseId>,
    command: &[u8],
    reply: &mut Reply<'_>,
) -> CommandResult {
    let stated_in = context.session.database;
    context.server.tell_flush(context.store);
    let slots = &context.shared.hash_slots;
    let is_done = context.store.exclusive(|store| {
        if !slots.begin_flush() {
            return false;
        }
        if store.flush(database) > 0 {
            store.effect(stated_in, |effect| effect.command(&[command]));
        }
        true
    });
    if !is_done {
        return Err(TAKING);
    }
    reply.ok();
    Ok(())
}

fn swap(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if context.shared.hash_slots.is_on() {
        return Err(CommandError::fixed(
            "ERR SWAPDB is not allowed in cluster mode",
        ));
    }
    let mut index = |error: &'static str| {
        let number = args
            .integer()
            .ok()
            .and_then(|number| i32::try_from(number).ok());
        number
            .map(i64::from)
            .ok_or_else(|| CommandError::fixed(error))
    };
    let one = index("ERR invalid first DB index")?;
    let other = index("ERR invalid second DB index")?;
    let (one, other) = (context.database(one)?, context.database(other)?);
    let stated_in = context.session.database;
    context.store.exclusive(|store| {
        if one == other || store.len(one) + store.len(other) == 0 {
            return;
        }
        store.swap(one, other);
        store.effect(stated_in, |effect| {
            let (one, other) = (
                IntegerText::new_u64(u64::from(one)),
                IntegerText::new_u64(u64::from(other)),
            );
            effect.command(&[b"SWAPDB", one.as_bytes(), other.as_bytes()]);
        });
    });
    reply.ok();
    Ok(())
}

/// Whether the server is in cluster mode with one database.
pub(super) fn has_one_database(context: &Context<'_>) -> bool {
    let slots = &context.shared.hash_slots;
    slots.is_on() && context.store.store().databases() == 1
}

fn select(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let number = args.integer32()?;
    if number != 0 && has_one_database(context) {
        return Err(CommandError::fixed(
            "ERR SELECT is not allowed in cluster mode",
        ));
    }
    let database = context.database(i64::from(number))?;
    context.session.select(database);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn databases_are_emptied_one_or_all() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.run("SELECT 1");
        server.run("SET a 1");
        server.run("FLUSHDB");
        assert_eq!(server.integer("DBSIZE"), 0);
        server.run("SELECT 0");
        assert_eq!(server.integer("DBSIZE"), 1);
        server.run("FLUSHALL ASYNC");
        server.run("FLUSHALL");
        assert_eq!(server.effects()[2..], ["FLUSHDB", "FLUSHALL"]);
        assert!(server.dump().is_empty());
        assert_eq!(server.error("FLUSHDB LATER"), "ERR syntax error");
    }

    #[test]
    fn what_flushall_leaves_is_to_be_saved() {
        let mut server = TestServer::new();
        server.run("FLUSHDB");
        assert!(server.port.asked.is_empty());
        for line in ["FLUSHALL", "MULTI", "FLUSHALL ASYNC", "EXEC"] {
            server.run(line);
        }
        assert_eq!(server.port.asked, ["flushed", "flushed"]);
    }

    #[test]
    fn databases_change_places() {
        let mut server = TestServer::new();
        server.run("SET a 1 PXAT 1700000009000");
        server.run("SWAPDB 0 2");
        server.run("SWAPDB 2 2");
        assert_eq!(server.integer("DBSIZE"), 0);
        server.run("SELECT 2");
        assert_eq!(server.integer("PEXPIRETIME a"), 1_700_000_009_000);
        assert_eq!(server.effects()[1..], ["SWAPDB 0 2"]);
        server.assert_effects_replay();
        assert_eq!(server.error("SWAPDB x 1"), "ERR invalid first DB index");
        assert_eq!(
            server.error("SWAPDB 1 99999999999"),
            "ERR invalid second DB index"
        );
        assert_eq!(server.error("SWAPDB 1 16"), "ERR DB index is out of range");
    }

    #[test]
    fn a_database_must_exist() {
        let mut server = TestServer::new();
        assert_eq!(server.error("SELECT 16"), "ERR DB index is out of range");
        assert_eq!(server.error("SELECT -1"), "ERR DB index is out of range");
        assert_eq!(
            server.error("SELECT x"),
            "ERR value is not an integer or out of range"
        );
        assert!(
            server
                .error("SELECT 4294967296")
                .contains("must between -2147483648")
        );
        assert_eq!(server.session().database, 0);
    }
}
