//! A node's log and data, as its links see them: where the log begins and ends, up to where it is
//! applied, and what a checkpoint's manifest may say of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use durability::checkpoint::History;
use durability::log::Log;
use persistence::recovery::Place;

use super::super::own_links::OwnLinks;
use crate::node::Node;

/// The log on disk, if there is one.
pub(in super::super) fn own_log(node: &Node) -> Option<Arc<Log>> {
    node.persistence().and_then(|kept| kept.log().log())
}

pub(in super::super) fn place_of(node: &Node) -> Place {
    Place::within(&node.core.config.current().dir)
}

impl OwnLinks {
    /// The first sequence of the log on disk; 0 without a log.
    pub(crate) fn log_begins(&self, node: &Node) -> u64 {
        own_log(node).map_or(0, |log| log.oldest())
    }

    /// The end of the log on disk: the term of its last frame, its sequence, and the sequence up to
    /// which it is applied.
    pub(crate) fn log_end(&self, node: &Node) -> (u64, u64, u64) {
        let Some(log) = own_log(node) else {
            return (0, 0, 0);
        };
        let sequence = log.tail_complete();
        let applied = match self.follows.load(Ordering::Acquire) {
            true => self.applied.load(Ordering::Acquire),
            false => sequence,
        };
        (self.terms.lineage().last_number(), sequence, applied)
    }

    /// Why no checkpoint may be made now, or `None` if one may.
    pub(crate) fn refuses_checkpoints(&self) -> Option<String> {
        if !self.follows.load(Ordering::Acquire) {
            return None;
        }
        if self.is_store_broken.load(Ordering::Acquire) {
            return Some("what this replica has is not whole: a full sync is under way".to_owned());
        }
        let is_settled =
            self.applied.load(Ordering::Acquire) >= self.settled.load(Ordering::Acquire);
        (!is_settled).then(|| {
            "this replica has not applied yet what the checkpoint that it was given has in part"
                .to_owned()
        })
    }

    /// Returns the history for the manifest of a checkpoint that is cut now. On a replica nothing
    /// is applied meanwhile, so the checkpoint has exactly the log up to there.
    ///
    /// # Errors
    /// Why this cut cannot become a checkpoint.
    pub(crate) fn manifest_history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        let Some(sequence) = log_sequence else {
            return Ok(History::default());
        };
        if let Some(reason) = self.refuses_checkpoints() {
            return Err(reason);
        }
        let applied = self.applied.load(Ordering::Acquire);
        let cut_sequence = self.follows.load(Ordering::Acquire).then_some(applied);
        Ok(History {
            cut_sequence,
            terms: self.terms.below(cut_sequence.unwrap_or(sequence)),
            ..History::default()
        })
    }
}
