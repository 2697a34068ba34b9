//! Tests of the room from outside: golden vectors, properties, limits, and a comparison with Redis.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod escaped;
mod limits;
mod oracle;
mod replies;
mod requests;
mod session;
