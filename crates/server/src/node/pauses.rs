//! Pauses of clients: CLIENT PAUSE and its end. Expiry and eviction remove nothing meanwhile.

use super::Node;
use crate::link::Message;

impl Node {
    /// Has clients wait until a time; `writes_only` lets reads pass (CLIENT PAUSE).
    pub fn pause_clients(&self, until_unix_ms: u64, writes_only: bool) {
        let now_unix_ms = self.core.clock.now_unix_ms();
        let gate = &self.core.shared.gate;
        self.core
            .env
            .hold_removals_after(|| gate.pause(until_unix_ms, writes_only, now_unix_ms));
    }

    /// Lets them go on (CLIENT UNPAUSE).
    pub fn unpause_clients(&self) {
        let gate = &self.core.shared.gate;
        self.core.env.hold_removals_after(|| gate.unpause());
        self.broadcast(&Message::Resume);
    }

    /// Forgets a pause of clients that is over, so that commands need not ask for the time.
    pub fn end_pause(&self, now_unix_ms: u64) {
        let gate = &self.core.shared.gate;
        self.core
            .env
            .hold_removals_after(|| gate.end_pause(now_unix_ms));
    }
}

#[cfg(test)]
mod tests;
