//! Link from the rest of the server to a worker: messages, pushes for its clients, and its
//! counters.

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::EngineCounters;
use reactor::{ConnectionId, Waker};

use crate::counters::WorkerCounters;
use crate::job::Answer;
use crate::mail::{Letter, Mail};

/// The link from the rest of the server to one worker.
pub struct WorkerLink {
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// The counters of its engine, once it runs.
    pub engine: OnceLock<Arc<EngineCounters>>,
    /// Pushes for its clients.
    pub mail: Mail,
    mailbox: Mutex<Vec<Message>>,
    waker: Waker,
}

thread_local! {
    /// Address of the link to the worker that runs on this thread; 0 on other threads.
    static OWN_LINK: Cell<usize> = const { Cell::new(0) };
    /// Number of pushes that this thread posted to its own worker.
    static OWN_POSTS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of pushes that the calling thread posted to its own worker.
#[must_use]
pub(crate) fn own_posts() -> u64 {
    OWN_POSTS.get()
}

/// A message to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Close this client once its pending output is sent.
    Kill {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
    },
    /// Close this client at once, because all clients together hold too much.
    Evict {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
        /// Bytes that it held when it was chosen.
        held_bytes: u64,
    },
    /// Resume clients that wait because too many of their messages were undelivered.
    MailDelivered,
    /// Resume paused clients.
    Resume,
    /// An offloaded request is done.
    Answer {
        /// The connection that gets its reply.
        connection: ConnectionId,
        /// The reply.
        reply: Answer,
        /// Log sequence up to which it appended, if it did.
        log_end: Option<u64>,
    },
    /// An offloaded request waits for keys.
    Waits {
        /// The connection of its client.
        connection: ConnectionId,
        /// Maximum time that it waits.
        timeout_ms: Option<u64>,
    },
    /// A client that waited for keys is answered.
    Served {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
        /// The reply.
        reply: Answer,
    },
    /// Close the clients of a user that are subscribed to channels that the user may no longer
    /// read.
    RulesChanged {
        /// The user's name.
        user: Box<[u8]>,
    },
    /// The hash slots of this node changed: end subscriptions to shard channels whose slots moved
    /// away.
    SlotsChanged,
    /// A connection to another node, for clients that forward, failed.
    NotForwarded {
        /// The client that it was for, or `None` if it was shared.
        client: Option<ConnectionId>,
        /// The serial number of the connection.
        serial: u64,
        /// The reason.
        reason: Box<str>,
    },
    /// Keys that were held for long are free: waiting requests can try again.
    KeysFree,
    /// Values that a request waits for were read.
    ValuesRead {
        /// The connection of its client.
        connection: ConnectionId,
    },
    /// Another log is in use, or none.
    LogChanged,
    /// Release what no longer waits for the log, and drop this.
    LookAtLog(Arc<()>),
    /// Send pending output where possible, and stop.
    Stop,
}

impl WorkerLink {
    /// Makes a link to the worker that `waker` wakes.
    #[must_use]
    pub fn new(waker: Waker) -> Self {
        Self {
            counters: Arc::default(),
            engine: OnceLock::new(),
            mail: Mail::default(),
            mailbox: Mutex::default(),
            waker,
        }
    }

    /// Posts a message and wakes the worker.
    pub fn post(&self, message: Message) {
        self.mailbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        self.waker.wake();
    }

    /// Marks the calling thread as the worker's own, which then does not wake itself.
    pub fn own(&self) {
        OWN_LINK.set(std::ptr::from_ref(self).addr());
    }

    /// Posts a push. Never blocks.
    pub fn post_push(&self, letter: Letter) {
        let wakes = self.mail.post(letter);
        if OWN_LINK.get() == std::ptr::from_ref(self).addr() {
            // A worker takes its mail at the end of every turn.
            OWN_POSTS.set(OWN_POSTS.get() + 1);
        } else if wakes {
            self.waker.wake();
        }
    }

    /// Returns the worker's waker.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Wakes the worker, so that it checks what can continue.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Takes the waiting messages.
    #[must_use]
    pub fn take_messages(&self) -> Vec<Message> {
        std::mem::take(&mut *self.mailbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
