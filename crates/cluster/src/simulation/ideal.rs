//! An ideal control log: what is committed is agreed on, but who leads may be mistaken about it.

use crate::entry::{Entry, Proposal, RequestId};

/// The log, and each voter's belief.
pub(super) struct Group {
    pub(super) entries: Vec<Proposal>,
    /// Who was elected last.
    pub(super) leader: Option<usize>,
    /// In which term each believes that it leads.
    pub(super) believes: Vec<Option<u64>>,
    pub(super) reign: u64,
    /// When a quorum confirmed each as the leader.
    confirmed_ms: Vec<u64>,
    /// When each voter last acknowledged a leader.
    pub(super) acked_ms: Vec<u64>,
    election_ms: u64,
    requests: u64,
}

impl Group {
    pub(super) fn new(voters: usize, election_ms: u64) -> Self {
        Self {
            entries: Vec::new(),
            leader: None,
            believes: vec![None; voters],
            reign: 0,
            confirmed_ms: vec![0; voters],
            acked_ms: vec![0; voters],
            election_ms,
            requests: 0,
        }
    }

    /// Whether a voter takes itself for the leader with a quorum behind it.
    pub(super) fn has_quorum(&self, voter: usize, now_ms: u64) -> bool {
        let confirmed_ms = self.confirmed_ms[voter];
        self.believes[voter].is_some() && now_ms < confirmed_ms + self.election_ms
    }

    /// Time passes. `reaches` tells whether two voters can talk, both ways.
    pub(super) fn step(&mut self, now_ms: u64, reaches: impl Fn(usize, usize) -> bool) {
        let voters = self.believes.len();
        let quorum = voters / 2 + 1;
        let circle = |at: usize| {
            (0..voters)
                .filter(|other| reaches(at, *other))
                .collect::<Vec<_>>()
        };
        if let Some(leader) = self.leader {
            let circle = circle(leader);
            if circle.len() >= quorum {
                self.confirmed_ms[leader] = now_ms;
                for voter in circle {
                    self.acked_ms[voter] = now_ms;
                    // It hears of the newer one.
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

    pub(super) fn elect(&mut self, leader: usize) {
        self.leader = Some(leader);
        self.reign += 1;
        self.believes[leader] = Some(self.reign);
        // Votes confirm nothing: a majority has to acknowledge it.
        self.confirmed_ms[leader] = 0;
    }

    /// A voter was restarted: it leads no more.
    pub(super) fn restart(&mut self, voter: usize) {
        self.believes[voter] = None;
        self.confirmed_ms[voter] = 0;
        if self.leader == Some(voter) {
            self.leader = None;
        }
    }

    /// Proposes; whether it was committed.
    pub(super) fn propose(&mut self, voter: usize, entry: Entry, now_ms: u64) -> bool {
        let is_leader = self.leader == Some(voter) && self.confirmed_ms[voter] == now_ms;
        if is_leader {
            self.requests += 1;
            let mut request = RequestId::default();
            request.0[..8].copy_from_slice(&self.requests.to_le_bytes());
            self.entries.push(Proposal { request, entry });
        }
        is_leader
    }
}
