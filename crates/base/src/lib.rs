//! Numbers and text, clock, randomness, hashing: what every room needs and none owns.
//!
//! Nothing here knows keys, commands or sockets. If a rule of text is part of the client interface
//! (integers, doubles, patterns, quoting, sizes), the module says which rule it reproduces, and its
//! tests compare with a reference server if one is installed.

pub mod background;
pub mod cache;
pub mod cached_file;
pub mod clock;
pub mod crc;
pub mod extended;
pub mod float;
pub mod gather_write;
pub mod glob;
pub mod hash;
pub mod hash_slot;
pub mod hex;
pub mod lanes;
pub mod mapped_bytes;
pub mod memory_size;
pub mod metrics;
pub mod number;
pub mod os_error;
pub mod page_buffer;
pub mod planted;
pub mod process;
pub mod random;
pub mod record_head;
pub mod shared_bytes;
pub mod shared_words;
pub mod spans;
pub mod sync;
pub mod words;

mod natural;
mod numeral;
mod significand;
