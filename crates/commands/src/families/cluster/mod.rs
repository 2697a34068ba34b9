//! What a server outside a cluster answers to clients that ask whether it is in one.

use engine::error::CommandError;
use engine::spec::{Arity, CommandSpec, Flags, Group, Handler, container};

mod rows;

const DISABLED: Handler = |_context, _args, _reply| {
    Err(CommandError::fixed(
        "ERR This instance has cluster support disabled",
    ))
};

const MODE: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::FAST);

const MEMBER: CommandSpec = CommandSpec {
    flags: Flags::FAST,
    group: Group::Cluster,
    categories: &["connection"],
    since: "3.0.0",
    handler: DISABLED,
    ..CommandSpec::BLANK
};

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "CLUSTER",
        arity: Arity::AtLeast(2),
        flags: Flags::NONE,
        categories: &[],
        summary: "Tells about the cluster: this server is in none.",
        complexity: "Depends on subcommand.",
        subcommands: rows::SUBCOMMANDS,
        handler: container,
        ..MEMBER
    },
    CommandSpec {
        name: "READONLY",
        flags: MODE,
        summary: "Lets a connection read from a replica of a cluster: this server is in none.",
        ..MEMBER
    },
    CommandSpec {
        name: "READWRITE",
        flags: MODE,
        summary: "Ends READONLY: this server is in no cluster.",
        ..MEMBER
    },
    CommandSpec {
        name: "ASKING",
        summary: "Announces a redirected command: this server is in no cluster.",
        ..MEMBER
    },
];

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn there_is_no_cluster() {
        let mut server = TestServer::new();
        for line in [
            "CLUSTER INFO",
            "CLUSTER SLOTS",
            "READONLY",
            "READWRITE",
            "ASKING",
        ] {
            let error = server.error(line);
            assert_eq!(
                error, "ERR This instance has cluster support disabled",
                "{line}"
            );
        }
    }
}
