//! The server's state: INFO TIME SHUTDOWN LOLWUT and MODULE.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::identity::{IOLITE_VERSION, redis_version};
use engine::port::{LogLevel, ShutdownRequest};
use engine::session::Fate;
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

use crate::help;

const ALWAYS: Flags = Flags::LOADING.with(Flags::STALE);

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "INFO",
        history: &[("7.0.0", "Takes several sections.")],
        arity: Arity::AtLeast(1),
        flags: ALWAYS,
        group: Group::Server,
        categories: &["dangerous"],
        summary: "Describes the server, section by section.",
        syntax: "[section [section ...]]",
        tips: &[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
        handler: |context, args, reply| {
            let sections: Vec<String> = args
                .map(|name| String::from_utf8_lossy(name).to_lowercase())
                .collect();
            let mut text = context.server.info(context.store, &sections);
            if context.session.forwards {
                // To a client that forwards, the cluster is one server.
                text = text.replace("cluster_enabled:1", "cluster_enabled:0");
            }
            reply.verbatim("txt", text.as_bytes());
            Ok(())
        },
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "TIME",
        flags: ALWAYS.with(Flags::FAST),
        group: Group::Server,
        since: "2.6.0",
        summary: "Gives the server's time: seconds since 1970, and microseconds.",
        tips: &["nondeterministic_output"],
        handler: |context, _args, reply| {
            // A script sees the time at which it began, to the millisecond, because keys expire by
            // it.
            let now_us = if context.session.in_script {
                context.now_unix_ms * 1000
            } else {
                context.server.now_unix_us()
            };
            reply.array(2);
            for part in [now_us / 1_000_000, now_us % 1_000_000] {
                reply.bulk_integer(i64::try_from(part).unwrap_or(i64::MAX));
            }
            Ok(())
        },
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "SHUTDOWN",
        history: &[("7.0.0", "Added `NOW`, `FORCE` and `ABORT`.")],
        arity: Arity::AtLeast(1),
        flags: Flags::ADMIN
            .with(Flags::NOSCRIPT)
            .with(ALWAYS)
            .with(Flags::NO_MULTI)
            .with(Flags::ALLOW_BUSY),
        group: Group::Server,
        summary: "Stops the server.",
        complexity: "O(N) when saving, where N is the number of keys; otherwise O(1).",
        syntax: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        handler: shutdown,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "LOLWUT",
        arity: Arity::AtLeast(1),
        flags: Flags::READONLY.with(Flags::FAST),
        group: Group::Server,
        since: "5.0.0",
        summary: "Draws a crystal and names the version.",
        syntax: "[VERSION version]",
        handler: lolwut,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "MODULE",
        arity: Arity::AtLeast(2),
        group: Group::Server,
        since: "4.0.0",
        summary: "Tells about modules: there are none.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            CommandSpec {
                name: "LIST",
                arity: Arity::Exactly(2),
                flags: Flags::ADMIN.with(Flags::NOSCRIPT),
                group: Group::Server,
                since: "4.0.0",
                summary: "Lists the loaded modules: none.",
                complexity: "O(1)",
                tips: &["nondeterministic_output_order"],
                handler: |_context, _args, reply| {
                    reply.array(0);
                    Ok(())
                },
                ..CommandSpec::BLANK
            },
            CommandSpec {
                name: "LOAD",
                arity: Arity::AtLeast(3),
                since: "4.0.0",
                summary: "Fails as for a file that is no module: none can be loaded.",
                syntax: "path [arg [arg ...]]",
                handler: load_module,
                ..MODULE_CHANGE
            },
            CommandSpec {
                name: "LOADEX",
                arity: Arity::AtLeast(3),
                since: "7.0.0",
                summary: "Fails as for a file that is no module: none can be loaded.",
                syntax: "path [CONFIG name value [CONFIG name value ...]] [ARGS args [args ...]]",
                handler: load_module,
                ..MODULE_CHANGE
            },
            CommandSpec {
                name: "UNLOAD",
                arity: Arity::Exactly(3),
                since: "4.0.0",
                summary: "Fails, for there is no module by that name.",
                syntax: "name",
                handler: |context, _args, _reply| {
                    check_modules(context)?;
                    Err(CommandError::fixed(
                        "ERR Error unloading module: no such module with that name",
                    ))
                },
                ..MODULE_CHANGE
            },
            CommandSpec::help(Group::Server, "5.0.0", |_, _, reply| {
                help::write(reply, "MODULE", MODULE_HELP)
            }),
        ],
        ..CommandSpec::BLANK
    },
];

fn shutdown(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let mut request = ShutdownRequest::default();
    let (mut save, mut no_save) = (false, false);
    while args.remaining() > 0 {
        if args.take_word("NOSAVE") {
            no_save = true;
        } else if args.take_word("SAVE") {
            save = true;
        } else if args.take_word("NOW") {
            request.now = true;
        } else if args.take_word("FORCE") {
            request.force = true;
        } else if args.take_word("ABORT") {
            request.abort = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    request.save = (save || no_save).then_some(save);
    let others = request.save.is_some() || request.now || request.force;
    if request.abort && others || save && no_save {
        return Err(CommandError::Syntax);
    }
    if context.server.saves_at_shutdown(request) {
        context.pace.admit_waiting()?;
        context.outside(|server| server.shutdown(request))?;
    } else {
        context.server.shutdown(request)?;
    }
    if request.abort {
        reply.ok();
        return Ok(());
    }
    context.session.fate = Fate::Close;
    Ok(())
}

/// The base row of commands that would change the modules.
const MODULE_CHANGE: CommandSpec = CommandSpec {
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::NO_ASYNC_LOADING),
    group: Group::Server,
    complexity: "O(1)",
    ..CommandSpec::BLANK
};

const MODULE_HELP: &[&str] = &[
    "LIST",
    "    Return a list of loaded modules.",
    "LOAD <path> [<arg> ...]",
    "    Load a module library from <path>, passing to it any optional arguments.",
    "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
    "    Load a module library from <path>, while passing it module configurations and optional arguments.",
    "UNLOAD <name>",
    "    Unload a module.",
];

/// Checks whether commands that change modules are allowed (`enable-module-command`).
fn check_modules(context: &mut Context<'_>) -> CommandResult {
    let mut is_open = false;
    let names: &[&[u8]] = &[b"enable-module-command"];
    context
        .server
        .config_get(names, &mut |_, value| is_open = value != b"no");
    if !is_open {
        return Err(CommandError::fixed(
            "ERR MODULE command not allowed. If the enable-module-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    Ok(())
}

fn load_module(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    _reply: &mut Reply<'_>,
) -> CommandResult {
    check_modules(context)?;
    let words: [&[u8]; 3] = [
        b"Module ",
        args.bytes()?,
        b" failed to load: this server loads no modules",
    ];
    context.server.log_line(LogLevel::Warning, &words.concat());
    Err(CommandError::fixed(
        "ERR Error loading the extension. Please check the server logs.",
    ))
}

fn lolwut(_context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if args.remaining() >= 2 && args.take_word("VERSION") {
        args.integer()?;
    }
    let version = redis_version();
    let text = format!("{CRYSTAL}\nIolite ver. {IOLITE_VERSION} (Redis ver. {version})\n");
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The mineral iolite looks blue, grey or straw, depending on the direction of view.
const CRYSTAL: &str = r"
          .______.
         /\      /\
        /  \    /  \
       /____\  /____\
      |\    /\/\    /|
      | \  / /\ \  / |
      |  \/ /  \ \/  |
      |__/_/____\_\__|
       \   \    /   /
        \   \  /   /
         \___\/___/
";

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::{START_UNIX_MS, TestServer};

    #[test]
    fn time_is_two_numbers_as_text() {
        let seconds = (START_UNIX_MS / 1000).to_string().into_bytes();
        let expected = vec![Value::Bulk(seconds), Value::Bulk(b"5".to_vec())];
        assert_eq!(TestServer::new().run("TIME"), Value::Array(expected));
    }

    #[test]
    fn shutdown_reads_its_words() {
        let mut server = TestServer::new();
        for line in [
            "SHUTDOWN later",
            "SHUTDOWN SAVE NOSAVE",
            "SHUTDOWN ABORT NOW",
            "SHUTDOWN NOSAVE ABORT",
        ] {
            assert_eq!(server.error(line), "ERR syntax error", "{line}");
        }
        assert!(server.port.asked.is_empty());
        server.run("SHUTDOWN nosave now force");
        let asked = server.port.asked.join("");
        assert!(
            asked.contains("save: Some(false), now: true, force: true"),
            "{asked}"
        );
    }

    #[test]
    fn who_saves_first_does_so_where_nobody_else_waits() {
        let mut server = TestServer::of_worker();
        assert_eq!(server.pipeline(&["SHUTDOWN SAVE"]).1, engine::Next::Aside);
        assert!(server.port.asked.is_empty());
        server.pipeline(&["SHUTDOWN NOSAVE"]);
        assert_eq!(server.port.asked.len(), 1);
    }

    #[test]
    fn sections_are_asked_for_in_any_case() {
        let mut server = TestServer::new();
        assert_eq!(server.text("INFO Server CLIENTS"), "server,clients");
    }
}
