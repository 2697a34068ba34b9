//! DEBUG: a few harmless helpers, for clients that `enable-debug-command` admits.

use base::glob::{self, Case};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult, subcommand_syntax};
use engine::port::{LogLevel, ReloadOptions};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use engine::table::Found;
use protocol::Reply;

use super::{debug_replies, digest, populate};
use crate::help;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "DEBUG",
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN
        .with(Flags::REACHES_ANY_KEY)
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE),
    group: Group::Server,
    summary: "Helps testing.",
    complexity: "Depends on subcommand.",
    syntax: "subcommand [argument [argument ...]]",
    handler: debug,
    ..CommandSpec::BLANK
}];

/// Maximum length of a text that is matched against a pattern.
const TEXT_BYTES_MAX: i64 = 1 << 20;

/// Maximum length of an assumed lease: a day.
const LEASE_MS_MAX: i64 = 86_400_000;

/// Maximum length of a sleep: a day.
const SLEEP_SECONDS_MAX: f64 = 86_400.0;

fn debug(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if !context.server.debug_allowed(context.session) {
        return Err(CommandError::fixed(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    let subcommand = args.bytes()?;
    match (subcommand.to_ascii_uppercase().as_slice(), args.remaining()) {
        (b"DEMOTE", 1..) => super::tier::demote(context, args, reply)?,
        (b"SLEEP", 1) => {
            sleep(context, args.bytes()?);
            reply.ok();
        }
        (b"SET-ACTIVE-EXPIRE", 1) => {
            let on = args.bytes()? != b"0";
            context.server.set_active_expire(on);
            reply.ok();
        }
        (b"LEASE", 1) => extend_lease(context, args, reply)?,
        (b"QUICKLIST-PACKED-THRESHOLD", 1) => {
            check_threshold(args.bytes()?)?;
            reply.ok();
        }
        (b"DIGEST", 0) => digest::of_everything(context, reply)?,
        (b"DIGEST-VALUE", _) => digest::of_values(context, args, reply)?,
        (b"POPULATE", 1..=3) => populate::populate(context, args, reply)?,
        (b"RELOAD", _) => reload(context, args, reply)?,
        (b"OBJECT", 1) => debug_replies::object(context, args, reply)?,
        (b"PROTOCOL", 1) => debug_replies::protocol(args, reply)?,
        (b"STRINGMATCH-LEN", 2) => {
            let text = vec![b'x'; usize::try_from(args.bounded(0, TEXT_BYTES_MAX)?).unwrap_or(0)];
            let is_match = glob::matches(args.bytes()?, &text, Case::Sensitive);
            reply.integer(i64::from(is_match));
        }
        (b"ERROR", 1) => return Err(CommandError::Bytes(args.bytes()?.to_vec())),
        (b"LISTPACK", 1) => print_form(context, args, reply, "Listpack")?,
        (b"QUICKLIST", 1 | 2) => print_form(context, args, reply, "Quicklist")?,
        (b"HTSTATS-KEY", 1 | 2) => table_statistics_of(context, args, reply)?,
        (b"LOG", 1) => {
            let line = [b"DEBUG LOG: ", args.bytes()?].concat();
            context.server.log_line(LogLevel::Warning, &line);
            reply.ok();
        }
        (b"HTSTATS", 1 | 2) => table_statistics(context, args, reply)?,
        (b"REPLYBUFFER", 2) => {
            check_reply_buffer(args)?;
            reply.ok();
        }
        (b"SET-DISABLE-DENY-SCRIPTS", 1) => {
            let on = args.bytes()? != b"0";
            context.shared.scripts.set_runs_all(on);
            reply.ok();
        }
        (b"LOADAOF", 0) => reload(context, args, reply)?,
        (b"DICT-RESIZING" | b"PAUSE-CRON", 1)
        | (b"CLIENT-ENFORCE-REPLY-LIST", 1)
        | (b"CHANGE-REPL-ID", 0) => reply.ok(),
        (b"CONFIG-REWRITE-FORCE-ALL", 0) => {
            context.server.config_rewrite(true)?;
            reply.ok();
        }
        (b"HELP", 0) => help::write(reply, "DEBUG", HELP)?,
        _ => return Err(subcommand_syntax(args.request())),
    }
    Ok(())
}

/// Makes this primary assume that its lease lasts this long.
fn extend_lease(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let ms = args.bounded(0, LEASE_MS_MAX)?;
    context.server.extend_lease(u64::try_from(ms).unwrap_or(0));
    reply.ok();
    Ok(())
}

/// Blocks for this many seconds. An invalid number counts as zero.
fn sleep(context: &mut Context<'_>, text: &[u8]) {
    let seconds: f64 = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|seconds: &f64| !seconds.is_nan())
        .unwrap_or(0.0);
    let seconds = seconds.clamp(0.0, SLEEP_SECONDS_MAX);
    context.outside(|server| server.sleep_seconds(seconds));
}

/// Applies the refusals of another command to a subcommand: DEBUG itself runs while data is loaded,
/// and while writes are refused.
pub(super) fn pass_as(context: &Context<'_>, command: &[u8]) -> CommandResult {
    match context.table.find(command) {
        Some(Found { spec, .. }) => {
            let row = (spec.flags, spec.in_transaction);
            context.shared.refusals.pass(row, context.session)
        }
        None => Ok(()),
    }
}

/// Saves, deletes and loads everything, except for steps that options leave out.
fn reload(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let mut options = ReloadOptions::default();
    while args.remaining() > 0 {
        if args.take_word("MERGE") {
            options.merges = true;
        } else if args.take_word("NOFLUSH") {
            options.flushes = false;
        } else if args.take_word("NOSAVE") {
            options.saves = false;
        } else {
            return Err(CommandError::fixed(
                "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
            ));
        }
    }
    context.pace.admit_waiting()?;
    context.outside(|server| server.reload(options))?;
    reply.ok();
    Ok(())
}

/// Returns the name of a value's internal form, and its number of elements.
fn form_of(context: &mut Context<'_>, key: &[u8]) -> Result<(&'static str, usize), CommandError> {
    let key = context.key(key);
    let seen = context.store.inspect(&key, |record| {
        let record = record?;
        let elements = record.object().map_or(0, |object| object.len());
        Some((record.encoding().name(), elements))
    });
    seen.ok_or(CommandError::NoSuchKey)
}

/// Checks that a value has the form with this name. Prints nothing.
fn print_form(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    name: &str,
) -> CommandResult {
    let form = name.to_ascii_lowercase();
    if form_of(context, args.bytes()?)?.0 != form {
        let told = format!("ERR Not a {form} encoded object.");
        return Err(CommandError::Text(told.into()));
    }
    reply.simple(&format!("{name} structure printed on stdout"));
    Ok(())
}

/// Replies with a value's number of elements, if Redis would keep it in a hash table.
fn table_statistics_of(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let (form, elements) = form_of(context, args.bytes()?)?;
    if !matches!(form, "hashtable" | "skiplist") {
        return Err(CommandError::fixed(
            "ERR The value stored at the specified key is not represented using an hash table",
        ));
    }
    let text = format!("Hash table 0 stats (main hash table):\n number of elements: {elements}\n");
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Replies with the number of keys in the format of Redis' statistics of its two tables.
fn table_statistics(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let index = args.integer()?;
    let out_of_range = CommandError::fixed("ERR Out of range database");
    let database = context.database(index).map_err(|_| out_of_range)?;
    let keys_count = context.store.len(database);
    let expiring_count = context.store.expiring_len(database);
    let text = format!(
        "[Dictionary HT]\nHash table 0 stats (main hash table):\n number of elements: {keys_count}\n\
         [Expires HT]\nHash table 0 stats (main hash table):\n number of elements: \
         {expiring_count}\n"
    );
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// Accepts settings of the reply buffer without effect: replies use the worker's buffers, whose
/// size nothing depends on.
fn check_reply_buffer(args: &mut Args<'_>) -> CommandResult {
    if args.take_word("PEAK-RESET-TIME") {
        if !args.take_word("NEVER") && !args.take_word("RESET") {
            args.integer()?;
        }
        return Ok(());
    }
    if args.take_word("RESIZING") {
        args.integer()?;
        return Ok(());
    }
    Err(CommandError::Syntax)
}

/// Accepts a threshold without effect: lists keep elements of all lengths alike, so the length from
/// which Redis gives an element its own node does not matter. Test suites set it.
fn check_threshold(text: &[u8]) -> CommandResult {
    let bytes = base::memory_size::parse(text).filter(|bytes| *bytes < 1 << 32);
    bytes.map(|_| ()).ok_or(CommandError::fixed(
        "ERR argument must be a memory value bigger than 1 and smaller than 4gb",
    ))
}

const HELP: &[&str] = &[
    "CHANGE-REPL-ID, CLIENT-ENFORCE-REPLY-LIST, DICT-RESIZING, PAUSE-CRON, REPLYBUFFER",
    "    Accepted without effect.",
    "CONFIG-REWRITE-FORCE-ALL",
    "    As CONFIG REWRITE, with what is as by default.",
    "DEMOTE <key> [<key> ...]",
    "    Move values out of memory, and return how many went.",
    "DIGEST",
    "    Return one sum of all that is in the data set. It is that of Redis 7.2.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Return such a sum of each value.",
    "ERROR <string>",
    "    Return an error with <string>.",
    "HTSTATS <dbid>",
    "    Return how many keys a database has, and how many of them expire.",
    "HTSTATS-KEY <key>",
    "    Return how many elements a value has that is kept in a table.",
    "LEASE <milliseconds>",
    "    Have this primary believe that its lease lasts so long: as a clock that stands still does.",
    "LISTPACK <key>",
    "    Say whether a value is kept as a listpack.",
    "LOADAOF",
    "    As RELOAD: what the log says is part of what is saved.",
    "LOG <message>",
    "    Write <message> into the log of the server.",
    "OBJECT <key>",
    "    Show how a value is kept.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Create <count> strings key:<num>, or <prefix>:<num>, that hold value:<num>,",
    "    cut off or filled with zeros to <size> bytes.",
    "PROTOCOL <type>",
    "    Reply with a test value of the specified type. <type> can be: string,",
    "    integer, double, null, array, set, map, attrib, push, verbatim, true,",
    "    false.",
    "QUICKLIST <key>",
    "    Say whether a value is kept as a quicklist.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Accepted without effect: lists keep elements of any length alike.",
    "RELOAD [option ...]",
    "    Save everything, forget it, and load it again. Options:",
    "    * MERGE: replace keys that are there by those that are loaded.",
    "    * NOFLUSH: forget nothing before loading.",
    "    * NOSAVE: load what was saved last.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Setting it to 0 disables expiring keys (and hash fields) in background ",
    "    when they are not accessed (otherwise the default behavior). Setting it",
    "    to 1 reenables back the default.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Setting it to 1 lets scripts run commands that are not for scripts.",
    "SLEEP <seconds>",
    "    Stop the worker of this connection for <seconds>. Decimals allowed.",
    "STRINGMATCH-LEN <len> <pattern>",
    "    Match a text of <len> x against <pattern>.",
];

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn whoever_is_not_let_in_gets_nothing() {
        let mut server = TestServer::new();
        assert!(
            server
                .error("DEBUG SLEEP 1")
                .starts_with("ERR DEBUG command not allowed")
        );
        assert!(server.port.asked.is_empty());
    }

    #[test]
    fn reload_reads_its_words() {
        let mut server = TestServer::with_debug();
        server.run("DEBUG RELOAD");
        server.run("DEBUG RELOAD nosave noflush merge");
        assert_eq!(
            server.error("DEBUG RELOAD NOSAVE all"),
            "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."
        );
        let asked = [
            "reload, saves: true, flushes: true, merges: false",
            "reload, saves: false, flushes: false, merges: true",
        ];
        assert_eq!(server.port.asked, asked);
    }

    #[test]
    fn sleep_is_bounded() {
        let mut server = TestServer::with_debug();
        server.run("DEBUG SLEEP 0.5");
        server.run("DEBUG SLEEP -1");
        server.run("DEBUG SLEEP nan");
        server.run("DEBUG SLEEP 1e300");
        server.run("DEBUG SET-ACTIVE-EXPIRE 0");
        let asked = ["sleep 0.5 s", "sleep 0 s", "sleep 0 s", "sleep 86400 s"];
        assert_eq!(server.port.asked[..4], asked);
        assert_eq!(server.port.asked[4], "active expire: false");
        assert_eq!(
            server.error("DEBUG OBJECT"),
            "ERR unknown subcommand or wrong number of arguments for 'OBJECT'. Try DEBUG HELP."
        );
    }
}
