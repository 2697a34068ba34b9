//! CLIENT: a connection's own state. What affects other connections is in `others`.

use engine::args::Args;
use engine::cluster::DISABLED;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::port::{ClientCondition, ClientFilter};
use engine::session::{ClientRecord, ReplyMode};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

use super::others::{kill, list, pause, unblock};
use super::tracking::{caching, get_redirect, tracking, tracking_info};
use crate::help;

const COMMON: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: COMMON,
    group: Group::Connection,
    categories: &["connection"],
    ..CommandSpec::BLANK
};

const OPERATOR: CommandSpec = CommandSpec {
    flags: COMMON.with(Flags::ADMIN),
    ..MEMBER
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "CLIENT",
    flags: Flags::KEEPS_TRACKING,
    arity: Arity::AtLeast(2),
    group: Group::Connection,
    since: "2.4.0",
    summary: "Tells about connections and steers them.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "ID",
            since: "5.0.0",
            summary: "Gives the connection's number, never used twice.",
            handler: |context, _args, reply| {
                reply.integer(i64::try_from(context.session.client.id).unwrap_or(i64::MAX));
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "GETNAME",
            since: "2.6.9",
            summary: "Gives the connection's name.",
            handler: get_name,
            ..MEMBER
        },
        CommandSpec {
            name: "SETNAME",
            arity: Arity::Exactly(3),
            since: "2.6.9",
            summary: "Names the connection; an empty name takes it away.",
            syntax: "connection-name",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            handler: |context, args, reply| {
                set_name(context, args.bytes()?)?;
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "SETINFO",
            arity: Arity::Exactly(4),
            since: "7.2.0",
            summary: "Tells which library the client uses.",
            syntax: "<LIB-NAME libname | LIB-VER libver>",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            handler: set_info,
            ..MEMBER
        },
        CommandSpec {
            name: "INFO",
            since: "6.2.0",
            summary: "Describes the connection.",
            tips: &["nondeterministic_output"],
            handler: |context, _, reply| {
                let own = ClientCondition::Id(vec![context.session.client.id]);
                let text = context.server.clients(&ClientFilter::of(own));
                reply.verbatim("txt", text.as_bytes());
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "LIST",
            history: &[
                ("2.8.12", "Shows `id`."),
                ("5.0.0", "Added `TYPE`."),
                ("6.0.0", "Shows `user`."),
                (
                    "6.2.0",
                    "Added `ID`; shows `argv-mem`, `tot-mem`, `laddr` and `redir`.",
                ),
                ("7.0.0", "Shows `resp`, `multi-mem`, `rbs` and `rbp`."),
                ("7.0.3", "Shows `ssub`."),
            ],
            arity: Arity::AtLeast(2),
            since: "2.4.0",
            summary: "Describes the open connections, one a line.",
            complexity: "O(N) where N is the number of connections.",
            syntax: FILTERS_OF_LIST,
            tips: &["nondeterministic_output"],
            handler: list,
            ..OPERATOR
        },
        CommandSpec {
            name: "KILL",
            history: &[
                ("2.8.12", "Takes filters, among them `ID`."),
                ("3.2.0", "`TYPE` knows `master`."),
                ("5.0.0", "`TYPE` knows `replica`, and `slave` still."),
                ("6.2.0", "Added `LADDR`."),
                ("7.4.0", "Added `MAXAGE`."),
            ],
            arity: Arity::AtLeast(3),
            since: "2.4.0",
            summary: "Closes connections.",
            complexity: "O(N) where N is the number of connections.",
            syntax: FILTERS_OF_KILL,
            handler: kill,
            ..OPERATOR
        },
        CommandSpec {
            name: "NO-EVICT",
            arity: Arity::Exactly(3),
            since: "7.0.0",
            summary: "Keeps the connection from being closed when client memory is short.",
            syntax: "<ON | OFF>",
            handler: |context, args, reply| switch(context, args, reply, ClientRecord::NO_EVICT),
            ..OPERATOR
        },
        CommandSpec {
            name: "NO-TOUCH",
            arity: Arity::Exactly(3),
            since: "7.2.0",
            summary: "Keeps the connection's commands from counting as uses of keys.",
            syntax: "<ON | OFF>",
            handler: |context, args, reply| switch(context, args, reply, ClientRecord::NO_TOUCH),
            ..MEMBER
        },
        CommandSpec {
            name: "CAPA",
            arity: Arity::AtLeast(3),
            since: "8.0.0",
            summary: "Says what the client is able to.",
            syntax: "capability [capability ...]",
            handler: capabilities,
            ..MEMBER
        },
        CommandSpec {
            name: "REPLY",
            arity: Arity::Exactly(3),
            since: "3.2.0",
            summary: "Says which replies the connection wants.",
            syntax: "<ON | OFF | SKIP>",
            handler: reply_mode,
            ..MEMBER
        },
        CommandSpec {
            name: "PAUSE",
            history: &[("6.2.0", "Takes a mode: `WRITE` or `ALL`.")],
            arity: Arity::AtLeast(3),
            since: "2.9.50",
            summary: "Holds commands of all clients back for a time.",
            syntax: "timeout [WRITE | ALL]",
            handler: pause,
            ..OPERATOR
        },
        CommandSpec {
            name: "UNPAUSE",
            since: "6.2.0",
            summary: "Lets paused clients go on.",
            complexity: "O(N) where N is the number of paused connections.",
            handler: |context, _args, reply| {
                context.server.unpause_clients();
                reply.ok();
                Ok(())
            },
            ..OPERATOR
        },
        CommandSpec {
            name: "UNBLOCK",
            arity: Arity::AtLeast(3),
            since: "5.0.0",
            summary: "Ends the wait of a connection.",
            complexity: "O(log N) where N is the number of connections.",
            syntax: "client-id:integer [TIMEOUT | ERROR]",
            handler: unblock,
            ..OPERATOR
        },
        CommandSpec {
            name: "TRACKING",
            arity: Arity::AtLeast(3),
            since: "6.0.0",
            summary: "Has the connection told of changes of keys that it caches.",
            complexity: "O(1). Some options may introduce additional complexity.",
            syntax: "<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] \
                     [OPTIN] [OPTOUT] [NOLOOP]",
            handler: tracking,
            ..MEMBER
        },
        CommandSpec {
            name: "CACHING",
            arity: Arity::Exactly(3),
            since: "6.0.0",
            summary: "Says whether the keys of the next command are tracked.",
            syntax: "<YES | NO>",
            handler: caching,
            ..MEMBER
        },
        CommandSpec {
            name: "TRACKINGINFO",
            since: "6.2.0",
            summary: "Tells what is tracked for the connection.",
            handler: |context, _args, reply| {
                tracking_info(context, reply);
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "GETREDIR",
            since: "6.0.0",
            summary: "Tells which connection is told instead of this one.",
            handler: |context, _args, reply| {
                get_redirect(context, reply);
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "DURABILITY",
            arity: Arity::Exactly(3),
            since: "7.2.0",
            summary: "Says whether the connection's replies wait until the log is on disk.",
            syntax: "<DEFAULT | ALWAYS>",
            handler: durability,
            ..MEMBER
        },
        CommandSpec {
            name: "FORWARD",
            arity: Arity::AtLeast(3),
            flags: COMMON.with(Flags::NO_AUTH).with(Flags::NO_MULTI),
            since: "7.2.0",
            summary: "Says whether what other nodes of the cluster serve is done there for the connection.",
            syntax: "<ON | OFF | AS token>",
            handler: forward,
            secrets: Some(|_, at| at >= 3),
            ..MEMBER
        },
        CommandSpec {
            name: "MAINT_NOTIFICATIONS",
            arity: Arity::AtLeast(3),
            since: "8.2.0",
            summary: "Accepted for clients that ask for maintenance notices; there are none.",
            syntax: "<ON | OFF> [option value ...]",
            handler: |_context, _args, reply| {
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            categories: &["connection"],
            ..CommandSpec::help(Group::Connection, "5.0.0", |_, _, reply| {
                help::write(reply, "CLIENT", HELP)
            })
        },
    ],
    ..CommandSpec::BLANK
}];

const FILTERS_OF_LIST: &str = "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] \
    [ID client-id [client-id ...]] [USER username] [ADDR ip:port] [LADDR ip:port] \
    [SKIPME <YES | NO>] [MAXAGE maxage] [IDLE seconds] [FLAGS flags] [NAME name] [DB db] [IP ip] \
    [LIB-NAME libname] [LIB-VER libver] [CAPA capability]";

const FILTERS_OF_KILL: &str = "<ip:port | <[ID client-id [client-id ...]] | \
    [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | [USER username] | [ADDR ip:port] | \
    [LADDR ip:port] | [SKIPME <YES | NO>] | [MAXAGE maxage] | [IDLE seconds] | [FLAGS flags] | \
    [NAME name] | [DB db] | [IP ip] | [LIB-NAME libname] | [LIB-VER libver] | \
    [CAPA capability]> ...>";

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to specified local address",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Kill connections by type.",
    "    * USER <username>",
    "      Kill connections authenticated by <username>.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "    * ID <client-id>",
    "      Kill connections by client id.",
    "    * MAXAGE <maxage>",
    "      Kill connections older than the specified age in seconds.",
    "    * IDLE <seconds>, FLAGS <flags>, NAME <name>, DB <db>, IP <ip>, LIB-NAME <name>,",
    "      LIB-VER <version>, CAPA <capability>",
    "      Kill connections by what CLIENT LIST shows of them.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * ID <client-id> [<client-id> ...]",
    "      Return clients with these ids.",
    "    The other options of KILL, all that are given must fit; those that tell a client",
    "    by what it is have an opposite: NOT-ID, NOT-TYPE, NOT-ADDR ...",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "NO-EVICT (ON|OFF)",
    "    Protect current client connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Will not touch LRU/LFU stats when this mode is on.",
    "CAPA <capability> [<capability> ...]",
    "    Say what the client is able to. Capabilities are:",
    "    * REDIRECT: it understands -REDIRECT, which a server without replication never sends.",
    "      Others are not an error.",
    "DURABILITY (DEFAULT|ALWAYS|QUORUM)",
    "    Replies wait until the log is on disk (ALWAYS), until a majority of the copies has it",
    "    (QUORUM, under a control group), or as the directive durability says.",
    "FORWARD (ON|OFF)",
    "    Have what other nodes of the cluster serve done there, as if there were one server.",
    "FORWARD AS <token>",
    "    For another node of the cluster.",
    "MAINT_NOTIFICATIONS (ON|OFF) [<option> <value> ...]",
    "    Accepted for clients that ask for maintenance notices; there are none.",
];

fn get_name(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let names = context.session.client.names();
    if names.name.is_empty() {
        reply.null();
    } else {
        reply.bulk_str(&names.name);
    }
    Ok(())
}

/// Outside of a cluster there is nothing to forward to.
fn forward(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if args.take_word("AS") {
        let user = context.server.redeem(args.bytes()?);
        let user = user.ok_or(CommandError::fixed("WRONGPASS the token is not known"))?;
        context.session.log_in(user);
        context.session.forwards = false;
    } else if args.take_word("ON") {
        if !context.shared.hash_slots.is_on() {
            return Err(DISABLED);
        }
        if context.session.tracking.is_some() {
            return Err(CommandError::fixed(TRACKS));
        }
        context.session.forwards = true;
    } else if args.take_word("OFF") {
        context.session.forwards = false;
    } else {
        return Err(CommandError::Syntax);
    }
    reply.ok();
    Ok(())
}

/// Changes at other nodes reach only their own connections.
pub(super) const TRACKS: &str =
    "ERR CLIENT TRACKING and CLIENT FORWARD cannot be used by one connection";

/// Sets the durability of replies. Replies that wait for the disk need a log; without one, the
/// client gets an error and cannot assume durability.
fn durability(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let waits = args.take_word("ALWAYS");
    let waits_for_majority = !waits && args.take_word("QUORUM");
    if !waits && !waits_for_majority && !args.take_word("DEFAULT") {
        return Err(CommandError::Syntax);
    }
    if waits_for_majority && !context.server.has_quorum() {
        return Err(CommandError::fixed(
            "ERR CLIENT DURABILITY QUORUM takes a control group whose shard waits for a majority.",
        ));
    }
    let position = context.server.log_position(context.session);
    if waits && !position.is_some_and(|position| position.is_kept) {
        return Err(CommandError::fixed(
            "ERR CLIENT DURABILITY ALWAYS cannot be used when appendonly is disabled.",
        ));
    }
    context.session.waits_for_disk = waits;
    context.session.waits_for_majority = waits_for_majority;
    reply.ok();
    Ok(())
}

/// Checks a name for use in a line of CLIENT LIST: printable, without spaces.
pub(super) fn checked_name(name: &[u8]) -> Result<String, CommandError> {
    printable(name).ok_or(CommandError::fixed(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

fn printable(text: &[u8]) -> Option<String> {
    let fits = text.iter().all(|byte| (b'!'..=b'~').contains(byte));
    fits.then(|| String::from_utf8_lossy(text).into_owned())
}

pub(super) fn set_name(context: &Context<'_>, name: &[u8]) -> CommandResult {
    let name = checked_name(name)?;
    context
        .session
        .client
        .change_names(|names| names.name = name);
    Ok(())
}

fn set_info(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let option = args.bytes()?;
    let value = args.bytes()?;
    let lower = option.to_ascii_lowercase();
    if lower != b"lib-name" && lower != b"lib-ver" {
        let mut text = b"ERR Unrecognized option '".to_vec();
        text.extend_from_slice(option);
        text.push(b'\'');
        return Err(CommandError::Bytes(text));
    }
    let Some(value) = printable(value) else {
        let option = String::from_utf8_lossy(option);
        return Err(CommandError::Text(
            format!("ERR {option} cannot contain spaces, newlines or special characters.").into(),
        ));
    };
    context.session.client.change_names(|names| {
        if lower == b"lib-name" {
            names.lib_name = value;
        } else {
            names.lib_version = value;
        }
    });
    reply.ok();
    Ok(())
}

fn switch(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    flag: u32,
) -> CommandResult {
    let on = if args.take_word("ON") {
        true
    } else if args.take_word("OFF") {
        false
    } else {
        return Err(CommandError::Syntax);
    };
    context.session.client.set_flag(flag, on);
    if flag == ClientRecord::NO_TOUCH {
        context.store.note_use(!on);
    }
    reply.ok();
    Ok(())
}

/// Sets the client's capabilities. Unknown ones are ignored: a client announces everything that it
/// supports to any server.
fn capabilities(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let redirects = args
        .rest()
        .any(|word| word.eq_ignore_ascii_case(b"REDIRECT"));
    if redirects {
        context
            .session
            .client
            .set_flag(ClientRecord::REDIRECTS, true);
    }
    reply.ok();
    Ok(())
}

fn reply_mode(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let mode = &mut context.session.reply_mode;
    if args.take_word("ON") {
        *mode = ReplyMode::On;
        reply.ok();
    } else if args.take_word("OFF") {
        *mode = ReplyMode::Off;
    } else if args.take_word("SKIP") {
        if *mode != ReplyMode::Off {
            *mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(CommandError::Syntax);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::session::ClientRecord;
    use testkit::engine_server::TestServer;

    #[test]
    fn a_name_is_printable() {
        let mut server = TestServer::new();
        assert_eq!(server.run("CLIENT GETNAME"), Value::Null);
        server.run("CLIENT SETNAME worker-1");
        assert_eq!(server.text("CLIENT GETNAME"), "worker-1");
        assert!(
            server
                .error("CLIENT SETNAME \"a b\"")
                .starts_with("ERR Client names")
        );
        server.run("CLIENT SETINFO LIB-NAME lib");
        server.run("CLIENT SETINFO lib-ver 1.0");
        assert_eq!(
            server.error("CLIENT SETINFO Lib-Ver \"1 0\""),
            "ERR Lib-Ver cannot contain spaces, newlines or special characters."
        );
        let names = server.session().client.names();
        assert_eq!(
            (names.lib_name.as_str(), names.lib_version.as_str()),
            ("lib", "1.0")
        );
    }

    #[test]
    fn replies_may_be_left_out() {
        let mut server = TestServer::new();
        assert!(server.is_silent("CLIENT REPLY SKIP"));
        assert!(server.is_silent("PING"));
        assert_eq!(server.text("PING x"), "x");
        assert!(server.is_silent("CLIENT REPLY OFF"));
        assert!(server.is_silent("CLIENT REPLY SKIP"));
        assert!(server.is_silent("nonsense"));
        assert_eq!(server.run("CLIENT REPLY ON"), Value::Simple(b"OK".to_vec()));
        assert_eq!(server.text("PING x"), "x");
    }

    #[test]
    fn switches_are_on_or_off() {
        let mut server = TestServer::new();
        server.run("CLIENT NO-EVICT on");
        server.run("CLIENT NO-TOUCH ON");
        server.run("CLIENT NO-EVICT OFF");
        assert!(!server.session().client.has_flag(ClientRecord::NO_EVICT));
        assert!(server.session().client.has_flag(ClientRecord::NO_TOUCH));
        assert_eq!(server.error("CLIENT NO-TOUCH maybe"), "ERR syntax error");
    }
}
