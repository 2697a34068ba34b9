//! Orders of a control group: to be sealed, to take the office of a term, to follow, and to leave
//! the office.
//!
//! ```text
//!   seal ──────► role Sealed at once ──► thread: writers are done, the log is lent and synced, SEAL is durable ──► done
//!   take office ► writes wait ─────────► thread: term frame durable, log taken back, fence: office ──► done ─► lease ─► go
//! ```
//!
//! Invariants
//!  1. A sealed node appends nothing, and answers the seal only when the seal and all of its log
//!     are durable.
//!  2. No request is served in a term before its frame is durable.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use cluster::{NodeId, Shard, ShardId};
use engine::{ClientCondition, ClientFilter, ClientKind};
use persistence::seal::{SealRecord, boot_id};
use persistence::tail::Majority as _;
use replication::TermId;

use super::following::{Authority, Primary};
use super::role::{self, Event, Role};
use super::thread::wait_for_writers;
use super::{Done, Order, Replication, UNBLOCKED, hold_writes, own_link, redis_link};
use crate::config::{Config, DurabilityLevel, QuorumReads};
use crate::node::Node;
use crate::poll::poll;
use crate::port::kill_clients;
#[cfg(feature = "cluster")]
use crate::replica_reads::Readable;
use crate::replica_reads::Standing;

/// An ID that no client has.
const NOBODY: u64 = 0;
/// How often to check whether the log is on disk, or a lease has been granted.
const LOOK: Duration = Duration::from_millis(1);
/// How long writes wait for the first lease of an office, and for a majority of the copies if they
/// need one, before they are refused.
const FIRST_LEASE: Duration = Duration::from_secs(2);

impl Replication {
    /// Puts this node under a control group, which knows it by `id`. A node that was sealed before
    /// stays sealed.
    ///
    /// # Errors
    /// Why the node may not be a member: its earlier promise cannot be read.
    pub(crate) fn begin_under_group(&self, node: &Arc<Node>, id: TermId) -> Result<(), String> {
        self.own.set_id(id);
        self.fence
            .set_grouped(NodeId(id.0), Arc::clone(&node.core.clock));
        self.judge_level(node, &node.core.config.current());
        let place = own_link::place_of(node);
        let known = SealRecord::read(&place).map_err(|error| error.to_string())?;
        let boot = boot_id();
        let is_certain = known
            .as_ref()
            .is_none_or(|known| known.is_certain && known.boot == boot);
        let shard = known.as_ref().and_then(|known| known.shard).map(ShardId);
        self.fence.restore_shard_of_log(shard);
        self.fence.raise(known.map_or(0, |known| known.term));
        self.fence.set_certain(is_certain);
        if node.persistence().is_some_and(|kept| kept.has_directory()) {
            self.write_seal(node).map_err(|error| error.to_string())?;
        }
        self.seal_role(node, None);
        Ok(())
    }

    /// Whether the node is under a control group and neither follows nor is in office. Then it
    /// reports that it is no primary.
    pub(super) fn is_out_of_office(&self) -> bool {
        self.fence.is_grouped() && matches!(self.role(), Role::Sealed | Role::TakingOver)
    }

    /// Called before this node's office ends, if it has one. Its clients will be disconnected. If
    /// writes of the shard wait for a majority, the data here may be undone: reads are refused from
    /// now on, because they would no longer wait for a majority.
    fn note_end_of_office(&self, node: &Node) {
        let is_in_office = self.fence.office() > 0;
        if is_in_office {
            self.left_office.store(true, Ordering::Release);
        }
        if is_in_office && self.fence.is_quorum() && !self.hands_over() {
            self.has_uncommitted.store(true, Ordering::Release);
            node.core.shared.refusals.set_stale(true);
        }
    }

    /// Whether a control group has sealed this node, or has not named a primary for it yet.
    pub(super) fn is_sealed(&self) -> bool {
        self.role() == Role::Sealed
    }

    /// Seals this node. See [`crate::group::duty::Duty::seal`].
    pub(crate) fn seal(&self, node: &Arc<Node>, term: u64, done: Done) {
        if term > self.fence.office() {
            self.note_end_of_office(node);
        }
        self.fence.raise(term);
        self.seal_role(node, Some((term, done)));
    }

    /// Ends this node's office. The node follows no primary yet.
    pub(crate) fn leave_office(&self, node: &Arc<Node>) {
        self.note_end_of_office(node);
        if self.hands_over() {
            // The next primary may serve before this node learns of it.
            node.core.shared.gate.set_no_office(true);
        }
        self.fence.end_office();
        self.seal_role(node, None);
    }

    /// Begins to refuse all requests: this node has rejoined its group, and does not know yet what
    /// the group decided meanwhile.
    #[cfg(feature = "cluster")]
    pub(crate) fn begin_to_await_group(&self) {
        self.awaits_group.store(true, Ordering::Release);
    }

    /// Whether requests are refused for that reason.
    pub(crate) fn awaits_group(&self) -> bool {
        self.awaits_group.load(Ordering::Acquire)
    }

    /// Ends that: the node knows the group's decisions, or no member can be reached that knows
    /// them.
    #[cfg(feature = "cluster")]
    pub(crate) fn end_to_await_group(&self, node: &Node) {
        if self.awaits_group.swap(false, Ordering::AcqRel) {
            self.judge_staleness(node);
        }
    }

    fn seal_role(&self, node: &Arc<Node>, order: Option<(u64, Done)>) {
        self.seal_role_locked(self.standing(), node, order);
    }

    /// Abandons a failed attempt to take office: the node is sealed again, unless it has another
    /// order already.
    fn give_up_office(&self, node: &Arc<Node>) {
        let standing = self.standing();
        if self.role() == Role::TakingOver && standing.order.is_none() {
            self.seal_role_locked(standing, node, None);
        }
    }

    fn seal_role_locked(
        &self,
        mut standing: MutexGuard<'_, super::Standing>,
        node: &Arc<Node>,
        order: Option<(u64, Done)>,
    ) {
        let before = self.role();
        let Ok(role) = role::next(before, Event::Seal) else {
            return;
        };
        if before == Role::Primary {
            self.stream.keep_names(self.history());
        }
        self.role.set(role);
        self.reads.end_following();
        node.core.store.set_follower(true);
        if !self.hands_over() {
            node.core.shared.refusals.set_read_only(true);
            self.let_writes_go(node);
        }
        if let Some(following) = standing.following.take() {
            following.stop();
        }
        if let Some(failover) = standing.failover.take() {
            failover.abort();
        }
        let (term, done) = order.unwrap_or_else(|| (self.fence.seal(), Box::new(|_| ())));
        standing.order = Some(Order::Seal(term, done));
        Self::judge_link(node, &standing, &node.core.config.current());
        self.wake_thread(standing, node);
        if !matches!(before, Role::Following | Role::Sealed) {
            node.unblock_all(UNBLOCKED);
        }
    }

    /// Follows the primary of a term, unless this node knows a later term.
    pub(crate) fn follow_in(&self, node: &Arc<Node>, term: u64, primary: Primary, link_port: u16) {
        if term > self.fence.office() {
            self.note_end_of_office(node);
        }
        if !self.fence.accept(term) {
            return;
        }
        self.fence.end_office();
        let mut standing = self.standing();
        let before = self.role();
        if role::next(before, Event::Follow).is_err() {
            if let Some(failover) = standing.failover.take() {
                failover.abort();
            }
            self.role.set(Role::Sealed);
        }
        // The group's decision replaces the data here.
        let by = Authority {
            forces: true,
            link_port,
            ..Authority::default()
        };
        node.core.log.notice(format_args!(
            "The control group has this node follow {}:{} in term {term}",
            primary.host, primary.port
        ));
        if self.follow_locked(&mut standing, node, primary, by).is_ok() {
            self.wake_thread(standing, node);
            // Writes that waited for another primary are answered first.
            self.end_clients_of_office(node);
        }
        if !matches!(before, Role::Following | Role::Sealed) {
            node.unblock_all(UNBLOCKED);
        }
    }

    /// Disconnects the clients of this former primary, now that the new primary is known, as
    /// Sentinels do. Many clients ask for the primary only when they connect. Clients of a cluster
    /// are redirected at every key, and stay.
    fn end_clients_of_office(&self, node: &Node) {
        let had_office = self.left_office.swap(false, Ordering::AcqRel);
        if had_office && !node.core.config.current().cluster.is_on {
            for kind in [ClientKind::Normal, ClientKind::PubSub] {
                let filter = ClientFilter::of(ClientCondition::Kind(kind));
                let _count = kill_clients(node, NOBODY, &filter);
            }
        }
    }

    /// Takes the office of a term. See [`crate::group::duty::Duty::take_office`].
    pub(crate) fn take_office_of(&self, node: &Arc<Node>, term: u64, done: Done) {
        let mut standing = self.standing();
        let role = role::next(self.role(), Event::Unfollow);
        let role = role.ok().filter(|_| term >= self.fence.seal());
        let Some(role) = role.filter(|role| *role == Role::TakingOver) else {
            drop(standing);
            return done(false);
        };
        hold_writes(node);
        // The log has everything that a majority has, but the store does not have all of it yet.
        node.core.shared.gate.set_no_office(true);
        self.role.set(role);
        self.reads.end_following();
        self.has_uncommitted.store(false, Ordering::Release);
        let refusals = &node.core.shared.refusals;
        refusals.set_read_only(false);
        refusals.set_stale(false);
        if let Some(following) = standing.following.take() {
            following.stop();
        }
        standing.order = Some(Order::Office(self.fence.shard(), term, done));
        self.wake_thread(standing, node);
    }

    /// Holds writes, and waits until a copy has all of this node's log. Writes are still held when
    /// this returns.
    ///
    /// # Errors
    /// Why the copy does not have it.
    pub(crate) fn wait_for_copy(
        &self,
        node: &Arc<Node>,
        copy: NodeId,
        time: Duration,
    ) -> Result<(), String> {
        let gate = &node.core.shared.gate;
        // If writes are held already, this office is still beginning, and releases them at its end.
        // That must happen before they are held here and the end of the log is read.
        poll(Duration::MAX, LOOK, || {
            let begins = self.role() == Role::Primary && gate.changes_role();
            (!begins || node.is_stopping()).then_some(())
        });
        if self.role() != Role::Primary {
            return Err("this node is not the primary".to_owned());
        }
        hold_writes(node);
        wait_for_writers(node);
        let end = own_link::own_log(node).map_or(0, |log| log.tail());
        let has_all = poll(time, LOOK, || {
            let has_all = self.fence.copy_end(copy).is_some_and(|known| known >= end);
            let is_over = node.is_stopping() || self.role() != Role::Primary;
            (has_all || is_over).then_some(has_all)
        });
        match has_all {
            Some(true) => {
                // Replies that may leave are sent first: otherwise their clients would not know
                // whether their writes are kept.
                node.wait_for_release(time);
                Ok(())
            }
            _ => Err("the replica does not have all of the log in time".to_owned()),
        }
    }

    /// Notes that this primary hands its office to a copy that has all of its log: writes wait
    /// until the new primary is known.
    pub(crate) fn begin_hand_over(&self) {
        self.hands_over.store(true, Ordering::Relaxed);
    }

    /// Whether writes wait for the primary that gets this node's office.
    pub(crate) fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::Relaxed)
    }

    /// Releases the writes that waited for another primary, unless this node is about to become
    /// one.
    pub(crate) fn end_hand_over(&self, node: &Node) {
        let role = self.role();
        if role == Role::Sealed {
            node.core.shared.refusals.set_read_only(true);
        }
        if role != Role::TakingOver {
            self.let_writes_go(node);
        }
    }

    /// Whether this node's data is about to be removed.
    pub(crate) fn is_emptied(&self) -> bool {
        self.is_emptied.load(Ordering::Acquire)
    }

    /// Removes this node from its control group: it becomes a primary by itself, with an empty
    /// store if `is_emptied`.
    #[cfg(feature = "cluster")]
    pub(crate) fn end_under_group(&self, node: &Arc<Node>, is_emptied: bool) {
        self.fence.end_group();
        let refusals = &node.core.shared.refusals;
        refusals.set_no_lease(false);
        refusals.set_no_majority(false);
        self.judge_level(node, &node.core.config.current());
        let standing = self.standing();
        if let Ok(role) = role::next(self.role(), Event::Unfollow)
            && role == Role::TakingOver
        {
            self.is_emptied.store(is_emptied, Ordering::Release);
            self.leave_primary(standing, node, role, "it is by itself");
        }
    }

    /// Ends all appending, and makes the log and the seal durable.
    pub(super) fn finish_sealing(&self, node: &Arc<Node>, term: u64, done: Done) {
        wait_for_writers(node);
        self.own.lend(node);
        if !self.sync_log(node) {
            return;
        }
        if let Err(error) = self.write_seal(node) {
            node.core.log.warning(format_args!(
                "The seal of term {term} is not on disk: {error}"
            ));
            return;
        }
        if node.keeping.keeps_log_alone() {
            // Other members fetch what this log has beyond theirs, in this round and as of its
            // term.
            self.own.hand_on(node, term);
        }
        done(self.fence.is_certain());
    }

    /// Begins the office of a term. If that fails, the node is sealed again.
    pub(super) fn finish_office(
        &self,
        node: &Arc<Node>,
        (shard, term): (Option<ShardId>, u64),
        done: Done,
    ) {
        let done = told_as_span(node, term, done);
        if self.role() != Role::TakingOver {
            return done(false);
        }
        // Nothing may be appended to the log before its term.
        self.own.lend(node);
        if let Err(reason) = own_link::apply_rest(node) {
            node.core
                .log
                .warning(format_args!("No office of term {term}: {reason}"));
            self.give_up_office(node);
            return done(false);
        }
        self.begin_term(node, None);
        self.own.take_over(node, Some(term));
        redis_link::end_following(node);
        let term_end = own_link::own_log(node).map_or(0, |log| log.tail_complete());
        // Set before the office is visible: no write is refused for lack of a lease or majority
        // that is about to be there.
        self.begins_office.store(true, Ordering::SeqCst);
        let has_begun = self.sync_log(node) && self.fence.begin_office(shard, term, term_end);
        if !has_begun && self.fence.is_grouped() {
            self.begins_office.store(false, Ordering::SeqCst);
            // A primary or an office that was ordered meanwhile is handled next, by the group and
            // shard that the node is in by then.
            self.give_up_office(node);
            return done(false);
        }
        let standing = self.standing();
        // If the group has ended meanwhile, the order for what this node does by itself is there
        // already.
        let role = role::next(self.role(), Event::TookOver).ok();
        let Some(role) = role.filter(|_| self.fence.is_grouped()) else {
            drop(standing);
            self.begins_office.store(false, Ordering::SeqCst);
            match self.fence.is_grouped() {
                true => drop(self.fence.end_office()),
                false => self.fence.end_group(),
            }
            return done(false);
        };
        node.core.store.set_follower(false);
        self.role.set(role);
        drop(standing);
        self.judge_replicas(node);
        self.judge_majority(node);
        node.core.log.notice(format_args!(
            "MASTER MODE enabled (the control group, term {term})"
        ));
        done(true);
        self.wait_for_lease(node);
        self.begins_office.store(false, Ordering::SeqCst);
        self.judge_majority(node);
        self.look_at_lease(node);
        self.let_writes_go(node);
    }

    /// Sets the nodes that have copies of the shard.
    pub(crate) fn set_members(&self, node: &Node, shard: &Shard) {
        let has_more = self.fence.set_members(shard);
        self.judge_majority(node);
        if has_more {
            node.wake_workers();
        }
    }

    /// Notes that a copy has the log up to `end`, or with `None` that its link is gone.
    pub(super) fn note_copy(&self, node: &Node, copy: TermId, term: u64, end: Option<u64>) {
        if !self.fence.is_grouped() {
            return;
        }
        let has_more = self.fence.note_copy(NodeId(copy.0), term, end);
        self.judge_majority(node);
        if has_more {
            node.wake_workers();
            self.look_at_round(node);
        }
    }

    /// If a round of the members is over, begins the next one if it is needed.
    fn look_at_round(&self, node: &Node) {
        if self.fence.confirms()
            && let Some(log) = node.keeping.log_in_use.get()
        {
            let _over = self.fence.round_over(&*log);
        }
    }

    /// Notes that a member knows no term later than `term`, as it said in a round.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_confirmed(&self, node: &Node, member: NodeId, term: u64, round: u64) {
        if self.fence.note_confirmed(member, term, round) {
            node.wake_workers();
            self.look_at_round(node);
        }
    }

    /// Notes the primary's answer to a round of this replica: what may be read here.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_readable(&self, node: &Node, round: u64, readable: Readable) {
        let now_ms = node.core.clock.boottime_ms();
        if self.reads.note_answer(round, readable, now_ms) {
            node.wake_workers();
        }
    }

    /// Notes that requests are routed by the control state of this index from here on.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_routes(&self, node: &Node, index: u64) {
        let now_ms = node.core.clock.boottime_ms();
        if self.reads.note_index(index, now_ms) {
            node.wake_workers();
        }
    }

    /// Notes how far this replica is.
    pub(super) fn note_standing(&self, node: &Node, standing: Standing) {
        let now_ms = node.core.clock.boottime_ms();
        if self.reads.note_standing(standing, now_ms) {
            node.wake_workers();
        }
    }

    /// Repeats questions that were not answered.
    #[cfg(feature = "cluster")]
    pub(crate) fn ask_again(&self, now_ms: u64, after_ms: u64) {
        self.fence.ask_again(after_ms);
        self.reads.ask_again(now_ms, after_ms);
    }

    /// Updates whether writes that wait for a majority may begin.
    fn judge_majority(&self, node: &Node) {
        // While an office begins, writes wait at the gate for what they need. Without an office,
        // they wait for the new primary, or are refused as a replica's are.
        let waits = self.begins_office.load(Ordering::SeqCst) || self.fence.office() == 0;
        let may_commit = waits || self.fence.has_majority();
        let can_commit = self.fence.is_quorum() && may_commit;
        let refusals = &node.core.shared.refusals;
        if refusals.has_no_majority() == can_commit {
            refusals.set_no_majority(!can_commit);
        }
    }

    /// Updates what replies wait for, as the configuration says.
    pub(super) fn judge_level(&self, node: &Node, config: &Config) {
        let holds_all = config.durability.level == DurabilityLevel::Quorum;
        self.fence
            .set_level(holds_all, config.durability.quorum_fsync);
        let confirms = config.durability.quorum_reads == QuorumReads::Confirm;
        self.fence
            .set_confirms(confirms, config.group.node_timeout_ms);
        let refusals = &node.core.shared.refusals;
        refusals.set_quorum_for_all(holds_all && self.fence.is_grouped());
    }

    /// Sets the lease that the group granted or renewed.
    pub(crate) fn set_lease(&self, node: &Node, until_ms: u64) {
        let had_one = self.fence.has_lease();
        self.fence.set_lease_until_ms(until_ms);
        self.look_at_lease(node);
        if !had_one && self.fence.has_lease() {
            // Replies may be held because there was no lease.
            node.wake_workers();
        }
    }

    /// Updates whether the lease is valid: without one no write begins. Called by workers at the
    /// beginning of a turn.
    #[inline]
    pub(crate) fn look_at_lease(&self, node: &Node) {
        let refusals = &node.core.shared.refusals;
        let has_none = || {
            let begins = self.begins_office.load(Ordering::SeqCst);
            self.fence.office() > 0 && !self.fence.has_lease() && !begins
        };
        let is_over = has_none();
        if refusals.has_no_lease() != is_over {
            refusals.set_no_lease(is_over);
            // Another thread may just have renewed it.
            refusals.set_no_lease(has_none());
        }
    }

    /// Waits for the first lease of an office, and, if writes need a majority, until the other
    /// copies have found their new primary. So writes that waited for the office are executed, not
    /// refused.
    fn wait_for_lease(&self, node: &Node) {
        let _in_time = poll(FIRST_LEASE, LOOK, || {
            let has_lease = self.fence.lease_until_ms() > 0;
            let can_commit = !self.fence.is_quorum() || self.fence.has_majority();
            (has_lease && can_commit || node.is_stopping() || self.has_order()).then_some(())
        });
    }

    /// Waits until all of the log is on disk, and returns whether it is.
    fn sync_log(&self, node: &Arc<Node>) -> bool {
        let Some(log) = own_link::own_log(node) else {
            return true;
        };
        let end = log.tail();
        // The log itself reports the error.
        let _fault = log.write_out(end);
        while log.durable() < end {
            if node.is_stopping() || log.fault().is_some() {
                return false;
            }
            log.request_sync(end);
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Notes whether this node may lack something that it acknowledged.
    pub(super) fn note_certain(&self, node: &Node, is_certain: bool) {
        if !self.fence.is_grouped() || self.fence.is_certain() == is_certain {
            return;
        }
        self.fence.set_certain(is_certain);
        if let Err(error) = self.write_seal(node) {
            // If the record is not written, the former state holds after a start.
            node.core
                .log
                .warning(format_args!("The seal is not on disk: {error}"));
        }
    }

    /// Records durably that this node's log belongs to that shard, if the node is still in it.
    ///
    /// # Errors
    /// The node is not in that shard any more, or the disk failed.
    pub(crate) fn take_log_for(&self, node: &Node, shard: Option<ShardId>) -> Result<(), String> {
        if !self.fence.is_grouped() || self.fence.shard_of_log() == shard {
            return Ok(());
        }
        self.seal_record(shard)
            .write(&own_link::place_of(node))
            .map_err(|error| format!("the seal is not on disk: {error}"))?;
        self.fence.take_log_for(shard).map(drop)
    }

    fn write_seal(&self, node: &Node) -> std::io::Result<()> {
        let record = self.seal_record(self.fence.shard_of_log());
        record.write(&own_link::place_of(node))
    }

    fn seal_record(&self, shard: Option<ShardId>) -> SealRecord {
        SealRecord {
            shard: shard.map(|shard| shard.0),
            term: self.fence.seal(),
            boot: boot_id(),
            is_certain: self.fence.is_certain(),
        }
    }
}

/// Wraps `done` so that it also reports a span to the collector, from now until the office is taken
/// or not.
fn told_as_span(node: &Arc<Node>, term: u64, done: Done) -> Done {
    let (node, begun_unix_us) = (Arc::clone(node), node.core.clock.now_unix_us());
    Box::new(move |has_begun| {
        node.core.shared.observer.spans.note(
            "failover",
            begun_unix_us,
            &*node.core.clock,
            match has_begun {
                true => Ok(()),
                false => Err(&"the office was not taken"),
            },
            &[("iolite.term", &term)],
        );
        done(has_begun);
    })
}
