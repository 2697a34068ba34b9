//! The number of a row, for what knows commands by their numbers alone.

/// Index of a row: of a command in [`Table::commands`](crate::Table::commands), or of a subcommand, after all
/// commands.
pub type CommandIndex = u16;
