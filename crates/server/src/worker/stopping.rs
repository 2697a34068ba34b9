//! How a worker stops: everybody is sent what is owed to them, for a bounded time.

use reactor::Io;

use super::Sessions;

/// How long a stopping server waits for clients that do not take what they are owed.
const FLUSH_MS_MAX: u64 = 2_000;
/// How long it waits then for clients that took everything to close their side. Closing ours
/// while input is unread would take from them what they have not read yet.
const FAREWELL_MS_MAX: u64 = 100;

/// A stop under way, in milliseconds of the monotonic clock.
pub(super) struct Stopping {
    flush_until_ms: u64,
    /// Set once all sessions are over.
    farewell_until_ms: Option<u64>,
}

impl Stopping {
    /// Has every client closed once its output is sent. No request is begun any more.
    pub(super) fn begin(sessions: &Sessions, io: &mut Io<'_>, now_ms: u64) -> Self {
        for connected in sessions.iter() {
            io.close_after_flush(connected.id);
        }
        Self {
            flush_until_ms: now_ms + FLUSH_MS_MAX,
            farewell_until_ms: None,
        }
    }

    /// Whether it is time to end the loop.
    pub(super) fn is_over(&mut self, sessions: &Sessions, io: &Io<'_>, now_ms: u64) -> bool {
        if sessions.len() > 0 {
            return now_ms >= self.flush_until_ms;
        }
        let until_ms = *self
            .farewell_until_ms
            .get_or_insert(now_ms + FAREWELL_MS_MAX);
        io.connections_count() == 0 || now_ms >= until_ms
    }
}
