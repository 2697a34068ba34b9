//! Moves of hash slots with their keys to another node of the cluster, while clients read and write
//! them.
//!
//! ```text
//!   CLUSTER MIGRATESLOTS ─► job ─► thread "slots": source ── link ──► target: staging ─► store, log
//!                                     │ Entry::Move                       (hidden until the slots are its own)
//!                                     ▼
//!                                control group ─► routes of all nodes
//! ```
//!
//! Invariants
//!  1. Only the group decides which shard has a slot. A move is one entry, which names both shards
//!     as they were when the copy began.
//!  2. At any time, a node takes part in at most one move as its source and in one as its target.
//!     Other jobs wait.
//!  3. Keys that are here but belong to another shard's slots are hidden, whether they left or
//!     arrived. They are removed in the end: by the thread that ends a move, or later by
//!     [`Migrations::clean`] (after a start or a promotion).
//!  4. Keys that may have been handed over are removed only after the group has confirmed that no
//!     move that began before can still arrive (`Entry::EndMoves`).
//!
//! Of the group, this module knows only its log ([`crate::group::holder::SharedLog`]).

mod cut;
mod directory;
mod filter;
pub(crate) mod fronts;
mod import;
pub(crate) mod job;
mod source;
mod staging;
pub(crate) mod state;
mod target;
mod trim;
mod wire;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::entry::SlotRange;
use cluster::{ControlState, NodeId, moves};
use engine::hash_slots::Routes;

use crate::link::Message as WorkerMessage;
use crate::node::Node;
use crate::replication::session::Session;
use directory::{Directory, Named};
use job::{Job, Stage};
use source::Stopped;
use state::Migrations;
use state::{Claim, Jobs};
use wire::Begin;

/// Error if there is no group.
const ALONE: &str = "this node is by itself: there is no other node to move slots to or from";
/// Maximum number of finished jobs that are still shown.
const SHOWN_MAX: usize = 1_000;
/// Maximum number of retries of a job.
const RETRIES_MAX: u32 = 10;
/// Time before the first retry of a job, ...
const BACK_OFF_MS: u64 = 50;
/// ... and its maximum: it doubles with each retry.
const BACK_OFF_MS_MAX: u64 = 5_000;
/// Interval between two checks for left keys of other shards' slots.
const CLEAN_INTERVAL_MS: u64 = 1_000;
/// Share of each core, in thousandths, for copying and removing while clients want the core and
/// nothing is urgent.
const SHARE: u64 = 150;
/// Maximum time that a target waits for its claim to be free: well within the source's patience.
const CLAIM_MS: u64 = 45_000;
/// Time that the directory of keys is kept after its last use.
const DIRECTORY_IDLE_MS: u64 = 60_000;
/// Interval at which waiters check a job.
const LOOK: Duration = Duration::from_millis(1);

impl Migrations {
    /// Serves a link whose first message belongs to a move, until the link ends.
    pub(crate) fn serve(&self, node: &Arc<Node>, session: Session) {
        target::serve(self, node, session);
    }

    /// Queues the move of slots of this node to another one.
    ///
    /// # Errors
    /// Why they cannot be moved.
    pub(crate) fn begin_export(
        &self,
        node: &Node,
        ranges: Vec<SlotRange>,
        to: NodeId,
    ) -> Result<Arc<Job>, String> {
        self.export(&shared(node)?, Job::new_name(), ranges, to)
    }

    fn export(
        &self,
        node: &Arc<Node>,
        name: [u8; 20],
        ranges: Vec<SlotRange>,
        to: NodeId,
    ) -> Result<Arc<Job>, String> {
        if node.control.log().is_none() {
            return Err(ALONE.to_owned());
        }
        let routes = node.core.shared.hash_slots.routes();
        let mut slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
        if let Some(slot) = slots.find(|slot| !routes.serves(*slot)) {
            return Err(format!("slot {slot} is not served by this node"));
        }
        let now_unix_ms = node.core.clock.now_unix_ms();
        let ends = (own_id(node), to);
        let job = Arc::new(Job::new(name, ranges, ends, now_unix_ms));
        let mut jobs = self.lock();
        let mut going = jobs.exports.iter().filter(|job| !job.stage().is_over());
        if going.any(|other| other.overlaps(&job.ranges)) {
            return Err("some of the slots are in another move already".to_owned());
        }
        if !jobs.is_worked_on {
            let own = Arc::clone(node);
            spawn("slots", move || own.migrations.work(&own)).map_err(|error| error.to_string())?;
            jobs.is_worked_on = true;
        }
        jobs.exports.push_back(Arc::clone(&job));
        forget_old(&mut jobs.exports);
        Ok(job)
    }

    /// Queues a request to another node to move slots to this one.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn begin_import(
        &self,
        node: &Node,
        ranges: Vec<SlotRange>,
    ) -> Result<Arc<Job>, String> {
        let node = shared(node)?;
        let group = node.control.log().ok_or(ALONE)?;
        let state = group.watch();
        let first = ranges.first().map_or(0, |(first, _)| *first);
        let owner = state.slots.owner(first);
        let mut slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
        let source = owner.and_then(|owner| state.shards.get(&owner));
        let source = source
            .ok_or_else(|| format!("slot {first} is nobody's"))?
            .primary;
        if !slots.all(|slot| state.slots.owner(slot) == owner) {
            return Err("the slots are of several nodes".to_owned());
        }
        let own = own_id(&node);
        if source == own {
            return Err("this node has the slots already".to_owned());
        }
        let now_unix_ms = node.core.clock.now_unix_ms();
        let job = Job::new(Job::new_name(), ranges, (source, own), now_unix_ms);
        let job = Arc::new(job.asked_for());
        let mut jobs = self.lock();
        let mut going = jobs.imports.iter().filter(|job| !job.stage().is_over());
        if going.any(|other| other.overlaps(&job.ranges)) {
            return Err("some of the slots are in another move already".to_owned());
        }
        let asking = Arc::clone(&job);
        spawn("slots", move || import::ask(&node, &asking)).map_err(|error| error.to_string())?;
        jobs.imports.push_back(Arc::clone(&job));
        forget_old(&mut jobs.imports);
        Ok(job)
    }

    /// Returns the job of slots that arrive here: the one that this node asked for, or a new one.
    fn imported(&self, begin: &Begin, ends: (NodeId, NodeId), now_unix_ms: u64) -> Arc<Job> {
        let mut jobs = self.lock();
        if let Some(known) = jobs.imports.iter().find(|job| job.name == begin.name) {
            return Arc::clone(known);
        }
        let job = Arc::new(Job::new(
            begin.name,
            begin.ranges.clone(),
            ends,
            now_unix_ms,
        ));
        jobs.imports.push_back(Arc::clone(&job));
        forget_old(&mut jobs.imports);
        job
    }

    /// Returns all known jobs: exports, then imports.
    pub(crate) fn all(&self) -> (Vec<Arc<Job>>, Vec<Arc<Job>>) {
        let jobs = self.lock();
        let all = |jobs: &VecDeque<Arc<Job>>| jobs.iter().map(Arc::clone).collect();
        (all(&jobs.exports), all(&jobs.imports))
    }

    /// Returns the unfinished job that moves a slot away, if there is one.
    pub(crate) fn leaving(&self, slot: u16) -> Option<Arc<Job>> {
        let jobs = self.lock();
        let mut going = jobs.exports.iter().filter(|job| !job.stage().is_over());
        going.find(|job| job.has(slot)).map(Arc::clone)
    }

    /// Cancels a job, if that is still possible.
    pub(crate) fn cancel(&self, job: &Job) {
        job.cancel();
        // After this, a thread that checked the flag before is waiting and gets the notification.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Processes exports until none is waiting.
    fn work(&self, node: &Arc<Node>) {
        loop {
            let job = {
                let mut jobs = self.lock();
                let next = jobs.exports.iter().find(|job| !job.stage().is_over());
                let next = next.map(Arc::clone);
                jobs.is_worked_on = next.is_some();
                next
            };
            let Some(job) = job else { return };
            self.carry_out(node, &job);
        }
    }

    fn carry_out(&self, node: &Arc<Node>, job: &Job) {
        let now = || node.core.clock.now_unix_ms();
        job.change(now(), |it| it.started_ms = it.updated_ms.max(now()));
        let mut back_off_ms = BACK_OFF_MS;
        for retry in 0..=RETRIES_MAX {
            let stopped = match job.is_cancelled() {
                true => Err(Stopped::Cancelled),
                false => source::attempt(node, job),
            };
            let (stage, reason) = match stopped {
                Ok(()) => {
                    node.core.log.notice(format_args!(
                        "{} went to node {}",
                        shown(&job.ranges),
                        job.target
                    ));
                    (Stage::Done, String::new())
                }
                Err(Stopped::Cancelled) => (Stage::Cancelled, String::new()),
                Err(Stopped::Refused(reason)) => (Stage::Failed, reason),
                Err(Stopped::Failed(reason)) if retry == RETRIES_MAX => (Stage::Failed, reason),
                Err(Stopped::Failed(reason)) => {
                    job.change(now(), |it| {
                        it.stage = Stage::Preparing;
                        it.retries = retry + 1;
                        it.error.clone_from(&reason);
                    });
                    node.core.log.notice(format_args!(
                        "{} did not go to node {} yet: {reason}",
                        shown(&job.ranges),
                        job.target
                    ));
                    self.rest(job, back_off_ms);
                    back_off_ms = (back_off_ms * 2).min(BACK_OFF_MS_MAX);
                    continue;
                }
            };
            if stage == Stage::Failed {
                node.core.log.warning(format_args!(
                    "{} did not go to node {}: {reason}",
                    shown(&job.ranges),
                    job.target
                ));
            }
            job.change(now(), |it| {
                it.stage = stage;
                if !reason.is_empty() {
                    it.error = reason;
                }
            });
            // Requests that would send the keys themselves wait while a move does so.
            node.broadcast(&WorkerMessage::KeysFree);
            node.core.shared.observer.spans.add(|| job.span());
            return;
        }
    }

    /// Waits, unless the job is cancelled.
    fn rest(&self, job: &Job, ms: u64) {
        let jobs = self.lock();
        let time = Duration::from_millis(ms);
        let goes_on = |_: &mut Jobs| !job.is_cancelled();
        let waited = self.changed.wait_timeout_while(jobs, time, goes_on);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn directory(&self) -> MutexGuard<'_, Option<Directory>> {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the directory if it was not used for a while.
    fn drop_directory(&self, node: &Node) {
        let now_ms = node.core.clock.monotonic_ms();
        if let Ok(mut directory) = self.directory.try_lock() {
            directory.take_if(|one| one.is_idle(now_ms, DIRECTORY_IDLE_MS));
        }
    }

    /// Removes the keys of slots that moved to another node. The slots may have come back since, or
    /// may be about to.
    fn remove_lost(
        &self,
        node: &Arc<Node>,
        ranges: &[SlotRange],
        keys: Option<&[Named]>,
    ) -> Result<u64, String> {
        let _claim = self.await_claim(node, || Ok(()))?;
        let group = node.control.log().ok_or(ALONE)?;
        let state = group.read_barrier().map_err(|error| error.to_string())?;
        let lost = moves::lost(&state, own_id(node), ranges);
        match keys {
            Some(keys) if lost == ranges => trim::trim_keys(node, ranges, keys),
            _ => trim::trim(node, &lost),
        }
    }

    /// Waits for the claim to take slots in, until `go_on` fails.
    fn await_claim(
        &self,
        node: &Node,
        go_on: impl Fn() -> Result<(), String>,
    ) -> Result<Claim<'_>, String> {
        loop {
            match self.claim_staging() {
                Some(claim) => return Ok(claim),
                None if node.is_stopping() => return Err("the server stops".to_owned()),
                None => go_on()?,
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Takes the claim to take slots in, if it is free.
    fn claim_staging(&self) -> Option<Claim<'_>> {
        let was = self.is_staging.swap(true, Ordering::AcqRel);
        (!was).then(|| Claim(&self.is_staging))
    }

    /// Removes keys that belong to another shard's slots and to no current move, after a start or a
    /// promotion. Called regularly.
    pub(crate) fn clean(&self, node: &Node) {
        let now_ms = node.core.clock.monotonic_ms();
        if now_ms < self.clean_due_ms.load(Ordering::Relaxed) {
            return;
        }
        self.clean_due_ms
            .store(now_ms + CLEAN_INTERVAL_MS, Ordering::Relaxed);
        self.drop_directory(node);
        let slots = &node.core.shared.hash_slots;
        if !slots.is_on() || self.is_staging.load(Ordering::Acquire) {
            return;
        }
        let is_idle = !self.lock().is_worked_on;
        if slots.routes().is_replica || !is_idle || node.control.log().is_none() {
            return;
        }
        let mut databases = 0..node.core.store.databases();
        if !databases.any(|one| node.core.store.hidden_len(one) > 0) {
            return;
        }
        let Ok(own) = shared(node) else { return };
        if self.is_cleaning.swap(true, Ordering::AcqRel) {
            return;
        }
        let spawned = spawn("slots", move || {
            let migrations = &own.migrations;
            let _cleaning = Claim(&migrations.is_cleaning);
            if let Some(_claim) = migrations.claim_staging() {
                migrations.clean_up(&own);
            }
        });
        if spawned.is_err() {
            self.is_cleaning.store(false, Ordering::Release);
        }
    }

    fn clean_up(&self, node: &Arc<Node>) {
        // A move that began before the start may still arrive. This node's own view of its slots
        // may be old: only the group's answer counts.
        let Some(state) = target::end_moves(node) else {
            return;
        };
        let ranges = moves::lost(&state, own_id(node), &[(0, base::hash_slot::LAST)]);
        let kept = trim::keys_in(node, &ranges);
        match trim::trim(node, &ranges) {
            Ok(0) => {}
            Ok(count) => node.core.log.notice(format_args!(
                "{count} keys were removed whose slots are another node's"
            )),
            Err(reason) => node.core.log.notice(format_args!(
                "{kept} keys whose slots are another node's are removed later: {reason}"
            )),
        }
    }

    /// Waits until no move of a slot away from this node is going on, for at most `ms`.
    pub(crate) fn await_leaving(&self, slot: u16, ms: u64) {
        for _ in 0..ms {
            match self.leaving(slot) {
                Some(job) if !job.stage().is_moved() => std::thread::sleep(LOOK),
                _ => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the node, for threads of its own.
fn shared(node: &Node) -> Result<Arc<Node>, String> {
    node.replication.own.node().ok_or_else(|| ALONE.to_owned())
}

/// Drops the oldest finished jobs if there are too many.
fn forget_old(jobs: &mut VecDeque<Arc<Job>>) {
    while jobs.len() > SHOWN_MAX {
        let Some(at) = jobs.iter().position(|job| job.stage().is_over()) else {
            return;
        };
        let _forgotten = jobs.remove(at);
    }
}

/// Returns the slots of other shards.
#[must_use]
pub(crate) fn of_others(routes: &Routes) -> Vec<SlotRange> {
    let is_others = |slot: &u16| routes.owner(*slot).is_some_and(|owner| owner != routes.own);
    moves::ranges_of((0..=base::hash_slot::LAST).filter(is_others))
}

/// Returns the group's name of this node.
fn own_id(node: &Node) -> NodeId {
    NodeId(node.replication.own.id().0)
}

/// Returns the address of a node's link listener.
fn place_of(state: &ControlState, node: NodeId) -> Option<(String, u16)> {
    let record = &state.nodes.get(&node)?.record;
    Some((record.host.clone(), record.link_port))
}

/// Returns ranges as text.
pub(crate) fn shown(ranges: &[SlotRange]) -> String {
    let one = |(first, last): &SlotRange| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let all: Vec<String> = ranges.iter().map(one).collect();
    format!("Slots {}", all.join(" "))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the threads of moves, each of which waits for links"
)]
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).map(drop)
}
