//! Values out of memory: segments of cold values on a device.
//!
//! ```text
//!   append ──► open segment ──► sealed ──► compacted ──► removed
//!                  ▲                           │
//!                  └──── what is still named ──┘
//! ```
//!
//! This room takes and returns bytes of keys and values: it knows neither the store that names its entries, nor
//! commands, nor threads. [`Tier`] owns the files; who names an entry ([`Place`]) tells when it does so no more
//! ([`Tier::forget`]). A segment is removed when nothing in it is named, nobody pins it, and no checkpoint in force names it:
//! segments outlive the process ([`Tier::adopt`]). So do the dictionaries that short values are compressed with, as long as
//! a segment needs them ([`Tier::train`] makes them).
//!
//! It promises that what [`Tier::read`] returns is what was appended there under that key, or an error: sums cover
//! the segment's salt and ordinal and the entry's offset, so that torn, stale and misdirected reads are found.
//! So does what [`EntryRead::entry`] returns, of bytes that somebody else read.
//! The format is a paper, `docs/formats/tier.md`.

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

/// The name of the directory of the segments, below the one that `tier-path` says.
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
