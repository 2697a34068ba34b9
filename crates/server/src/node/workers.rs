//! Ways to reach the workers: messages, pushes for their clients, and requests to check what can
//! continue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{ClientRecord, Push};
use persistence::tail::Tail;

use super::Node;
use crate::job::in_pieces;
use crate::link::{Message, WorkerLink};
use crate::mail::{Address, Letter};
use crate::poll::poll;
use crate::tier::{Requester, Wakes};

/// Time between two checks whether all workers have done something.
const LOOK: Duration = Duration::from_millis(1);

impl Node {
    /// Sets the links to the workers; called once, before they start.
    pub fn set_workers(&self, workers: Vec<WorkerLink>) {
        let workers: Arc<[WorkerLink]> = workers.into();
        self.sessions.pubsub.set_workers(Arc::clone(&workers));
        self.sessions.client_cache.set_workers(Arc::clone(&workers));
        let _already_set = self.work.workers.set(workers);
    }

    /// Returns the links to the workers.
    #[must_use]
    pub fn workers(&self) -> &[WorkerLink] {
        self.work.workers.get().map_or(&[], |workers| workers)
    }

    /// Posts a message to every worker.
    pub fn broadcast(&self, message: &Message) {
        for worker in self.workers() {
            worker.post(message.clone());
        }
    }

    /// Wakes every worker, so that it checks what can continue.
    pub(crate) fn wake_workers(&self) {
        for worker in self.workers() {
            worker.wake();
        }
        self.replication.log_moved(self);
    }

    /// Called by the log in use when its durable watermark has risen, or when a fault has begun or
    /// ended. Wakes the workers for what waits, and logs the fault.
    pub fn log_moved(&self) {
        self.keeping.log_in_use.look_for_fault(&self.core.env);
        self.wake_workers();
    }

    /// Switches to another log, or to none, as the [owner of the log](persistence::log_owner) does.
    /// For tests with a log of their own.
    pub fn use_log(&self, log: Option<Arc<dyn Tail>>) {
        self.keeping.log_in_use.set(log, &self.core.env);
        self.broadcast(&Message::LogChanged);
    }

    /// Makes every worker release what no longer waits for the log. Waits until all have done so,
    /// for at most `time`.
    pub(crate) fn wait_for_release(&self, time: Duration) {
        let looked = Arc::new(());
        self.broadcast(&Message::LookAtLog(Arc::clone(&looked)));
        let have_all = || (Arc::strong_count(&looked) == 1).then_some(());
        let _in_time = poll(time, LOOK, have_all);
    }

    /// Answers a waiting client and lets it continue.
    pub(crate) fn answer(&self, client: &ClientRecord, reply: Vec<u8>) {
        // Cleared before the caller who ended the wait gets its reply, although the client's worker
        // learns of it later.
        client.set_flag(ClientRecord::BLOCKED, false);
        if let Some(worker) = self.workers().get(client.worker) {
            worker.post(Message::Served {
                client: client.id,
                place: client.place,
                reply: in_pieces(&reply),
            });
        }
    }

    /// Ends the waits of all clients with an error, then closes their connections.
    pub(crate) fn unblock_all(&self, text: &str) {
        for client in self.sessions.clients.all() {
            let Some(waiter) = client.waiter().filter(|waiter| waiter.claim()) else {
                continue;
            };
            let reply = waiter.subject.refusal(text);
            self.answer(&client, reply);
            if let Some(worker) = self.workers().get(client.worker) {
                client.set_flag(ClientRecord::KILLED, true);
                worker.post(Message::Kill {
                    client: client.id,
                    place: client.place,
                });
            }
        }
    }

    /// Asks the worker of a client to close it, because all clients together hold too much memory.
    pub fn evict(&self, client: &ClientRecord) {
        if let Some(worker) = self.workers().get(client.worker) {
            client.set_flag(ClientRecord::EVICTED, true);
            worker.post(Message::Evict {
                client: client.id,
                place: client.place,
                held_bytes: client.held_bytes.load(Ordering::Relaxed),
            });
        }
    }

    /// Posts a push to the worker of a client. Closes the client if too many pushes wait at its
    /// worker. Never blocks.
    pub fn push(&self, to: &ClientRecord, push: &Push) {
        if let Some(worker) = self.workers().get(to.worker) {
            let (id, place) = (to.id, to.place);
            worker.post_push(Letter {
                to: Address::Client { id, place },
                push: push.clone(),
            });
        }
    }
}

impl Wakes for Node {
    fn wake(&self, requester: Requester) {
        let workers = self.work.workers.get();
        if let Some(worker) = workers.and_then(|workers| workers.get(requester.worker)) {
            worker.post(match requester.connection {
                Some(connection) => Message::ValuesRead { connection },
                None => Message::KeysFree,
            });
        }
    }

    fn wake_all(&self) {
        for worker in self
            .work
            .workers
            .get()
            .into_iter()
            .flat_map(|all| all.iter())
        {
            worker.post(Message::KeysFree);
        }
    }
}
