//! The loop with real sockets, Unix sockets and in-process pairs, and a line service.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod balance;
mod chance;
mod closing;
mod descriptors;
mod echo;
mod fairness;
mod greedy;
mod holding;
mod limits;
mod lines;
mod listening;
mod rig;
mod signals;
mod waking;
