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
//!                                                   │        │
//!   Index: bucket ► bucket ► …      links ──────► slots in the arena ── blobs of pages
//! ```
//!
//! From the outside in: `store`, `handle` (the surface); `indexed` with `reader`, `writer`,
//! `locks`, `scan`, `expire`, `evict`, `mover`, `whole` (the operations); `shared`, `local` (the
//! state that they work on); `index` with `bucket`, `growth`, `shrink`, `overflow` (from a hash to
//! a link); `layout` (a record in its slot); `slab`, `blob`, `arena` (memory); `heap` (objects that
//! records lead to); `snapshot` (a consistent view of all databases); `parking` (requests that wait
//! for locked keys without a thread); `listeners` and `listening` (observers of changes); `waiting`
//! (blocked clients); `gate` (one thread has the store for itself); `naive` (the twin that all of
//! this is compared with).

pub mod effect;
pub mod entry;
pub mod event;
pub mod handle;
pub mod key;
pub mod listeners;
pub mod owned;
pub mod policy;
pub mod record;
pub mod store;
pub mod value;

mod accounting;
mod arena;
mod before_writes;
mod blob;
mod blocks;
mod bucket;
mod buckets;
#[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "models copy by words"))]
mod bulk;
mod chunk;
mod clock;
mod cold;
mod databases;
mod deadline_map;
mod deadlines;
mod demote;
mod detached;
mod evict;
mod expire;
#[cfg(all(test, not(any(loom, shuttle))))]
mod figures;
mod free_memory;
mod gate;
mod growth;
mod hasher;
mod heap;
mod hidden;
mod index;
mod indexed;
mod last_time;
mod layout;
mod lazy_free;
mod listening;
mod local;
mod locks;
mod lookahead;
mod members;
mod mover;
#[cfg(any(test, feature = "naive"))]
mod naive;
mod orphans;
mod overflow;
mod parking;
#[cfg(not(miri))]
#[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "models use the heap"))]
mod prefault;
mod reader;
mod record_span;
#[cfg_attr(any(loom, shuttle), allow(dead_code, reason = "models use the heap"))]
mod reservation;
mod scan;
mod shared;
mod shrink;
mod size_class;
mod slab;
mod slot_counts;
mod snapshot;
mod tally;
mod upkeep;
mod wait;
mod waiting;
mod wheel;
mod whole;
mod writer;

pub use accounting::{Budget, Ledger, LocalBytes, resident_bytes};
pub use arena::HugePages;
pub use blob::{BlobRef, INCOMING_BYTES_MIN, Incoming};
pub use cold::{
    COLD_UNIT_BYTES, ColdKind, ColdValue, ColdValues, Locator, held_values, release_held_values,
    take_unreadable,
};
pub use demote::{ColdKey, DemotionHand, DemotionLimits, Victim};
pub use effect::{Effect, EffectSink, Source};
pub use entry::Entry;
pub use event::{Event, EventClass, EventSink};
pub use free_memory::FreeMemory;
pub use handle::Handle;
pub use heap::Lent;
pub use key::{DatabaseId, Key};
pub use listeners::{ChangeKind, Interest, KeyChange, Listener};
pub use lookahead::Lookahead;
pub use mover::pieces::PieceHand;
pub use owned::Owned;
pub use parking::{Busy, Hold, Wake};
pub use policy::{LfuTuning, Policy, UnknownPolicy};
pub use record::{Record, Visitor};
pub use snapshot::{
    Batch, Ending, Run, Saved, SavedCold, SavedValue, SnapshotInProgress, SnapshotLimits,
    SnapshotProgress, SnapshotSink, SnapshotStep, Totals,
};
pub use store::{BatchTurn, Held, MemoryUsage, Options, Statistics, Store};
pub use value::{Cause, Deadline, ETAG_MAX, Encoding, Kind, StoreError, Use, next_etag};
pub use waiting::{Attempt, WaitedKeys, Waiter, Waiters, Wanted};

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests;

#[cfg(all(test, any(loom, shuttle)))]
mod models;
