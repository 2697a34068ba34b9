//! A node that is back in its group: what was decided meanwhile is taken before anybody is served.
//!
//! ```text
//!   start ─► nobody is served ── a leader confirms what is committed, all of it is applied here ─► documents taken ─► served
//!                          └──── nobody leads for two node timeouts ─► served, by what was known before
//! ```
//!
//! Otherwise a user that was removed while this node was down would be let in for a moment. Without a majority nobody can say
//! what was decided, and who looks after the group has to get in.
//!
//! A shard that this node's log is not of waits for the same answer, for as long as it takes: a node that went over to another
//! shard, and was started anew, may know a state of before that. It would follow the primary of the shard that it has left, and a
//! full sync would take the place of what it acknowledged in the shard that it is of.

use std::sync::Arc;
use std::time::Duration;

use cluster::{ControlLog as _, ShardId};

use super::driver::{Driver, Event, post};
use super::links::spawn;
use super::{directives, documents, libraries};

/// For so many node timeouts a leader is waited for, and twice as long for what it says.
const TIMEOUTS: u64 = 2;
/// Until it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// What is known of what the group decided before this node was started.
#[derive(Default)]
pub(super) struct CatchingUp {
    /// Until when nobody is served before all of it is known; 0 where it is not waited for.
    awaits_until_ms: u64,
    /// A leader is being asked.
    is_asking: bool,
    /// One answered: all of it is applied here.
    knows_all: bool,
    /// The state has this node in a shard that its log is not of, and may be old.
    holds_shard: bool,
}

impl CatchingUp {
    /// Whether the state has to be taken up again: a shard in it was not, and has been confirmed.
    pub(super) fn has_confirmed_shard(&self) -> bool {
        self.knows_all && self.holds_shard
    }
}

impl Driver {
    /// Whether what the state says of the own shard can be taken up. Otherwise a leader is asked, and the state is taken up again.
    pub(super) fn confirm_shard(&mut self, shard: Option<ShardId>) -> bool {
        let of_log = self.duty.as_ref().and_then(|duty| duty.shard_of_log());
        let is_another = shard.is_some() && of_log.is_some() && shard != of_log;
        self.catching_up.holds_shard = is_another && !self.catching_up.knows_all;
        if self.catching_up.holds_shard {
            self.look_whether_newest();
        }
        !self.catching_up.holds_shard
    }

    /// Begins to find out what was decided, where nobody is served before.
    pub(super) fn await_group(&mut self) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        if !node.replication.awaits_group() {
            return;
        }
        self.catching_up.awaits_until_ms =
            node.core.clock.boottime_ms() + TIMEOUTS * self.times.node_timeout_ms;
        self.look_whether_newest();
    }

    fn look_whether_newest(&mut self) {
        if std::mem::replace(&mut self.catching_up.is_asking, true) {
            return;
        }
        let (events, log) = (self.events.clone(), Arc::clone(&self.log));
        let look = move || {
            let is_newest = log.read_barrier().is_ok();
            if !is_newest {
                std::thread::sleep(PAUSE);
            }
            post(&events, Event::CaughtUp(is_newest));
        };
        if let Err(error) = spawn("catch-up", look) {
            self.catching_up.is_asking = false;
            self.warn(&format!("There is no thread to ask the group: {error}"));
            self.serve_after_all();
        }
    }

    /// All that was committed is applied here, or nobody could be asked.
    pub(super) fn caught_up(&mut self, is_newest: bool) {
        self.catching_up.is_asking = false;
        self.catching_up.knows_all |= is_newest;
        let is_awaited = self.catching_up.awaits_until_ms > 0;
        if !is_newest && (is_awaited || self.catching_up.holds_shard) {
            return self.look_whether_newest();
        }
        if !is_newest || !is_awaited {
            return;
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
        let until_ms = self.catching_up.awaits_until_ms;
        if until_ms > 0 && now_ms >= until_ms + more_ms {
            self.warn(
                "No control leader said in time what was decided: clients are served by the users, functions and directives that this node knew before",
            );
            self.serve_after_all();
        }
    }

    fn serve_after_all(&mut self) {
        self.catching_up.awaits_until_ms = 0;
        if let Some(node) = self.node.upgrade() {
            node.replication.end_to_await_group(&node);
        }
    }
}
