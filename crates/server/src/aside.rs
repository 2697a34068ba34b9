//! The thread beside the workers: commands that take long.
//!
//! ```text
//!   worker ── Job: a request, as it came ──────────► aside: its own engine, one job at a time,
//!     ▲                                                     the job's keys held for long
//!     └── Answer: the reply ◄── KeysFree, to all ◄───────┘
//! ```
//!
//! A worker that meets a command over millions of elements leaves it here and serves its other
//! clients. The command is still one step for everybody: its keys are held meanwhile, and clients that
//! ask for them wait, without a thread that waits for them. The client that sent it gets its reply
//! before anything it asks later is looked at.
//!
//! One job at a time: a second one would wait for the same two or three channels to memory, and two
//! that hold keys could wait for each other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use base::mapped_bytes::MappedBytes;
use base::random::Prng;
use engine::{ClientRecord, Engine, Session, Share, Transaction, Watches};
use protocol::{ReplyBuffer, Resp};
use reactor::ConnectionId;
use store::DatabaseId;

use crate::announcer;
use crate::node::{Message, Node};
use crate::port::Port;
use persistence::log_in_use::LogUser;

/// A long reply leaves in pieces of so many bytes, each freed when it was sent: freeing all of it at
/// once would take a worker longer than it should be away from its clients. For the same reason they are not on
/// the heap (see [`base::mapped_bytes`]).
const PIECE_BYTES: usize = 256 * 1024;

/// Pieces that are shorter are copied once more instead.
const ATTACHED_BYTES_MIN: usize = 16 * 1024;

/// Bytes of the first and the last piece, at most.
const END_BYTES: usize = 64;

/// A request that takes long.
pub struct Job {
    /// The request as it came.
    pub request: Vec<u8>,
    /// Who sent it.
    pub client: Arc<ClientRecord>,
    /// The database it is about.
    pub database: DatabaseId,
    /// The protocol of its reply.
    pub resp: Resp,
    /// What it ends, if it is EXEC.
    pub transaction: Option<Box<Transaction>>,
    /// What was watched for that.
    pub watches: Option<Box<Watches>>,
    /// Whether it came over loopback or a Unix socket.
    pub peer_is_local: bool,
    /// Where the reply goes.
    pub connection: ConnectionId,
}

/// The reply of a job, in pieces.
pub type Answer = Vec<Piece>;

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A short one, to be copied.
    Short(Vec<u8>),
    /// A long one, sent from where it lies.
    Long(Arc<MappedBytes>),
}

impl Piece {
    /// A copy of `bytes`; a long one counts as short if the system has no pages for it.
    fn of(bytes: &[u8]) -> Self {
        let is_long = bytes.len() >= ATTACHED_BYTES_MIN;
        let mapped = is_long.then(|| MappedBytes::copy_of(bytes).ok()).flatten();
        mapped.map_or_else(
            || Self::Short(bytes.to_vec()),
            |mapped| Self::Long(Arc::new(mapped)),
        )
    }

    /// What it consists of.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

/// The thread, and the way to it.
pub struct Aside {
    thread: JoinHandle<()>,
}

impl Aside {
    /// Starts the thread. It ends when `node` [forgets](Node::stop_aside) the way to it.
    ///
    /// # Errors
    /// When the process may have no more threads.
    #[allow(clippy::disallowed_methods, reason = "the one thread beside workers")]
    pub fn start(node: &Arc<Node>) -> io::Result<Self> {
        let (jobs, received): (Sender<Job>, _) = channel();
        let engine = Engine::new(
            node.core.env.table,
            node.handle(&Arc::default()),
            Arc::clone(&node.core.settings),
            Arc::clone(&node.core.clock),
            Prng::from_os(),
        );
        let engine = engine.among(Arc::clone(&node.sessions.waiters)).aside();
        node.set_aside(jobs, engine.counters());
        let node = Arc::clone(node);
        let log_user = node.keeping.log_in_use.join();
        log_user.set_idle(true);
        let thread = std::thread::Builder::new()
            .name("aside".into())
            .spawn(move || work(&node, engine, &Queue::of(received), &log_user))?;
        Ok(Self { thread })
    }

    /// Waits for the end of the thread.
    pub fn join(self) {
        let _panicked = self.thread.join();
    }
}

/// The jobs that are to be done.
pub(crate) struct Queue {
    jobs: Receiver<Job>,
    /// Those that came before others that were refused.
    first: RefCell<VecDeque<Job>>,
}

impl Queue {
    fn of(jobs: Receiver<Job>) -> Self {
        Self {
            jobs,
            first: RefCell::default(),
        }
    }

    /// The job that comes next; waits for it.
    fn next(&self) -> Option<Job> {
        let first = self.first.borrow_mut().pop_front();
        first.or_else(|| self.jobs.recv().ok())
    }

    /// Answers all that wait with an error, because what is being done takes too long. Transactions go
    /// on waiting: what they watch can only be forgotten between jobs.
    pub(crate) fn refuse(&self, node: &Node, text: &str) {
        while let Ok(job) = self.jobs.try_recv() {
            if job.transaction.is_some() {
                self.first.borrow_mut().push_back(job);
            } else if let Some(worker) = node.workers().get(job.client.worker) {
                worker.post(Message::Answer {
                    connection: job.connection,
                    reply: in_pieces(format!("-{text}\r\n").as_bytes()),
                    log_end: None,
                });
            }
        }
    }
}

fn work(node: &Node, mut engine: Engine, queue: &Queue, log_user: &LogUser) {
    while let Some(mut job) = queue.next() {
        log_user.set_idle(false);
        let _whichever = log_user.take_up(engine.store());
        let before = log_user.appended().end();
        let mut message = run(node, &mut engine, &mut job, queue);
        if let Message::Answer { log_end, .. } = &mut message {
            let end = log_user.appended().end();
            *log_end = (end != before).then_some(end);
        }
        log_user.set_idle(true);
        if log_user.is_late() {
            // Whoever waits for a key of the job is not to wait for this, too.
            node.broadcast(&Message::KeysFree);
            // Who had the log begun hears of it when all effects go to it; but a script may have no end.
            let scripts = &node.core.settings.scripts.running;
            let is_given_up = || node.is_stopping() || scripts.busy().is_some();
            node.keeping.log_in_use.wait_until_taken_up(&is_given_up);
        }
        engine.store().tell_memory();
        if let Some(worker) = node.workers().get(job.client.worker) {
            worker.post(message);
        }
        node.broadcast(&Message::KeysFree);
    }
}

/// What came of a job, for the worker of its client.
fn run(node: &Node, engine: &mut Engine, job: &mut Job, queue: &Queue) -> Message {
    let mut session = Session::new(Arc::clone(&job.client), true);
    (session.database, session.resp) = (job.database, job.resp);
    session.transaction = job.transaction.take();
    session.watches = job.watches.take();
    let mut port = Port::of_aside(node, job.peer_is_local, queue);
    let mut output = ReplyBuffer::with_capacity(0);
    let share = Share {
        requests_max: 1,
        reply_bytes_max: usize::MAX,
    };
    engine.begin_turn(node.core.clock.monotonic_ns());
    announcer::work_for(job.client.id);
    engine.run(&mut session, &mut port, &job.request, &mut output, share);
    engine.end_transaction(&mut session);
    announcer::work_for(0);
    let connection = job.connection;
    match &session.wait {
        Some(wait) => {
            let timeout_ms = wait.timeout_ms;
            if node.sessions.clients.find(job.client.id).is_none() {
                engine.end_wait(&mut session);
            }
            Message::Waits {
                connection,
                timeout_ms,
            }
        }
        None => Message::Answer {
            connection,
            reply: in_pieces(&output.to_vec()),
            log_end: None,
        },
    }
}

/// The first and the last piece are short, so that they are copied: the loop knows whom something
/// is for by the bytes around it.
pub fn in_pieces(bytes: &[u8]) -> Answer {
    let (first, rest) = bytes.split_at(bytes.len().min(END_BYTES));
    let (middle, last) = rest.split_at(rest.len().saturating_sub(END_BYTES));
    let pieces = [first].into_iter().chain(middle.chunks(PIECE_BYTES));
    pieces.chain([last]).map(Piece::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_reply_and_its_ends_are_short() {
        for len in [0, 1, 64, 65, 128, 129, 1_000, 3 * PIECE_BYTES + 200] {
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
            let pieces = in_pieces(&bytes);
            let contents: Vec<&[u8]> = pieces.iter().map(Piece::as_slice).collect();
            assert_eq!(contents.concat(), bytes);
            assert!(contents.iter().all(|piece| piece.len() <= PIECE_BYTES));
            for end in [contents.first(), contents.last()] {
                assert!(end.is_some_and(|end| end.len() <= END_BYTES));
            }
        }
    }
}
