//! The node timeout can be changed for all running nodes: it is in the control state, among the
//! group's directives.
//!
//! ```text
//!   CONFIG SET ─► document ─► committed ─┬─► leader: grants by it; what it granted for longer stands as long
//!                                        ├─► member: holds no longer by it, heartbeats by it
//!                                        └─► voter:  elected later, waits by the longest that may stand
//! ```
//!
//! Invariants
//!  1. This node's times are those of the state that was last checked, before anything is granted
//!     in that turn, and before this node considers itself leader.
//!  2. Elections of the control log use the times with which the log was opened. If those are too
//!     long for a shorter timeout, this node leads by the smallest timeout that they allow, once
//!     the control state says so. It holds no lease for longer than the group's timeout.

use cluster::directives::{self, NodeTimeout};
use cluster::message::HeartbeatReply;
use cluster::{ControlLog as _, Times};

use super::driver::Driver;

impl Driver {
    /// Checks the newest state before it is applied: a leader must know how long leases count.
    pub(super) fn look_at_timeout(&mut self, now_ms: u64) {
        let state = self.log.watch();
        if state.index == self.timing.index {
            return;
        }
        self.timing.index = state.index;
        let timeout = NodeTimeout::of_state(&state);
        if timeout == self.timing.timeout {
            return;
        }
        self.timing.timeout = timeout;
        self.timing.since_ms = now_ms;
        self.leader.note_stated(timeout.longest_ms());
        let shares = self.node.upgrade().is_some_and(|node| {
            let config = node.core.config.current();
            config.group.shares.directives
        });
        let wanted_ms = timeout.set_ms.filter(|_| shares);
        let begun = *self.log.times();
        let wanted_ms = wanted_ms.unwrap_or(begun.node_timeout_ms);
        self.timing.leads_by_ms = wanted_ms.max(begun.node_timeout_ms_min());
        if wanted_ms != self.times.node_timeout_ms {
            self.change_timeout(wanted_ms, now_ms);
        }
    }

    fn change_timeout(&mut self, wanted_ms: u64, now_ms: u64) {
        let begun = *self.log.times();
        let leads_by_ms = self.timing.leads_by_ms;
        let leading = begun.changed_to(leads_by_ms);
        self.times = begun.changed_to(wanted_ms);
        self.tick = Self::tick_of(&self.times);
        self.log.set_quorum_time(leading.quorum_ms);
        self.leader.set_times(leading, now_ms);
        self.member.set_times(self.times, now_ms);
        if let (Some(duty), Some(shard)) = (&self.duty, self.shard) {
            duty.shorten_lease_to_ms(self.member.lease_until_ms(shard));
        }
        if leads_by_ms != wanted_ms {
            self.warn(&format!(
                "cluster-node-timeout is {wanted_ms} from here on, for which elections of the control log take too long here: where this node leads, others are taken for gone after {leads_by_ms}. With {wanted_ms} in its file it is to be started anew"
            ));
        }
    }

    /// As leader: proposes the longest lease that may be valid for the control state, before such a
    /// lease is granted and while one may be valid.
    pub(super) fn state_longest_lease(&mut self, now_ms: u64) {
        let (timing, state) = (&self.timing, self.log.watch());
        let timeout = timing.timeout;
        if !self.leader.leads() || NodeTimeout::of_state(&state) != timeout {
            return;
        }
        let own_ms = Some(timing.leads_by_ms).filter(|_| timeout.set_ms.is_some());
        let own_ms = own_ms.filter(|_| timeout.set_ms < own_ms);
        let since_ms = timing.since_ms.max(timing.proposed_ms);
        let is_due = match timeout.before_ms {
            Some(before_ms) if timing.is_lease_stated() => {
                now_ms >= since_ms + Times::of(before_ms).may_stand_ms()
            }
            _ => now_ms >= timing.proposed_ms + self.times.heartbeat_ms,
        };
        if is_due && own_ms != timeout.before_ms {
            self.timing.proposed_ms = now_ms;
            self.propose(directives::timeout_before(&state, own_ms));
        }
    }

    /// Warns of a leader whose leases count longer or shorter than by this node's timeout, except
    /// during a change.
    pub(super) fn tell_of_other_timeout(&mut self, reply: &HeartbeatReply, granted_ms: u64) {
        let own_ms = self.times.node_timeout_ms;
        if granted_ms == own_ms {
            self.timing.told_ms = None;
        } else if reply.index <= self.timing.index && self.timing.told_ms != Some(granted_ms) {
            self.timing.told_ms = Some(granted_ms);
            self.warn(&format!(
                "The control leader has another time after which a node is taken for gone: cluster-node-timeout is {granted_ms} there and {own_ms} here. A lease lasts as long as the shorter one"
            ));
        }
    }
}
