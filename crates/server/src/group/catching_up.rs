//! A node that is back in its group: what was decided meanwhile is taken before anybody is served.
//!
//! ```text
//!   start ─► nobody is served ── a leader confirms what is committed, all of it is applied here ─► documents taken ─► served
//!                          └──── nobody leads for two node timeouts ─► served, by what was known before
//! ```
//!
//! Otherwise a user that was removed while this node was down would be let in for a moment. Without a majority nobody can say
//! what was decided, and who looks after the group has to get in.

use std::sync::Arc;
use std::time::Duration;

use cluster::ControlLog as _;

use super::driver::{Driver, Event, post};
use super::links::spawn;
use super::{directives, documents, libraries};

/// For so many node timeouts a leader is waited for, and twice as long for what it says.
const TIMEOUTS: u64 = 2;
/// Until it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

impl Driver {
    /// Begins to find out what was decided, where nobody is served before.
    pub(super) fn await_group(&mut self) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        if !node.replication.awaits_group() {
            return;
        }
        self.awaits_until_ms =
            node.core.clock.boottime_ms() + TIMEOUTS * self.times.node_timeout_ms;
        self.look_whether_newest();
    }

    fn look_whether_newest(&mut self) {
        let (events, log) = (self.events.clone(), Arc::clone(&self.log));
        let look = move || {
            let is_newest = log.read_barrier().is_ok();
            if !is_newest {
                std::thread::sleep(PAUSE);
            }
            post(&events, Event::CaughtUp(is_newest));
        };
        if let Err(error) = spawn("catch-up", look) {
            self.warn(&format!("There is no thread to ask the group: {error}"));
            self.serve_after_all();
        }
    }

    /// All that was committed is applied here, or nobody could be asked.
    pub(super) fn caught_up(&mut self, is_newest: bool) {
        if self.awaits_until_ms == 0 {
            return;
        }
        if !is_newest {
            return self.look_whether_newest();
        }
        if let Some(node) = self.node.upgrade() {
            let state = self.log.watch();
            documents::take(&node, &state);
            libraries::take(&node, &state);
            directives::take(&node, &state);
        }
        self.serve_after_all();
    }

    /// Nobody may be there who could say.
    pub(super) fn give_up_awaiting(&mut self, now_ms: u64) {
        let more_ms = match self.standing.leader {
            None => 0,
            Some(_) => TIMEOUTS * self.times.node_timeout_ms,
        };
        if self.awaits_until_ms > 0 && now_ms >= self.awaits_until_ms + more_ms {
            self.warn(
                "No control leader said in time what was decided: clients are served by the users, functions and directives that this node knew before",
            );
            self.serve_after_all();
        }
    }

    fn serve_after_all(&mut self) {
        self.awaits_until_ms = 0;
        if let Some(node) = self.node.upgrade() {
            node.replication.end_to_await_group(&node);
        }
    }
}
