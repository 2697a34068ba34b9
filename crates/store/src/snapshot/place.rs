//! How far the scanner of a snapshot has come.

use std::sync::Arc;

use super::batch::Batch;
use crate::detached::Detached;
use crate::index::Index;
use crate::record_span::RecordSpan;

/// How far the scanner has come.
pub(super) struct Walk {
    /// The indexes that there were at the cut.
    pub(super) indexes: Vec<Arc<Index>>,
    /// The index it is in, and the bucket.
    pub(super) at: usize,
    pub(super) number: u64,
    /// How far records reach, on average at the cut.
    pub(super) span: RecordSpan,
    pub(super) batch: Option<Batch>,
    /// Indexes that were emptied since the cut, kept for their records.
    pub(super) kept: Vec<Detached>,
}
