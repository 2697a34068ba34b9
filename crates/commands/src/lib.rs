//! Every command's row and handler, by family.
//!
//! ```text
//!   engine::Engine ─► Table (name → row) ─► handler(Context, Args, Reply)
//!                       ▲
//!                       └── table(): all rows of all families
//! ```
//!
//! A family is a folder under [`families`]. A command's row, handler and unit tests are in one file
//! of it. No family knows the others: [`families::all`] lists them, and the code that makes engines
//! passes them the [`table`] of that list.
#![forbid(unsafe_code)]

pub mod families;

mod chance;
mod help;
mod structure;
mod walk;

use engine::Table;

/// Builds the table of all commands, which lives as long as the process. To be called once, by the
/// code that makes engines.
#[must_use]
pub fn table() -> &'static Table {
    Table::build(families::all())
}
