//! An ideal control log: committed entries are agreed on, but a deposed leader may still believe
//! that it leads.

use std::sync::Arc;

use base::random::Prng;

use super::{ControlLogs, Links};
use crate::entry::{Entry, Proposal, RequestId};
use crate::leader_lease::Reign;
use crate::state::ControlState;

/// The log, and each voter's belief.
pub(super) struct IdealLogs {
    entries: Vec<Proposal>,
    /// The voter that was elected last.
    leader: Option<usize>,
    /// The term in which each voter believes that it leads.
    believes: Vec<Option<u64>>,
    reign: u64,
    /// When a quorum confirmed each as the leader.
    confirmed_ms: Vec<u64>,
    /// When each voter last acknowledged a leader.
    acked_ms: Vec<u64>,
    election_ms: u64,
    requests: u64,
}

impl IdealLogs {
    /// Creates a log with these entries, which the first voter leads.
    pub(super) fn new(voters: usize, election_ms: u64, entries: Vec<Entry>) -> Self {
        let mut logs = Self {
            entries: Vec::new(),
            leader: None,
            believes: vec![None; voters],
            reign: 0,
            confirmed_ms: vec![0; voters],
            acked_ms: vec![0; voters],
            election_ms,
            requests: 0,
        };
        logs.elect(0);
        entries.into_iter().for_each(|entry| logs.append(entry));
        logs
    }

    pub(super) fn elect(&mut self, leader: usize) {
        self.leader = Some(leader);
        self.reign += 1;
        self.believes[leader] = Some(self.reign);
        // Votes confirm nothing: a majority has to acknowledge the leader.
        self.confirmed_ms[leader] = 0;
    }

    /// Returns when a quorum last confirmed a node as the leader.
    pub(super) fn confirmed_ms(&self, at: usize) -> u64 {
        self.confirmed_ms[at]
    }

    pub(super) fn append(&mut self, entry: Entry) {
        self.requests += 1;
        let mut request = RequestId::default();
        request.0[..8].copy_from_slice(&self.requests.to_le_bytes());
        self.entries.push(Proposal { request, entry });
    }
}

impl ControlLogs for IdealLogs {
    fn step(&mut self, now_ms: u64, links: &Links) {
        let voters = self.believes.len();
        let quorum = voters / 2 + 1;
        let circle = |at: usize| {
            (0..voters)
                .filter(|other| links.joins(at, *other))
                .collect::<Vec<_>>()
        };
        if let Some(leader) = self.leader {
            let circle = circle(leader);
            if circle.len() >= quorum {
                self.confirmed_ms[leader] = now_ms;
                for voter in circle {
                    self.acked_ms[voter] = now_ms;
                    // It hears of the newer leader.
                    if voter != leader {
                        self.believes[voter] = None;
                    }
                }
                return;
            }
        }
        for candidate in 0..voters {
            let circle = circle(candidate);
            let patient = |voter: &&usize| now_ms >= self.acked_ms[**voter] + self.election_ms;
            if Some(candidate) != self.leader && circle.iter().filter(patient).count() >= quorum {
                self.elect(candidate);
                return;
            }
        }
        // A leader that lost its quorum may win again.
        if let Some(leader) = self.leader
            && now_ms > self.confirmed_ms[leader] + self.election_ms
            && circle(leader).len() >= quorum
        {
            self.elect(leader);
        }
    }

    fn reign(&self, at: usize) -> Option<Reign> {
        self.believes[at].map(|reign| (reign, 0))
    }

    fn has_quorum(&self, at: usize, now_ms: u64, within_ms: u64) -> bool {
        let within_ms = within_ms.min(self.election_ms);
        self.believes[at].is_some() && now_ms < self.confirmed_ms[at] + within_ms
    }

    fn acknowledged(&mut self, at: usize, now_ms: u64) -> Option<Reign> {
        (self.acked_ms[at] == now_ms).then_some((self.reign, 0))
    }

    fn learn(
        &mut self,
        at: usize,
        known: &ControlState,
        links: &Links,
        random: &mut Prng,
    ) -> Option<Arc<ControlState>> {
        let leader = self.leader?;
        let is_near = at == leader || links.is_up[leader] && !links.cut[leader][at];
        let have = usize::try_from(known.index).unwrap_or(0);
        let is_new = is_near && have < self.entries.len();
        if !is_new || at != leader && random.below(3) == 0 {
            return None;
        }
        let mut state = known.clone();
        for (place, proposal) in self.entries.iter().enumerate().skip(have) {
            state.apply(place as u64 + 1, proposal);
        }
        Some(Arc::new(state))
    }

    fn propose(&mut self, at: usize, entry: Entry, now_ms: u64) {
        if self.leader == Some(at) && self.confirmed_ms[at] == now_ms {
            self.append(entry);
        }
    }

    fn restart(&mut self, at: usize, _: u64) {
        self.believes[at] = None;
        self.confirmed_ms[at] = 0;
        if self.leader == Some(at) {
            self.leader = None;
        }
    }

    fn unsettle(&mut self, at: usize) {
        if self.leader.is_some() {
            self.elect(at);
        }
    }
}
