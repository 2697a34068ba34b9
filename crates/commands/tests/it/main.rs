//! Tests of the room from outside: replay of effects, and the table of commands compared with
//! Redis.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod compatibility;
mod digests;
mod effect_server;
mod effects;
mod events;
mod in_transactions;
mod oracle;
mod reference;
mod rows;
mod transcripts;
