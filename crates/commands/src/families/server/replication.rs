//! Roles: ROLE REPLICAOF SLAVEOF FAILOVER, and requests of replicas: REPLCONF PSYNC SYNC.
//!
//! PSYNC and SYNC end a session: its connection passes to a thread that sends the stream.

use base::number::parse_i64;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::replication::{
    FailoverOrder, Followed, NodeOrder, ReplicaHello, ReplicaOf, RoleReport, SyncRequest,
};
use engine::session::{ClientRecord, Fate};
use engine::spec::{Arity, CommandSpec, Deprecation, Flags, Group};
use protocol::Reply;

use crate::help;

/// Maximum length of a valid address.
const ADDRESS_BYTES_MAX: usize = 255;

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);
const STALE: Flags = ADMIN.with(Flags::STALE);

const REPLICA_OF: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: STALE.with(Flags::NO_ASYNC_LOADING),
    group: Group::Server,
    syntax: "<host port:integer [FORCE] | NO ONE>",
    handler: replica_of,
    ..CommandSpec::BLANK
};

const HELP: &[&str] = &[
    "DIFFERENCES",
    "    Return keys that the last comparison found to differ: replica, database, key.",
    "DRAIN <node-id>",
    "    Have a node of the control group lead nothing, and not be promoted.",
    "LEAVE <node-id>",
    "    Have a node leave the control group as soon as nobody needs it.",
    "LEAVE FOR-RESTART",
    "    Have this node give away what it leads, and lead nothing until it is restarted.",
    "UNDRAIN <node-id>",
    "    Have a node lead again, and stay.",
    "VERIFY",
    "    Begin to compare the data with that of replicas; INFO shows what came of it.",
];

const COMPARISON: CommandSpec = CommandSpec {
    flags: STALE,
    group: Group::Server,
    since: "7.2.0",
    complexity: "O(1); the comparison goes by all keys beside the commands",
    ..CommandSpec::BLANK
};

const NODE_ORDER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(3),
    syntax: "node-id",
    complexity: "O(1); waits for a majority of the voters",
    ..COMPARISON
};

const SYNC: CommandSpec = CommandSpec {
    flags: ADMIN.with(Flags::NO_MULTI).with(Flags::NO_ASYNC_LOADING),
    group: Group::Server,
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ROLE",
        flags: Flags::NOSCRIPT
            .with(Flags::LOADING)
            .with(Flags::STALE)
            .with(Flags::FAST),
        group: Group::Server,
        categories: &["admin", "dangerous"],
        since: "2.8.12",
        summary: "Says which part the server has in replication.",
        handler: role,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "REPLICAOF",
        since: "5.0.0",
        summary: "Makes the server a replica of another, or a primary.",
        ..REPLICA_OF
    },
    CommandSpec {
        name: "SLAVEOF",
        deprecated: Some(Deprecation {
            since: "5.0.0",
            replaced_by: "`REPLICAOF`",
        }),
        summary: "The older name of REPLICAOF.",
        ..REPLICA_OF
    },
    CommandSpec {
        name: "FAILOVER",
        arity: Arity::AtLeast(1),
        flags: STALE,
        group: Group::Server,
        since: "6.2.0",
        summary: "Has a replica take over, without the loss of a write.",
        syntax: "[TO <host port:integer [FORCE]>] [ABORT] [TIMEOUT milliseconds]",
        handler: fail_over,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "REPLICATION",
        arity: Arity::AtLeast(2),
        group: Group::Server,
        since: "7.2.0",
        summary: "Compares a primary with its replicas.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            CommandSpec {
                name: "VERIFY",
                arity: Arity::Exactly(2),
                summary: "Begins to compare the data with that of replicas; INFO says what came of it.",
                handler: |context, _args, reply| {
                    context.server.verify_replicas()?;
                    reply.ok();
                    Ok(())
                },
                ..COMPARISON
            },
            CommandSpec {
                name: "LEAVE",
                syntax: "<node-id | FOR-RESTART>",
                summary: "Has a node leave the control group as soon as nobody needs it, or this one give away what it leads.",
                handler: leave,
                ..NODE_ORDER
            },
            CommandSpec {
                name: "DRAIN",
                summary: "Has a node of the control group lead nothing, and not be promoted.",
                handler: |context, args, reply| order_node(context, args, reply, NodeOrder::Drain),
                ..NODE_ORDER
            },
            CommandSpec {
                name: "UNDRAIN",
                summary: "Has a node of the control group lead again, and stay.",
                handler: |context, args, reply| {
                    order_node(context, args, reply, NodeOrder::Undrain)
                },
                ..NODE_ORDER
            },
            CommandSpec {
                name: "DIFFERENCES",
                arity: Arity::Exactly(2),
                summary: "Gives keys that the last comparison found to differ: replica, database, key.",
                handler: |context, _args, reply| {
                    let keys = context.server.differences();
                    reply.array(keys.len());
                    for key in keys {
                        reply.bulk(key.as_bytes());
                    }
                    Ok(())
                },
                ..COMPARISON
            },
            CommandSpec::help(Group::Server, "7.2.0", |_context, _args, reply| {
                help::write(reply, "REPLICATION", HELP)
            }),
        ],
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "REPLCONF",
        arity: Arity::AtLeast(1),
        flags: STALE.with(Flags::LOADING).with(Flags::ALLOW_BUSY),
        group: Group::Server,
        since: "3.0.0",
        summary: "Says what a replica can do and how far it is.",
        handler: configure,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "PSYNC",
        arity: Arity::AtLeast(3),
        since: "2.8.0",
        summary: "Makes the connection a replica's, which is sent what it lacks.",
        syntax: "replicationid offset:integer",
        handler: |context, args, _reply| {
            let id = args.bytes()?;
            let offset = parse_i64(args.bytes()?).ok_or(CommandError::NotInteger)?;
            let takes_over = args.take_word("FAILOVER");
            let from = (id != b"?").then(|| (id.to_vec(), offset));
            sync(context, from, false, takes_over)
        },
        ..SYNC
    },
    CommandSpec {
        name: "SYNC",
        summary: "Makes the connection a replica's, which is sent everything.",
        handler: |context, _args, _reply| sync(context, None, true, false),
        ..SYNC
    },
];

fn leave(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    // No node has this name: their names are 40 digits.
    if !args.take_word("FOR-RESTART") {
        return order_node(context, args, reply, NodeOrder::Leave);
    }
    context.pace.admit_waiting()?;
    if !context.may_block {
        return Err(CommandError::fixed(
            "ERR A node is not made ready for a restart inside of a transaction or a script",
        ));
    }
    context.outside(|server| server.leave_for_restart())?;
    reply.ok();
    Ok(())
}

fn order_node(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    order: NodeOrder,
) -> CommandResult {
    context.pace.admit_waiting()?;
    let node = args.bytes()?;
    context.outside(|server| server.order_node(node, order))?;
    reply.ok();
    Ok(())
}

fn role(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    match context.server.role() {
        RoleReport::Primary { offset, replicas } => {
            reply.array(3);
            reply.bulk(b"master");
            reply.integer(i64::try_from(offset).unwrap_or(i64::MAX));
            reply.array(replicas.len());
            for (address, port, offset) in replicas {
                reply.array(3);
                reply.bulk(address.as_bytes());
                reply.bulk_integer(i64::from(port));
                reply.bulk_integer(i64::try_from(offset).unwrap_or(i64::MAX));
            }
        }
        RoleReport::Replica {
            host,
            port,
            state,
            offset,
        } => {
            reply.array(5);
            reply.bulk(b"slave");
            reply.bulk(host.as_bytes());
            reply.integer(i64::from(port));
            reply.bulk(state.as_bytes());
            reply.integer(offset);
        }
    }
    Ok(())
}

fn replica_of(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if context.shared.hash_slots.is_on() {
        return Err(CommandError::fixed(
            "ERR REPLICAOF not allowed in cluster mode.",
        ));
    }
    let request = args.request();
    let is_word = |at: usize, word: &str| {
        let arg = request.arg(at);
        arg.is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    let forces = request.len() == 4 && is_word(3, "FORCE");
    if request.len() != 3 && !forces {
        let name = String::from_utf8_lossy(request.name()).to_lowercase();
        return Err(CommandError::WrongArity(name.into()));
    }
    let order = if is_word(1, "NO") && is_word(2, "ONE") {
        ReplicaOf::NoOne
    } else {
        // The two words are "NO" and another word, or an address and a port.
        let port = request.arg(2).and_then(parse_i64);
        let port = port.and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or(CommandError::fixed("ERR Invalid master port"))?;
        let host = request.arg(1).unwrap_or_default();
        let host = std::str::from_utf8(host).ok().filter(|host| {
            !host.is_empty() && host.len() <= ADDRESS_BYTES_MAX && !host.contains(['\0', ' '])
        });
        let host = host.ok_or(CommandError::fixed("ERR Invalid master host"))?;
        ReplicaOf::Primary {
            host: host.to_owned(),
            port,
            forces,
        }
    };
    match context.server.replica_of(context.session, &order)? {
        Followed::Changed => reply.ok(),
        Followed::AlreadyTheirs => reply.simple("OK Already connected to specified master"),
    }
    Ok(())
}

fn fail_over(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if context.shared.hash_slots.is_on() {
        return Err(CommandError::fixed(
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.",
        ));
    }
    if args.remaining() == 1 && args.take_word("ABORT") {
        context.server.fail_over(&FailoverOrder::Abort)?;
        reply.ok();
        return Ok(());
    }
    let (mut to, mut forces, mut timeout_ms) = (None, false, None);
    while args.remaining() > 0 {
        if timeout_ms.is_none() && args.remaining() >= 2 && args.take_word("TIMEOUT") {
            let ms = args.integer()?;
            let ms = u64::try_from(ms).ok().filter(|ms| *ms > 0);
            timeout_ms = Some(ms.ok_or(CommandError::fixed(
                "ERR FAILOVER timeout must be greater than 0",
            ))?);
        } else if to.is_none() && args.remaining() >= 3 && args.take_word("TO") {
            let host = String::from_utf8_lossy(args.bytes()?).into_owned();
            to = Some((host, args.integer32()?));
        } else if !forces && args.take_word("FORCE") {
            forces = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let order = FailoverOrder::Begin {
        to,
        forces,
        timeout_ms,
    };
    context.server.fail_over(&order)?;
    reply.ok();
    Ok(())
}

fn configure(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if !args.remaining().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    while args.remaining() > 0 {
        let option = args.bytes()?;
        let name = option.to_ascii_lowercase();
        match name.as_slice() {
            // Only the stream has acknowledgements, and it has no session.
            b"ack" | b"fack" | b"getack" => return Ok(()),
            b"iolite-link" => {
                args.bytes()?;
                let Some((port, node)) = context.server.own_link() else {
                    return Err(unrecognized(option));
                };
                reply.simple(&format!("{port} {node}"));
                return Ok(());
            }
            _ => {
                let hello = context.session.replica.get_or_insert_default();
                set(hello, (&name, option), args)?;
            }
        }
    }
    reply.ok();
    Ok(())
}

/// Records what a replica announces.
fn set(
    hello: &mut ReplicaHello,
    (name, option): (&[u8], &[u8]),
    args: &mut Args<'_>,
) -> CommandResult {
    match name {
        b"listening-port" => {
            hello.listening_port = u16::try_from(args.integer()?).unwrap_or(0);
        }
        b"ip-address" => {
            let address = args.bytes()?;
            if address.len() > ADDRESS_BYTES_MAX {
                let bytes = address.len();
                return Err(CommandError::Text(
                    format!(
                        "ERR REPLCONF ip-address provided by replica instance is too long: {bytes} bytes"
                    )
                    .into(),
                ));
            }
            hello.ip_address = Some(String::from_utf8_lossy(address).into_owned());
        }
        b"capa" => match args.bytes()?.to_ascii_lowercase().as_slice() {
            b"eof" => hello.reads_to_mark = true,
            b"psync2" => hello.takes_new_id = true,
            // Other capabilities are ignored.
            _ => {}
        },
        b"version" => {
            let version = args.bytes()?;
            let version = version.get(..version.len().min(64)).unwrap_or_default();
            hello.version = Some(String::from_utf8_lossy(version).into_owned());
        }
        b"rdb-only" => hello.only_rdb = args.bounded(0, 1)? == 1,
        b"rdb-filter-only" => {
            hello.only_functions = false;
            for word in args.bytes()?.split(|byte| *byte == b' ') {
                match word.to_ascii_lowercase().as_slice() {
                    b"" => {}
                    b"functions" => hello.only_functions = true,
                    _ => {
                        let mut text = b"ERR Unsupported rdb-filter-only option: ".to_vec();
                        text.extend_from_slice(word);
                        return Err(CommandError::Bytes(text));
                    }
                }
            }
        }
        _ => return Err(unrecognized(option)),
    }
    Ok(())
}

fn unrecognized(option: &[u8]) -> CommandError {
    let mut text = b"ERR Unrecognized REPLCONF option: ".to_vec();
    text.extend_from_slice(option);
    CommandError::Bytes(text)
}

fn sync(
    context: &mut Context<'_>,
    from: Option<(Vec<u8>, i64)>,
    is_old: bool,
    takes_over: bool,
) -> CommandResult {
    let hello = context.session.replica.as_deref().cloned();
    let request = SyncRequest {
        from,
        is_old,
        takes_over,
        hello: hello.unwrap_or_default(),
    };
    // A monitor is not a replica, and gets no reply.
    if context.session.client.has_flag(ClientRecord::MONITOR) {
        return Ok(());
    }
    context.server.admit_sync(context.session, &request)?;
    if request.hello.only_functions && !request.hello.reads_to_mark {
        return Err(CommandError::fixed(
            "ERR Filtered replica requires EOF capability",
        ));
    }
    context.session.sync = Some(Box::new(request));
    context.session.fate = Fate::HandOver;
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::Next;
    use engine::replication::ReplicaHello;
    use testkit::engine_server::TestServer;

    #[test]
    fn a_primary_it_is_without_a_server_around_it() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("REPLICAOF no one"),
            Value::Simple(b"OK".to_vec())
        );
        assert_eq!(server.error("SLAVEOF NO TWO"), "ERR Invalid master port");
        for line in [
            "REPLICAOF a b c",
            "REPLICAOF a 1 FORCE x",
            "SLAVEOF a 1 now",
        ] {
            assert!(server.error(line).contains("wrong number"), "{line}");
        }
        assert_eq!(
            server.error("FAILOVER ABORT"),
            "ERR No failover in progress."
        );
    }

    #[test]
    fn a_failover_that_makes_no_sense_is_refused() {
        let mut server = TestServer::new();
        for (line, refusal) in [
            (
                "FAILOVER TIMEOUT 0",
                "ERR FAILOVER timeout must be greater than 0",
            ),
            (
                "FAILOVER TIMEOUT x",
                "ERR value is not an integer or out of range",
            ),
            ("FAILOVER TO host", "ERR syntax error"),
            ("FAILOVER FORCE FORCE", "ERR syntax error"),
            ("FAILOVER TO host 1 TO host 2", "ERR syntax error"),
            ("FAILOVER", "ERR FAILOVER requires connected replicas."),
        ] {
            assert_eq!(server.error(line), refusal, "{line}");
        }
    }

    #[test]
    fn a_replica_says_what_it_can_do() {
        let mut server = TestServer::new();
        for line in [
            "REPLCONF",
            "REPLCONF listening-port 6380 ip-address 10.0.0.1",
            "REPLCONF capa eof capa psync2 capa later version 8.1.0",
            "REPLCONF rdb-only 1",
        ] {
            assert_eq!(server.run(line), Value::Simple(b"OK".to_vec()), "{line}");
        }
        let hello = ReplicaHello {
            listening_port: 6380,
            ip_address: Some("10.0.0.1".to_owned()),
            reads_to_mark: true,
            takes_new_id: true,
            version: Some("8.1.0".to_owned()),
            only_rdb: true,
            only_functions: false,
        };
        assert_eq!(server.session().replica.as_deref(), Some(&hello));
        for (line, refusal) in [
            ("REPLCONF capa", "ERR syntax error"),
            ("REPLCONF what 1", "ERR Unrecognized REPLCONF option: what"),
            (
                "REPLCONF iolite-link 1",
                "ERR Unrecognized REPLCONF option: iolite-link",
            ),
            (
                "REPLCONF rdb-filter-only keys",
                "ERR Unsupported rdb-filter-only option: keys",
            ),
        ] {
            assert_eq!(server.error(line), refusal, "{line}");
        }
        // Acknowledgements never get a reply.
        assert!(server.pipeline(&["REPLCONF ACK 5"]).0.is_empty());
    }

    #[test]
    fn who_is_given_the_stream_is_handed_over() {
        let mut server = TestServer::new();
        server.port.admits_sync = true;
        let (output, next) = server.pipeline(&["PSYNC ? -1", "PING"]);
        assert_eq!((output.as_slice(), next), (&b""[..], Next::HandOver));
        let sync = server.session().sync.as_deref().cloned();
        assert!(sync.is_some_and(|sync| sync.from.is_none() && !sync.is_old));
        let mut server = TestServer::new();
        assert!(server.error("SYNC").contains("without a server"));
        assert!(server.error("PSYNC a b").contains("not an integer"));
    }
}
