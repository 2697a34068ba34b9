//! WAIT and WAITAOF: wait until replicas and disks have the client's writes.
//!
//! The client's writes end at a sequence of the log. Replicas report up to which sequence they have
//! applied it, and up to which it is on their disks. The local disk has everything below the log's
//! durable end. A client that waits for the local disk has the log synced, however many replicas it
//! also waits for. Nothing polls: the thread that learns of progress of a replica or of the disk
//! answers the clients for which it is enough.

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
    if context.server.is_replica() {
        return Err(CommandError::fixed(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
             configured to be writable (which is not the default) writes to replicas are just local and are not \
             propagated.",
        ));
    }
    let wanted = args.integer()?;
    let timeout_ms = milliseconds(args.bytes()?, context.now_unix_ms)?;
    // A client that wrote nothing waits for replicas that have the data from before.
    let position = context.server.log_position(context.session);
    let sequence = position.map_or(0, |position| position.wrote);
    let has = context.server.copies(sequence).applied;
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if has < wanted && context.may_block {
        let in_vain = InVain::Copies { sequence, wanted };
        return context.wait_for_copies(timeout_ms, in_vain, args);
    }
    reply.integer(i64::try_from(has).unwrap_or(i64::MAX));
    Ok(())
}

fn wait_for_disks(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let local_count = args.bounded(0, 1)?;
    let wanted = args.integer()?;
    let wanted = usize::try_from(wanted)
        .map_err(|_| CommandError::fixed("ERR value is out of range, must be positive"))?;
    let timeout_ms = milliseconds(args.bytes()?, context.now_unix_ms)?;
    if context.server.is_replica() {
        return Err(CommandError::fixed(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just \
             local and are not propagated.",
        ));
    }
    let position = context.server.log_position(context.session);
    let wants_local = local_count > 0;
    if wants_local && !position.is_some_and(|position| position.is_kept) {
        return Err(CommandError::fixed(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let is_on_disk = position.is_some_and(LogPosition::is_durable);
    let wrote = position.map(|position| position.wrote);
    let has = context.server.copies(wrote.unwrap_or(0)).durable;
    if let Some(wrote) = wrote
        && wants_local
        && !is_on_disk
    {
        context.server.request_log_sync(wrote);
    }
    if has < wanted && context.may_block {
        let in_vain = InVain::OnDisks {
            sequence: wrote,
            wants_local,
            wanted,
        };
        return context.wait_for_copies(timeout_ms, in_vain, args);
    }
    if let Some(wrote) = wrote
        && wants_local
        && !is_on_disk
        && context.may_block
    {
        return context.wait_for_log(timeout_ms, wrote, args);
    }
    reply.array(2);
    reply.integer(i64::from(is_on_disk));
    reply.integer(i64::try_from(has).unwrap_or(i64::MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::port::LogPosition;
    use engine::replication::Copies;
    use testkit::engine_server::TestServer;

    fn with_log(wrote: u64, durable: u64) -> TestServer {
        let mut server = TestServer::new();
        server.port.log = Some(LogPosition {
            wrote,
            durable,
            is_kept: true,
        });
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
            is_kept: true,
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
            is_kept: true,
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
    fn replicas_that_have_everything_are_counted() {
        let mut server = with_log(70, 69);
        server.port.copies = Copies {
            applied: 2,
            durable: 1,
        };
        assert_eq!(server.integer("WAIT 0 0"), 2);
        assert_eq!(server.integer("WAIT 2 0"), 2);
        let (output, _) = server.pipeline(&["WAITAOF 0 1 0", "WAITAOF 0 0 0"]);
        assert_eq!(output, b"*2\r\n:0\r\n:1\r\n".repeat(2));
        server.wait("WAIT 3 5");
        let is_reached = |server: &mut TestServer| {
            let waiter = &server.session().wait.as_ref().expect("it waits").waiter;
            let waiter = std::sync::Arc::clone(waiter);
            waiter.subject.is_reached(&server.port)
        };
        assert!(!is_reached(&mut server));
        server.port.copies.applied = 3;
        assert!(is_reached(&mut server));
        assert_eq!(server.gives_up_with(), Some(b":3\r\n".to_vec()));
        server.wait("WAITAOF 1 2 5");
        server.port.copies.durable = 2;
        assert!(!is_reached(&mut server), "the local disk lacks it");
        server.port.log = Some(LogPosition {
            wrote: 70,
            durable: 70,
            is_kept: true,
        });
        assert!(is_reached(&mut server));
        assert_eq!(server.gives_up_with(), Some(b"*2\r\n:1\r\n:2\r\n".to_vec()));
    }

    #[test]
    fn a_replica_has_nothing_to_wait_for() {
        let mut server = TestServer::new();
        server.port.is_replica = true;
        for line in ["WAIT 0 0", "WAITAOF 0 0 0"] {
            assert!(server.error(line).contains("cannot be used with replica"));
        }
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
