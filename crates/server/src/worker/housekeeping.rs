//! Periodic work of a worker: steps of the store's housekeeping, upkeep `hz` times a second, checks
//! for idle clients, and a survey of large keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::Io;
use store::{Handle, Listener};

use super::Worker;
use crate::client_cache::ClientCache;
use crate::counters::Count;
use crate::limits::{self, UNAUTHENTICATED_MS_MAX};

/// Interval between two checks of all clients for idle ones.
const ROUND_INTERVAL_MS: u64 = 1_000;
/// Interval between two parts of the survey of large keys. A part is small while clients are
/// served: a part of a tenth of a millisecond ten times a second delays only one request in a
/// thousand.
const SURVEY_INTERVAL_MS: u64 = 5;
/// Records in such a part.
const SURVEY_RECORDS: usize = 32;
/// Records in such a part while no client is served; then the worker wakes up less often.
const SURVEY_RECORDS_IDLE: usize = 512;
/// Minimum interval between two wake-ups of a worker without requests for expired keys.
const EXPIRY_INTERVAL_MS: u64 = 5;

impl Worker {
    /// Does one bounded step of the store's housekeeping, at most once a millisecond unless more
    /// work waits.
    pub(super) fn tick(&mut self) {
        if self.ticked_ms == self.now_ms && !self.more_housekeeping {
            return;
        }
        self.ticked_ms = self.now_ms;
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let store = self.engine.store();
        let next_unix_ms = store.next_expiry_unix_ms();
        let expires_since_ns = next_unix_ms
            .is_some_and(|next_unix_ms| next_unix_ms <= now_unix_ms)
            .then(|| self.node.core.clock.monotonic_ns());
        store.enter();
        self.more_housekeeping = store.tick(now_unix_ms);
        store.leave();
        if let Some(since_ns) = expires_since_ns {
            let ns = self.node.core.clock.monotonic_ns().saturating_sub(since_ns);
            self.counters.cell(Count::ExpireNs).add(ns);
        }
        self.serve();
    }

    /// Returns the time until the next key expires whose deadline this thread set. Keys that expire
    /// shortly one after the other are removed together.
    pub(super) fn expiry_left(&self) -> Option<Duration> {
        let next_unix_ms = self.engine.next_expiry_unix_ms()?;
        let left_ms = next_unix_ms.saturating_sub(self.node.core.clock.now_unix_ms());
        Some(Duration::from_millis(left_ms.max(EXPIRY_INTERVAL_MS)))
    }

    /// Does what is due `hz` times a second instead of in every turn.
    pub(super) fn upkeep(&mut self, io: &mut Io<'_>) {
        let hz = u64::from(self.config.config().hz.max(1));
        self.upkeep_due_ms = self.now_ms + (1000 / hz).max(1);
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let now = (self.now_ms, now_unix_ms);
        let config = self.config.config();
        self.buffers
            .look(&mut self.sessions, io, config, &self.counters, now);
        self.limit_clients_memory();
        self.settled.look();
        if let Some(replies) = &self.held_replies {
            replies.write_out_rest();
        }
        if self.now_ms >= self.round_due_ms {
            self.round_due_ms = self.now_ms + ROUND_INTERVAL_MS;
            self.close_overdue(io, now_unix_ms);
            self.end_idle_upstreams();
        }
        if self.index == 0 {
            self.node.upkeep(now_unix_ms);
            self.limit_tracking(now_unix_ms, ClientCache::keep_limits);
        }
    }

    /// Closes clients that sent nothing for `timeout` seconds, and clients that connected long ago
    /// and have not authenticated.
    fn close_overdue(&self, io: &mut Io<'_>, now_unix_ms: u64) {
        let timeout_ms = u64::from(self.config.config().idle_timeout_s) * 1000;
        for connected in self.sessions.iter() {
            let active_unix_ms = &connected.session.client.active_unix_ms;
            let idle_ms = now_unix_ms.saturating_sub(active_unix_ms.load(Ordering::Relaxed));
            let is_idle = timeout_ms != 0
                && idle_ms > timeout_ms
                && !connected.is_paused
                && !connected.is_waiting;
            let is_late = !connected.session.authenticated
                && self.now_ms.saturating_sub(connected.since_ms) > UNAUTHENTICATED_MS_MAX;
            if is_idle || is_late {
                io.close(connected.id);
            }
        }
    }

    pub(super) fn limit_clients_memory(&self) {
        self.counters.client_bytes.set(self.buffers.held_bytes());
        let bytes_max = limits::clients_bytes_max(self.config.config(), self.usable_bytes);
        self.node.enforce_client_memory(bytes_max);
    }

    #[cold]
    pub(super) fn enforce_tracking_limit(&mut self) {
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        self.limit_tracking(now_unix_ms, ClientCache::enforce_new_limit);
    }

    /// Limits the number of tracked keys to the configured maximum.
    fn limit_tracking(
        &mut self,
        now_unix_ms: u64,
        limit: impl FnOnce(&ClientCache, &mut Handle, &Arc<dyn Listener>),
    ) {
        let store = self.engine.store();
        store.enter();
        store.begin(now_unix_ms);
        let listener = self.node.tracking_listener();
        limit(&self.node.sessions.client_cache, store, &listener);
        store.leave();
    }

    /// Surveys a part of the keyspace for large keys. Only the first worker does this.
    pub(super) fn survey(&mut self) {
        self.survey_due_ms = self.now_ms + SURVEY_INTERVAL_MS;
        let records = if self.turn_requests == 0 {
            SURVEY_RECORDS_IDLE
        } else {
            SURVEY_RECORDS
        };
        let store = self.engine.store();
        store.enter();
        store.begin(self.node.core.clock.now_unix_ms());
        let big_keys = &self.node.core.shared.observer.big_keys;
        big_keys.step(store, records);
        store.leave();
    }
}
