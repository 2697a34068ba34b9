//! The scanner's position in a snapshot.

use std::sync::Arc;

use super::batch::Batch;
use crate::detached::Detached;
use crate::index::Index;
use crate::record_span::RecordSpan;

/// The scanner's position.
pub(super) struct Walk {
    /// The indexes that existed at the cut.
    pub(super) indexes: Vec<Arc<Index>>,
    /// The current index, and the bucket in it.
    pub(super) at: usize,
    pub(super) number: u64,
    /// How far records reach, on average at the cut.
    pub(super) span: RecordSpan,
    pub(super) batch: Option<Batch>,
    /// Indexes that were emptied since the cut, kept for their records.
    pub(super) kept: Vec<Detached>,
}
