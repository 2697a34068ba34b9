//! What comes back after power cuts and failing devices, of log, checkpoints and manifest together.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod checkpoints;
mod ledger;
