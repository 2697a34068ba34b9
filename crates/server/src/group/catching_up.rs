//! A node that has rejoined its group applies what was decided meanwhile before it serves any
//! client.
//!
//! ```text
//!   start ─► nobody is served ── a leader confirms what is committed, all of it is applied here ─► documents taken ─► served
//!                          └──── nobody leads for two node timeouts ─► served, by what was known before
//! ```
//!
//! Otherwise a user that was removed while this node was down could log in for a moment. Without a
//! majority no node knows what was decided, and the operator must be able to log in.
//!
//! A shard in the state that this node's log does not belong to waits for the same answer, without
//! limit. A node that moved to another shard and was restarted may know a state from before that.
//! It would follow the primary of its former shard, and a full sync would replace what it
//! acknowledged in its present shard.

use std::sync::Arc;
use std::time::Duration;

use cluster::{ControlLog as _, ShardId};

use super::driver::{Driver, Event, post};
use super::links::spawn;
use super::{directives, documents, libraries};

/// Number of node timeouts to wait for a leader. If there is a leader, twice as many to wait for
/// its answer.
const TIMEOUTS: u64 = 2;
/// Pause before the leader is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// What this node knows of the group's decisions from before its start.
#[derive(Default)]
pub(super) struct CatchingUp {
    /// Until when no client is served before everything is known; 0 if that is not awaited.
    awaits_until_ms: u64,
    /// Whether a leader is being asked.
    is_asking: bool,
    /// Whether a leader has answered: everything is applied here.
    knows_all: bool,
    /// Whether the state has this node in a shard that its log does not belong to. The state may be
    /// old.
    holds_shard: bool,
}

impl CatchingUp {
    /// Whether the state has to be applied again: a shard in it was held back, and has been
    /// confirmed.
    pub(super) fn has_confirmed_shard(&self) -> bool {
        self.knows_all && self.holds_shard
    }
}

impl Driver {
    /// Whether the state's shard of this node can be applied. Otherwise a leader is asked, and the
    /// state is applied again later.
    pub(super) fn confirm_shard(&mut self, shard: Option<ShardId>) -> bool {
        let of_log = self.duty.as_ref().and_then(|duty| duty.shard_of_log());
        let is_another = shard.is_some() && of_log.is_some() && shard != of_log;
        self.catching_up.holds_shard = is_another && !self.catching_up.knows_all;
        if self.catching_up.holds_shard {
            self.look_whether_newest();
        }
        !self.catching_up.holds_shard
    }

    /// Begins to find out what was decided, if clients are not served before.
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

    /// Handles the result: everything committed is applied here, or no leader could be asked.
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

    /// Serves clients after a time limit, because there may be no leader to ask.
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
