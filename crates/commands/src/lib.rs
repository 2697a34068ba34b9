//! What each command does: its row and its handler, by families.
//!
//! ```text
//!   engine::Engine ─► Table (name → row) ─► handler(Context, Args, Reply)
//!                       ▲
//!                       └── table(): all rows of all families
//! ```
//!
//! A family is a folder under [`families`]; a command's row, handler and unit tests are in one file
//! of it. Nothing here knows that there are other families: the list of them is [`families::all`], and
//! who makes engines hands them the [`table`] of it.
#![forbid(unsafe_code)]

pub mod families;

mod chance;
mod help;
mod structure;
mod walk;

use engine::Table;

/// Builds the table of all commands, which lives as long as the process: to be called once, by whoever
/// makes engines.
#[must_use]
pub fn table() -> &'static Table {
    Table::build(families::all())
}
