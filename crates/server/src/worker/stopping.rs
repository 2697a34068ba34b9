//! Stop of a worker: every client is sent its remaining output, for a bounded time.

use reactor::Io;

use super::sessions::Sessions;

/// Maximum time that a stopping server waits while no client takes any output.
const QUIET_MS_MAX: u64 = 2_000;
/// Maximum time that it waits for clients that take output slowly.
const FLUSH_MS_MAX: u64 = 8_000;
/// Maximum time that it then waits for clients that took everything to close their side. Closing
/// our side while input is unread would destroy output that they have not read yet.
const FAREWELL_MS_MAX: u64 = 100;

/// A stop under way. Times are of the monotonic clock.
pub(super) struct Stopping {
    began_ms: u64,
    /// Time of the last check that saw progress, and the bytes sent until then.
    sent_ms: u64,
    sent_bytes: u64,
    /// Set once all sessions have ended.
    farewell_ms: Option<u64>,
}

impl Stopping {
    /// Closes every client once its output is sent. No further request begins.
    pub(super) fn begin(sessions: &Sessions, io: &mut Io<'_>, now_ms: u64) -> Self {
        for connected in sessions.iter() {
            io.close_after_flush(connected.id);
        }
        Self {
            began_ms: now_ms,
            sent_ms: now_ms,
            sent_bytes: io.traffic().sent_bytes,
            farewell_ms: None,
        }
    }

    /// Whether it is time to end the loop.
    pub(super) fn is_over(&mut self, sessions: &Sessions, io: &Io<'_>, now_ms: u64) -> bool {
        let since = |then_ms: u64| now_ms.saturating_sub(then_ms);
        if sessions.len() == 0 {
            let farewell_ms = *self.farewell_ms.get_or_insert(now_ms);
            return io.connections_count() == 0 || since(farewell_ms) >= FAREWELL_MS_MAX;
        }
        let sent_bytes = io.traffic().sent_bytes;
        if sent_bytes > self.sent_bytes {
            (self.sent_ms, self.sent_bytes) = (now_ms, sent_bytes);
        }
        since(self.sent_ms) >= QUIET_MS_MAX || since(self.began_ms) >= FLUSH_MS_MAX
    }
}
