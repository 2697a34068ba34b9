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

mod naive;

pub use effect::{Effect, EffectSink};
pub use handle::{Handle, Options, Statistics, Store};
pub use key::{DatabaseId, Key};
pub use record::{Entry, Owned, Record};
pub use value::{Cause, Deadline, Encoding, Kind, StoreError};
