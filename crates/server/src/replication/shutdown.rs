//! A server that is to stop lets its replicas have everything first, for `shutdown-timeout` seconds at most. Writes wait
//! meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Replication;
use crate::node::Node;

/// How often it is looked how far replicas are: what moves is not told to who waits here.
const LOOK: Duration = Duration::from_millis(5);
/// Nobody waits.
const NOBODY: u64 = 0;
/// The wait was given up.
const ABORTED: u64 = 1;

impl Replication {
    /// How many replicas of how many have not all there is.
    fn lagging(&self, node: &Node) -> (usize, usize) {
        let end = super::log_end(node);
        let all = self.replicas.all();
        let online = all.iter().filter(|one| one.state().is_online());
        let lags = online.clone().filter(|one| one.acked().applied < end);
        (lags.count(), online.count())
    }

    /// Whether a stop waits for somebody.
    pub(crate) fn delays_stop(&self, node: &Node) -> bool {
        let timeout_s = node.core.config.current().replication.shutdown_timeout_s;
        timeout_s > 0 && !self.replicas.is_empty() && self.lagging(node).0 > 0
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
        log.notice(format_args!("Waiting for replicas before shutting down."));
        node.pause_clients(u64::MAX, true);
        self.ask_replicas(node);
        let is_aborted = loop {
            if word.load(Ordering::SeqCst) == ABORTED {
                break true;
            }
            let is_over = now_unix_ms() >= end_unix_ms || node.is_stopping();
            if is_over || self.lagging(node).0 == 0 {
                break false;
            }
            std::thread::sleep(LOOK);
        };
        let (lags, all) = self.lagging(node);
        word.store(NOBODY, Ordering::SeqCst);
        if is_aborted {
            node.unpause_clients();
            log.notice(format_args!("Shutdown manually aborted."));
            return false;
        }
        log.notice(format_args!(
            "{} of {all} replicas are in sync when shutting down.",
            all - lags
        ));
        true
    }

    /// Gives up a stop that waits for replicas; whether there is one.
    pub(crate) fn abort_stop(&self) -> bool {
        let word = &self.stop_wait;
        let aborted = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            (word > ABORTED).then_some(ABORTED)
        });
        aborted.is_ok()
    }

    /// How long a stop still waits for replicas, in milliseconds.
    pub(crate) fn stop_delay_ms(&self, now_unix_ms: u64) -> Option<u64> {
        let word = self.stop_wait.load(Ordering::SeqCst);
        (word > ABORTED).then(|| word.saturating_sub(now_unix_ms))
    }
}
