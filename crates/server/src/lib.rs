//! Threads, sessions, configuration and wiring: the iolite binary.

pub mod cli;
pub mod clients;
pub mod config;
pub mod daemon;
pub mod identity;
pub mod log;
mod system_check;
