//! The server's control log: Raft on a thread of its own, behind calls that block on any other
//! thread.
//!
//! ```text
//!   callers ─► RaftLog ── tasks ──► the thread: Runtime::run ─► Raft, its disk, answers to peers
//!                  └── not the leader? the request goes to who is, by the Carrier
//! ```
//!
//! Every call has a timeout; what it requested may still happen afterwards. No call may be made on
//! the Raft thread itself, which would wait for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::control_log::RaftId;
use cluster::{Applied, ControlLog, ControlState, Membership, Proposal, Times, Unavailable};
use durability::disk::Disk;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{ChangeMembers, EmptyNode, Raft};
use openraft_rt_tokio::TokioRuntime;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::network::{
    Carrier, Network, Unreached, barrier, barrier_request, propose, propose_request, read_led,
    serve,
};
use crate::{Data, DiskFault, DiskLog, Machine, Outcome, Published, Standing, raft_config};

openraft::declare_raft_types!(
    /// Raft on tokio.
    pub(crate) GroupTypes:
        D = Data,
        R = Outcome,
        NodeId = u64,
        Node = EmptyNode,
        AsyncRuntime = TokioRuntime,
);

type GroupRaft = Raft<GroupTypes, Machine>;

/// Between two attempts to reach a leader.
const RETRY: Duration = Duration::from_millis(20);

/// The level that every node knows, before the group has agreed on one.
const LEVEL_OF_ALL: u16 = 1;

/// What a control log needs.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node's Raft id.
    pub id: RaftId,
    /// The disk with the files.
    pub disk: Arc<dyn Disk>,
    /// Their directory; its parent exists.
    pub directory: PathBuf,
    /// The group's times.
    pub times: Times,
}

/// See the module.
pub struct RaftLog<K> {
    raft: GroupRaft,
    handle: Handle,
    published: Published,
    carrier: Arc<K>,
    times: Times,
    /// See [`Standing::has_quorum`].
    quorum_ms: AtomicU64,
    fault: DiskFault,
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

/// The work of the Raft thread: Raft makes progress only while [`Runtime::run`] runs.
#[derive(Debug)]
pub struct Runtime {
    runtime: tokio::runtime::Runtime,
    raft: GroupRaft,
    fault: DiskFault,
    stopped: oneshot::Receiver<()>,
}

impl Runtime {
    /// Runs Raft until the log is [stopped](RaftLog::stop).
    pub fn run(self) {
        let Self {
            runtime,
            raft,
            fault,
            stopped,
        } = self;
        runtime.block_on(async move {
            // Dropping the sender stops it, too.
            let _stopped = stopped.await;
            fault.give_up();
            let _ended = raft.shutdown().await;
        });
        // Tasks that wait for a peer are not awaited.
        runtime.shutdown_background();
    }
}

impl<K: Carrier> RaftLog<K> {
    /// Opens the files. Returns the log and what its thread is to run.
    ///
    /// # Errors
    /// Those of the system; damaged files.
    pub fn open(
        options: &Options,
        carrier: Arc<K>,
        changed: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<(Arc<Self>, Runtime)> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let log = DiskLog::open(&options.disk, &options.directory)?;
        let published = Published::with_hook(changed);
        let fault = log.fault();
        let machine = Machine::new(&options.disk, &options.directory, &published, &fault);
        let config = raft_config(&options.times).map_err(io::Error::other)?;
        let network = Network(Arc::clone(&carrier));
        let raft = GroupRaft::new(options.id, Arc::new(config), network, log, machine);
        let raft = runtime.block_on(raft).map_err(io::Error::other)?;
        let (stop, stopped) = oneshot::channel();
        let own = Self {
            raft: raft.clone(),
            handle: runtime.handle().clone(),
            published,
            carrier,
            times: options.times,
            quorum_ms: AtomicU64::new(options.times.quorum_ms),
            fault: fault.clone(),
            stop: Mutex::new(Some(stop)),
        };
        let thread = Runtime {
            runtime,
            raft,
            fault,
            stopped,
        };
        Ok((Arc::new(own), thread))
    }

    /// Stops the thread.
    pub fn stop(&self) {
        let stop = self
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(stop) = stop {
            // It may have ended by itself.
            let _gone = stop.send(());
        }
    }

    /// Begins a group with this node as its only voter; does nothing if there is a group already.
    ///
    /// # Errors
    /// Why the group could not begin.
    pub fn begin(&self) -> Result<(), String> {
        let raft = self.raft.clone();
        let begun = self.wait(self.patience(), async move {
            if raft
                .is_initialized()
                .await
                .map_err(|error| error.to_string())?
            {
                return Ok(());
            }
            let own = BTreeMap::from([(*raft.node_id(), EmptyNode {})]);
            raft.initialize(own)
                .await
                .map_err(|error| error.to_string())
        });
        begun.unwrap_or_else(|| Err("the control log does not answer".to_owned()))
    }

    /// Returns Raft's present status.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let quorum_ms = self.quorum_ms.load(Ordering::Relaxed);
        Standing::of(&self.raft, quorum_ms, &self.fault)
    }

    /// Returns the times with which it was opened.
    #[must_use]
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Sets how long a majority's confirmation of this leader counts from now on.
    pub fn set_quorum_time(&self, quorum_ms: u64) {
        self.quorum_ms.store(quorum_ms, Ordering::Relaxed);
    }

    /// Answers a peer's request asynchronously.
    pub fn serve(
        &self,
        request: Vec<u8>,
        done: impl FnOnce(Result<Vec<u8>, String>) + Send + 'static,
    ) {
        if let Some(fault) = self.standing().fault {
            return done(Err(format!("its control log cannot be written: {fault}")));
        }
        let raft = self.raft.clone();
        drop(
            self.handle
                .spawn(async move { done(serve(&raft, &request).await) }),
        );
    }

    /// Whether Raft here can answer in time. Otherwise requests would wait in vain, and be carried
    /// out when no caller wants them any more.
    fn is_able(&self) -> Result<(), Unavailable> {
        match self.standing().fault {
            None => Ok(()),
            Some(_) => Err(Unavailable::CannotWrite),
        }
    }

    /// Proposes at this node, which leads. Calls `done` with the result on the Raft thread.
    pub fn propose_later(
        &self,
        proposal: &Proposal,
        done: impl FnOnce(Result<Applied, Unavailable>) + Send + 'static,
    ) {
        let is_able = self.is_able();
        let (raft, bytes) = (self.raft.clone(), proposal.encode());
        drop(self.handle.spawn(async move {
            let proposed = match is_able {
                Ok(()) => propose(&raft, bytes).await.and_then(applied_of),
                Err(fault) => Err(fault),
            };
            done(proposed);
        }));
    }

    /// Makes the joined nodes Raft's members, with these voters. One step at a time. Calls `done`
    /// when it has ended, with the reason if it failed.
    pub fn change_later(
        &self,
        change: Change,
        done: impl FnOnce(Result<(), String>) + Send + 'static,
    ) {
        let is_able = self.is_able();
        let (raft, time) = (self.raft.clone(), self.patience());
        drop(self.handle.spawn(async move {
            if let Err(fault) = is_able {
                return done(Err(fault.to_string()));
            }
            let empty =
                |ids: BTreeSet<RaftId>| ids.into_iter().map(|id| (id, EmptyNode {})).collect();
            let changes = match change {
                Change::Learn(ids) => ChangeMembers::AddNodes(empty(ids)),
                Change::Voters(ids) => ChangeMembers::ReplaceAllVoters(ids),
                Change::Forget(ids) => ChangeMembers::RemoveNodes(ids),
                Change::Lead(id) => return done(hand_over(&raft, id, time).await),
            };
            let changed = raft.change_membership(changes, true).await;
            done(changed.map(drop).map_err(|error| error.to_string()));
        }));
    }

    /// Returns the target voters of a change that an earlier leader began and did not finish, or
    /// `None` if there is no such change.
    #[must_use]
    pub fn unfinished_change(&self) -> Option<BTreeSet<RaftId>> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let sets = metrics.membership_config.membership().get_joint_config();
        sets.last().filter(|_| sets.len() > 1).cloned()
    }

    /// Returns how long a call waits.
    fn patience(&self) -> Duration {
        Duration::from_millis(self.times.node_timeout_ms * 2)
    }

    /// Waits for work of the Raft thread, or returns `None` if it takes too long.
    fn wait<R: Send + 'static>(
        &self,
        time: Duration,
        what: impl Future<Output = R> + Send + 'static,
    ) -> Option<R> {
        let (sender, receiver) = sync_channel(1);
        let task = self.handle.spawn(async move {
            // The caller may not wait any more.
            let _sent = sender.send(what.await);
        });
        let received = receiver.recv_timeout(time).ok();
        if received.is_none() {
            task.abort();
        }
        received
    }

    /// Has the present leader do something, with a timeout.
    fn at_leader<F>(
        &self,
        request: Vec<u8>,
        here: impl Fn(GroupRaft) -> F + Send + Sync + 'static,
    ) -> impl Future<Output = Result<u64, Unavailable>> + Send + 'static
    where
        F: Future<Output = Result<u64, Unavailable>> + Send + 'static,
    {
        let (is_able, time) = (self.is_able(), self.patience());
        let led = led(
            self.raft.clone(),
            Arc::clone(&self.carrier),
            time,
            request,
            here,
        );
        async move {
            if let Err(fault) = is_able {
                // Slows down callers that would retry at once.
                tokio::time::sleep(RETRY * 10).await;
                return Err(fault);
            }
            let led = tokio::time::timeout(time, led).await;
            led.unwrap_or(Err(Unavailable::NoMajority))
        }
    }

    /// Proposes at the present leader.
    fn proposed(
        &self,
        proposal: &Proposal,
    ) -> impl Future<Output = Result<Applied, Unavailable>> + Send + 'static {
        let bytes = proposal.encode();
        let request = propose_request(&bytes);
        let is_known = self.is_known(proposal.entry.level());
        let led = self.at_leader(request, move |raft| {
            let bytes = bytes.clone();
            async move { propose(&raft, bytes).await }
        });
        async move {
            is_known.await?;
            led.await.and_then(applied_of)
        }
    }

    /// Waits for a limited time until all nodes know entries of this level, as far as known here. A
    /// group that has just begun, or was just upgraded, will soon know it.
    fn is_known(
        &self,
        level: u16,
    ) -> impl Future<Output = Result<(), Unavailable>> + Send + 'static {
        let (published, mut left) = (self.published.clone(), self.patience());
        async move {
            while level > LEVEL_OF_ALL && published.get().feature_level < level {
                if left.is_zero() {
                    return Err(Unavailable::Level(level));
                }
                tokio::time::sleep(RETRY).await;
                left = left.saturating_sub(RETRY);
            }
            Ok(())
        }
    }

    /// Proposes at the present leader. Calls `done` with the result on the Raft thread.
    pub fn propose_anywhere(
        &self,
        proposal: &Proposal,
        done: impl FnOnce(Result<Applied, Unavailable>) + Send + 'static,
    ) {
        let proposed = self.proposed(proposal);
        drop(self.handle.spawn(async move { done(proposed.await) }));
    }
}

/// Has another voter lead, and waits until this node knows the new leader. The wait is at least as
/// long as the transfer can take; otherwise the caller would retry at once.
async fn hand_over(raft: &GroupRaft, to: RaftId, time: Duration) -> Result<(), String> {
    let asked = raft.trigger().transfer_leader(to).await;
    asked.map_err(|error| error.to_string())?;
    let own = *raft.node_id();
    let until = |metrics: &openraft::RaftMetrics<_>| {
        metrics.current_leader.is_some_and(|leader| leader != own)
    };
    let waited = raft.wait(Some(time)).metrics(until, "another leader").await;
    waited.map(drop).map_err(|error| error.to_string())
}

/// Has the leader do something, with as many attempts as needed.
async fn led<K: Carrier, F>(
    raft: GroupRaft,
    carrier: Arc<K>,
    time: Duration,
    request: Vec<u8>,
    here: impl Fn(GroupRaft) -> F + Send + Sync,
) -> Result<u64, Unavailable>
where
    F: Future<Output = Result<u64, Unavailable>> + Send,
{
    loop {
        let led = match here(raft.clone()).await {
            Err(Unavailable::NotLeader(Some(leader))) if leader != *raft.node_id() => {
                let answer = carrier.ask(leader, request.clone(), time).await;
                let answer = answer.ok().and_then(|answer| read_led(&answer).ok());
                answer.unwrap_or(Err(Unavailable::NotLeader(None)))
            }
            led => led,
        };
        match led {
            // An election is in progress, or will begin soon.
            Err(Unavailable::NotLeader(_)) => tokio::time::sleep(RETRY).await,
            led => return led,
        }
    }
}

/// A peer's answer, or why there is none.
pub type Told = Result<Vec<u8>, String>;

/// Creates the channel on which a carrier waits for an answer from another thread.
#[must_use]
pub fn answer_channel() -> (oneshot::Sender<Told>, oneshot::Receiver<Told>) {
    oneshot::channel()
}

/// Waits up to `time` for an answer.
///
/// # Errors
/// If none comes.
pub async fn within(time: Duration, answer: oneshot::Receiver<Told>) -> Result<Vec<u8>, Unreached> {
    match tokio::time::timeout(time, answer).await {
        Ok(Ok(answer)) => answer.map_err(Unreached),
        Ok(Err(_)) => Err(Unreached("the link has ended".to_owned())),
        Err(_) => Err(Unreached("there was no answer in time".to_owned())),
    }
}

/// A change of Raft's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These nodes become learners.
    Learn(BTreeSet<RaftId>),
    /// These nodes become the voters.
    Voters(BTreeSet<RaftId>),
    /// These nodes have left; none of them votes.
    Forget(BTreeSet<RaftId>),
    /// This voter becomes the leader.
    Lead(RaftId),
}

fn applied_of(number: u64) -> Result<Applied, Unavailable> {
    let byte = u8::try_from(number).map_err(|_| Unavailable::Ended)?;
    Applied::of(byte).map_err(|_| Unavailable::Ended)
}

impl<K: Carrier> ControlLog for RaftLog<K> {
    fn propose(&self, proposal: &Proposal) -> Result<Applied, Unavailable> {
        // It has its own timeout.
        let proposed = self.wait(self.patience() * 3, self.proposed(proposal));
        let applied = proposed.unwrap_or(Err(Unavailable::NoMajority))?;
        // If another node leads, the entry was applied there.
        if !self.standing().is_leader {
            self.read_barrier()?;
        }
        Ok(applied)
    }

    fn read_barrier(&self) -> Result<Arc<ControlState>, Unavailable> {
        let led = self.at_leader(
            barrier_request(),
            |raft| async move { barrier(&raft).await },
        );
        let index = self.wait(self.patience() * 2, led);
        let index = index.unwrap_or(Err(Unavailable::NoMajority))?;
        let (raft, time) = (self.raft.clone(), self.patience());
        let waited = self.wait(time, async move {
            let wait = raft.wait(Some(time));
            wait.applied_index_at_least(Some(index), "read")
                .await
                .is_ok()
        });
        match waited {
            Some(true) => Ok(self.published.get()),
            _ => Err(Unavailable::NoMajority),
        }
    }

    fn watch(&self) -> Arc<ControlState> {
        self.published.get()
    }

    fn membership(&self) -> Membership {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let stored = &metrics.membership_config;
        let members = stored.membership();
        Membership {
            voters: members.voter_ids().collect(),
            learners: members.learner_ids().collect(),
            is_changing: members.get_joint_config().len() > 1
                || stored.log_id() != metrics.committed_membership_config.log_id(),
        }
    }

    fn change_voters(&self, voters: &BTreeSet<RaftId>) -> Result<(), Unavailable> {
        let (raft, voters) = (self.raft.clone(), voters.clone());
        let changed = self.wait(self.patience(), async move {
            raft.change_membership(voters, true).await.is_ok()
        });
        changed
            .filter(|done| *done)
            .map(drop)
            .ok_or(Unavailable::NoMajority)
    }

    fn has_quorum_lease(&self) -> bool {
        self.standing().has_quorum
    }
}

impl<K> fmt::Debug for RaftLog<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftLog").finish_non_exhaustive()
    }
}
