//! EVAL EVALSHA FCALL, and their read-only variants.

use std::rc::Rc;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::key_query::pass_writing_script;
use engine::scripts::{self, Call, Code, Compiled, RunKind, Script};
use engine::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, KeyAccess, KeySpec, Runs};
use protocol::Reply;
use store::StoreError;

use super::Given;

const COMMON: Flags = Flags::NOSCRIPT
    .with(Flags::STALE)
    .with(Flags::SKIP_MONITOR)
    .with(Flags::NO_MANDATORY_KEYS)
    .with(Flags::MOVABLE_KEYS);

const fn keys(access: KeyAccess, notes: &'static str) -> KeySpec {
    KeySpec {
        begin: Begin::Index(2),
        find: Find::Count {
            count: 0,
            first: 1,
            step: 1,
        },
        access,
        notes,
    }
}

const WRITES: KeyAccess = KeyAccess::RW
    .with(KeyAccess::ACCESS)
    .with(KeyAccess::UPDATE);
const READS: KeyAccess = KeyAccess::RO.with(KeyAccess::ACCESS);
const WRITES_NOTES: &str =
    "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE";
const READS_NOTES: &str =
    "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS";

const RUNNER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: COMMON.with(Flags::MAY_REPLICATE),
    keys: &[keys(WRITES, WRITES_NOTES)],
    group: Group::Scripting,
    categories: &["scripting"],
    since: "2.6.0",
    summary: "Runs a script as one step.",
    complexity: "Depends on the script that is executed.",
    syntax: "script numkeys:integer [key [key ...]] [arg [arg ...]]",
    ..CommandSpec::BLANK
};

const READER: CommandSpec = CommandSpec {
    flags: COMMON.with(Flags::READONLY),
    keys: &[keys(READS, READS_NOTES)],
    since: "7.0.0",
    summary: "Runs a script that only reads.",
    ..RUNNER
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "EVAL",
        runs: Some(Runs::Script),
        handler: |context, args, reply| eval(context, args, reply, false),
        ..RUNNER
    },
    CommandSpec {
        name: "EVALSHA",
        runs: Some(Runs::Digest),
        keys: &[keys(WRITES, "")],
        summary: "Runs a script that is known by its SHA-1.",
        syntax: "sha1 numkeys:integer [key [key ...]] [arg [arg ...]]",
        handler: |context, args, reply| eval_sha(context, args, reply, false),
        ..RUNNER
    },
    CommandSpec {
        name: "EVAL_RO",
        runs: Some(Runs::Script),
        handler: |context, args, reply| eval(context, args, reply, true),
        ..READER
    },
    CommandSpec {
        name: "EVALSHA_RO",
        runs: Some(Runs::Digest),
        keys: &[keys(READS, "")],
        summary: "Runs a script that is known by its SHA-1 and only reads.",
        syntax: "sha1 numkeys:integer [key [key ...]] [arg [arg ...]]",
        handler: |context, args, reply| eval_sha(context, args, reply, true),
        ..READER
    },
    CommandSpec {
        name: "FCALL",
        runs: Some(Runs::Function),
        since: "7.0.0",
        summary: "Runs a function as one step.",
        complexity: "Depends on the function that is executed.",
        syntax: "function numkeys:integer [key [key ...]] [arg [arg ...]]",
        handler: |context, args, reply| call_function(context, args, reply, false),
        ..RUNNER
    },
    CommandSpec {
        name: "FCALL_RO",
        runs: Some(Runs::Function),
        summary: "Runs a function that only reads.",
        complexity: "Depends on the function that is executed.",
        syntax: "function numkeys:integer [key [key ...]] [arg [arg ...]]",
        handler: |context, args, reply| call_function(context, args, reply, true),
        ..READER
    },
];

fn eval(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    reads_only: bool,
) -> CommandResult {
    let source = args.bytes()?;
    let given = Given::parse(args)?;
    let digest = scripts::digest_of(source);
    let (script, compiled) = match scripts::find(&context.shared.scripts, &digest)? {
        Some(known) => known,
        None => scripts::add(&context.shared.scripts, digest, source, false)?,
    };
    run_script(context, (&script, &compiled), given, reply, reads_only)
}

fn eval_sha(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    reads_only: bool,
) -> CommandResult {
    let name = args.bytes()?;
    let digest = scripts::digest_named(name).ok_or(NO_SCRIPT)?;
    let given = Given::parse(args)?;
    let known = scripts::find(&context.shared.scripts, &digest)?;
    let (script, compiled) = known.ok_or(NO_SCRIPT)?;
    run_script(context, (&script, &compiled), given, reply, reads_only)
}

const NO_SCRIPT: CommandError =
    CommandError::fixed("NOSCRIPT No matching script. Please use EVAL.");

fn run_script(
    context: &mut Context<'_>,
    (script, compiled): (&Script, &Rc<Compiled>),
    given: Given<'_>,
    reply: &mut Reply<'_>,
    reads_only: bool,
) -> CommandResult {
    let call = Call {
        kind: RunKind::Script,
        name: b"",
        code: Code::Script(compiled),
        keys: given.keys,
        args: given.args,
        request: given.request,
        is_read_only: reads_only,
        allows_oom: false,
        crosses_slots: true,
        history: &script.history,
    };
    run_with_flags(context, call, compiled.flags, reads_only, reply)
}

fn call_function(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    reads_only: bool,
) -> CommandResult {
    let name = args.bytes()?;
    let library = context.shared.scripts.libraries.of_function(name);
    let library = library.ok_or(CommandError::fixed("ERR Function not found"))?;
    let count = args.peek().and_then(base::number::parse_i64);
    if count.is_none() {
        return Err(CommandError::fixed("ERR Bad number of keys provided"));
    }
    let given = Given::parse(args)?;
    let loaded = scripts::loaded(&library)?;
    let function = loaded
        .functions
        .iter()
        .find(|one| one.name.eq_ignore_ascii_case(name));
    let function = function.ok_or(CommandError::fixed("ERR Function not found"))?;
    let call = Call {
        kind: RunKind::Function,
        name,
        code: Code::Function(function),
        keys: given.keys,
        args: given.args,
        request: given.request,
        is_read_only: reads_only,
        allows_oom: false,
        crosses_slots: true,
        history: &library.history,
    };
    let flags = library.flags_of(name);
    run_with_flags(context, call, flags, reads_only, reply)
}

/// Runs a script if its flags allow that here.
fn run_with_flags(
    context: &mut Context<'_>,
    mut call: Call<'_>,
    flags: Option<scripts::RunFlags>,
    reads_only: bool,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let bytes = call.request.wire_bytes();
    let is_inside = context.store.holds_keys() || context.store.is_alone();
    let is_full = !is_inside && context.store.make_room(bytes) == Err(StoreError::OutOfMemory);
    if let Some(flags) = flags {
        if flags.no_cluster && context.shared.hash_slots.is_on() {
            return Err(CommandError::fixed(
                "ERR Can not run script on cluster, 'no-cluster' flag is set.",
            ));
        }
        if reads_only && !flags.no_writes {
            return Err(CommandError::fixed(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        let shared = context.shared;
        if !flags.no_writes {
            pass_writing_script(context.session, &shared.hash_slots, &call.keys)?;
        }
        let kind = (flags.no_writes, flags.allow_stale);
        context
            .shared
            .refusals
            .pass_flagged(kind, context.session)?;
        if is_full && !flags.allow_oom && !flags.no_writes {
            return Err(CommandError::fixed(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > \
                 'maxmemory'",
            ));
        }
        call.is_read_only |= flags.no_writes;
        call.allows_oom = flags.allow_oom;
        call.crosses_slots = flags.crosses_slots;
    } else {
        // Its commands are checked when they run, except for data that may be out of date.
        context
            .shared
            .refusals
            .pass_flagged((true, false), context.session)?;
    }
    scripts::run(context, &call, is_full, reply)
}
