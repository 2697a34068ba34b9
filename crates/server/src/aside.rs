//! The thread for offloaded requests: commands that take long.
//!
//! ```text
//!   worker ── Job: a request, as it came ──────────► aside: its own engine, one job at a time,
//!     ▲                                                     the job's keys held for long
//!     └── Answer: the reply ◄── KeysFree, to all ◄───────┘
//! ```
//!
//! A worker that meets a command over millions of elements offloads it to this thread and serves
//! its other clients. The command is still one atomic step: its keys are held meanwhile, and
//! clients that ask for them wait, without a thread that waits for each. The client that sent it
//! gets its reply before any later request of it is processed.
//!
//! Only one job runs at a time. A second one would compete for the same two or three memory
//! channels, and two jobs that hold keys could wait for each other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::random::Prng;
use engine::{Engine, Next, Session, Share};
use protocol::ReplyBuffer;

use crate::announcer;
use crate::job::{Job, in_pieces};
use crate::link::Message;
use crate::node::Node;
use crate::poll::poll;
use crate::port::Port;
use persistence::log_in_use::LogUser;

/// Interval between two checks whether a slot that is about to leave has left.
const PAUSE_LOOK: Duration = Duration::from_millis(1);

/// Maximum time that the server's own request waits until a change of role has ended.
const ROLE_TIME: Duration = Duration::from_secs(3);

/// The thread and its channel.
pub struct Aside {
    thread: JoinHandle<()>,
}

impl Aside {
    /// Starts the thread. It ends when `node` [drops](Node::stop_aside) the channel to it.
    ///
    /// # Errors
    /// The process may have no more threads.
    #[allow(clippy::disallowed_methods, reason = "the one thread beside workers")]
    pub fn start(node: &Arc<Node>) -> io::Result<Self> {
        let (jobs, received): (Sender<Job>, _) = channel();
        let engine = Engine::new(
            node.core.env.table,
            node.handle(&Arc::default()),
            Arc::clone(&node.core.shared),
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

/// The queued jobs.
pub(crate) struct Queue {
    jobs: Receiver<Job>,
    /// Jobs that were received before others that were refused.
    first: RefCell<VecDeque<Job>>,
}

impl Queue {
    fn of(jobs: Receiver<Job>) -> Self {
        Self {
            jobs,
            first: RefCell::default(),
        }
    }

    /// Waits for the next job and returns it.
    fn next(&self) -> Option<Job> {
        let first = self.first.borrow_mut().pop_front();
        first.or_else(|| self.jobs.recv().ok())
    }

    /// Answers all waiting jobs with an error, because the present one takes too long. Transactions
    /// keep waiting: what they watch can be forgotten only between jobs.
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

fn work(node: &Arc<Node>, mut engine: Engine, queue: &Queue, log_user: &LogUser) {
    while let Some(mut job) = queue.next() {
        log_user.set_idle(false);
        let _whichever = log_user.take_up(engine.store());
        let before = log_user.appended().end();
        let mut message = run(node, &mut engine, &mut job, queue);
        let end = log_user.appended().end();
        if let Some(Message::Answer { log_end, .. }) = &mut message {
            *log_end = (end != before).then_some(end);
        }
        if end != before
            && node.workers().get(job.client.worker).is_none()
            && let Some(log) = node.keeping.log_in_use.get()
        {
            // No worker answers this job and writes the log out before that.
            let _told_by_the_log = log.write_out(end);
        }
        log_user.set_idle(true);
        let is_late = log_user.is_late();
        log_user.let_go(engine.store());
        if is_late {
            // Requests that wait for a key of the job must not wait for the following, too.
            node.broadcast(&Message::KeysFree);
            // The client that had the log started gets its reply once all effects go to the log;
            // but a script may never end.
            let scripts = &node.core.shared.scripts.running;
            let is_given_up = || node.is_stopping() || scripts.busy().is_some();
            node.keeping.log_in_use.wait_until_taken_up(&is_given_up);
        }
        engine.store().tell_memory();
        if let Some(message) = message
            && let Some(worker) = node.workers().get(job.client.worker)
        {
            worker.post(message);
        }
        node.broadcast(&Message::KeysFree);
    }
}

/// Runs a job. Returns the message for its client's worker, or `None` if the job waits elsewhere
/// and is answered from there.
fn run(node: &Arc<Node>, engine: &mut Engine, job: &mut Job, queue: &Queue) -> Option<Message> {
    let mut session = Session::new(Arc::clone(&job.client), true);
    (session.database, session.resp) = (job.database, job.resp);
    session.transaction = job.transaction.take();
    session.watches = job.watches.take();
    if job.is_of_server {
        session.is_of_primary = true;
        // The request concerns the role after a pending change.
        let gate = &node.core.shared.gate;
        let is_open = || (!gate.changes_role() || node.is_stopping()).then_some(());
        let _in_time = poll(ROLE_TIME, PAUSE_LOOK, is_open);
    }
    let is_alone = session.transaction.is_none();
    let mut port = Port::of_offloaded(node, job, queue, is_alone);
    let mut output = ReplyBuffer::with_capacity(0);
    let share = Share {
        requests_max: 1,
        reply_bytes_max: usize::MAX,
    };
    engine.begin_turn(node.core.clock.monotonic_ns());
    announcer::work_for(job.client.id);
    // If another node is about to serve the request's slot, it waits for that. It was admitted on
    // its way here.
    while engine
        .run(&mut session, &mut port, &job.request, &mut output, share)
        .next
        == Next::Paused
        && !node.is_stopping()
    {
        std::thread::sleep(PAUSE_LOOK);
    }
    engine.end_transaction(&mut session);
    announcer::work_for(0);
    if port.is_answered_later() {
        return None;
    }
    let connection = job.connection;
    Some(match &session.wait {
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
    })
}
