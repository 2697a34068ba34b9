//! The engine with the commands of the server: batches, waits, transactions, refusals.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod batches;
mod key_places;
mod observer;
mod refusals;
mod transactions;
mod waits;
