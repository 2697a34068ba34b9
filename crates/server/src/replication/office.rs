//! What a control group orders: to be sealed, to take the office of a term, to follow, and to leave the office.
//!
//! ```text
//!   seal ──────► role Sealed at once ──► thread: writers are done, the log is lent and synced, SEAL is durable ──► done
//!   take office ► writes wait ─────────► thread: term frame durable, log taken back, fence: office ──► done ─► lease ─► go
//! ```
//!
//! Invariants
//!  1. Who is sealed appends nothing, and answers the seal only when the seal and all of its log are durable.
//!  2. Nothing is served in a term before its frame is durable.

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

/// The id of no client.
const NOBODY: u64 = 0;
/// How often it is looked whether the log is on disk, or a lease is there.
const LOOK: Duration = Duration::from_millis(1);
/// So long writes wait for the first lease of an office, and for a majority of the copies where they need one, before they
/// are refused.
const FIRST_LEASE: Duration = Duration::from_secs(2);

impl Replication {
    /// From now on a control group decides, and knows this node by that name. What was sealed before is sealed still.
    ///
    /// # Errors
    /// Why the node may not be a member: what it promised before is not known.
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

    /// Whether a control group decides, and this node neither follows nor is in office: it says that it is no primary.
    pub(super) fn is_out_of_office(&self) -> bool {
        self.fence.is_grouped() && matches!(self.role(), Role::Sealed | Role::TakingOver)
    }

    /// Called before an office ends, if this node has one: its clients are to be told, and what is here may be undone, if writes
    /// of the shard wait for a majority: whoever reads after that does not wait for one any more.
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

    /// Whether a control group has sealed this node, or has not said yet whom it follows.
    pub(super) fn is_sealed(&self) -> bool {
        self.role() == Role::Sealed
    }

    /// Seals. See [`crate::group::duty::Duty::seal`].
    pub(crate) fn seal(&self, node: &Arc<Node>, term: u64, done: Done) {
        if term > self.fence.office() {
            self.note_end_of_office(node);
        }
        self.fence.raise(term);
        self.seal_role(node, Some((term, done)));
    }

    /// Is primary no more, and follows nobody.
    pub(crate) fn leave_office(&self, node: &Arc<Node>) {
        self.note_end_of_office(node);
        if self.hands_over() {
            // The next primary may serve already before this node knows of it.
            node.core.shared.gate.set_no_office(true);
        }
        self.fence.end_office();
        self.seal_role(node, None);
    }

    /// This node is back in its group: nobody is served before it knows what that has decided meanwhile.
    #[cfg(feature = "cluster")]
    pub(crate) fn begin_to_await_group(&self) {
        self.awaits_group.store(true, Ordering::Release);
    }

    /// Whether nobody is served because of that.
    pub(crate) fn awaits_group(&self) -> bool {
        self.awaits_group.load(Ordering::Acquire)
    }

    /// It knows it, or nobody is there who could say.
    #[cfg(feature = "cluster")]
    pub(crate) fn end_to_await_group(&self, node: &Node) {
        if self.awaits_group.swap(false, Ordering::AcqRel) {
            self.judge_staleness(node);
        }
    }

    fn seal_role(&self, node: &Arc<Node>, order: Option<(u64, Done)>) {
        self.seal_role_locked(self.standing(), node, order);
    }

    /// An office comes to nothing: the node is sealed again, unless something else is ordered already.
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

    /// Follows the primary of a term, unless a later one is known.
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
        // What the group decided takes the place of what is here.
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
            // Writes that waited for another primary are answered before.
            self.end_clients_of_office(node);
        }
        if !matches!(before, Role::Following | Role::Sealed) {
            node.unblock_all(UNBLOCKED);
        }
    }

    /// Ends the connections of those who are clients of the primary, which this node is no more, now that another one is
    /// known: as Sentinels do. Many clients ask who is the primary when they connect, and never again. Those of a cluster are
    /// told at every key.
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
        // What a majority has is in the log, and not all of it in the store yet.
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

    /// Has writes wait, until a copy has all that this node has. Writes wait still when this returns.
    ///
    /// # Errors
    /// Why it has not.
    pub(crate) fn wait_for_copy(
        &self,
        node: &Arc<Node>,
        copy: NodeId,
        time: Duration,
    ) -> Result<(), String> {
        let gate = &node.core.shared.gate;
        // Where writes wait already this office begins still, and lets them go at the end of that: not after they are held back
        // here, and it is known how much the copy has to have.
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
                // A reply that may leave and has not would be taken for one of which nobody knows whether its write is kept.
                node.wait_for_release(time);
                Ok(())
            }
            _ => Err("the replica does not have all of the log in time".to_owned()),
        }
    }

    /// This primary leaves its office next, for a copy that has all it has: writes wait until it knows who has the office.
    pub(crate) fn begin_hand_over(&self) {
        self.hands_over.store(true, Ordering::Relaxed);
    }

    /// Whether writes wait for the primary to which the office was handed over.
    pub(crate) fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::Relaxed)
    }

    /// Writes wait no more for another primary, unless this node is about to become one.
    pub(crate) fn end_hand_over(&self, node: &Node) {
        let role = self.role();
        if role == Role::Sealed {
            node.core.shared.refusals.set_read_only(true);
        }
        if role != Role::TakingOver {
            self.let_writes_go(node);
        }
    }

    /// Whether what this node has is about to go.
    pub(crate) fn is_emptied(&self) -> bool {
        self.is_emptied.load(Ordering::Acquire)
    }

    /// No control group decides any more: this node is a primary by itself, which begins with nothing if it is to be emptied.
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

    /// Sees to it that nothing is appended any more, and that the seal and the log are durable.
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
            // What it has more is asked for in this round, and as of its term.
            self.own.hand_on(node, term);
        }
        done(self.fence.is_certain());
    }

    /// Begins the office of a term, or is sealed again.
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
        // Nothing may be stated to the log before its term is.
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
        // Before the office is seen: nothing is refused for the lack of what is about to be there.
        self.begins_office.store(true, Ordering::SeqCst);
        let has_begun = self.sync_log(node) && self.fence.begin_office(shard, term, term_end);
        if !has_begun && self.fence.is_grouped() {
            self.begins_office.store(false, Ordering::SeqCst);
            // Whom it was ordered to follow meanwhile it follows, and an office that was ordered meanwhile it takes: in the group that
            // it is in by now, of the shard there.
            self.give_up_office(node);
            return done(false);
        }
        let standing = self.standing();
        // Where the group has ended meanwhile, what this node is by itself is ordered already.
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

    /// Who has copies of the shard.
    pub(crate) fn set_members(&self, node: &Node, shard: &Shard) {
        let has_more = self.fence.set_members(shard);
        self.judge_majority(node);
        if has_more {
            node.wake_workers();
        }
    }

    /// A copy has the log up to `end`, or its link is gone.
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

    /// Looks whether a round of the members is over, and another one is to begin.
    fn look_at_round(&self, node: &Node) {
        if self.fence.confirms()
            && let Some(log) = node.keeping.log_in_use.get()
        {
            let _over = self.fence.round_over(&*log);
        }
    }

    /// A member knows of no later term than this, as it said in a round.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_confirmed(&self, node: &Node, member: NodeId, term: u64, round: u64) {
        if self.fence.note_confirmed(member, term, round) {
            node.wake_workers();
            self.look_at_round(node);
        }
    }

    /// The primary has said what may be read here, in a round of this replica's.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_readable(&self, node: &Node, round: u64, readable: Readable) {
        let now_ms = node.core.clock.boottime_ms();
        if self.reads.note_answer(round, readable, now_ms) {
            node.wake_workers();
        }
    }

    /// Requests go by the control state of that index from here on.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_routes(&self, node: &Node, index: u64) {
        let now_ms = node.core.clock.boottime_ms();
        if self.reads.note_index(index, now_ms) {
            node.wake_workers();
        }
    }

    /// How far this replica is.
    pub(super) fn note_standing(&self, node: &Node, standing: Standing) {
        let now_ms = node.core.clock.boottime_ms();
        if self.reads.note_standing(standing, now_ms) {
            node.wake_workers();
        }
    }

    /// Asks anew what nobody has answered.
    #[cfg(feature = "cluster")]
    pub(crate) fn ask_again(&self, now_ms: u64, after_ms: u64) {
        self.fence.ask_again(after_ms);
        self.reads.ask_again(now_ms, after_ms);
    }

    /// Looks whether writes that wait for a majority may begin.
    fn judge_majority(&self, node: &Node) {
        // While an office begins, writes wait at the gate for what they need; without one, for who has it, or they are refused
        // as a replica's are.
        let waits = self.begins_office.load(Ordering::SeqCst) || self.fence.office() == 0;
        let may_commit = waits || self.fence.has_majority();
        let can_commit = self.fence.is_quorum() && may_commit;
        let refusals = &node.core.shared.refusals;
        if refusals.has_no_majority() == can_commit {
            refusals.set_no_majority(!can_commit);
        }
    }

    /// Looks what replies wait for, as the configuration says.
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

    /// The group grants or renews the lease.
    pub(crate) fn set_lease(&self, node: &Node, until_ms: u64) {
        let had_one = self.fence.has_lease();
        self.fence.set_lease_until_ms(until_ms);
        self.look_at_lease(node);
        if !had_one && self.fence.has_lease() {
            // Replies may be held for want of it.
            node.wake_workers();
        }
    }

    /// Looks whether the lease stands: without one no write begins. Called by workers at the beginning of a turn.
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
            // It may have been renewed just now, by who looked before.
            refusals.set_no_lease(has_none());
        }
    }

    /// Waits for the first lease of an office, and until the other copies have found their new primary where writes wait for
    /// a majority of them, so that writes which waited for it are done and not refused.
    fn wait_for_lease(&self, node: &Node) {
        let _in_time = poll(FIRST_LEASE, LOOK, || {
            let has_lease = self.fence.lease_until_ms() > 0;
            let can_commit = !self.fence.is_quorum() || self.fence.has_majority();
            (has_lease && can_commit || node.is_stopping() || self.has_order()).then_some(())
        });
    }

    /// Waits until all of the log is on disk; whether it is.
    fn sync_log(&self, node: &Arc<Node>) -> bool {
        let Some(log) = own_link::own_log(node) else {
            return true;
        };
        let end = log.tail();
        // Why not is told by the log itself.
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

    /// This node may lack what it acknowledged, or lacks nothing any more.
    pub(super) fn note_certain(&self, node: &Node, is_certain: bool) {
        if !self.fence.is_grouped() || self.fence.is_certain() == is_certain {
            return;
        }
        self.fence.set_certain(is_certain);
        if let Err(error) = self.write_seal(node) {
            // Until it is written it counts as before, after a start.
            node.core
                .log
                .warning(format_args!("The seal is not on disk: {error}"));
        }
    }

    /// Says for good that this node's log is of that shard, if the node still is.
    ///
    /// # Errors
    /// Where it is not, or the disk failed.
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

/// Called when an office is taken, or is not; a collector is told, too, from now on until then.
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
