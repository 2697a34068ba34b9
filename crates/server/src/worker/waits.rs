//! Deadlines of the waits for keys of one worker's clients.
//!
//! They are ordered by time, so that the loop sleeps until the first one and does not check the
//! others.

use std::collections::BTreeMap;
use std::time::Duration;

use base::clock::Clock;
use reactor::ConnectionId;

/// Deadline of a wait: nanoseconds of the monotonic clock, and the waiter's ticket.
pub(super) type WaitEnd = (u64, u64);

/// The deadlines of all waits that have one.
#[derive(Debug, Default)]
pub(super) struct Waits {
    ends: BTreeMap<WaitEnd, ConnectionId>,
}

impl Waits {
    /// Adds a wait that begins now and ends after `timeout_ms`.
    pub(super) fn add(
        &mut self,
        clock: &dyn Clock,
        timeout_ms: u64,
        ticket: u64,
        id: ConnectionId,
    ) -> WaitEnd {
        let timeout_ns = timeout_ms.saturating_mul(1_000_000);
        let end = (clock.monotonic_ns().saturating_add(timeout_ns), ticket);
        self.ends.insert(end, id);
        end
    }

    /// Removes a deadline.
    pub(super) fn remove(&mut self, end: WaitEnd) {
        self.ends.remove(&end);
    }

    /// Removes and returns a client whose deadline has passed, if there is one.
    pub(super) fn take_over(&mut self, clock: &dyn Clock) -> Option<ConnectionId> {
        let first = self.ends.first_entry()?;
        (first.key().0 <= clock.monotonic_ns()).then(|| first.remove())
    }

    /// Returns the time until the first deadline.
    pub(super) fn left(&self, clock: &dyn Clock) -> Option<Duration> {
        let ((end_ns, _), _) = self.ends.first_key_value()?;
        Some(Duration::from_nanos(
            end_ns.saturating_sub(clock.monotonic_ns()),
        ))
    }

    /// Returns the number of deadlines.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
