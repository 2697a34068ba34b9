//! What a running server does to keep its data: when checkpoints are made, and what commands hear of it. How data
//! becomes files and comes back, and the life of the log, is the room `persistence`.

pub mod kept;
pub mod offline;
pub mod records;
mod reloading;
pub mod saving;
pub mod wish;
