//! The room from outside: golden vectors, properties, limits, and Redis as the judge.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod escaped;
mod limits;
mod oracle;
mod replies;
mod requests;
mod session;
