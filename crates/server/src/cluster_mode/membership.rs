//! The interface between the control group and cluster mode: this node becomes a member, brings its
//! hash slots, and leaves.

use std::io;
use std::sync::atomic::Ordering;

use cluster::entry::SlotRange;
use cluster::moves::ranges_of;
use cluster::{ControlLog as _, NodeId};

use super::{ClusterMode, lock};
use crate::node::Node;

impl ClusterMode {
    /// Notes whether no leader of the group has been known for a node timeout.
    pub(crate) fn note_cut_off(&self, node: &Node, is_cut_off: bool) {
        let Some(part) = self.0.get() else { return };
        if part.is_cut_off.swap(is_cut_off, Ordering::Relaxed) != is_cut_off {
            self.publish(node);
        }
    }

    /// This node's name and its number of starts, while it is by itself.
    pub(crate) fn name_by_itself(&self) -> (NodeId, u64) {
        let part = self.0.get();
        part.map_or_else(Default::default, |part| {
            (part.lone.own(), part.lone.start_count())
        })
    }

    /// The hash slots that it owns by itself, or owned when it became a member and has not brought
    /// yet.
    pub(crate) fn claims(&self) -> Vec<SlotRange> {
        let Some(part) = self.0.get() else {
            return Vec::new();
        };
        let state = part.lone.watch();
        let own = state.shard_of(part.lone.own());
        own.map_or_else(Vec::new, |own| state.slots.of(own))
    }

    /// Forgets the former hash slots, because the group is responsible for them from here on. Does
    /// nothing if the node is about to leave with them.
    pub(crate) fn forget_claims(&self, node: &Node) {
        let Some(part) = self.0.get() else { return };
        let brings = lock(&part.brings);
        if *brings {
            return;
        }
        if let Err(error) = part.lone.reset(false) {
            node.core.log.warning(format_args!(
                "That hash slots were brought into the cluster cannot be kept: {error}"
            ));
        }
    }

    /// Records that this node, which is about to leave its group, owns these hash slots by itself
    /// from then on. That is durable when this returns.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn bring(&self, node: &Node, ranges: &[SlotRange]) -> io::Result<()> {
        let part = self.0.get();
        let part = part.ok_or_else(|| io::Error::other("it is not in cluster mode"))?;
        let mut brings = lock(&part.brings);
        part.introduce(&node.core.config.current())?;
        let known = part.lone.watch();
        let slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
        let new = ranges_of(slots.filter(|slot| known.slots.owner(*slot).is_none()));
        if !new.is_empty() {
            part.own_slots(new)?;
        }
        *brings = true;
        Ok(())
    }

    /// Notes that the node does not leave after all.
    pub(crate) fn end_to_bring(&self) {
        if let Some(part) = self.0.get() {
            *lock(&part.brings) = false;
        }
    }

    /// Makes this node be by itself, because it is in no group any more.
    pub(crate) fn be_by_itself(&self, node: &Node) {
        let Some(part) = self.0.get() else { return };
        *lock(&part.member) = None;
        part.is_cut_off.store(false, Ordering::Relaxed);
        let config = node.core.config.current();
        let mut brings = lock(&part.brings);
        let reset = match *brings {
            true => Ok(()),
            false => part.lone.reset(false),
        };
        let kept = reset.and_then(|()| part.introduce(&config));
        *brings = false;
        drop(brings);
        if let Err(error) = kept {
            node.core.log.warning(format_args!(
                "That this node is by itself cannot be kept: {error}"
            ));
        }
        self.publish(node);
    }
}
