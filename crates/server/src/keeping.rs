//! What a running server does to keep its data: what is loaded at its start, who makes checkpoints and
//! when, and the log. How data becomes files and comes back is the room `persistence`.

pub mod keeper;
pub mod logging;
pub mod offline;
mod reloading;
pub mod saving;
