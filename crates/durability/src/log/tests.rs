//! Tests of the log: written frames come back, and damage is detected.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod backlog;
mod cursor;
mod damage;
mod failing;
mod follower;
mod golden;
mod pins;
mod power;
mod ring;
mod running;
mod threads;
mod wakers;
mod written;
