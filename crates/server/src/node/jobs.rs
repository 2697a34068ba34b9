//! Offloading of long requests, including those of the server itself, to the one thread that runs
//! them.

use std::sync::mpsc::Sender;
use std::sync::{Arc, MutexGuard, PoisonError};

use engine::{ClientRecord, EngineCounters};
use protocol::Resp;
use reactor::ConnectionId;

use super::Node;
use crate::job::Job;

impl Node {
    /// Sets the channel to the thread that runs offloaded requests, and the counters of its engine.
    pub fn set_aside(&self, jobs: Sender<Job>, counters: Arc<EngineCounters>) {
        *self.jobs() = Some(jobs);
        let _already_set = self.work.aside_counters.set(counters);
    }

    /// Whether there is a thread for offloaded requests.
    #[must_use]
    pub fn has_aside(&self) -> bool {
        self.jobs().is_some()
    }

    /// Offloads a request. Returns whether there is a thread to run it.
    #[must_use]
    pub fn run_aside(&self, job: Job) -> bool {
        let jobs = self.jobs();
        jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Offloads a request of the server itself. Its reply is dropped.
    pub(crate) fn run_own(&self, request: impl Into<Box<[u8]>>) {
        let id = self.sessions.clients.next_id();
        let (peer, own) = (String::new(), String::new());
        let now_unix_ms = self.core.clock.now_unix_ms();
        let client = ClientRecord::new(id, peer, own, usize::MAX, -1, now_unix_ms);
        let _is_taken = self.run_aside(Job {
            request: request.into(),
            client: Arc::new(client),
            database: 0,
            resp: Resp::V2,
            transaction: None,
            watches: None,
            peer_is_local: true,
            is_of_server: true,
            aborted_stops: self.replication.aborted_stops(),
            connection: ConnectionId::NOBODY,
        });
    }

    /// Lets the thread for offloaded requests end.
    pub fn stop_aside(&self) {
        *self.jobs() = None;
    }

    fn jobs(&self) -> MutexGuard<'_, Option<Sender<Job>>> {
        self.work
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
