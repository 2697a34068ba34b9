//! Cold values: segments of values on a device instead of in memory.
//!
//! ```text
//!   append ──► open segment ──► sealed ──► compacted ──► removed
//!                  ▲                           │
//!                  └──── what is still named ──┘
//! ```
//!
//! This room takes and returns the bytes of keys and values. It knows neither the store, which
//! names its entries, nor commands, nor threads. [`Tier`] owns the files. A caller that names an
//! entry ([`Place`]) calls [`Tier::forget`] when it no longer names it. A segment is removed when
//! nothing in it is named, it is not pinned, and no checkpoint in force names it: segments outlive
//! the process ([`Tier::adopt`]). So do the dictionaries with which short values are compressed,
//! while a segment needs them ([`Tier::train`] creates them).
//!
//! Guarantee: what [`Tier::read`] returns is what was appended there under that key, or an error.
//! Sums cover the segment's salt and ordinal and the entry's offset, so torn, stale and misdirected
//! reads are detected. The same holds for [`EntryRead::entry`] with bytes that the caller read.
//! `docs/formats/tier.md` specifies the format.

#![forbid(unsafe_code)]

mod codecs;
mod dictionaries;
mod dictionary;
mod elsewhere;
mod entry;
mod fault;
mod hold;
mod kept;
mod samples;
mod segment;
mod tier;
mod training;
mod upkeep;

/// Name of the directory of the segments, below the directory of `tier-path`.
pub const DIRECTORY_NAME: &str = "tier";

pub use codecs::Compression;
pub use dictionary::{DictionaryName, dictionary_name};
pub use elsewhere::{EntryRead, Extent};
pub use entry::{Entry, EntryHead, OwnedEntry, UNIT_BYTES};
pub use fault::TierFault;
pub use hold::Hold;
pub use kept::{Named, NamedSegment};
pub use samples::TRAINING_BYTES;
pub use segment::SegmentName;
pub use tier::{Figures, Place, Tier, TierOptions, is_segment_name, segment_name};
pub use training::Trained;
