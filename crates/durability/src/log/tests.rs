//! Tests of the log: what was written comes back, and what is damaged is noticed.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod backlog;
mod cursor;
mod damage;
mod failing;
mod follower;
mod golden;
mod power;
mod ring;
mod running;
mod threads;
mod wakers;
mod written;
