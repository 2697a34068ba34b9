//! The RDB format: encoding and decoding of single values and of whole files; and the manifest of
//! append-only files, the first of which is an RDB file ([`aof_manifest`]).
//!
//! ```text
//!   file           magic │ aux … │ database │ record … │ CRC-64    file
//!                                              │
//!   DUMP payload   type │ body │ version (2) │ CRC-64 (8)         dump
//!                         │
//!                       value::read, value::write                value ─ lists, sets, …
//!                         │
//!                       lengths, strings, LZF                    reader, writer, lzf
//!                       listpack, ziplist, zipmap                listpack, ziplist, zipmap
//! ```
//!
//! Versions 1 to 15 and that of Valkey 9 are read; 9 to 12 and that of Valkey 9 are written. There
//! is no I/O except on the stream that is passed to [`mod@file`].
//!
//! | Version | Servers | What it added | Here |
//! |---|---|---|---|
//! | 13 | Redis 8.6 | streams with idempotent producers (26), metadata of modules at keys (243) | streams are read without their producers, metadata is passed |
//! | 14 | Redis 8.8 | streams with released entries (27), arrays (28) | refused by name |
//! | 15 | Redis 8.10 | hashes by templates (29 to 32), templates (242), payloads without a sum | read as hashes |
//! | 16 | Redis 8.12, not released | – | refused: what its types are was not settled |
//!
//! Invariants
//!  1. Untrusted bytes never cause a panic or an endless loop: every count is checked against the
//!     remaining bytes before anything is done for it.
//!  2. Decoded data is built into our own structures, element by element; nothing of the received
//!     layout is kept. So whatever was accepted can be written, and read again.
//!  3. Memory is at most a small multiple of the bytes received. The stated length of a compressed
//!     text is trusted only after its parts were added up, and it must be within
//!     [`Limits::string_bytes_max`].
//!  4. Refused are: collections without elements, duplicate elements, scores that are not numbers,
//!     inconsistent texts and lengths, and bytes behind the end.
//!
//! Source of the format: the RDB file format as documented for Redis 7.2, payloads of servers, and
//! from version 13 on what other readers and Redis' own tests agree on.

#![forbid(unsafe_code)]

pub mod aof_manifest;
pub mod dump;
pub mod file;
pub mod functions;
pub mod lzf;
pub mod member_deadlines;
pub mod reader;
pub mod value;
pub mod writer;

mod bytes;
mod code;
mod elements;
mod listpack;
mod metadata;
mod templates;
mod ziplist;
mod zipmap;

pub use code::has_field_deadlines;
pub use reader::{Limits, Malformed, Reader, Text};
pub use value::Value;
pub use writer::{Output, Style};

/// The oldest version that can be written with all its types.
pub const VERSION_MIN: u16 = 9;
/// The latest version of Redis that is written: that of Redis 7.4 to 8.4.
pub const VERSION_MAX: u16 = 12;
/// The latest version of Redis that is read: that of Redis 8.10.
pub const VERSION_READ_MAX: u16 = 15;
/// The version of Valkey 9, which is numbered separately.
pub const VERSION_VALKEY: u16 = 80;

/// Whether files and payloads of this version are read.
#[must_use]
pub fn is_read(version: u16) -> bool {
    (1..=VERSION_READ_MAX).contains(&version) || version == VERSION_VALKEY
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests;
