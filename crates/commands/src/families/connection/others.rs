//! CLIENT LIST, KILL, PAUSE and UNBLOCK: commands of one connection about others.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult, subcommand_syntax};
use engine::port::{ClientCondition, ClientFilter, ServerPort};
use engine::replication::Copies;
use engine::session::Fate;
use engine::waiting::Progress;
use protocol::Reply;

use super::filter::{self, Purpose};

pub(super) fn list(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let filter = filter::parse(args, Purpose::List, context)?;
    let text = context.server.clients(&filter);
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub(super) fn kill(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if args.remaining() == 1 {
        let address = String::from_utf8_lossy(args.bytes()?).into_owned();
        let filter = ClientFilter::of(ClientCondition::Address(address));
        let count = context.server.kill_clients(context.session, &filter);
        if count.clients == 0 {
            return Err(CommandError::fixed("ERR No such client"));
        }
        if count.caller {
            context.session.fate = Fate::Close;
        }
        reply.ok();
        return Ok(());
    }
    let filter = filter::parse(args, Purpose::Kill, context)?;
    let count = context.server.kill_clients(context.session, &filter);
    if count.caller {
        context.session.fate = Fate::Close;
    }
    reply.integer(i64::try_from(count.clients).unwrap_or(i64::MAX));
    Ok(())
}

pub(super) fn pause(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let timeout_ms = args.bytes()?;
    let writes_only = match args.remaining() {
        0 => false,
        1 if args.take_word("WRITE") => true,
        1 if args.take_word("ALL") => false,
        1 => {
            return Err(CommandError::fixed(
                "ERR CLIENT PAUSE mode must be WRITE or ALL",
            ));
        }
        _ => return Err(subcommand_syntax(args.request())),
    };
    let timeout_ms = base::number::parse_i64(timeout_ms).ok_or(CommandError::fixed(
        "ERR timeout is not an integer or out of range",
    ))?;
    let timeout_ms =
        u64::try_from(timeout_ms).map_err(|_| CommandError::fixed("ERR timeout is negative"))?;
    let until_unix_ms = context
        .now_unix_ms
        .checked_add(timeout_ms)
        .filter(|until| i64::try_from(*until).is_ok())
        .ok_or(CommandError::fixed("ERR timeout is out of range"))?;
    context.server.pause_clients(until_unix_ms, writes_only);
    reply.ok();
    Ok(())
}

/// Ends the wait of another client, as a timeout or with an error.
pub(super) fn unblock(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    const REASONS: CommandError =
        CommandError::fixed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    let id = args.bytes()?;
    if args.remaining() > 1 {
        return Err(subcommand_syntax(args.request()));
    }
    let with_error = args.take_word("ERROR");
    if !with_error && !args.take_word("TIMEOUT") && args.remaining() > 0 {
        return Err(REASONS);
    }
    let id = base::number::parse_i64(id).ok_or(CommandError::NotInteger)?;
    let client = u64::try_from(id)
        .ok()
        .and_then(|id| context.server.client(id));
    let waiter = client.and_then(|client| client.waiter());
    let claimed = waiter.filter(|waiter| waiter.claim());
    if let Some(waiter) = &claimed {
        let waiting = &waiter.subject;
        let answer = match with_error {
            true => waiting.refusal("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            false => waiting.in_vain(&At(context.server)),
        };
        context.server.answer(&waiting.client, answer);
    }
    reply.integer(i64::from(claimed.is_some()));
    Ok(())
}

/// The progress of the log as reported by the server.
struct At<'a>(&'a dyn ServerPort);

impl Progress for At<'_> {
    fn durable(&self) -> u64 {
        self.0.log_durable()
    }

    fn copies(&self, sequence: u64) -> Copies {
        self.0.copies(sequence)
    }
}

#[cfg(test)]
mod tests {
    use engine::port::KillCount;
    use engine::session::Fate;
    use testkit::engine_server::TestServer;

    #[test]
    fn filters_of_kill_are_a_conjunction_without_the_caller() {
        let mut server = TestServer::new();
        server.port.kills = KillCount {
            clients: 2,
            caller: true,
        };
        assert_eq!(
            server.integer("CLIENT KILL ID 5 ID 6 TYPE replica SKIPME no"),
            2
        );
        let asked = server.port.asked.join("");
        assert!(
            asked.contains("(Id([5, 6]), false), (Kind(Replica), false)")
                && asked.contains("except: None"),
            "{asked}"
        );
        assert!(server.session().fate == Fate::Close);
        let mut server = TestServer::new();
        assert_eq!(server.integer("CLIENT KILL MAXAGE 7"), 0);
        assert!(server.port.asked.join("").contains("except: Some(1)"));
        assert_eq!(server.error("CLIENT KILL 1.2.3.4:5"), "ERR No such client");
        assert_eq!(
            server.error("CLIENT KILL ID 0"),
            "ERR client-id should be greater than 0"
        );
        assert_eq!(
            server.error("CLIENT KILL MAXAGE 0"),
            "ERR maxage should be greater than 0"
        );
        for line in ["CLIENT KILL TYPE x", "CLIENT KILL TYPE x 1"] {
            assert!(
                server
                    .error(line)
                    .starts_with("ERR Unknown client type 'x'")
            );
        }
        for line in ["CLIENT LIST TYPE x 1", "CLIENT KILL ID 98 -9"] {
            assert_eq!(server.error(line), "ERR syntax error", "{line}");
        }
    }

    #[test]
    fn a_pause_has_an_end() {
        let mut server = TestServer::new();
        server.run("CLIENT PAUSE 100 WRITE");
        server.run("CLIENT PAUSE 50");
        server.run("CLIENT UNPAUSE");
        assert_eq!(
            server.port.asked,
            ["pause writes for 100 ms", "pause all for 50 ms", "unpause"]
        );
        assert_eq!(server.error("CLIENT PAUSE -1"), "ERR timeout is negative");
        assert_eq!(
            server.error("CLIENT PAUSE 9223372036854775807"),
            "ERR timeout is out of range"
        );
    }
}
