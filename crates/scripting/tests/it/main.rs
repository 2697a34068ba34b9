//! Tests of scripts with a `Host` that answers from a table.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod escapes;
mod host;
mod language;
mod libraries;
mod limits;
mod reference;
