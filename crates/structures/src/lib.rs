//! Values of keys that are not strings: lists, hashes, sets and related types, as pure memory.
//!
//! This room knows no keys, no expiry of keys and no wire protocol. A structure is an ordinary
//! value behind `&mut`. The store keeps it in a record and hands it out while it holds the record's
//! lock. Property tests compare each structure with a naive twin.
//!
//! ```text
//!   Object ─ List ─ one Packed (small), or blocks of them
//!          ─ Hash ─ one Packed, or a Table
//!          ─ Set ── an IntSet, one Packed, or a Table
//!          ─ SortedSet ─ one Packed, or Members with an Index and a Tree
//!          ─ Stream ─ an EntryLog of blocks, and Groups of consumers
//!              ▲ a type that lands adds its variant, its Structure and its file here
//! ```
//!
//! `object` (what the store keeps, and what it needs from a value) and `kept` (what it needs from
//! the types); `kind` (the words of TYPE and OBJECT ENCODING); `compact` (a collection of a single
//! buffer, in parts); `element` (text or number); `packed` (consecutive elements in one
//! allocation); `table` (byte strings by hash, with deadlines) and `hashing`; `int_set` (few whole
//! numbers); `hyper_log_log` (sketches, which are strings); `list`, `hash`, `set`, `sorted_set`,
//! `stream`; `memory` (the cost of an allocation); `relocation` (moving the pieces of a collection
//! closer together).

#![forbid(unsafe_code)]

pub mod compact;
pub mod element;
pub mod geo;
pub mod hash;
pub mod hashing;
pub mod hyper_log_log;
pub mod int_set;
pub mod kept;
pub mod kind;
pub mod list;
pub mod memory;
pub mod object;
pub mod packed;
pub mod relocation;
pub mod set;
pub mod sorted_set;
pub mod stream;
pub mod table;

pub use compact::{Compact, CompactKind, ONE_BUFFER_BYTES_END, OneBuffer};
pub use element::{ELEMENT_BYTES_MAX, Element, ElementText};
pub use hash::{Field, FieldDeadline, Hash, HashLimits};
pub use int_set::IntSet;
pub use kept::Kept;
pub use kind::{Encoding, Kind};
pub use list::{BlockLimit, End, List};
pub use object::{Object, Structure};
pub use packed::Packed;
pub use relocation::Relocation;
pub use set::{Set, SetLimits};
pub use sorted_set::{Scored, SortedSet, SortedSetLimits};
pub use stream::{EntryId, Stream, StreamLimits};
pub use table::{AHEAD_MAX, Full};
