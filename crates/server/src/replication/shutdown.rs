//! A server that is to stop gives away what it leads under a control group, and lets its replicas have everything, both
//! within `shutdown-timeout` seconds. Writes wait meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Replication;
use super::replicas::Replica;
use crate::node::Node;

/// How often it is looked how far replicas are: what moves is not told to who waits here.
const LOOK: Duration = Duration::from_millis(5);
/// Nobody waits.
const NOBODY: u64 = 0;
/// The wait was given up.
const ABORTED: u64 = 1;

/// Whether a replica follows what is written, and has not all up to there.
fn lags(replica: &Replica, end: u64) -> bool {
    replica.state().is_online() && replica.acked().applied < end
}

impl Replication {
    /// How many replicas of how many have not all there is.
    fn lagging(&self, node: &Node) -> (usize, usize) {
        let end = super::log_end(node);
        let all = self.replicas.all();
        let online = all.iter().filter(|one| one.state().is_online());
        (
            online.clone().filter(|one| lags(one, end)).count(),
            online.count(),
        )
    }

    /// Whether a stop waits for somebody.
    pub(crate) fn delays_stop(&self, node: &Node) -> bool {
        let timeout_s = node.core.config.current().replication.shutdown_timeout_s;
        timeout_s > 0 && (Self::has_to_give(node) || self.has_lagging(node))
    }

    fn has_lagging(&self, node: &Node) -> bool {
        !self.replicas.is_empty() && self.lagging(node).0 > 0
    }

    /// Whether this node leads something under a control group that another one could.
    fn has_to_give(node: &Node) -> bool {
        node.control.part().is_some_and(|part| part.has_to_give())
    }

    /// Has others lead what this node leads, until that time at most. It stops either way.
    fn give_away(&self, node: &Node, end_unix_ms: u64) {
        let Some(part) = node.control.part().filter(|part| part.has_to_give()) else {
            return;
        };
        let log = &node.core.log;
        log.notice(format_args!(
            "Handing over what this node leads before shutting down."
        ));
        let left_ms = end_unix_ms.saturating_sub(node.core.clock.now_unix_ms());
        let goes_on = || !node.is_stopping() && self.stop_wait.load(Ordering::SeqCst) != ABORTED;
        let is_given = part.give_away(Duration::from_millis(left_ms), &goes_on);
        if !is_given && goes_on() {
            log.warning(format_args!(
                "Nobody has taken over what this node leads within shutdown-timeout."
            ));
        }
    }

    /// Waits until all replicas have everything, or time is up; false where an operator changed his mind. Not for
    /// workers.
    pub(crate) fn await_replicas(&self, node: &Node) -> bool {
        if !self.delays_stop(node) {
            return true;
        }
        let log = &node.core.log;
        let timeout_s = node.core.config.current().replication.shutdown_timeout_s;
        let now_unix_ms = || node.core.clock.now_unix_ms();
        let end_unix_ms = now_unix_ms() + u64::from(timeout_s) * 1000;
        let word = &self.stop_wait;
        if word
            .compare_exchange(NOBODY, end_unix_ms, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            // Somebody else waits already, and stops the server.
            return false;
        }
        self.give_away(node, end_unix_ms);
        let mut is_aborted = word.load(Ordering::SeqCst) == ABORTED;
        if !is_aborted && self.has_lagging(node) {
            log.notice(format_args!("Waiting for replicas before shutting down."));
            node.pause_clients(u64::MAX, true);
            self.ask_replicas(node);
            is_aborted = loop {
                if word.load(Ordering::SeqCst) == ABORTED {
                    break true;
                }
                let is_over = now_unix_ms() >= end_unix_ms || node.is_stopping();
                if is_over || self.lagging(node).0 == 0 {
                    break false;
                }
                std::thread::sleep(LOOK);
            };
        }
        let (lags, all) = self.lagging(node);
        word.store(NOBODY, Ordering::SeqCst);
        if is_aborted {
            if let Some(part) = node.control.part() {
                part.keep_all();
            }
            node.unpause_clients();
            log.notice(format_args!("Shutdown manually aborted."));
            return false;
        }
        self.tell_lagging(node);
        log.notice(format_args!(
            "{} of {all} replicas are in sync when shutting down.",
            all - lags
        ));
        true
    }

    /// A line for each replica that has not all there is.
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

    /// Gives up a stop that waits for replicas; whether there is one.
    pub(crate) fn abort_stop(&self) -> bool {
        let word = &self.stop_wait;
        let aborted = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            (word > ABORTED).then_some(ABORTED)
        });
        if aborted.is_ok() {
            self.aborted_stops.fetch_add(1, Ordering::SeqCst);
        }
        aborted.is_ok()
    }

    /// How many stops were given up. One that was asked for before the last of them is given up, too.
    pub(crate) fn aborted_stops(&self) -> u64 {
        self.aborted_stops.load(Ordering::SeqCst)
    }

    /// How long a stop still waits for replicas, in milliseconds.
    pub(crate) fn stop_delay_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let word = self.stop_wait.load(Ordering::SeqCst);
        (word > ABORTED).then(|| word.saturating_sub(now_unix_ms))
    }
}
