//! WAIT and WAITAOF: until replicas and disks have what was written. There is no replica, so a client that
//! wants one waits until its time is over. The local disk has what lies below the log's durable end; a client
//! that wants that has the log synced, however many replicas it waits for as well.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::port::LogPosition;
use engine::spec::{Arity, CommandSpec, Flags, Group};
use engine::waiting::{InVain, milliseconds};
use protocol::Reply;

const COMMON: CommandSpec = CommandSpec {
    flags: Flags::BLOCKING,
    group: Group::Generic,
    categories: &["connection"],
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "WAIT",
        arity: Arity::Exactly(3),
        since: "3.0.0",
        summary: "Waits until so many replicas have what the client wrote.",
        syntax: "numreplicas:integer timeout:integer",
        handler: wait,
        ..COMMON
    },
    CommandSpec {
        name: "WAITAOF",
        arity: Arity::Exactly(4),
        since: "7.2.0",
        summary: "Waits until what the client wrote is on the disks of this server and of replicas.",
        syntax: "numlocal:integer numreplicas:integer timeout:integer",
        handler: wait_for_disks,
        ..COMMON
    },
];

fn wait(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let replicas_count = args.integer()?;
    let timeout_ms = milliseconds(args.bytes()?, context.now_unix_ms)?;
    if replicas_count > 0 && context.may_block {
        return context.wait_in_vain(timeout_ms, InVain::NoReplica, args);
    }
    reply.integer(0);
    Ok(())
}

fn wait_for_disks(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let local_count = args.bounded(0, 1)?;
    let replicas_count = args.integer()?;
    if replicas_count < 0 {
        return Err(CommandError::fixed(
            "ERR value is out of range, must be positive",
        ));
    }
    let timeout_ms = milliseconds(args.bytes()?, context.now_unix_ms)?;
    let position = context.server.log_position(context.session);
    if local_count > 0 && position.is_none() {
        return Err(CommandError::fixed(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let is_on_disk = position.is_some_and(LogPosition::is_durable);
    let wrote = position.map(|position| position.wrote);
    if let Some(wrote) = wrote
        && local_count > 0
        && !is_on_disk
    {
        context.server.request_log_sync(wrote);
    }
    if replicas_count > 0 && context.may_block {
        return context.wait_in_vain(timeout_ms, InVain::OnDisks(wrote), args);
    }
    if let Some(wrote) = wrote
        && local_count > 0
        && !is_on_disk
        && context.may_block
    {
        return context.wait_for_log(timeout_ms, wrote, args);
    }
    reply.array(2);
    reply.integer(i64::from(is_on_disk));
    reply.integer(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::port::LogPosition;
    use testkit::engine_server::TestServer;

    fn with_log(wrote: u64, durable: u64) -> TestServer {
        let mut server = TestServer::new();
        server.port.log = Some(LogPosition { wrote, durable });
        server
    }

    #[test]
    fn what_is_on_disk_is_not_waited_for() {
        let mut server = with_log(70, 70);
        let (output, _) = server.pipeline(&["WAITAOF 1 0 0", "WAITAOF 0 0 0"]);
        assert_eq!(output, b"*2\r\n:1\r\n:0\r\n".repeat(2));
    }

    #[test]
    fn who_waits_for_the_disk_is_told_when_it_has_all() {
        let mut server = with_log(70, 69);
        let (output, _) = server.pipeline(&["WAITAOF 0 0 0", "MULTI", "WAITAOF 1 0 0", "EXEC"]);
        assert!(output.ends_with(b"*1\r\n*2\r\n:0\r\n:0\r\n"));
        server.wait("WAITAOF 1 0 5");
        let log_end = server.session().wait.as_ref().and_then(|wait| wait.log_end);
        assert_eq!(log_end, Some(70));
        server.port.log = Some(LogPosition {
            wrote: 90,
            durable: 80,
        });
        assert_eq!(server.gives_up_with(), Some(b"*2\r\n:1\r\n:0\r\n".to_vec()));
    }

    #[test]
    fn who_waits_too_long_hears_what_is_so_then() {
        let mut server = with_log(70, 69);
        server.wait("WAITAOF 1 1 5");
        assert_eq!(server.gives_up_with(), Some(b"*2\r\n:0\r\n:0\r\n".to_vec()));
        server.wait("WAITAOF 1 1 5");
        server.port.log = Some(LogPosition {
            wrote: 70,
            durable: 70,
        });
        let wait = server.session().wait.as_ref();
        assert!(wait.is_some_and(|wait| wait.log_end.is_none()));
        assert_eq!(server.gives_up_with(), Some(b"*2\r\n:1\r\n:0\r\n".to_vec()));
    }

    #[test]
    fn the_local_disk_is_asked_for_however_many_replicas_are_waited_for() {
        let mut server = with_log(70, 69);
        server.wait("WAITAOF 0 1 5");
        assert!(server.port.asked.is_empty(), "nobody wants the local disk");
        server.gives_up_with();
        for line in ["WAITAOF 1 1 5", "WAITAOF 1 0 5", "WAITAOF 1 7 5"] {
            server.port.asked.clear();
            server.wait(line);
            assert_eq!(server.port.asked, ["sync up to 70"], "{line}");
            server.gives_up_with();
        }
        let mut server = TestServer::new();
        let refused = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        assert_eq!(server.error("WAITAOF 1 1 5"), refused);
        assert_eq!(
            server.error("WAITAOF 2 0 0"),
            "ERR value is out of range, value must between 0 and 1"
        );
    }

    #[test]
    fn only_who_has_a_log_may_ask_for_its_durability() {
        let mut server = TestServer::new();
        assert_eq!(
            server.error("CLIENT DURABILITY ALWAYS"),
            "ERR CLIENT DURABILITY ALWAYS cannot be used when appendonly is disabled."
        );
        server.run("CLIENT DURABILITY default");
        let mut server = with_log(0, 0);
        server.run("CLIENT DURABILITY always");
        assert!(server.session().waits_for_disk);
        server.run("RESET");
        assert!(!server.session().waits_for_disk);
    }
}
