//! From orders of clients to entries of the control log. The commands have checked what they could.

use cluster::entry::SlotRange;
use cluster::{Applied, ControlLog, ControlState, Entry, ShardId};
use engine::CommandError;
use engine::cluster::{ClusterOrder, Ordered, SlotOrder};

use super::state::Part;
use super::{propose, shard_of};
use crate::config::Config;

const MEANWHILE: CommandError =
    CommandError::fixed("ERR the cluster has changed meanwhile: nothing was done");
const NO_GROUP: CommandError = CommandError::fixed(
    "ERR this node is by itself: clusters of several nodes are not there in this version",
);

impl Part {
    /// Carries out an order.
    pub(super) fn carry_out(
        &self,
        order: &ClusterOrder,
        config: &Config,
    ) -> Result<Ordered, CommandError> {
        let state = self.log.watch();
        let own = shard_of(&state, self.log.own());
        match order {
            ClusterOrder::AddSlots(ranges) => self.give(ranges, None, own),
            ClusterOrder::DelSlots(ranges) => self.take(&state, ranges),
            ClusterOrder::FlushSlots => {
                let ranges = own.map(|own| state.slots.of(own)).unwrap_or_default();
                self.give(&ranges, own, None)
            }
            ClusterOrder::SetSlot(slot, to) => self.set_slot(&state, *slot, to),
            ClusterOrder::Reset { is_hard } => {
                let reset = self
                    .log
                    .reset(*is_hard)
                    .and_then(|()| self.introduce(config));
                reset.map_err(|error| CommandError::Text(format!("ERR {error}").into()))?;
                Ok(Ordered::Done)
            }
            // A node by itself has the highest epoch there is, whatever it is.
            ClusterOrder::BumpEpoch => Ok(Ordered::Said(format!("STILL {}", state.index))),
            ClusterOrder::SetConfigEpoch(_) => Ok(Ordered::Done),
            ClusterOrder::Forget(id) => {
                Err(CommandError::Text(format!("ERR Unknown node {id}").into()))
            }
            ClusterOrder::Meet(_, port, _) if *port == config.port => Ok(Ordered::Done),
            ClusterOrder::Meet(..) | ClusterOrder::Replicate(_) | ClusterOrder::Failover(_) => {
                Err(NO_GROUP)
            }
        }
    }

    fn give(
        &self,
        ranges: &[SlotRange],
        expected: Option<ShardId>,
        owner: Option<ShardId>,
    ) -> Result<Ordered, CommandError> {
        if ranges.is_empty() || expected == owner {
            return Ok(Ordered::Done);
        }
        let entry = Entry::Slots {
            ranges: ranges.to_vec(),
            expected,
            owner,
        };
        match propose(&self.log, entry)? {
            Applied::Done => Ok(Ordered::Done),
            Applied::Stale | Applied::Refused => Err(MEANWHILE),
        }
    }

    /// Slots become nobody's, whoever has them.
    fn take(&self, state: &ControlState, ranges: &[SlotRange]) -> Result<Ordered, CommandError> {
        for shard in state.shards.keys() {
            let is_its = |slot: &u16| state.slots.owner(*slot) == Some(*shard);
            let slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
            let mut of_shard: Vec<SlotRange> = Vec::new();
            let mut slots: Vec<u16> = slots.filter(is_its).collect();
            slots.sort_unstable();
            for slot in slots {
                match of_shard.last_mut() {
                    Some((_, last)) if *last + 1 == slot => *last = slot,
                    _ => of_shard.push((slot, slot)),
                }
            }
            self.give(&of_shard, Some(*shard), None)?;
        }
        Ok(Ordered::Done)
    }

    fn set_slot(
        &self,
        state: &ControlState,
        slot: u16,
        to: &SlotOrder,
    ) -> Result<Ordered, CommandError> {
        match to {
            SlotOrder::Stable => Ok(Ordered::Done),
            SlotOrder::Node(id) => {
                let mut nodes = state.nodes.keys();
                let node = nodes.find(|node| node.to_string() == *id);
                let owner = node.and_then(|node| shard_of(state, *node));
                let owner = owner.ok_or(MEANWHILE)?;
                self.give(&[(slot, slot)], state.slots.owner(slot), Some(owner))
            }
            SlotOrder::Importing(_) | SlotOrder::Migrating(_) => Err(NO_GROUP),
        }
    }
}
