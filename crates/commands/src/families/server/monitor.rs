//! MONITOR: shows a client every command that runs.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "MONITOR",
    arity: Arity::Exactly(1),
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE),
    group: Group::Server,
    summary: "Shows every command that runs, as it runs.",
    handler: monitor,
    ..CommandSpec::BLANK
}];

fn monitor(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if !context.may_block {
        return Err(CommandError::fixed(
            "ERR MONITOR isn't allowed for DENY BLOCKING client",
        ));
    }
    let observer = &context.shared.observer;
    observer.monitors.add(&context.session.client);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::session::ClientRecord;
    use testkit::engine_server::TestServer;

    #[test]
    fn what_runs_is_shown() {
        let mut server = TestServer::new();
        server.run("SET before 1");
        server.run("MONITOR");
        assert!(server.session().client.has_flag(ClientRecord::MONITOR));
        server.pipeline(&[
            "ECHO \"1\\n\"",
            "PING",
            "ECHO",
            "CONFIG GET x",
            "AUTH me pw",
        ]);
        server.pipeline(&["SELECT 3", "MULTI", "PING", "EXEC"]);
        let at = "1700000000.000005";
        let expected = [
            format!("+{at} [0 test:0] \"ECHO\" \"1\\n\"\r\n"),
            format!("+{at} [0 test:0] \"PING\"\r\n"),
            format!("+{at} [0 test:0] \"AUTH\" \"(redacted)\" \"(redacted)\"\r\n"),
            format!("+{at} [3 test:0] \"SELECT\" \"3\"\r\n"),
            format!("+{at} [3 test:0] \"MULTI\"\r\n"),
            format!("+{at} [3 test:0] \"PING\"\r\n"),
            format!("+{at} [3 test:0] \"EXEC\"\r\n"),
        ];
        assert_eq!(server.port.pushed_text(), expected.concat());
        let refused = "ERR Replica can't interact with the keyspace";
        assert_eq!(server.error("GET before"), refused);
        server.run("RESET");
        assert_eq!(server.text("GET before"), "1");
        assert!(!server.port.pushed_text().contains("\"GET\""));
    }

    #[test]
    fn not_inside_a_transaction() {
        let mut server = TestServer::new();
        let (output, _) = server.pipeline(&["MULTI", "MONITOR", "EXEC"]);
        let text = String::from_utf8(output).unwrap();
        assert!(text.contains("-ERR MONITOR isn't allowed"), "{text}");
        assert!(!server.session().client.has_flag(ClientRecord::MONITOR));
    }
}
