//! A primary hands its office over to a replica that asks for it (CLUSTER FAILOVER), and no client hears an error.
//!
//! ```text
//!   replica ── asks ─► writes wait ─► it has all of the log ─► office left, lease given back ─► the leader promotes it
//!                          │ not in time                                                              │
//!                          └─► writes go on here                 waiting writes are sent there ◄──────┘
//! ```

use std::time::Duration;

use cluster::NodeId;

use super::driver::{Driver, Event, post};
use super::links::{Reply, spawn};

impl Driver {
    /// A replica is to take the office of this primary: writes wait until it has all there is.
    pub(super) fn hand_over(&self, to: NodeId, reply: Reply) {
        let is_its_primary = self
            .own_shard()
            .is_some_and(|shard| shard.primary == self.own && shard.members.contains_key(&to));
        let Some(duty) = self.duty.clone().filter(|_| is_its_primary) else {
            return reply.answer(Err("this node is not the primary of that node".to_owned()));
        };
        let events = self.events.clone();
        let node_timeout = Duration::from_millis(self.times.node_timeout_ms);
        let waits = spawn("hand-over", move || {
            let outcome = duty.wait_for_copy(to, node_timeout);
            post(&events, Event::Ready(to, outcome, reply));
        });
        // The reply is dropped then, which answers.
        let _refused = waits;
    }

    pub(super) fn leave_office_to(
        &mut self,
        to: NodeId,
        outcome: Result<(), String>,
        reply: Reply,
    ) {
        let (Some(shard), Ok(())) = (self.shard, &outcome) else {
            if let Some(duty) = &self.duty {
                duty.end_hand_over();
            }
            return reply.answer(outcome.map(|()| Vec::new()));
        };
        self.tell(&format!("This node hands its office over to {to}"));
        if let Some(duty) = &self.duty {
            duty.begin_hand_over();
        }
        self.handed_over_ms = self.now_ms();
        let actions = self.member.hand_over(shard);
        self.perform(actions);
        reply.answer(Ok(Vec::new()));
    }

    /// Who was to take the office has not, for long: writes are refused from here on.
    pub(super) fn end_hand_over(&mut self, now_ms: u64) {
        let patience_ms = 2 * self.times.node_timeout_ms;
        if self
            .handed_over_ms
            .is_some_and(|at_ms| now_ms >= at_ms + patience_ms)
        {
            self.handed_over_ms = None;
            if let Some(duty) = &self.duty {
                duty.end_hand_over();
            }
            self.routes_changed();
        }
    }
}
