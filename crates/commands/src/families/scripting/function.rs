//! FUNCTION: adds, removes and shows libraries of functions.
//!
//! The effect of a change contains all libraries after it, so that it can be applied to any state:
//! a checkpoint may already contain the change.
//!
//! If a control group owns the libraries, a change is proposed to it, and each node applies it when
//! it receives it from the group. What the primary then writes to its log is needed only by
//! replicas outside of the group.

use std::sync::Arc;

use base::glob::{self, Case};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult, subcommand_syntax};
use engine::scripts::{self, Libraries, LibraryError, LibraryOrder, LoadedLibrary, RunKind};
use engine::shared_change::{MakePart, SharedChange, SharedPart};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

use super::take_mode;
use crate::help;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT,
    group: Group::Scripting,
    categories: &["scripting"],
    since: "7.0.0",
    ..CommandSpec::BLANK
};

const CHANGER: CommandSpec = CommandSpec {
    flags: Flags::NOSCRIPT
        .with(Flags::WRITE)
        .with(Flags::CHANGES_LIBRARIES),
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..MEMBER
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "FUNCTION",
    arity: Arity::AtLeast(2),
    group: Group::Scripting,
    since: "7.0.0",
    summary: "Keeps libraries of functions.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "LOAD",
            arity: Arity::AtLeast(3),
            flags: Flags::NOSCRIPT
                .with(Flags::WRITE)
                .with(Flags::DENYOOM)
                .with(Flags::CHANGES_LIBRARIES),
            summary: "Keeps a library.",
            complexity: "O(1) (considering compilation time is redundant)",
            syntax: "[REPLACE] function-code",
            handler: load,
            ..CHANGER
        },
        CommandSpec {
            name: "DELETE",
            arity: Arity::Exactly(3),
            summary: "Forgets a library.",
            syntax: "library-name",
            handler: delete,
            ..CHANGER
        },
        CommandSpec {
            name: "FLUSH",
            arity: Arity::AtLeast(2),
            summary: "Forgets all libraries.",
            complexity: "O(N) where N is the number of functions deleted",
            syntax: "[ASYNC | SYNC]",
            handler: flush,
            ..CHANGER
        },
        CommandSpec {
            name: "RESTORE",
            arity: Arity::AtLeast(3),
            flags: Flags::NOSCRIPT
                .with(Flags::WRITE)
                .with(Flags::DENYOOM)
                .with(Flags::CHANGES_LIBRARIES),
            summary: "Keeps the libraries of a payload.",
            complexity: "O(N) where N is the number of functions on the payload",
            syntax: "serialized-value [FLUSH | APPEND | REPLACE]",
            handler: restore,
            ..CHANGER
        },
        CommandSpec {
            name: "DUMP",
            summary: "Gives all libraries as a payload.",
            complexity: "O(N) where N is the number of functions",
            handler: dump,
            ..MEMBER
        },
        CommandSpec {
            name: "LIST",
            arity: Arity::AtLeast(2),
            summary: "Tells of libraries.",
            complexity: "O(N) where N is the number of functions",
            syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
            tips: &["nondeterministic_output_order"],
            handler: list,
            ..MEMBER
        },
        CommandSpec {
            name: "STATS",
            flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
            summary: "Tells of the function that runs.",
            tips: &[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ],
            handler: stats,
            ..MEMBER
        },
        CommandSpec {
            name: "KILL",
            flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
            summary: "Ends the function that runs, if it has changed nothing.",
            tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
            handler: |context, _args, reply| {
                context.shared.scripts.running.kill(RunKind::Function)?;
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            categories: &["scripting"],
            ..CommandSpec::help(Group::Scripting, "7.0.0", |_context, _args, reply| {
                help::write(reply, "FUNCTION", HELP)
            })
        },
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a new library with the given library name and code.",
    "DELETE <LIBRARY NAME>",
    "    Delete the given library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return general information on all the libraries:",
    "    * Library name",
    "    * The engine used to run the Library",
    "    * Library description",
    "    * Functions list",
    "    * Library code (if WITHCODE is given)",
    "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
    "STATS",
    "    Return information about the current function running:",
    "    * Function name",
    "    * Command used to run the function",
    "    * Duration in MS that the function is running",
    "    If no function is running, return nil",
    "    In addition, returns a list of available engines.",
    "KILL",
    "    Kill the current running function.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries.",
    "    When called without the optional mode argument, the behavior is determined by the",
    "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
    "    * ASYNC: Asynchronously flush the libraries.",
    "    * SYNC: Synchronously flush the libraries.",
    "DUMP",
    "    Return a serialized payload representing the current libraries, can be restored using \
     FUNCTION RESTORE command",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Restore the libraries represented by the given payload, it is possible to give a restore \
     policy to",
    "    control how to handle existing libraries (default APPEND):",
    "    * FLUSH: delete all existing libraries.",
    "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
    "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace \
     the old",
    "      libraries with the new libraries (notice that even on this option there is a chance of \
     failure",
    "      in case of functions name collision with another library).",
];

/// A change of the libraries, which another thread may make.
struct Change {
    /// Makes the change. Gets the libraries if they belong to a control group.
    make: Box<Make>,
    /// Returns the error for the client if that fails.
    refusal: fn(LibraryError) -> CommandError,
    /// Records the order in a control group's libraries, after it is done.
    note: Box<dyn Fn(&Libraries) + Send + Sync>,
    /// Writes the reply.
    reply: Box<dyn Fn(&mut Reply<'_>) + Send + Sync>,
}

type Make =
    dyn Fn(Option<&Libraries>, &mut scripts::State) -> Result<(), LibraryError> + Send + Sync;

/// Makes a change and states it, as one step for checkpoints and replicas.
fn change(context: &mut Context<'_>, change: Change, reply: &mut Reply<'_>) -> CommandResult {
    if !context.shared.refusals.shares_libraries() {
        context.exclusive(|context| {
            let libraries = &context.shared.scripts.libraries;
            let made = libraries.change(|state| (change.make)(None, state));
            made.map_err(change.refusal)?;
            state_all(context);
            Ok::<_, CommandError>(())
        })?;
    } else if context.session.is_of_primary {
        // The server states its own libraries, whatever the primary's order contains: that may be
        // older.
        context.exclusive(state_if_primary);
    } else {
        return change_in_group(context, change, reply);
    }
    (change.reply)(reply);
    Ok(())
}

/// Makes a change on all nodes of the control group, or on none.
fn change_in_group(
    context: &mut Context<'_>,
    change: Change,
    reply: &mut Reply<'_>,
) -> CommandResult {
    context.pace.admit_waiting()?;
    let Change {
        make,
        refusal,
        note,
        reply: answer,
    } = change;
    let made: MakePart = Box::new(move |shared| {
        let libraries = &shared.scripts.libraries;
        let mut state = scripts::State::clone(&libraries.now());
        make(Some(libraries), &mut state).map_err(refusal)?;
        Ok(Some(payload_of(&state)))
    });
    // Errors in the change are reported at once.
    made(context.shared)?;
    let change = Arc::new(SharedChange {
        parts: vec![(SharedPart::Libraries, made)],
        when_done: Box::new(move |shared, _, reply| {
            note(&shared.scripts.libraries);
            answer(reply);
        }),
    });
    context.outside(|server| server.change_shared(&change, reply))
}

/// States all libraries if this server accepts writes. The caller has the store exclusively, so the
/// role does not change meanwhile.
fn state_if_primary(context: &mut Context<'_>) {
    let (refusals, gate) = (&context.shared.refusals, &context.shared.gate);
    if !refusals.is_read_only() && !refusals.has_no_lease() && !gate.changes_role() {
        state_all(context);
    }
}

/// States all present libraries.
fn state_all(context: &mut Context<'_>) {
    let payload = payload_of(&context.shared.scripts.libraries.now());
    context.store.effect(0, |effect| {
        effect.command(&[b"FUNCTION", b"RESTORE", &payload, b"FLUSH"]);
    });
}

/// Returns all libraries in the format of FUNCTION DUMP.
fn payload_of(state: &scripts::State) -> Vec<u8> {
    let mut payload = Vec::new();
    rdb::functions::write(state.libraries().map(|one| &*one.source), &mut payload);
    payload
}

const UNKNOWN: CommandError = CommandError::fixed("ERR Library not found");

fn load(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let mut replaces = false;
    while args.remaining() > 1 {
        if !args.take_word("REPLACE") {
            let word = args.bytes()?;
            return Err(about(b"ERR Unknown option given: ", word, b""));
        }
        replaces = true;
    }
    let source = args.bytes()?;
    let library = Arc::new(scripts::load_library(source)?);
    let (noted, loaded) = (Arc::clone(&library), Arc::clone(&library));
    let loading = Change {
        make: Box::new(move |shared, state| add(shared, state, &library, replaces)),
        refusal: |error| match error {
            LibraryError::Library(name) => about(b"ERR Library '", &name, b"' already exists"),
            LibraryError::Function(name) => about(b"ERR Function ", &name, b" already exists"),
            LibraryError::Unknown => UNKNOWN,
        },
        note: Box::new(move |libraries| libraries.note_ordered(LibraryOrder::Loaded(&noted))),
        reply: Box::new(move |reply| reply.bulk(&loaded.name)),
    };
    change(context, loading, reply)
}

fn add(
    shared: Option<&Libraries>,
    state: &mut scripts::State,
    library: &Arc<LoadedLibrary>,
    replaces: bool,
) -> Result<(), LibraryError> {
    match shared {
        Some(libraries) => libraries.add_ordered(state, library, replaces),
        None => state.add(library, replaces),
    }
}

fn delete(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let name = args.bytes()?.to_vec();
    let noted = name.clone();
    let deletion = Change {
        make: Box::new(move |shared, state| match shared {
            Some(libraries) => libraries.remove_ordered(state, &name),
            None => state
                .remove(&name)
                .then_some(())
                .ok_or(LibraryError::Unknown),
        }),
        refusal: |_| UNKNOWN,
        note: Box::new(move |libraries| libraries.note_ordered(LibraryOrder::Deleted(&noted))),
        reply: Box::new(|reply| reply.ok()),
    };
    change(context, deletion, reply)
}

fn flush(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if args.remaining() > 1 {
        return Err(subcommand_syntax(args.request()));
    }
    take_mode(args, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")?;
    let flush = Change {
        make: Box::new(|_, state| {
            *state = scripts::State::default();
            Ok(())
        }),
        refusal: |_| UNKNOWN,
        note: Box::new(|libraries| libraries.note_ordered(LibraryOrder::Flushed)),
        reply: Box::new(|reply| reply.ok()),
    };
    change(context, flush, reply)
}

fn restore(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let payload = args.bytes()?;
    let (mut flushes, mut replaces) = (false, false);
    if args.remaining() > 1 {
        return Err(subcommand_syntax(args.request()));
    }
    if args.take_word("FLUSH") {
        flushes = true;
    } else if args.take_word("REPLACE") {
        replaces = true;
    } else if args.remaining() > 0 && !args.take_word("APPEND") {
        return Err(CommandError::fixed(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        ));
    }
    let limits = context.shared.settings.value_limits();
    let sources = rdb::functions::read(payload, &limits)
        .map_err(|_| CommandError::fixed("ERR DUMP payload version or checksum are wrong"))?;
    let load = |source: &Vec<u8>| scripts::load_library(source).map(Arc::new);
    let libraries: Vec<Arc<LoadedLibrary>> = sources.iter().map(load).collect::<Result<_, _>>()?;
    let noted = libraries.clone();
    let restoring = Change {
        make: Box::new(move |shared, state| {
            if flushes {
                *state = scripts::State::default();
            }
            let mut libraries = libraries.iter();
            libraries.try_for_each(|library| add(shared, state, library, replaces))
        }),
        refusal: |error| match error {
            LibraryError::Library(name) => about(b"ERR Library ", &name, b" already exists"),
            LibraryError::Function(name) => about(b"ERR Function ", &name, b" already exists"),
            LibraryError::Unknown => UNKNOWN,
        },
        note: Box::new(move |libraries| {
            if flushes {
                libraries.note_ordered(LibraryOrder::Flushed);
            }
            for library in &noted {
                libraries.note_ordered(LibraryOrder::Loaded(library));
            }
        }),
        reply: Box::new(|reply| reply.ok()),
    };
    change(context, restoring, reply)
}

fn dump(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    reply.bulk(&payload_of(&context.shared.scripts.libraries.now()));
    Ok(())
}

fn list(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let (mut pattern, mut with_code) = (None, false);
    while args.remaining() > 0 {
        if !with_code && args.take_word("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && args.take_word("LIBRARYNAME") {
            let given = args.next();
            pattern = Some(given.ok_or(CommandError::fixed(
                "ERR library name argument was not given",
            ))?);
        } else {
            return Err(about(b"ERR Unknown argument ", args.bytes()?, b""));
        }
    }
    let state = context.shared.scripts.libraries.now();
    let is_asked_for = |library: &&Arc<LoadedLibrary>| {
        pattern.is_none_or(|it| glob::matches(it, &library.name, Case::Insensitive))
    };
    let asked_for: Vec<_> = state.libraries().filter(is_asked_for).collect();
    reply.array(asked_for.len());
    for library in asked_for {
        write_library(library, with_code, reply);
    }
    Ok(())
}

fn write_library(library: &LoadedLibrary, with_code: bool, reply: &mut Reply<'_>) {
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk_str("library_name");
    reply.bulk(&library.name);
    reply.bulk_str("engine");
    reply.bulk_str("LUA");
    reply.bulk_str("functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk_str("name");
        reply.bulk(&function.name);
        reply.bulk_str("description");
        match &function.description {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        }
        reply.bulk_str("flags");
        reply.set(function.flags.len());
        for flag in &function.flags {
            reply.simple(&String::from_utf8_lossy(flag));
        }
    }
    if with_code {
        reply.bulk_str("library_code");
        reply.bulk(&library.source);
    }
}

fn stats(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    reply.map(2);
    reply.bulk_str("running_script");
    match context.shared.scripts.running.longest() {
        Some(run) => {
            reply.map(3);
            reply.bulk_str("name");
            reply.bulk(&run.name);
            reply.bulk_str("command");
            reply.array(run.command.len());
            run.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk_str("duration_ms");
            let ns = context.ledger.clock.monotonic_ns();
            let ms = ns.saturating_sub(run.started_ns) / 1_000_000;
            reply.integer(i64::try_from(ms).unwrap_or(i64::MAX));
        }
        None => reply.null(),
    }
    let (libraries, functions) = context.shared.scripts.libraries.now().counts();
    reply.bulk_str("engines");
    reply.map(1);
    reply.bulk_str("LUA");
    reply.map(2);
    reply.bulk_str("libraries_count");
    reply.count(libraries);
    reply.bulk_str("functions_count");
    reply.count(functions);
    Ok(())
}

fn about(before: &[u8], word: &[u8], behind: &[u8]) -> CommandError {
    CommandError::Bytes([before, word, behind].concat())
}
