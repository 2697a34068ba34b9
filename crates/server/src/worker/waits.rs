//! When the clients of one worker have waited long enough for keys.
//!
//! Ordered by time, so that the loop sleeps until the first of them and nobody looks at the others.

use std::collections::BTreeMap;
use std::time::Duration;

use base::clock::Clock;
use reactor::ConnectionId;

/// When a wait ends at the latest: nanoseconds of the monotonic clock, and the waiter's ticket.
pub(super) type WaitEnd = (u64, u64);

/// The ends of all waits that have one.
#[derive(Debug, Default)]
pub(super) struct Waits {
    ends: BTreeMap<WaitEnd, ConnectionId>,
}

impl Waits {
    /// Notes that a wait that begins now ends after `timeout_ms`.
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

    /// Forgets one.
    pub(super) fn remove(&mut self, end: WaitEnd) {
        self.ends.remove(&end);
    }

    /// A client whose time is over, if there is one; it is forgotten.
    pub(super) fn take_over(&mut self, clock: &dyn Clock) -> Option<ConnectionId> {
        let first = self.ends.first_entry()?;
        (first.key().0 <= clock.monotonic_ns()).then(|| first.remove())
    }

    /// How long until the first is over.
    pub(super) fn left(&self, clock: &dyn Clock) -> Option<Duration> {
        let ((end_ns, _), _) = self.ends.first_key_value()?;
        Some(Duration::from_nanos(
            end_ns.saturating_sub(clock.monotonic_ns()),
        ))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}
