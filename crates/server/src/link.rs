//! How the rest of the server reaches a worker: messages, pushes for its clients, and what it counts.

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::EngineCounters;
use reactor::{ConnectionId, Waker};

use crate::counters::WorkerCounters;
use crate::job::Answer;
use crate::mail::{Letter, Mail};

/// How the rest of the server reaches one worker.
pub struct WorkerLink {
    /// What it counts.
    pub counters: Arc<WorkerCounters>,
    /// What its engine counts, once it runs.
    pub engine: OnceLock<Arc<EngineCounters>>,
    /// Pushes for its clients.
    pub mail: Mail,
    mailbox: Mutex<Vec<Message>>,
    waker: Waker,
}

thread_local! {
    /// Where the link to the worker that runs on this thread is; 0 on other threads.
    static OWN_LINK: Cell<usize> = const { Cell::new(0) };
    /// How many pushes this thread left with the worker that runs on it.
    static OWN_POSTS: Cell<u64> = const { Cell::new(0) };
}

/// How many pushes the calling thread left with the worker that runs on it.
#[must_use]
pub(crate) fn own_posts() -> u64 {
    OWN_POSTS.get()
}

/// What a worker can be asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Close this client once what it is owed is sent.
    Kill {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
    },
    /// Close this client at once: all clients together hold too much.
    Evict {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
        /// What it held when it was chosen.
        held_bytes: u64,
    },
    /// Clients may go on that wait because too much of what they published was not delivered.
    MailDelivered,
    /// Paused clients may go on.
    Resume,
    /// A request that ran aside is done.
    Answer {
        /// Where its reply goes.
        connection: ConnectionId,
        /// The reply.
        reply: Answer,
        /// Up to where it appended to the log, if it did.
        log_end: Option<u64>,
    },
    /// A request that ran aside waits for keys.
    Waits {
        /// Whose request it is.
        connection: ConnectionId,
        /// How long it waits at most.
        timeout_ms: Option<u64>,
    },
    /// A client that waited for keys has its answer.
    Served {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
        /// What it is sent.
        reply: Answer,
    },
    /// Clients of a user may be subscribed to what it may hear no more: those are closed.
    RulesChanged {
        /// The user's name.
        user: Box<[u8]>,
    },
    /// Other hash slots are served here: who is subscribed to shard channels of slots that went is so no more.
    SlotsChanged,
    /// There is no connection to another node for clients that forward.
    NotForwarded {
        /// The client that it was for, if for one alone.
        client: Option<ConnectionId>,
        /// Which connection it is.
        serial: u64,
        /// Why.
        reason: Box<str>,
    },
    /// Keys that were held for long are free: who waits may try again.
    KeysFree,
    /// Values were read that a request waits for.
    ValuesRead {
        /// Whose request it is.
        connection: ConnectionId,
    },
    /// Another log is in use, or none.
    LogChanged,
    /// Let go what no longer waits for the log, and drop this.
    LookAtLog(Arc<()>),
    /// Flush what can be flushed and stop.
    Stop,
}

impl WorkerLink {
    /// A link to a worker that is woken by `waker`.
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

    /// Leaves a message and wakes the worker.
    pub fn post(&self, message: Message) {
        self.mailbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        self.waker.wake();
    }

    /// Says that the worker runs on the calling thread, which then needs not be woken by itself.
    pub fn own(&self) {
        OWN_LINK.set(std::ptr::from_ref(self).addr());
    }

    /// Leaves a push. Waits for nothing.
    pub fn post_push(&self, letter: Letter) {
        let wakes = self.mail.post(letter);
        if OWN_LINK.get() == std::ptr::from_ref(self).addr() {
            // A worker takes its mail at the end of every turn.
            OWN_POSTS.set(OWN_POSTS.get() + 1);
        } else if wakes {
            self.waker.wake();
        }
    }

    /// What wakes the worker.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Has the worker look what it can go on with.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Takes the messages that wait.
    #[must_use]
    pub fn take_messages(&self) -> Vec<Message> {
        std::mem::take(&mut *self.mailbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
