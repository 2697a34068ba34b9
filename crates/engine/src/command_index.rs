//! The number of a row, for code that knows commands only by number.

/// Index of a row: a command in [`Table::commands`](crate::Table::commands), or a subcommand.
/// Subcommands follow all commands.
pub type CommandIndex = u16;
