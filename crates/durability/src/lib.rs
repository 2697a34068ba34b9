//! The data that is kept on disk: the operation log, checkpoints, and access to files.
//!
//! ```text
//!   effects ──► log ──► segments ┐
//!                                ├──► disk ──► files, or a simulated device
//!   records ──► checkpoint ──────┘
//! ```
//!
//! This room takes and returns bytes: it knows no key's value, no command and no socket. It
//! promises that all bytes below the durable watermark come back, in order and whole, or that the
//! reader gets an error which names the damaged file and the position. It never returns only some
//! of them.
//!
//! The formats are described in `docs/formats/`; the tests contain golden files.

#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod checksum;
pub mod disk;
pub mod log;
pub mod planted;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod whole_file;
