//! The rows of ACL.

use engine::spec::{Arity, CommandSpec, Flags, Group};

use super::{categories, denials, load, save, users, write_help};

/// Flags of subcommands that any authenticated client may use.
const OPEN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: OPEN.with(Flags::ADMIN),
    group: Group::Server,
    since: "6.0.0",
    ..CommandSpec::BLANK
};

/// The row of ACL.
pub const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "ACL",
    arity: Arity::AtLeast(2),
    group: Group::Server,
    since: "6.0.0",
    summary: "Says who may do what.",
    complexity: "Depends on subcommand.",
    subcommands: SUBCOMMANDS,
    ..CommandSpec::BLANK
}];

const SUBCOMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "CAT",
        arity: Arity::AtLeast(2),
        flags: OPEN,
        summary: "Lists the categories of commands, or the commands of one.",
        complexity: "O(1) since the categories and commands are a fixed set.",
        syntax: "[categoryname]",
        handler: categories::cat,
        ..MEMBER
    },
    CommandSpec {
        name: "DELUSER",
        arity: Arity::AtLeast(3),
        summary: "Removes users, and closes their connections.",
        complexity: "O(1) amortized time considering the typical user.",
        syntax: "username [username ...]",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        handler: users::remove,
        ..MEMBER
    },
    CommandSpec {
        name: "DRYRUN",
        arity: Arity::AtLeast(4),
        since: "7.0.0",
        summary: "Says whether a user may run a command, without running it.",
        complexity: "O(1).",
        syntax: "username command [arg [arg ...]]",
        handler: users::dry_run,
        ..MEMBER
    },
    CommandSpec {
        name: "GENPASS",
        arity: Arity::AtLeast(2),
        flags: OPEN,
        summary: "Makes a random password.",
        syntax: "[bits:integer]",
        handler: users::generate_password,
        ..MEMBER
    },
    CommandSpec {
        name: "GETUSER",
        arity: Arity::Exactly(3),
        history: &[
            ("6.2.0", "Added Pub/Sub channel patterns."),
            (
                "7.0.0",
                "Tells selectors, and keys and channels as rules instead of lists.",
            ),
        ],
        summary: "Tells the rules of a user.",
        complexity: "O(N). Where N is the number of password, command and pattern rules that the \
                     user has.",
        syntax: "username",
        handler: users::describe,
        ..MEMBER
    },
    CommandSpec {
        flags: Flags::LOADING.with(Flags::STALE),
        ..CommandSpec::help(Group::Server, "6.0.0", write_help)
    },
    CommandSpec {
        name: "LIST",
        summary: "Lists the users with their rules, as an ACL file has them.",
        complexity: "O(N). Where N is the number of configured users.",
        handler: users::list,
        ..MEMBER
    },
    CommandSpec {
        name: "LOAD",
        summary: "Takes the users from the ACL file.",
        complexity: "O(N). Where N is the number of configured users.",
        handler: load,
        ..MEMBER
    },
    CommandSpec {
        name: "LOG",
        arity: Arity::AtLeast(2),
        history: &[(
            "7.2.0",
            "Tells the entry's id, and when it was made and last changed.",
        )],
        summary: "Lists what users were not allowed lately.",
        complexity: "O(N) with N being the number of entries shown.",
        syntax: "[count | RESET]",
        handler: denials::log,
        ..MEMBER
    },
    CommandSpec {
        name: "SAVE",
        summary: "Writes the users to the ACL file.",
        complexity: "O(N). Where N is the number of configured users.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        handler: save,
        ..MEMBER
    },
    CommandSpec {
        name: "SETUSER",
        secrets: Some(|_, at| at >= 2),
        arity: Arity::AtLeast(3),
        history: &[
            ("6.2.0", "Added Pub/Sub channel patterns."),
            ("7.0.0", "Added selectors and key based permissions."),
        ],
        summary: "Makes a user, or changes one.",
        complexity: "O(N). Where N is the number of rules provided.",
        syntax: "username [rule [rule ...]]",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        handler: users::set,
        ..MEMBER
    },
    CommandSpec {
        name: "USERS",
        summary: "Lists the names of the users.",
        complexity: "O(N). Where N is the number of configured users.",
        handler: users::names,
        ..MEMBER
    },
    CommandSpec {
        name: "WHOAMI",
        flags: OPEN,
        summary: "Tells as which user the connection is logged in.",
        handler: users::who_am_i,
        ..MEMBER
    },
];

pub(super) const HELP: &[&str] = &[
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOAD",
    "    Reload users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "SAVE",
    "    Save the current config to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
];
