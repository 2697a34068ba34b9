//! Threads, sessions, configuration and wiring: the iolite binary.

pub mod clients;
