//! The shared keyspace behind five operations: index, records, expiry, eviction.
//!
//! Command code sees [`Handle::read`], [`Handle::upsert`], [`Handle::modify`], [`Handle::delete`],
//! [`Handle::scan`] and [`Handle::locked`] (several keys as one), and never a lock, an allocator, a
//! disk or another thread. This room knows no command and no wire format.
//!
//! ```text
//!   Store (shared)  ── Handle (one per thread) ── read / upsert / modify / delete / scan / locked
//!                                                   │        │        │
//!                                                 Record   Entry ── effect ──► EffectSink
//! ```

pub mod effect;
pub mod handle;
pub mod key;
pub mod record;
pub mod value;

mod accounting;
#[allow(dead_code, reason = "the records that live here are moving in")]
mod arena;
#[allow(dead_code, reason = "as above")]
mod blob;
#[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "models copy by words"))]
mod bulk;
#[allow(dead_code, reason = "as above")]
mod chunk;
#[cfg(all(test, not(any(loom, shuttle))))]
mod figures;
#[allow(dead_code, reason = "as above")]
mod lazy_free;
mod naive;
#[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "models use the heap"))]
mod reservation;
#[allow(dead_code, reason = "as above")]
mod slab;
#[allow(dead_code, reason = "as above")]
mod wheel;

pub use accounting::{Budget, Ledger, LocalBytes, resident_bytes};
pub use arena::HugePages;
pub use blob::BlobRef;
pub use effect::{Effect, EffectSink};
pub use handle::{Handle, Options, Statistics, Store};
pub use key::{DatabaseId, Key};
pub use record::{Entry, Owned, Record};
pub use value::{Cause, Deadline, Encoding, Kind, StoreError};
