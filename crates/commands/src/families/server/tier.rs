//! TIER: values out of memory, on a device.

use engine::args::Args;
use engine::context::Context;
use engine::error::CommandResult;
use engine::port::TierOrder;
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

use crate::help;

const ORDER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN,
    group: Group::Server,
    since: "0.1.0",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "TIER",
    arity: Arity::AtLeast(2),
    group: Group::Server,
    since: "0.1.0",
    summary: "Looks after values that lie out of memory.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "STATUS",
            summary: "Tells how much lies out of memory.",
            handler: |context, _, reply| order(context, TierOrder::Status, reply),
            ..ORDER
        },
        CommandSpec {
            name: "COMPACT",
            summary: "Writes what is still in use together, and frees the rest.",
            handler: |context, _, reply| order(context, TierOrder::Compact, reply),
            ..ORDER
        },
        CommandSpec {
            name: "DRAIN",
            summary: "Has all values come back into memory, and none leave it any more.",
            handler: |context, _, reply| order(context, TierOrder::Drain, reply),
            ..ORDER
        },
        CommandSpec {
            name: "SCRUB",
            summary: "Reads every value that lies out of memory.",
            handler: |context, _, reply| order(context, TierOrder::Scrub, reply),
            ..ORDER
        },
        CommandSpec {
            ..CommandSpec::help(Group::Server, "0.1.0", |_, _, reply| {
                help::write(reply, "TIER", HELP)
            })
        },
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "COMPACT",
    "    Write values that are still in use together, and free the rest of the device.",
    "DRAIN",
    "    Bring all values back into memory, behind the scenes, and let none leave it any more.",
    "SCRUB",
    "    Read every value that lies out of memory, and tell how many cannot be read.",
    "STATUS",
    "    Return how much lies out of memory.",
];

fn order(context: &mut Context<'_>, order: TierOrder, reply: &mut Reply<'_>) -> CommandResult {
    if matches!(order, TierOrder::Compact | TierOrder::Scrub) {
        // Segments are read from beginning to end.
        context.pace.admit_waiting()?;
    }
    let told = context.server.tier(context.store, order)?;
    reply.map(told.len());
    for (name, value) in told {
        reply.bulk_str(name);
        reply.bulk_str(&value);
    }
    Ok(())
}

/// DEBUG DEMOTE: replies with how many of the keys' values were moved out.
pub(super) fn demote(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let mut count = 0;
    while args.remaining() > 0 {
        let key = context.key(args.bytes()?);
        count += i64::from(context.server.demote(context.store, &key)?);
    }
    reply.integer(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::Next;
    use testkit::engine_server::TestServer;

    #[test]
    fn a_worker_does_not_read_all_segments_itself() {
        for request in ["TIER SCRUB", "TIER COMPACT"] {
            let mut server = TestServer::of_worker();
            assert_ne!(server.pipeline(&[request]).1, Next::Read, "{request}");
        }
    }
}
