//! Saves to disk: SAVE BGSAVE BGREWRITEAOF LASTSAVE.
//!
//! All of them make a checkpoint, and none stops the server: SAVE delays only its own client.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::port::{SaveKind, SaveRefusal, SaveStart, SaveTime};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SAVE",
        flags: SAVES.with(Flags::NO_MULTI),
        group: Group::Server,
        summary: "Saves everything, and answers when that is done.",
        complexity: "O(N) where N is the number of keys in all databases.",
        handler: save,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "BGSAVE",
        history: &[("3.2.2", "Added the `SCHEDULE` option.")],
        arity: Arity::AtLeast(1),
        flags: SAVES,
        group: Group::Server,
        summary: "Has everything saved in the background.",
        syntax: "[SCHEDULE]",
        handler: save_in_background,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "BGREWRITEAOF",
        flags: SAVES,
        group: Group::Server,
        summary: "Has the log become short: saves everything in the background.",
        handler: rewrite_log,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "LASTSAVE",
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        group: Group::Server,
        categories: &["admin", "dangerous"],
        summary: "Gives the time of the last save, in seconds since 1970.",
        tips: &["nondeterministic_output"],
        handler: |context, _args, reply| {
            reply.integer(context.server.last_save_unix());
            Ok(())
        },
        ..CommandSpec::BLANK
    },
];

const SAVES: Flags = Flags::ADMIN
    .with(Flags::NOSCRIPT)
    .with(Flags::NO_ASYNC_LOADING);

fn save(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    context.pace.admit_waiting()?;
    let saved = context.outside(|server| server.save());
    saved.map_err(|refusal| match refusal {
        SaveRefusal::Busy(_) => CommandError::fixed(SAVING),
        SaveRefusal::Impossible => CommandError::fixed("ERR"),
    })?;
    reply.ok();
    Ok(())
}

fn save_in_background(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let is_scheduled = args.take_word("SCHEDULE");
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    let time = if context.may_block {
        if is_scheduled {
            SaveTime::WhenFree
        } else {
            SaveTime::Now
        }
    } else {
        SaveTime::Later
    };
    let text = match context.server.begin_save(SaveKind::Snapshot, time) {
        Ok(SaveStart::Started) => "Background saving started",
        Ok(SaveStart::Scheduled) => "Background saving scheduled",
        Err(SaveRefusal::Busy(SaveKind::Snapshot)) => return Err(CommandError::fixed(SAVING)),
        Err(SaveRefusal::Busy(SaveKind::Rewrite)) => return Err(CommandError::fixed(REWRITING)),
        Err(SaveRefusal::Impossible) => return Err(CommandError::fixed("ERR")),
    };
    reply.simple(text);
    Ok(())
}

fn rewrite_log(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let time = if context.may_block {
        SaveTime::WhenFree
    } else {
        SaveTime::Later
    };
    let text = match context.server.begin_save(SaveKind::Rewrite, time) {
        Ok(SaveStart::Started) => "Background append only file rewriting started",
        Ok(SaveStart::Scheduled) => "Background append only file rewriting scheduled",
        Err(SaveRefusal::Busy(_)) => {
            return Err(CommandError::fixed(
                "ERR Background append only file rewriting already in progress",
            ));
        }
        Err(SaveRefusal::Impossible) => {
            return Err(CommandError::fixed(
                "ERR Can't execute an AOF background rewriting. Please check the server logs for \
                 more information.",
            ));
        }
    };
    reply.simple(text);
    Ok(())
}

const SAVING: &str = "ERR Background save already in progress";
const REWRITING: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use \
    BGSAVE SCHEDULE in order to schedule a BGSAVE whenever possible.";

#[cfg(test)]
mod tests {
    use protocol::Value;

    use super::*;
    use testkit::engine_server::TestServer;

    fn told(server: &mut TestServer, line: &str) -> String {
        match server.run(line) {
            Value::Simple(text) | Value::Error(text) => String::from_utf8(text).unwrap(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_is_begun_is_told_in_the_words_of_redis() {
        let (snapshot, rewrite) = (SaveKind::Snapshot, SaveKind::Rewrite);
        let rewriting = "Background append only file rewriting";
        for (saves, expected) in [
            (
                Ok(SaveStart::Started),
                [
                    "OK",
                    "Background saving started",
                    &format!("{rewriting} started"),
                ],
            ),
            (
                Ok(SaveStart::Scheduled),
                [
                    "OK",
                    "Background saving scheduled",
                    &format!("{rewriting} scheduled"),
                ],
            ),
            (
                Err(SaveRefusal::Busy(snapshot)),
                [
                    SAVING,
                    SAVING,
                    &format!("ERR {rewriting} already in progress"),
                ],
            ),
            (
                Err(SaveRefusal::Busy(rewrite)),
                [
                    SAVING,
                    REWRITING,
                    &format!("ERR {rewriting} already in progress"),
                ],
            ),
        ] {
            let mut server = TestServer::new();
            server.port.saves = Some(saves);
            let replies = ["SAVE", "BGSAVE", "BGREWRITEAOF"].map(|line| told(&mut server, line));
            assert_eq!(replies, expected, "{saves:?}");
        }
    }

    #[test]
    fn what_may_wait_is_said() {
        let mut server = TestServer::new();
        for line in ["BGSAVE", "BGSAVE schedule", "BGREWRITEAOF"] {
            server.run(line);
        }
        let asked = ["Snapshot Now", "Snapshot WhenFree", "Rewrite WhenFree"];
        assert_eq!(server.port.asked, asked);
        assert_eq!(server.error("BGSAVE now"), "ERR syntax error");
        assert_eq!(server.error("BGSAVE SCHEDULE now"), "ERR syntax error");
    }

    #[test]
    fn a_transaction_is_saved_as_a_whole() {
        let mut server = TestServer::new();
        server.port.saves = Some(Ok(SaveStart::Scheduled));
        for line in ["MULTI", "SET a 1", "BGSAVE", "SET a 2"] {
            server.run(line);
        }
        let ok = || Value::Simple(b"OK".to_vec());
        let scheduled = Value::Simple(b"Background saving scheduled".to_vec());
        assert_eq!(
            server.run("EXEC"),
            Value::Array(vec![ok(), scheduled, ok()])
        );
        assert_eq!(server.port.asked, ["Snapshot Later"]);
        server.run("MULTI");
        assert!(server.error("SAVE").contains("not allowed inside"));
    }

    #[test]
    fn workers_leave_the_waiting_to_somebody_else() {
        let mut server = TestServer::of_worker();
        let (_, next) = server.pipeline(&["SAVE"]);
        assert_eq!(next, engine::Next::Aside);
        assert!(server.port.asked.is_empty());
    }
}
