//! Pauses of clients: CLIENT PAUSE and its end. Expiry and eviction remove nothing during a pause.

use super::Node;
use crate::link::Message;

impl Node {
    /// Makes clients wait until a time; with `writes_only`, reads pass (CLIENT PAUSE).
    pub fn pause_clients(&self, until_unix_ms: u64, writes_only: bool) {
        let now_unix_ms = self.core.clock.now_unix_ms();
        let gate = &self.core.shared.gate;
        self.core
            .env
            .hold_removals_after(|| gate.pause(until_unix_ms, writes_only, now_unix_ms));
    }

    /// Ends the pause (CLIENT UNPAUSE).
    pub fn unpause_clients(&self) {
        let gate = &self.core.shared.gate;
        self.core.env.hold_removals_after(|| gate.unpause());
        self.broadcast(&Message::Resume);
    }

    /// Clears a pause that is over, so that commands need not read the clock.
    pub fn end_pause(&self, now_unix_ms: u64) {
        let gate = &self.core.shared.gate;
        self.core
            .env
            .hold_removals_after(|| gate.end_pause(now_unix_ms));
    }
}

#[cfg(test)]
mod tests;
