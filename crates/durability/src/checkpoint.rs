//! Checkpoints: all records as of one moment, in files that were written side by side.
//!
//! ```text
//!   <directory>/MANIFEST                    names the one checkpoint that counts, and every file of it
//!   <directory>/checkpoint-7-1/0000.part    head │ block │ block │ … │ foot
//!   <directory>/checkpoint-7-1/0001.part
//! ```
//!
//! A part has no beginning that another one must be read for: as many threads as there are write them
//! and read them. A checkpoint exists from the moment the manifest is renamed into place, and the one
//! before it until that moment; what neither of them names is rubbish of an attempt that failed.
//!
//! Who calls: the server, which knows what a record's body means. Here it is a code and bytes.
//!
//! Rules
//!  1. Every byte of a file is under a checksum, and every file is named with its length and digest.
//!     What was changed, cut, lengthened, left out, exchanged with another one, or taken from another
//!     checkpoint is refused with file and place.
//!  2. Parts are durable and were read again before the manifest is written, the manifest is durable
//!     before it is renamed, and the rename is durable before anything older is removed.
//!  3. A reader takes as much memory as it has received bytes, whatever those say.
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
    MANIFEST_NAME, free_directory, open_part, part_name, read_manifest, remove_checkpoint,
    remove_replaced, remove_replaced_but, replace_manifest, verify,
};
pub use manifest::{
    DictionaryEntry, History, Lineage, MANIFEST_VERSION, Manifest, ManifestFlaw, Overlap,
    PartEntry, RespEntry, SegmentEntry, TERMS_MAX, TermEntry,
};
pub use reader::{Block, OwnedBlock, PartReader};
pub use record::{RECORD_BYTES_MIN, Record};
pub use writer::{PartWriter, RUN_BYTES_MAX};

pub use base::record_head::RecordHead;
