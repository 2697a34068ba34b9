//! Requests that take long go to the one thread for such, those of the server itself among them.

use std::sync::mpsc::Sender;
use std::sync::{Arc, MutexGuard, PoisonError};

use engine::{ClientRecord, EngineCounters};
use protocol::Resp;
use reactor::ConnectionId;

use super::Node;
use crate::job::Job;

impl Node {
    /// Says how requests reach the thread that runs what takes long, and what its engine counts.
    pub fn set_aside(&self, jobs: Sender<Job>, counters: Arc<EngineCounters>) {
        *self.jobs() = Some(jobs);
        let _already_set = self.work.aside_counters.set(counters);
    }

    /// Whether there is a thread that runs what takes long.
    #[must_use]
    pub fn has_aside(&self) -> bool {
        self.jobs().is_some()
    }

    /// Offloads a request; whether there is anybody to run it.
    #[must_use]
    pub fn run_aside(&self, job: Job) -> bool {
        let jobs = self.jobs();
        jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Has a request of the server itself run beside the workers; nobody hears the reply.
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

    /// Lets the thread that runs what takes long end.
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
