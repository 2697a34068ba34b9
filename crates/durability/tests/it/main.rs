//! Recovery of log, checkpoints and manifest together after power cuts and device failures.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "figures, and how to see a failure again"
)]

mod checkpoints;
mod io_errors;
mod ledger;
mod life;
mod power_cuts;
mod soak;
