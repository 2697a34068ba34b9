//! What a key holds besides a string: lists and their kin, as pure memory.
//!
//! No keys, no expiry, no wire: a structure is an ordinary value behind `&mut`, which the store
//! keeps in a record and hands out while it holds the record's lock. Each has a naive twin that it
//! is compared with in property tests.
//!
//! ```text
//!   Object ─ List ─ one Packed (small), or blocks of them
//!              ▲ a type that lands adds its variant, its Structure and its file here
//! ```
//!
//! `object` (what the store keeps, and what it asks of it); `element` (text or number);
//! `packed` (elements one behind another in one allocation); `list`; `memory` (what an allocation
//! costs).

#![forbid(unsafe_code)]

pub mod element;
pub mod list;
pub mod memory;
pub mod object;
pub mod packed;

pub use element::{ELEMENT_BYTES_MAX, Element, ElementText};
pub use list::{BlockLimit, End, List};
pub use object::{Encoding, Kind, Object, Structure};
pub use packed::Packed;
