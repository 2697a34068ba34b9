//! Clients of a replica whose reads wait until it has what its primary has committed (CLIENT
//! DURABILITY QUORUM).
//!
//! ```text
//!   input comes ─► paused, in a round of the replica's ─► round over: what had come before it runs, and no more
//!                                                    └──► this node took the office: all of it runs, as at a primary
//!                                                    └──► nothing in a node timeout: an error, and the connection ends
//! ```
//!
//! Invariant: no byte runs that was received after the start of the round in which this replica
//! learnt what it must show.

use std::time::Duration;

use engine::refusals::NOT_READABLE;
use reactor::{ConnectionId, Io, Received, Then};

use super::sessions::ReadWait;
use super::{Arena, Worker};

impl Worker {
    /// Takes input of a client that reads at level quorum, and runs as much of it as is permitted.
    #[cold]
    pub(super) fn received_at_quorum(
        &mut self,
        io: &mut Io<'_>,
        (id, forwards): (ConnectionId, bool),
        input: &[u8],
        output: &mut Arena,
    ) -> Received {
        let Some(allowed) = self.may_run(id, input.len()) else {
            return Received::consumed(0).then(Then::Pause);
        };
        let received = self.received_now(io, (id, forwards), &input[..allowed], output);
        self.have_run(id, received, (allowed, input.len()))
    }

    /// Returns how much of a client's input may run now, or `None` if it must wait for the primary.
    fn may_run(&mut self, id: ConnectionId, input_bytes: usize) -> Option<usize> {
        let reads_anyway = self.reads_as_primary();
        let connected = self.sessions.get_mut(id)?;
        if !connected.session.waits_for_majority {
            return Some(input_bytes);
        }
        if reads_anyway || input_bytes == 0 {
            connected.read = ReadWait::default();
            return Some(input_bytes);
        }
        if connected.read.cleared_bytes > 0 {
            return Some(connected.read.cleared_bytes.min(input_bytes));
        }
        let now_ms = self.node.core.clock.boottime_ms();
        connected.read = ReadWait {
            round: self.node.replication.reads.next(now_ms),
            since_ms: self.now_ms,
            asked_bytes: input_bytes,
            cleared_bytes: 0,
        };
        connected.begin_to_be_blocked();
        self.reading.push(id);
        None
    }

    /// Whether held replies already wait for a majority, or there is no group to count one.
    fn reads_as_primary(&self) -> bool {
        let replies = self.held_replies.as_deref();
        let is_in_office = replies.is_some_and(|replies| replies.is_in_office());
        is_in_office || !self.node.replication.fence.is_grouped()
    }

    /// Decides how a client continues after the permitted part of its input ran.
    fn have_run(
        &mut self,
        id: ConnectionId,
        received: Received,
        (allowed, input_bytes): (usize, usize),
    ) -> Received {
        match self.sessions.get_mut(id) {
            Some(connected) if connected.read.cleared_bytes > 0 => {
                let cleared = &mut connected.read.cleared_bytes;
                // A request that was cut off waits for a new round together with the rest of its
                // input.
                *cleared = match received.then {
                    Then::Yield => cleared.saturating_sub(received.consumed),
                    _ => 0,
                };
                match received.then {
                    Then::Continue if allowed < input_bytes => {
                        Received::consumed(received.consumed).then(Then::Yield)
                    }
                    _ => received,
                }
            }
            _ => received,
        }
    }

    /// Resumes clients whose round is over, and refuses those that waited for too long.
    pub(super) fn look_after_reads(&mut self, io: &mut Io<'_>) {
        if self.reading.is_empty() {
            return;
        }
        let (over, reads_anyway) = (self.node.replication.reads.over(), self.reads_as_primary());
        let time_ms = self.config.config().group.node_timeout_ms;
        let mut reading = std::mem::take(&mut self.reading);
        reading.retain(|id| {
            let Some(connected) = self.sessions.get_mut(*id) else {
                return false;
            };
            let read = &mut connected.read;
            if read.round <= over || reads_anyway {
                read.cleared_bytes = read.asked_bytes;
            } else if self.now_ms >= read.since_ms.saturating_add(time_ms) {
                io.write(*id, format!("-{NOT_READABLE}\r\n").as_bytes());
                io.close_after_flush(*id);
                return false;
            } else {
                return true;
            }
            connected.end_to_wait();
            io.resume(*id);
            false
        });
        self.reading.append(&mut reading);
    }

    /// Returns the time until the first of these clients has waited for too long.
    pub(super) fn reading_left(&self) -> Option<Duration> {
        let time_ms = self.config.config().group.node_timeout_ms;
        let mut reading = self.reading.iter();
        // The clients after it began to wait later.
        let connected = reading.find_map(|id| self.sessions.get(*id))?;
        let end_ms = connected.read.since_ms.saturating_add(time_ms);
        Some(Duration::from_millis(
            end_ms.saturating_sub(self.now_ms).max(1),
        ))
    }
}
