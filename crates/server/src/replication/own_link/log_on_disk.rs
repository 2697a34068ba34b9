//! The log and the data of a node, as its links know them: where the log begins and ends, up to where the data is, and
//! what a checkpoint of that may say.

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
    /// Where the log on disk begins; 0 without one.
    pub(crate) fn log_begins(&self, node: &Node) -> u64 {
        own_log(node).map_or(0, |log| log.oldest())
    }

    /// Where the log on disk ends: the term of its last frame, and the sequence; and up to where the data is.
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

    /// Why no checkpoint may be made now, if so.
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

    /// What the manifest of a checkpoint says that is cut now. Where this node follows, nothing is applied meanwhile, and
    /// the checkpoint has what the log has up to there, no more and no less.
    ///
    /// # Errors
    /// Why there can be no checkpoint of this cut.
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
