//! Checkpoints: all records of one moment, in files that are written in parallel.
//!
//! ```text
//!   <directory>/MANIFEST                    names the one checkpoint that counts, and every file of it
//!   <directory>/checkpoint-7-1/0000.part    head │ block │ block │ … │ foot
//!   <directory>/checkpoint-7-1/0001.part
//! ```
//!
//! A part can be read without any other part, so any number of threads can write and read them. A
//! checkpoint exists from the moment the manifest is renamed into place, and the previous one until
//! that moment. Files that neither of them names are left over from a failed attempt.
//!
//! The caller is the server, which knows the meaning of a record's body. Here it is a code and
//! bytes.
//!
//! Rules
//!  1. Every byte of a file is under a checksum, and every file is named with its length and
//!     digest. Whatever was changed, cut, lengthened, left out, swapped, or taken from another
//!     checkpoint is refused with file and offset.
//!  2. Parts are durable and were read again before the manifest is written, the manifest is
//!     durable before it is renamed, and the rename is durable before anything older is removed.
//!  3. A reader takes as much memory as it has received bytes, whatever those state.
//!
//! The formats are described in `docs/formats/checkpoint.md`.

mod block;
mod fault;
mod fields;
mod files;
mod manifest;
mod reader;
mod record;
mod writer;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests;

pub use block::{BLOCK_BYTES_MAX, PART_VERSION, PartHead};
pub use fault::{CheckpointFault, Flaw};
pub use files::{
    MANIFEST_BYTES_MAX, MANIFEST_NAME, encode_manifest, free_directory, open_part, part_name,
    read_manifest, read_manifest_at, remove_checkpoint, remove_replaced, remove_replaced_but,
    replace_manifest, verify,
};
pub use manifest::{
    DictionaryEntry, History, Lineage, MANIFEST_VERSION, Manifest, ManifestFlaw, Overlap,
    PartEntry, RespEntry, SegmentEntry, TERMS_MAX, TermEntry,
};
pub use reader::{Block, OwnedBlock, PartReader};
pub use record::{RECORD_BYTES_MIN, Record};
pub use writer::{PartWriter, RUN_BYTES_MAX};

pub use base::record_head::RecordHead;
