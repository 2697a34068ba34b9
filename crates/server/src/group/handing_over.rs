//! A primary hands its office over to a replica that asks for it (CLUSTER FAILOVER) or that is
//! named to it (FAILOVER), and no client gets an error.
//!
//! ```text
//!   No ── asked ─► Waiting: writes wait ── the copy has all of the log ─► Left: the lease is given back, writes wait still
//!    ▲                 │ not in time: writes go on here                                        │
//!    ├─────────────────┘                                                                       │
//!    └──── a later term: writes are sent to its primary; none for long: they are refused ◄─────┘
//! ```
//!
//! Invariant: while the primary waits for a copy, only the end of that wait releases writes. A
//! write after the end of the log was read, which the copy has to reach, would be lost.

use std::sync::Weak;
use std::time::Duration;

use cluster::NodeId;
use cluster::state::{CopyKind, Drain};

use super::driver::{Driver, Event, post};
use super::links::{Reply, spawn};

/// Called with the outcome.
pub(crate) type HandedOver = Box<dyn FnOnce(Result<(), String>) + Send>;

/// Progress of handing over the office.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandingOver {
    /// No hand-over is in progress.
    No,
    /// The primary waits for a copy.
    Waiting,
    /// The primary has left its office, and no new primary is known yet.
    Left {
        /// When it left, by the clock of leases.
        at_ms: u64,
    },
}

impl Driver {
    /// Handles a replica's request for this primary's office.
    pub(super) fn hear_of_hand_over(&mut self, to: NodeId, reply: Reply) {
        let done = move |outcome: Result<(), String>| reply.answer(outcome.map(|()| Vec::new()));
        self.hand_over(to, Box::new(done));
    }

    /// Hands this primary's office over to the copy at this address, or else to the copy with the
    /// longest log.
    pub(super) fn fail_over(&mut self, address: Option<(String, u16)>) {
        let is_there = |id: &NodeId| {
            let node = self.state.nodes.get(id)?;
            let record = &node.record;
            let is_it = address
                .as_ref()
                .is_none_or(|(host, port)| record.host == *host && record.client_port == *port);
            // A drained or declining node takes the office only if it is named.
            let is_willing = address.is_some() || (node.drain == Drain::No && !record.declines());
            (!node.is_failed && is_it && is_willing && *id != self.own).then_some(*id)
        };
        let members = self.own_shard().map(|shard| shard.members.clone());
        let members = members.unwrap_or_default();
        let data = members.iter().filter(|(_, kind)| **kind == CopyKind::Data);
        let copies: Vec<NodeId> = data.filter_map(|(id, _)| is_there(id)).collect();
        let has = |id: &NodeId| self.duty.as_ref().and_then(|duty| duty.copy_end(*id));
        let Some(to) = copies.into_iter().max_by_key(has) else {
            return self.tell("FAILOVER: there is no such replica");
        };
        let node = Weak::clone(&self.node);
        let done = move |outcome: Result<(), String>| {
            if let (Some(node), Err(reason)) = (node.upgrade(), outcome) {
                let line = format!("FAILOVER came to nothing: {reason}");
                node.core.log.warning(format_args!("{line}"));
            }
        };
        self.hand_over(to, Box::new(done));
    }

    /// Begins to hand this primary's office over to a copy: writes wait until the copy has the
    /// whole log.
    fn hand_over(&mut self, to: NodeId, done: HandedOver) {
        let is_its_primary = self
            .own_shard()
            .is_some_and(|shard| shard.primary == self.own && shard.members.contains_key(&to));
        let Some(duty) = self.duty.clone().filter(|_| is_its_primary) else {
            return done(Err("this node is not the primary of that node".to_owned()));
        };
        if self.handing_over != HandingOver::No {
            return done(Err("the office is being handed over already".to_owned()));
        }
        self.handing_over = HandingOver::Waiting;
        let events = self.events.clone();
        let node_timeout = Duration::from_millis(self.times.node_timeout_ms);
        let waits = spawn("hand-over", move || {
            let outcome = duty.wait_for_copy(to, node_timeout);
            post(&events, Event::Ready(to, outcome, done));
        });
        if let Err(error) = waits {
            self.handing_over = HandingOver::No;
            self.warn(&format!("The office cannot be handed over: {error}"));
        }
    }

    /// Leaves the office, because the copy has the whole log and no write begins; or ends the
    /// attempt that failed.
    pub(super) fn leave_office_to(
        &mut self,
        to: NodeId,
        outcome: Result<(), String>,
        done: HandedOver,
    ) {
        self.handing_over = HandingOver::No;
        let is_in_office = self
            .shard
            .filter(|shard| self.member.office(*shard).is_some());
        let (Some(shard), Ok(())) = (is_in_office, &outcome) else {
            if let Some(duty) = &self.duty {
                duty.end_hand_over();
            }
            return done(outcome.and_then(|()| Err("this node is not the primary".to_owned())));
        };
        self.tell(&format!("This node hands its office over to {to}"));
        if let Some(duty) = &self.duty {
            duty.begin_hand_over();
        }
        let at_ms = self.now_ms().unwrap_or(0);
        self.handing_over = HandingOver::Left { at_ms };
        let actions = self.member.hand_over(shard, to);
        self.perform(actions);
        done(Ok(()));
    }

    /// Notes that a later term is known: waiting clients are redirected to its primary.
    pub(super) fn note_later_term(&mut self) {
        if let HandingOver::Left { .. } = self.handing_over {
            self.handing_over = HandingOver::No;
        }
    }

    /// Ends a hand-over whose copy has not taken the office for long: writes are refused from here
    /// on.
    pub(super) fn end_hand_over(&mut self, now_ms: u64) {
        let patience_ms = 2 * self.times.node_timeout_ms;
        if let HandingOver::Left { at_ms } = self.handing_over
            && now_ms >= at_ms + patience_ms
        {
            self.handing_over = HandingOver::No;
            if let Some(duty) = &self.duty {
                duty.end_hand_over();
            }
            self.routes_changed();
        }
    }
}
