//! Scripts against a host that answers from a table.

mod calls;
mod host;
