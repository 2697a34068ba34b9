//! Before a server stops, it hands over what it leads under a control group, and waits until its
//! replicas have all of its log. Both end after `shutdown-timeout` seconds. Writes wait meanwhile.

use std::time::Duration;

use engine::CommandError;

use super::Replication;
use super::replicas::Replica;
use super::stop_wait::{Stop, WhenOver};
use crate::node::Node;

/// How often the positions of replicas are polled: this wait is not notified of progress.
const LOOK: Duration = Duration::from_millis(5);

/// Whether a replica is online and has not applied the log up to `end`.
fn lags(replica: &Replica, end: u64) -> bool {
    replica.state().is_online() && replica.acked().applied < end
}

impl Replication {
    /// Returns the number of online replicas that lack part of the log, and of all online replicas.
    fn lagging(&self, node: &Node) -> (usize, usize) {
        let end = super::log_end(node);
        let all = self.replicas.all();
        let online = all.iter().filter(|one| one.state().is_online());
        (
            online.clone().filter(|one| lags(one, end)).count(),
            online.count(),
        )
    }

    /// Whether a stop waits, or would have to wait.
    pub(crate) fn delays_stop(&self, node: &Node) -> bool {
        self.stop_wait.lock().current.is_some() || self.would_delay(node)
    }

    fn would_delay(&self, node: &Node) -> bool {
        let timeout_s = node.core.config.current().replication.shutdown_timeout_s;
        timeout_s > 0 && (Self::has_to_give(node) || self.has_lagging(node))
    }

    fn has_lagging(&self, node: &Node) -> bool {
        !self.replicas.is_empty() && self.lagging(node).0 > 0
    }

    /// Whether this node leads something under a control group that another node could lead.
    fn has_to_give(node: &Node) -> bool {
        node.control.part().is_some_and(|part| part.has_to_give())
    }

    /// Joins the stop that waits, or begins one if it has to wait. The number of a new stop is for
    /// [`Replication::await_replicas`].
    ///
    /// # Errors
    /// `when_over`, if the stop need not wait.
    pub(crate) fn begin_stop(
        &self,
        node: &Node,
        when_over: WhenOver,
    ) -> Result<Option<u64>, WhenOver> {
        let would_delay = self.would_delay(node);
        let mut state = self.stop_wait.lock();
        if let Some(stop) = &mut state.current {
            stop.asked.push(when_over);
            return Ok(None);
        }
        if !would_delay {
            return Err(when_over);
        }
        let timeout_s = node.core.config.current().replication.shutdown_timeout_s;
        let until_unix_ms = node.core.clock.now_unix_ms() + u64::from(timeout_s) * 1000;
        state.begun += 1;
        let number = state.begun;
        state.current = Some(Stop {
            number,
            until_unix_ms: Some(until_unix_ms),
            asked: vec![when_over],
        });
        Ok(Some(number))
    }

    /// Ends a stop that was carried out or failed, and notifies all who requested it.
    pub(crate) fn end_stop(&self, number: u64, stopped: &Result<(), CommandError>) {
        let mut state = self.stop_wait.lock();
        let is_it = state.of(number).is_some();
        let stop = is_it.then(|| state.current.take()).flatten();
        drop(state);
        for when_over in stop.into_iter().flat_map(|stop| stop.asked) {
            when_over(stopped.clone());
        }
    }

    /// Returns until when this stop waits, or `None` if it was cancelled.
    fn waits_until(&self, number: u64) -> Option<u64> {
        self.stop_wait.lock().of(number)?.until_unix_ms
    }

    /// Hands over what this node leads while the stop waits. The node stops even if that fails.
    fn give_away(&self, node: &Node, number: u64, until_unix_ms: u64) {
        let Some(part) = node.control.part().filter(|part| part.has_to_give()) else {
            return;
        };
        let log = &node.core.log;
        log.notice(format_args!(
            "Handing over what this node leads before shutting down."
        ));
        let left_ms = until_unix_ms.saturating_sub(node.core.clock.now_unix_ms());
        let goes_on = || !node.is_stopping() && self.waits_until(number).is_some();
        let is_given = part.give_away(Duration::from_millis(left_ms), &goes_on);
        if !is_given && goes_on() {
            log.warning(format_args!(
                "Nobody has taken over what this node leads within shutdown-timeout."
            ));
        }
        let state = self.stop_wait.lock();
        if state.current.is_none() {
            // The stop was cancelled before this node was ordered to hand over what it leads.
            part.keep_all();
        }
    }

    /// Waits until all replicas have the whole log, or time is up. Returns false if an operator
    /// cancelled the stop; its requesters are notified then. Must not be called by workers or the
    /// offload thread.
    pub(crate) fn await_replicas(&self, node: &Node, number: u64) -> bool {
        let Some(until_unix_ms) = self.waits_until(number) else {
            return false;
        };
        let log = &node.core.log;
        self.give_away(node, number, until_unix_ms);
        if self.has_lagging(node) {
            let mut state = self.stop_wait.lock();
            if state.of(number).is_none() {
                return false;
            }
            // Under the lock of the state: the thread that cancels the stop lets clients go on
            // after this.
            node.pause_clients(u64::MAX, true);
            drop(state);
            log.notice(format_args!("Waiting for replicas before shutting down."));
            self.ask_replicas(node);
            while self.waits_until(number).is_some() {
                let is_late = node.core.clock.now_unix_ms() >= until_unix_ms;
                if is_late || node.is_stopping() || self.lagging(node).0 == 0 {
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
        let (lags, all) = self.lagging(node);
        match self.stop_wait.lock().of(number) {
            None => return false,
            Some(stop) => stop.until_unix_ms = None,
        }
        self.tell_lagging(node);
        log.notice(format_args!(
            "{} of {all} replicas are in sync when shutting down.",
            all - lags
        ));
        true
    }

    /// Logs a line for each replica that lacks part of the log.
    fn tell_lagging(&self, node: &Node) {
        let (end, now_unix_ms) = (super::log_end(node), node.core.clock.now_unix_ms());
        let all = self.replicas.all();
        for replica in all.iter().filter(|one| lags(one, end)) {
            node.core.log.notice(format_args!(
                "Lagging replica {}:{} reported offset {} behind master, lag={}, state={}.",
                replica.host,
                replica.port,
                end.saturating_sub(replica.acked().applied),
                replica.lag_ms(now_unix_ms) / 1000,
                replica.state().word(),
            ));
        }
    }

    /// Cancels a stop that waits for replicas, and answers all its requesters with `answer`.
    /// Returns whether there was one.
    pub(crate) fn abort_stop(&self, node: &Node, answer: &CommandError) -> bool {
        let mut state = self.stop_wait.lock();
        let waits = |stop: &mut Stop| stop.until_unix_ms.is_some();
        let Some(stop) = state.current.take_if(waits) else {
            return false;
        };
        state.aborted += 1;
        if let Some(part) = node.control.part() {
            part.keep_all();
        }
        node.unpause_clients();
        drop(state);
        node.core
            .log
            .notice(format_args!("Shutdown manually aborted."));
        for when_over in stop.asked {
            when_over(Err(answer.clone()));
        }
        true
    }

    /// Number of stops that were cancelled. A stop that was requested before the last cancellation
    /// is cancelled, too.
    pub(crate) fn aborted_stops(&self) -> u64 {
        self.stop_wait.lock().aborted
    }

    /// Returns how long a stop still waits for replicas, in milliseconds.
    pub(crate) fn stop_delay_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let state = self.stop_wait.lock();
        let until_unix_ms = state.current.as_ref()?.until_unix_ms?;
        Some(until_unix_ms.saturating_sub(now_unix_ms))
    }
}
