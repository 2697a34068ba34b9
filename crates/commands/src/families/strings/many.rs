//! Writing several strings as one step.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Deadline, FreeMemory, Handle, Key, StoreError};

use super::{state_set, tell_set};
use crate::keys::KeyList;

pub(super) const MSET: CommandSpec = CommandSpec {
    name: "MSET",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[KeySpec::range(
        1,
        -1,
        2,
        KeyAccess::OW.and(KeyAccess::UPDATE),
    )],
    group: Group::String,
    since: "1.0.1",
    summary: "Makes several keys hold a string each, all at one moment.",
    complexity: "O(N) where N is the number of keys to set.",
    syntax: "key value [key value ...]",
    tips: &[
        "request_policy:multi_shard",
        "response_policy:all_succeeded",
    ],
    handler: mset,
    ..CommandSpec::BLANK
};

pub(super) const MSETNX: CommandSpec = CommandSpec {
    name: "MSETNX",
    keys: &[KeySpec::range(
        1,
        -1,
        2,
        KeyAccess::OW.and(KeyAccess::INSERT),
    )],
    summary: "Makes several keys hold a string each, unless one of them exists.",
    tips: &["request_policy:multi_shard", "response_policy:agg_min"],
    handler: msetnx,
    ..MSET
};

fn mset(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let keys = keys_of_pairs(context, args, "mset")?;
    let bytes = args.request().wire_bytes();
    together(context, &keys, bytes, |store| set_all(store, &keys, args))?;
    reply.ok();
    Ok(())
}

fn msetnx(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let keys = keys_of_pairs(context, args, "msetnx")?;
    let bytes = args.request().wire_bytes();
    let done = together(context, &keys, bytes, |store| {
        let free = keys
            .iter()
            .all(|key| store.inspect(key, |record| record.is_none()));
        if free {
            set_all(store, &keys, args)?;
        }
        Ok::<_, CommandError>(free)
    })?;
    reply.integer(done.into());
    Ok(())
}

/// Runs `body`, which writes to all of `keys` at most `bytes` together, with all of them locked; not at
/// all where what is left may not do for all of it.
fn together<R>(
    context: &mut Context<'_>,
    keys: &[Key<'_>],
    bytes: usize,
    body: impl FnOnce(&mut Handle) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    let database = context.session.database;
    let free = |store: &mut Handle| store.free_memory_for(database, keys.len(), bytes);
    match free(context.store) {
        FreeMemory::Ample => context.store.locked(keys, body),
        FreeMemory::Lacking => Err(StoreError::OutOfMemory.into()),
        // Among others in a transaction, whose keys are locked already.
        FreeMemory::Enough if context.store.holds_keys() => Err(StoreError::OutOfMemory.into()),
        FreeMemory::Enough if context.store.may_be_busy() => Err(CommandError::Held),
        FreeMemory::Enough => context.store.exclusive(|store| match free(store) {
            FreeMemory::Lacking => Err(StoreError::OutOfMemory.into()),
            FreeMemory::Ample | FreeMemory::Enough => store.locked(keys, body),
        }),
    }
}

/// The keys of `key value [key value ...]`; leaves `args` at its beginning.
fn keys_of_pairs<'a>(
    context: &Context<'_>,
    args: &Args<'a>,
    command: &'static str,
) -> Result<KeyList<'a>, CommandError> {
    if !args.remaining().is_multiple_of(2) {
        return Err(CommandError::WrongArity(command.into()));
    }
    let names = args.request().iter().skip(1).step_by(2);
    Ok(names.map(|name| context.key(name)).collect())
}

fn set_all(store: &mut Handle, keys: &[Key<'_>], args: &mut Args<'_>) -> CommandResult {
    for key in keys {
        args.bytes()?;
        let value = args.bytes()?;
        store.upsert(key, value, Deadline::Never, |entry| {
            state_set(entry, value, Deadline::Never);
            tell_set(entry, Deadline::Never);
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn mset_writes_all_pairs_the_last_of_a_key_winning() {
        let mut server = TestServer::new();
        server.run("SET a old EX 100");
        server.effects();
        server.run("MSET a 1 b 2 a 3");
        assert_eq!(server.text("GET a"), "3");
        assert_eq!(server.effects(), ["SET a 1", "SET b 2", "SET a 3"]);
        server.assert_effects_replay();
    }

    #[test]
    fn msetnx_writes_all_or_nothing() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("MSETNX a 1 b 2"), 1);
        assert_eq!(server.integer("MSETNX c 1 b 3"), 0);
        assert_eq!(server.effects(), ["SET a 1", "SET b 2"]);
    }

    #[test]
    fn a_key_without_a_value_is_refused() {
        let mut server = TestServer::new();
        assert_eq!(
            server.error("MSET a 1 b"),
            "ERR wrong number of arguments for 'mset' command"
        );
        assert_eq!(
            server.error("MSETNX a 1 b"),
            "ERR wrong number of arguments for 'msetnx' command"
        );
    }

    #[test]
    fn more_keys_than_fit_on_the_stack() {
        let mut server = TestServer::new();
        let pairs: Vec<String> = (0..100).map(|key| format!("{key} {key}")).collect();
        server.run(&format!("MSET {}", pairs.join(" ")));
        assert_eq!(server.text("GET 99"), "99");
        assert_eq!(server.effects().len(), 100);
    }
}
