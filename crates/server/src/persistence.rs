//! What is kept on disk, and how it comes back: the one place that knows both the store and
//! `durability`.
//!
//! ```text
//!   files ──► commands ──► replay ──► store
//! ```

pub mod aof;
pub mod directory;
pub mod loading;
pub mod replay;
