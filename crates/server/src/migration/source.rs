//! The source's end of a move: one attempt of a job, on the job's thread.
//!
//! ```text
//!   begin ──► ready
//!   cut, its records of the slots ──► data
//!   log from before the cut, what it says of the slots ──► data          until little is left
//!   writes to the slots wait; everybody has left the store once: the log ends at S
//!   log up to S ──► data, mark ──► done: applied and durable there
//!   reads wait too; Entry::Move ──► the group: only its answer ends the wait
//!   moved ──► served; who waits is told where the slots are; their keys are removed here
//! ```
//!
//! The log is read with a cursor; none of it waits in memory. Only the group's answer decides who
//! has the slots. If an answer is lost, the same request is sent again.

mod sending;

use std::sync::Arc;
use std::time::Duration;

use cluster::moves::{Ends, Outset};
use cluster::{Applied, ControlState, NodeId, moves};
use durability::log::Log;
use engine::hash_slots::{Leaving, LeavingStage};
use replication::link::{Message, SlotsStep};
use store::Handle;

use super::directory::Named;
use super::filter::{Filter, Obstacle, Slots};
use super::job::{Job, Stage};
use super::staging::own_log;
use super::wire::{self, Begin, Mark, Step};
use super::{place_of, trim};
use crate::group::unique;
use crate::link::Message as WorkerMessage;
use crate::node::Node;
use crate::replication::session::{LinkFault, Received, Session, conduit, greet};
use crate::replication::{Frames, dial, identity_for};
use sending::Tail;

/// Maximum time to connect.
const DIAL_TIME: Duration = Duration::from_secs(2);
/// Maximum time for the target to get ready, and to answer a mark.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Time without any data after which an empty piece is sent: well below the target's patience.
const QUIET_MS_MAX: u64 = 10_000;
/// Intervals between two checks for messages: while no client waits, and while clients do.
const LOOK: Duration = Duration::from_millis(20);
const SHORT_LOOK: Duration = Duration::from_millis(1);
/// Number of futile pauses of writes after which the attempt is given up.
const PAUSES_MAX: u32 = 10;
/// Interval at which the group is asked again for a lost answer.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Maximum time to wait until the target serves the slots, before clients are redirected to it.
const SERVED_TIME: Duration = Duration::from_secs(2);

/// How an attempt ended without success.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The job was cancelled.
    Cancelled,
    /// A retry may succeed.
    Failed(String),
    /// A retry cannot succeed.
    Refused(String),
}

impl From<String> for Stopped {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<LinkFault> for Stopped {
    fn from(fault: LinkFault) -> Self {
        Self::Failed(format!("the link to the target: {fault}"))
    }
}

struct Attempt<'j> {
    node: &'j Arc<Node>,
    job: &'j Job,
    session: Session,
    log: Arc<Log>,
    handle: Handle,
    marks: u64,
    ends: Ends,
    /// Time of the last message sent, on the monotonic clock.
    sent_ms: u64,
    /// Time until which a target that takes nothing is waited for, on the monotonic clock.
    send_until_ms: u64,
}

/// Marks the slots as leaving, until it is dropped.
struct Leave<'n>(&'n Arc<Node>);

impl Leave<'_> {
    fn set(&self, job: &Job, stage: LeavingStage) {
        let ranges = job.ranges.clone().into();
        let leaving = Leaving { ranges, stage };
        self.0.core.shared.hash_slots.set_leaving(leaving);
        if stage == LeavingStage::Copied {
            self.0.broadcast(&WorkerMessage::Resume);
        }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // If the server stops, the group may still give the slots away: waiting requests stay
        // unanswered.
        if self.0.is_stopping() {
            return;
        }
        let slots = &self.0.core.shared.hash_slots;
        slots.set_leaving(Leaving::default());
        self.0.broadcast(&WorkerMessage::Resume);
        self.0.broadcast(&WorkerMessage::KeysFree);
    }
}

/// Makes one attempt at a job.
pub(super) fn attempt(node: &Arc<Node>, job: &Job) -> Result<(), Stopped> {
    let group = node.control.log();
    let group = group.ok_or_else(|| Stopped::Refused(super::ALONE.to_owned()))?;
    // This node's view may be old: the slots may have come back since.
    let state = group.read_barrier();
    let state = state.map_err(|error| Stopped::Failed(error.to_string()))?;
    let nodes = (job.source, job.target);
    let office = node.replication.fence.office();
    let outset = moves::begin(&state, nodes, office, &job.ranges);
    let ends = match outset.map_err(|what| Stopped::Refused(what.to_owned()))? {
        Outset::Done => return finish(node, job, None),
        Outset::Begin(ends) => ends,
        Outset::NotInOffice => {
            let what = "this node is not in office in the present term";
            return Err(Stopped::Failed(what.to_owned()));
        }
    };
    let log = own_log(node).map_err(Stopped::Refused)?;
    job.change(node.core.clock.now_unix_ms(), |it| {
        it.stage = Stage::Preparing;
    });
    let session = connect(node, &state, job.target)?;
    let handle = node.core.store.handle();
    let mut attempt = Attempt {
        node,
        job,
        session,
        log,
        handle,
        marks: 0,
        ends,
        sent_ms: 0,
        send_until_ms: u64::MAX,
    };
    let leave = Leave(node);
    let moved = attempt.run(&leave);
    attempt.session.conduit.end();
    drop(leave);
    let keys = moved?;
    finish(node, job, keys.as_deref())
}

/// Does the rest of a job once the slots are the target's.
fn finish(node: &Arc<Node>, job: &Job, keys: Option<&[Named]>) -> Result<(), Stopped> {
    job.change(node.core.clock.now_unix_ms(), |it| {
        it.stage = Stage::Trimming;
    });
    // Remaining keys are removed later (`Migrations::clean`).
    if let Err(reason) = node.migrations.remove_lost(node, &job.ranges, keys) {
        node.core.log.notice(format_args!(
            "Keys of slots that were moved are removed later: {reason}"
        ));
    }
    Ok(())
}

/// Connects to a node of the group.
pub(super) fn connect(
    node: &Arc<Node>,
    state: &ControlState,
    to: NodeId,
) -> Result<Session, Stopped> {
    let (host, port) = place_of(state, to)
        .ok_or_else(|| Stopped::Refused("nobody knows where the other node is".to_owned()))?;
    let unreached = |error: std::io::Error| Stopped::Failed(format!("{host}:{port}: {error}"));
    let stream = dial(node, &host, port, DIAL_TIME).map_err(unreached)?;
    let address = stream.peer_addr().map_err(unreached)?;
    let identity = identity_for(node, address.ip()).map_err(unreached)?;
    let session = greet(conduit(stream).map_err(unreached)?, &identity)?;
    if session.peer.node.0 != to.0 {
        session.conduit.end();
        return Err(Stopped::Failed(
            "another node is at the address of the target".to_owned(),
        ));
    }
    Ok(session)
}

impl Attempt<'_> {
    fn now_ms(&self) -> u64 {
        self.node.core.clock.monotonic_ms()
    }

    fn stage(&self, stage: Stage) {
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        self.job.change(now_unix_ms, |it| it.stage = stage);
    }

    fn go_on(&self) -> Result<(), Stopped> {
        if self.node.is_stopping() {
            return Err(Stopped::Refused("the server stops".to_owned()));
        }
        match self.job.is_cancelled() {
            true => Err(Stopped::Cancelled),
            false => Ok(()),
        }
    }

    /// As [`Attempt::go_on`], for work that may send nothing for long: the target treats a silent
    /// source as lost.
    fn go_on_heard(&mut self) -> Result<(), Stopped> {
        self.go_on()?;
        match self.now_ms() < self.sent_ms + QUIET_MS_MAX {
            true => Ok(()),
            false => self.send(Step::Data, &[]),
        }
    }

    fn send(&mut self, step: Step, bytes: &[u8]) -> Result<(), Stopped> {
        let step = step as u8;
        let message = Message::Slots(SlotsStep { step, bytes });
        let job = self.job;
        let (clock, until_ms) = (&self.node.core.clock, self.send_until_ms);
        let goes_on = || !job.is_cancelled() && clock.monotonic_ms() < until_ms;
        match self.session.writer.send(&message, &goes_on) {
            Ok(()) => {
                self.sent_ms = self.now_ms();
                Ok(())
            }
            // The target may have sent the reason why it takes no more data.
            Err(fault) => Err(match (self.reason(), fault) {
                (Some(reason), _) => Stopped::Failed(reason),
                (None, LinkFault::Silent) => {
                    Stopped::Failed("the target takes nothing any more".to_owned())
                }
                (None, fault) => fault.into(),
            }),
        }
    }

    /// Returns why the target ended the move, if it said so.
    fn reason(&mut self) -> Option<String> {
        while let Ok(received) = self.session.reader.next() {
            match received {
                Received::Message(Message::Slots(step)) if step.step == Step::Refused as u8 => {
                    return Some(String::from_utf8_lossy(step.bytes).into_owned());
                }
                Received::Nothing => return None,
                _ => {}
            }
        }
        None
    }

    /// Waits for a step and returns its bytes, or `None` if it has not come in time.
    fn hear(
        &mut self,
        expected: Step,
        time: Duration,
        look: Duration,
    ) -> Result<Option<u64>, Stopped> {
        let until_ms = self.now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.session.reader.set_time(look)?;
        loop {
            let message = match self.session.reader.next()? {
                Received::Message(Message::Slots(step)) => {
                    (Step::of(step.step), step.bytes.to_vec())
                }
                Received::Message(_) => {
                    return Err(Stopped::Failed("the target says something else".to_owned()));
                }
                Received::Unknown => continue,
                Received::Nothing => {
                    self.go_on()?;
                    if self.now_ms() >= until_ms {
                        return Ok(None);
                    }
                    continue;
                }
            };
            match message {
                (Some(Step::Refused), bytes) => {
                    let reason = String::from_utf8_lossy(&bytes).into_owned();
                    return Err(Stopped::Failed(reason));
                }
                (Some(step), bytes) if step == expected => {
                    let now_unix_ms = self.node.core.clock.now_unix_ms();
                    self.job.change(now_unix_ms, |it| it.acked_ms = now_unix_ms);
                    return Ok(Some(wire::number(&bytes).map_or(0, |(number, _)| number)));
                }
                _ => {}
            }
        }
    }

    /// Moves the slots. Returns the names of their keys, if they are known.
    fn run(&mut self, leave: &Leave<'_>) -> Result<Option<Vec<Named>>, Stopped> {
        let begin = Begin {
            name: self.job.name,
            ranges: self.job.ranges.clone(),
            keys: trim::keys_in(self.node, &self.job.ranges),
            bytes: self.estimate(),
        };
        let is_small = self.is_small(&begin);
        self.send(Step::Begin, &begin.encode())?;
        let ready = self.hear(Step::Ready, ANSWER_TIME, LOOK)?;
        ready.ok_or_else(|| "the target does not get ready".to_owned())?;
        leave.set(self.job, LeavingStage::Copied);
        // Every thread that looked at the slots before is done with them after this.
        self.handle.exclusive(|_| ());
        self.stage(Stage::Copying);
        if is_small {
            return self.move_small(leave).map(Some);
        }
        let from = self.log.tail_complete();
        let _kept = self.log.pin("slots", from);
        let (generation, from) = self.copy()?;
        let slots = Slots::new(&self.job.ranges);
        let filter = Filter::new(self.node.core.env.table, slots, generation);
        let frames = Frames::new(&self.log, from);
        let mut tail = Tail {
            filter,
            frames,
            out: Vec::new(),
        };
        self.stage(Stage::CatchingUp);
        for _ in 0..PAUSES_MAX {
            self.catch_up(&mut tail)?;
            let sent = self.hand_over(leave, |own, end| own.send_log(&mut tail, end))?;
            if sent.is_some() {
                return Ok(None);
            }
        }
        Err(Stopped::Failed(format!(
            "writes to the slots would have waited for longer than {} ms, {PAUSES_MAX} times",
            self.pause_max().as_millis()
        )))
    }

    fn send_mark(&mut self, kind: Mark) -> Result<u64, Stopped> {
        self.marks += 1;
        self.send(Step::Mark, &wire::mark(self.marks, kind))?;
        Ok(self.marks)
    }

    /// Waits until the target has done everything before a mark. Returns false if it has not in
    /// time.
    fn await_mark(&mut self, mark: u64, time: Duration, look: Duration) -> Result<bool, Stopped> {
        let until_ms = self.now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        loop {
            let left_ms = until_ms.saturating_sub(self.now_ms());
            match self.hear(Step::Done, Duration::from_millis(left_ms), look)? {
                Some(done) if done >= mark => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }

    fn pause_max(&self) -> Duration {
        let config = self.node.core.config.current();
        Duration::from_millis(config.cluster.pause_ms_max)
    }

    /// Pauses writes, sends the rest, and asks the group to give the slots away. Returns the result
    /// of sending the rest, or `None` if that took too long.
    fn hand_over<R>(
        &mut self,
        leave: &Leave<'_>,
        send_rest: impl FnOnce(&mut Self, u64) -> Result<R, Stopped>,
    ) -> Result<Option<R>, Stopped> {
        let began_ns = self.node.core.clock.monotonic_ns();
        self.stage(Stage::HandingOver);
        leave.set(self.job, LeavingStage::WritesWait);
        // After this, no request that was admitted before is in the store.
        let log = Arc::clone(&self.log);
        let slots = &self.node.core.shared.hash_slots;
        let (end, flushes) = self
            .handle
            .exclusive(|_| (log.tail_complete(), slots.flushes()));
        let pause_ms_max = u64::try_from(self.pause_max().as_millis()).unwrap_or(u64::MAX);
        self.send_until_ms = self.now_ms().saturating_add(pause_ms_max);
        let sent = send_rest(self, end)?;
        let mark = self.send_mark(Mark::Durable)?;
        self.send_until_ms = u64::MAX;
        let took = Duration::from_nanos(self.node.core.clock.monotonic_ns() - began_ns);
        let left = self.pause_max().saturating_sub(took);
        if !self.await_mark(mark, left, SHORT_LOOK)? {
            leave.set(self.job, LeavingStage::Copied);
            self.stage(Stage::CatchingUp);
            if !self.await_mark(mark, ANSWER_TIME, LOOK)? {
                return Err(Stopped::Failed("the target does not go on".to_owned()));
            }
            return Ok(None);
        }
        leave.set(self.job, LeavingStage::AllWait);
        if self.handle.exclusive(|_| slots.flushes()) != flushes {
            return Err(Stopped::Failed(Obstacle::Flushed.text().to_owned()));
        }
        self.go_on()?;
        let moved = self.propose();
        let pause_ns = self.node.core.clock.monotonic_ns() - began_ns;
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        self.job
            .change(now_unix_ms, |it| it.pause_us = pause_ns / 1_000);
        moved?;
        // Without an answer, clients find the slots at the target a little later.
        let _told = self.send(Step::Moved, &[]);
        let _served = self.hear(Step::Served, SERVED_TIME, SHORT_LOOK);
        self.await_routes();
        let pause_ns = self.node.core.clock.monotonic_ns() - began_ns;
        self.job
            .change(now_unix_ms, |it| it.pause_us = pause_ns / 1_000);
        Ok(Some(sent))
    }

    /// Proposes that the slots become the target's, until there is an answer: without one, no node
    /// may serve them.
    fn propose(&self) -> Result<(), Stopped> {
        let proposal = unique::proposal(self.ends.entry(&self.job.ranges));
        loop {
            let group = self.node.control.log();
            let applied = group.map(|group| group.propose(&proposal));
            match applied {
                Some(Ok(Applied::Done)) => return Ok(()),
                Some(Ok(Applied::Stale | Applied::Refused)) => {
                    return Err(Stopped::Failed(
                        "one of the two shards has changed meanwhile".to_owned(),
                    ));
                }
                Some(Err(_)) | None if self.node.is_stopping() => {
                    return Err(Stopped::Refused("the server stops".to_owned()));
                }
                Some(Err(_)) | None => std::thread::sleep(ASK_AGAIN),
            }
        }
    }

    /// Waits until this node knows that another shard has the slots, and no longer serves them.
    fn await_routes(&self) {
        let slots = &self.node.core.shared.hash_slots;
        let first = self.job.ranges.first().map_or(0, |(first, _)| *first);
        while slots.routes().is_of_shard(first) && !self.node.is_stopping() {
            std::thread::sleep(SHORT_LOOK);
        }
    }
}
