//! The loop under real sockets, Unix sockets and in-process pairs, with a service of lines.

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
