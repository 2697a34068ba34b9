//! Persistence of a running server: when checkpoints are made, and what commands learn of them. The
//! room `persistence` converts data to files and back, and owns the log.

pub mod kept;
pub mod offline;
pub mod records;
mod reloading;
pub mod saving;
pub mod wish;
