//! Writes of several strings as one step.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec, Scatter};
use protocol::Reply;
use store::{Deadline, FreeMemory, Handle, Key, StoreError};

use super::expiry::{Expiry, ExpiryForm};
use super::shared::{state_set, tell_set};
use engine::keys::KeyList;

pub(super) const MSET: CommandSpec = CommandSpec {
    name: "MSET",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BRIEF),
    keys: &[KeySpec::range(
        1,
        -1,
        2,
        KeyAccess::OW.with(KeyAccess::UPDATE),
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
    scatter: Scatter::Done,
    handler: mset,
    ..CommandSpec::BLANK
};

pub(super) const MSETNX: CommandSpec = CommandSpec {
    name: "MSETNX",
    keys: &[KeySpec::range(
        1,
        -1,
        2,
        KeyAccess::OW.with(KeyAccess::INSERT),
    )],
    summary: "Makes several keys hold a string each, unless one of them exists.",
    tips: &[],
    scatter: Scatter::Never,
    handler: msetnx,
    ..MSET
};

pub(super) const MSETEX: CommandSpec = CommandSpec {
    name: "MSETEX",
    scatter: Scatter::Never,
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLE_KEYS),
    keys: &[KeySpec {
        begin: Begin::Index(1),
        find: Find::Count {
            count: 0,
            first: 1,
            step: 2,
        },
        access: KeyAccess::OW.with(KeyAccess::UPDATE),
        notes: "",
    }],
    since: "8.4.0",
    summary: "Makes several keys hold a string each, all with the same deadline.",
    syntax: "numkeys:integer <key value> [key value ...] [NX | XX] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    handler: msetex,
    ..MSET
};

fn mset(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let keys = keys_of_pairs(context, args, "mset")?;
    let bytes = args.request().wire_bytes();
    together(context, &keys, bytes, |store| {
        set_all(store, &keys, args, Deadline::Never)
    })?;
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
            set_all(store, &keys, args, Deadline::Never)?;
        }
        Ok::<_, CommandError>(free)
    })?;
    reply.integer(done.into());
    Ok(())
}

fn msetex(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let count = args
        .integer()
        .ok()
        .and_then(|count| i32::try_from(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count
        .filter(|count| *count > 0)
        .ok_or(CommandError::fixed("ERR invalid numkeys value"))?;
    if count > args.remaining() / 2 {
        return Err(CommandError::fixed("ERR wrong number of key-value pairs"));
    }
    let names = args.request().iter().skip(2).step_by(2).take(count);
    let keys: KeyList<'_> = names.map(|name| context.key(name)).collect();
    let mut pairs = args.clone();
    args.by_ref().take(2 * count).for_each(drop);
    let (wanted, deadline) = options(args, context.now_unix_ms)?;
    let bytes = args.request().wire_bytes();
    let done = together(context, &keys, bytes, |store| {
        let is_present = |key| store.inspect(key, |record| record.is_some());
        let is_wanted = match wanted {
            Wanted::Always => true,
            Wanted::NonePresent => !keys.iter().any(is_present),
            Wanted::AllPresent => keys.iter().all(is_present),
        };
        if is_wanted {
            set_all(store, &keys, &mut pairs, deadline)?;
        }
        Ok::<_, CommandError>(is_wanted)
    })?;
    reply.integer(done.into());
    Ok(())
}

/// The condition on which MSETEX sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Always,
    NonePresent,
    AllPresent,
}

/// Parses the options after the pairs of MSETEX, in any order. As with SET, an option may be
/// repeated, but not combined with a contradicting one.
fn options(args: &mut Args<'_>, now_unix_ms: u64) -> Result<(Wanted, Deadline), CommandError> {
    let mut wanted = Wanted::Always;
    let mut expiry: Option<Expiry<'_>> = None;
    let mut keeps = false;
    while let Some(word) = args.option_word() {
        match (word.as_bytes(), wanted) {
            (b"NX", Wanted::Always | Wanted::NonePresent) => wanted = Wanted::NonePresent,
            (b"XX", Wanted::Always | Wanted::AllPresent) => wanted = Wanted::AllPresent,
            (b"KEEPTTL", _) if expiry.is_none() => keeps = true,
            (word, _) => {
                let form = ExpiryForm::from_word(word).ok_or(CommandError::Syntax)?;
                if keeps || expiry.is_some_and(|given| !given.has_form(form)) {
                    return Err(CommandError::Syntax);
                }
                expiry = Some(Expiry::new(form, args.bytes()?));
            }
        }
    }
    let deadline = match expiry {
        Some(expiry) => Deadline::At(expiry.deadline_unix_ms(now_unix_ms, "msetex")?),
        None if keeps => Deadline::Keep,
        None => Deadline::Never,
    };
    Ok((wanted, deadline))
}

/// Runs `body`, which writes at most `bytes` in total to `keys`, with all of them locked. Does not
/// run it if the remaining memory may not suffice.
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
        // In a transaction, whose keys are locked already.
        FreeMemory::Enough if context.store.holds_keys() => Err(StoreError::OutOfMemory.into()),
        FreeMemory::Enough if context.store.may_be_busy() => Err(CommandError::Held),
        FreeMemory::Enough => context.store.exclusive(|store| match free(store) {
            FreeMemory::Lacking => Err(StoreError::OutOfMemory.into()),
            FreeMemory::Ample | FreeMemory::Enough => store.locked(keys, body),
        }),
    }
}

/// Returns the keys of `key value [key value ...]`, without taking any arguments.
fn keys_of_pairs<'a>(
    context: &Context<'_>,
    args: &Args<'a>,
    command: &'static str,
) -> Result<KeyList<'a>, CommandError> {
    if !args.remaining().is_multiple_of(2) {
        return Err(CommandError::WrongArity(command.into()));
    }
    let names = args.request().iter().skip(1).step_by(2);
    Ok(context.keys(names))
}

fn set_all(
    store: &mut Handle,
    keys: &KeyList<'_>,
    args: &mut Args<'_>,
    deadline: Deadline,
) -> CommandResult {
    for (at, key) in keys.iter().enumerate() {
        keys.look_ahead(store, at);
        args.bytes()?;
        let value = args.bytes()?;
        store.upsert(key, value, deadline, |entry| {
            state_set(entry, value, deadline);
            tell_set(entry, deadline);
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::{START_UNIX_MS, TestServer};

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
    fn msetex_writes_all_or_nothing_with_one_deadline() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("MSETEX 2 a 1 b 2 EX 10"), 1);
        let at = START_UNIX_MS + 10_000;
        let stated = [format!("SET a 1 PXAT {at}"), format!("SET b 2 PXAT {at}")];
        assert_eq!(server.effects(), stated);
        assert_eq!(server.integer("MSETEX 2 a 3 c 3 NX"), 0);
        assert_eq!(server.integer("MSETEX 2 a 3 c 3 XX"), 0);
        assert!(server.effects().is_empty());
        assert_eq!(server.integer("MSETEX 2 a 3 b 4 KEEPTTL XX"), 1);
        assert_eq!(server.effects(), ["SET a 3 KEEPTTL", "SET b 4 KEEPTTL"]);
        assert_eq!(server.integer("PTTL a"), 10_000);
        assert_eq!(server.integer("MSETEX 1 a 5"), 1);
        assert_eq!(server.integer("PTTL a"), -1);
        // Option words in the positions of keys and values are keys and values.
        assert_eq!(server.integer("MSETEX 2 nx xx ex 10 NX PX 5000"), 1);
        assert_eq!(server.text("GET nx"), "xx");
        server.assert_effects_replay();
    }

    #[test]
    fn msetex_refuses_what_contradicts_itself() {
        let mut server = TestServer::new();
        for (line, error) in [
            ("MSETEX 0 a 1", "ERR invalid numkeys value"),
            ("MSETEX x a 1", "ERR invalid numkeys value"),
            ("MSETEX 2147483648 a 1", "ERR invalid numkeys value"),
            (
                "MSETEX 2147483647 a 1",
                "ERR wrong number of key-value pairs",
            ),
            ("MSETEX 2 a 1 b", "ERR wrong number of key-value pairs"),
            ("MSETEX 1 a 1 b", "ERR syntax error"),
            ("MSETEX 1 a 1 NX XX", "ERR syntax error"),
            ("MSETEX 1 a 1 EX 1 PX 1", "ERR syntax error"),
            ("MSETEX 1 a 1 KEEPTTL EX 1", "ERR syntax error"),
            ("MSETEX 1 a 1 EX 1 KEEPTTL", "ERR syntax error"),
            ("MSETEX 1 a 1 EX", "ERR syntax error"),
            (
                "MSETEX 1 a 1 EX x",
                "ERR value is not an integer or out of range",
            ),
            (
                "MSETEX 1 a 1 EX 0",
                "ERR invalid expire time in 'msetex' command",
            ),
        ] {
            assert_eq!(server.error(line), error, "{line}");
        }
        assert!(server.effects().is_empty());
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
