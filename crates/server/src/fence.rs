//! Prevents a node under a control group from writing and answering when it may not: the seal, the
//! office, the lease.
//!
//! ```text
//!   group ─ seal(term) ──► seal:  frames of a primary below are refused         (the link that appends)
//!   group ─ office(term) ─► office: this node is the primary of the term        (role, log)
//!   group ─ lease ────────► until when writes begin, and replies at quorum leave (workers, once a batch)
//!   links ─ acknowledged ─► committed: what a majority has of the log
//! ```
//!
//! Without a control group none of this is in force, and a check costs one load and one branch.
//!
//! A node has a copy of one shard. If the group assigns it to another shard, its promises and its
//! log of the former shard do not count there. Until it has some of the new shard's log it is
//! *blank*, and reports that.
//!
//! Invariants
//!  1. Within a shard a seal only rises, and after it has risen, nothing of a lower term is
//!     appended: both happen under one lock.
//!  2. There is no office of a term below the seal.
//!  3. A lease without an office does not count.
//!  4. Committed is what a majority of every set of members has, this node included, and only from
//!     the end of the present term's frame on. Members of a later term are not counted: they may be
//!     the majority of another primary.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::clock::Clock;
use cluster::state::CopyKind;
use cluster::{NodeId, Shard, ShardId};
use persistence::tail::{Majority, Tail};

#[cfg_attr(
    not(feature = "cluster"),
    allow(dead_code, reason = "nobody is asked without a group")
)]
mod confirming;

#[cfg(feature = "cluster")]
pub(crate) use confirming::Asker;
#[cfg(feature = "cluster")]
pub(crate) use confirming::Question;
use confirming::{Confirming, Office};

/// See the module. One for each node.
#[derive(Default)]
pub struct Fence {
    is_grouped: AtomicBool,
    /// The clock of leases.
    clock: OnceLock<Arc<dyn Clock>>,
    shards: Mutex<Shards>,
    /// Whether this node has everything that it ever acknowledged.
    is_certain: AtomicBool,
    /// Held while frames are appended, while the seal rises, and while an office begins or ends.
    appending: Mutex<()>,
    seal: AtomicU64,
    office: AtomicU64,
    /// End of the lease, by this node's clock that also runs while the machine sleeps; 0 without an
    /// office.
    lease_until_ms: AtomicU64,
    /// The members, and the end of each one's log in the present office.
    copies: Mutex<Copies>,
    /// Whether the group decided that writes may wait for a majority.
    is_quorum: AtomicBool,
    /// Whether all replies of this server wait for a majority (`durability quorum`).
    holds_all: AtomicBool,
    /// Whether a copy counts only once it is on disk (`quorum-fsync`).
    wants_disk: AtomicBool,
    /// A majority has the log up to here, provided this node does.
    others: AtomicU64,
    /// End of the present term's frame.
    term_end: AtomicU64,
    /// Whether the members also confirm answers at quorum (`quorum-reads confirm`).
    confirms: AtomicBool,
    /// Maximum time of a round of confirmation.
    round_ms_max: AtomicU64,
    confirming: Confirming,
}

#[derive(Default)]
struct Shards {
    /// The shard that the group assigned this node to.
    own: Option<ShardId>,
    /// The shard that its log belongs to.
    of_log: Option<ShardId>,
}

#[derive(Default)]
struct Copies {
    /// This node's name in the group.
    own: Option<NodeId>,
    shard: Shard,
    ends: BTreeMap<NodeId, u64>,
    /// The ends of each member's log, including members whose links have ended.
    reached: BTreeMap<NodeId, u64>,
}

/// While this exists, the seal does not change.
pub struct Turn<'f> {
    _appending: MutexGuard<'f, ()>,
}

impl Fence {
    /// Puts this node under a control group, which knows it by `own`.
    pub fn set_grouped(&self, own: NodeId, clock: Arc<dyn Clock>) {
        let _already_set = self.clock.set(clock);
        lock(&self.copies).own = Some(own);
        self.is_grouped.store(true, Ordering::SeqCst);
    }

    /// Ends the control group's authority over this node.
    pub fn end_group(&self) {
        self.is_grouped.store(false, Ordering::SeqCst);
        let _was_in_office = self.end_office();
        *lock(&self.copies) = Copies::default();
        *lock(&self.shards) = Shards::default();
        self.is_quorum.store(false, Ordering::SeqCst);
        self.seal.store(0, Ordering::SeqCst);
    }

    /// Sets the shard that the group assigned this node to. Promises in another shard do not bind
    /// the node there.
    pub fn set_shard(&self, shard: ShardId) {
        let _alone = self.lock();
        let mut shards = lock(&self.shards);
        if shards.own.replace(shard) != Some(shard) && shards.of_log != Some(shard) {
            self.end_office_locked();
            self.seal.store(0, Ordering::SeqCst);
        }
    }

    /// The shard that the group assigned this node to.
    #[must_use]
    pub fn shard(&self) -> Option<ShardId> {
        lock(&self.shards).own
    }

    /// The shard that this node's log belongs to.
    #[must_use]
    pub fn shard_of_log(&self) -> Option<ShardId> {
        lock(&self.shards).of_log
    }

    /// Sets the shard that this node's log was found to belong to.
    pub fn restore_shard_of_log(&self, shard: Option<ShardId>) {
        *lock(&self.shards) = Shards {
            own: shard,
            of_log: shard,
        };
    }

    /// Assigns the log to that shard from here on, if the node is still in it. Returns whether the
    /// log belonged to none or another one before.
    ///
    /// # Errors
    /// The node has moved to another shard meanwhile.
    pub fn take_log_for(&self, shard: Option<ShardId>) -> Result<bool, String> {
        let mut shards = lock(&self.shards);
        if shards.own != shard {
            return Err("this node is of another shard now".to_owned());
        }
        let is_new = shards.of_log != shard;
        shards.of_log = shard;
        Ok(is_new)
    }

    /// Whether this node is under a control group.
    #[inline]
    #[must_use]
    pub fn is_grouped(&self) -> bool {
        self.is_grouped.load(Ordering::Relaxed)
    }

    /// Whether this node has everything that it ever acknowledged.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.is_certain.load(Ordering::SeqCst)
    }

    /// Sets whether it has.
    pub fn set_certain(&self, is_certain: bool) {
        self.is_certain.store(is_certain, Ordering::SeqCst);
    }

    /// The seal: nothing of lower terms is accepted.
    #[must_use]
    pub fn seal(&self) -> u64 {
        self.seal.load(Ordering::SeqCst)
    }

    /// The term in which this node is the primary, or 0.
    #[must_use]
    pub fn office(&self) -> u64 {
        self.office.load(Ordering::SeqCst)
    }

    /// Raises the seal: from here on nothing of lower terms is appended, and an office of a lower
    /// term has ended. Returns whether there was one.
    pub fn raise(&self, term: u64) -> bool {
        let _alone = self.lock();
        self.seal.fetch_max(term, Ordering::SeqCst);
        let office = self.office();
        let is_over = office > 0 && office < term;
        if is_over {
            self.end_office_locked();
        }
        is_over
    }

    /// Returns the turn to append frames of a primary of this term, or `None` if a later term is
    /// sealed. Without a control group every primary's frames are accepted.
    #[must_use]
    pub fn turn(&self, term: u64) -> Option<Turn<'_>> {
        let appending = self.lock();
        if self.is_grouped() {
            if term < self.seal() {
                return None;
            }
            self.seal.store(term, Ordering::SeqCst);
        }
        Some(Turn {
            _appending: appending,
        })
    }

    /// Whether frames of a primary of this term may be appended. Older ones are refused from then
    /// on.
    #[must_use]
    pub fn accept(&self, term: u64) -> bool {
        self.turn(term).is_some()
    }

    /// Begins the office of a term, whose frame ends at `term_end`, and returns whether it has
    /// begun. It does not if a later term is sealed, or the node has moved to another shard since
    /// the order: the terms of two shards are unrelated.
    #[must_use]
    pub fn begin_office(&self, of: Option<ShardId>, term: u64, term_end: u64) -> bool {
        let _alone = self.lock();
        if term < self.seal() || self.shard() != of {
            return false;
        }
        let mut copies = lock(&self.copies);
        copies.ends.clear();
        copies.reached.clear();
        self.others.store(0, Ordering::SeqCst);
        self.term_end.store(term_end, Ordering::SeqCst);
        self.count(&copies, term);
        self.seal.store(term, Ordering::SeqCst);
        self.lease_until_ms.store(0, Ordering::SeqCst);
        // Under the lock of the copies: the next thread that counts them finds the office that they
        // belong to.
        self.office.store(term, Ordering::SeqCst);
        true
    }

    /// Ends the office and its lease. Returns whether there was one.
    pub fn end_office(&self) -> bool {
        let _alone = self.lock();
        let was_in_office = self.office() > 0;
        self.end_office_locked();
        was_in_office
    }

    fn end_office_locked(&self) {
        self.lease_until_ms.store(0, Ordering::SeqCst);
        self.office.store(0, Ordering::SeqCst);
    }

    /// Sets the end of the present office's lease. A lease only grows, unless it is
    /// [shortened](Fence::shorten_lease_to_ms).
    pub fn set_lease_until_ms(&self, until_ms: u64) {
        let _alone = self.lock();
        if self.office() > 0 {
            self.lease_until_ms.fetch_max(until_ms, Ordering::SeqCst);
        }
    }

    /// Shortens the lease to `until_ms`, if it would end later: the group's present leader counts
    /// leases for a shorter time than the former one.
    pub fn shorten_lease_to_ms(&self, until_ms: u64) {
        let _alone = self.lock();
        self.lease_until_ms.fetch_min(until_ms, Ordering::SeqCst);
    }

    /// Gives the lease back: nothing that needs one is answered any more.
    pub fn give_lease_back(&self) {
        let _alone = self.lock();
        self.lease_until_ms.store(0, Ordering::SeqCst);
    }

    /// Until when writes may begin.
    #[inline]
    #[must_use]
    pub fn lease_until_ms(&self) -> u64 {
        self.lease_until_ms.load(Ordering::SeqCst)
    }

    /// Sets the nodes with copies of the shard. Returns whether more of the log is committed now.
    pub fn set_members(&self, shard: &Shard) -> bool {
        let mut copies = lock(&self.copies);
        let is_same = (&copies.shard.members, &copies.shard.old_members)
            == (&shard.members, &shard.old_members);
        copies.shard = shard.clone();
        self.is_quorum.store(shard.is_quorum, Ordering::SeqCst);
        let office = self.office();
        if !is_same || office < shard.term {
            // What the former members have says nothing about the new ones.
            self.others.store(0, Ordering::SeqCst);
        }
        self.count(&copies, office)
    }

    /// Whether the group decided that writes may wait for a majority.
    #[must_use]
    pub fn is_quorum(&self) -> bool {
        self.is_quorum.load(Ordering::SeqCst)
    }

    /// Sets whether all replies of this server wait for a majority, and whether a copy counts only
    /// once it is on disk.
    pub fn set_level(&self, holds_all: bool, wants_disk: bool) {
        self.holds_all.store(holds_all, Ordering::SeqCst);
        self.wants_disk.store(wants_disk, Ordering::SeqCst);
    }

    /// Sets whether the members also confirm answers at quorum, and how long they may take.
    pub fn set_confirms(&self, confirms: bool, round_ms_max: u64) {
        self.round_ms_max.store(round_ms_max, Ordering::SeqCst);
        self.confirms.store(confirms, Ordering::SeqCst);
    }

    /// Sets the function that asks members to confirm; once.
    #[cfg(feature = "cluster")]
    pub(crate) fn set_asker(&self, asker: Asker) {
        self.confirming.set_asker(asker);
    }

    /// Whether this node, as a member, knows no later term of its shard.
    #[must_use]
    pub fn knows_no_later(&self, shard: ShardId, term: u64) -> bool {
        self.shard() == Some(shard) && self.seal() <= term
    }

    /// Notes that a member knows no term later than `term`, as it said in a round. Returns whether
    /// a majority has now confirmed more.
    #[must_use]
    pub fn note_confirmed(&self, node: NodeId, term: u64, round: u64) -> bool {
        let noted = self.with_office(|office| self.confirming.note(office, node, term, round));
        noted.unwrap_or(false)
    }

    /// The newest round that a majority of the members has confirmed in the present office.
    #[must_use]
    pub fn round_confirmed(&self) -> u64 {
        match self.office() {
            0 => 0,
            term => self.confirming.confirmed(term),
        }
    }

    /// Repeats the question to members that have not answered for `after_ms`.
    pub fn ask_again(&self, after_ms: u64) {
        let question = self.with_office(|office| self.confirming.again(office, after_ms));
        self.confirming.ask(question.flatten());
    }

    /// Begins a round, if one is awaited and none is in progress.
    fn begin_round(&self, log: &dyn Tail) {
        let begun = self.with_office(|office| self.confirming.begin(office, || log.tail()));
        self.confirming.ask(begun.flatten());
    }

    fn with_office<R>(&self, act: impl FnOnce(&Office<'_>) -> R) -> Option<R> {
        let term = self.office();
        if term == 0 {
            return None;
        }
        let id = self.shard()?;
        let copies = lock(&self.copies);
        Some(act(&Office {
            own: copies.own?,
            id,
            shard: &copies.shard,
            term,
            now_ms: self.now_ms(),
        }))
    }

    fn now_ms(&self) -> u64 {
        self.clock.get().map_or(0, |clock| clock.boottime_ms())
    }

    /// Whether a copy counts only once it is on disk.
    #[must_use]
    pub fn wants_disk(&self) -> bool {
        self.wants_disk.load(Ordering::SeqCst)
    }

    /// Notes that a copy has the log up to `end`, as it said in this office, or with `None` that
    /// its link is gone. Returns whether more of the log is committed now.
    pub fn note_copy(&self, node: NodeId, term: u64, end: Option<u64>) -> bool {
        let mut copies = lock(&self.copies);
        match end {
            Some(end) if term == self.office() => {
                copies.reached.insert(node, end);
                copies.ends.insert(node, end)
            }
            Some(_) => return false,
            None => copies.ends.remove(&node),
        };
        self.count(&copies, self.office())
    }

    /// Returns the sequence up to which all copies of the data have the log, if this node has it up
    /// to `own_end`. Returns `None` if one of them has not acknowledged anything in this office.
    #[must_use]
    pub fn floor(&self, own_end: u64) -> Option<u64> {
        let copies = lock(&self.copies);
        let known = |node: &NodeId| match Some(*node) == copies.own {
            true => Some(own_end),
            false => copies.reached.get(node).copied(),
        };
        let shard = &copies.shard;
        let mut data = shard.everybody();
        data.retain(|node| shard.kind_of(*node) == Some(CopyKind::Data));
        let ends: Option<Vec<u64>> = data.iter().map(known).collect();
        let is_of_term = self.office() >= shard.term;
        ends?.into_iter().min().filter(|_| is_of_term)
    }

    /// Returns the end of a copy's log, as it said in this office.
    #[must_use]
    pub fn copy_end(&self, node: NodeId) -> Option<u64> {
        lock(&self.copies).ends.get(&node).copied()
    }

    /// Whether enough members are linked to commit more.
    #[must_use]
    pub fn has_majority(&self) -> bool {
        let copies = lock(&self.copies);
        let linked = copies.ends.keys().map(|node| (*node, 1));
        let own = copies.own.map(|own| (own, 1));
        copies.shard.committed(&linked.chain(own).collect()) > 0
    }

    /// Counts what a majority has in an office. Returns whether that is more than before. Members
    /// of a later term are not counted for this office.
    fn count(&self, copies: &Copies, office: u64) -> bool {
        if office < copies.shard.term {
            return false;
        }
        let own = copies.own.map(|own| (own, u64::MAX));
        let ends = copies.ends.iter().map(|(node, end)| (*node, *end));
        let others = copies.shard.committed(&ends.chain(own).collect());
        others > self.others.fetch_max(others, Ordering::SeqCst)
    }

    /// Returns the committed sequence, if this node has the log up to `own_end`, or 0 if nothing of
    /// the present term is committed.
    #[must_use]
    pub fn committed(&self, own_end: u64) -> u64 {
        let committed = self.others.load(Ordering::SeqCst).min(own_end);
        let is_of_term = self.office() > 0 && committed >= self.term_end.load(Ordering::SeqCst);
        if is_of_term { committed } else { 0 }
    }

    /// Whether the lease is valid now.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        self.now_ms() < self.lease_until_ms()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.appending)
    }
}

impl Majority for Fence {
    fn office(&self) -> u64 {
        Fence::office(self)
    }

    fn holds_replies(&self) -> bool {
        self.holds_all.load(Ordering::Relaxed)
    }

    fn released(&self, log: &dyn Tail) -> u64 {
        if !self.has_lease() {
            return 0;
        }
        let own_end = match self.wants_disk() {
            true => log.durable(),
            false => log.written(),
        };
        self.committed(own_end)
    }

    fn is_lapsed(&self) -> bool {
        let time_ms = self.round_ms_max.load(Ordering::Relaxed);
        !self.has_lease()
            || self
                .confirming
                .is_overdue(self.office(), self.now_ms(), time_ms)
    }

    fn patience_ms(&self) -> u64 {
        // Not shorter than the time in which the loss of a node is detected.
        self.round_ms_max.load(Ordering::Relaxed).saturating_mul(2)
    }

    fn confirms(&self) -> bool {
        self.confirms.load(Ordering::Relaxed)
    }

    fn next_round(&self, log: &dyn Tail) -> u64 {
        let round = self.confirming.next();
        // The round in progress may be over without any thread having checked it.
        let _over = self.round_over(log);
        self.begin_round(log);
        round
    }

    fn round_over(&self, log: &dyn Tail) -> u64 {
        let committed = self.released(log);
        if committed == 0 {
            return 0;
        }
        let over = self.confirming.over(self.office(), committed);
        self.begin_round(log);
        over
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("is_grouped", &self.is_grouped())
            .field("seal", &self.seal())
            .field("office", &self.office())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use base::clock::ManualClock;

    use super::*;

    fn node(name: u8) -> NodeId {
        NodeId([name; 20])
    }

    fn grouped_by(clock: &Arc<ManualClock>) -> Fence {
        let fence = Fence::default();
        fence.set_grouped(node(1), Arc::clone(clock) as Arc<dyn Clock>);
        fence
    }

    fn grouped() -> Fence {
        grouped_by(&Arc::new(ManualClock::at_unix_ms(1)))
    }

    fn shard(members: &[u8]) -> Shard {
        Shard {
            members: members
                .iter()
                .map(|name| (node(*name), CopyKind::Data))
                .collect(),
            is_quorum: true,
            ..Shard::default()
        }
    }

    #[test]
    fn what_all_copies_of_the_data_have_is_known_once_all_have_said_so() {
        let fence = grouped();
        let mut members = shard(&[1, 2, 3]);
        members.members.insert(node(3), CopyKind::LogOnly);
        let _more = fence.set_members(&members);
        let term = 4;
        assert!(fence.begin_office(fence.shard(), term, 8));
        assert_eq!(fence.floor(90), None);
        fence.note_copy(node(3), term, Some(10));
        assert_eq!(fence.floor(90), None, "a copy of the log alone");
        fence.note_copy(node(2), term - 1, Some(60));
        assert_eq!(fence.floor(90), None, "of another office");
        fence.note_copy(node(2), term, Some(60));
        fence.note_copy(node(2), term, None);
        assert_eq!((fence.floor(90), fence.floor(50)), (Some(60), Some(50)));
    }

    #[test]
    fn committed_is_what_a_majority_has_of_the_present_term() {
        let fence = grouped();
        fence.set_members(&shard(&[1, 2, 3]));
        assert!(fence.begin_office(fence.shard(), 4, 100));
        assert_eq!(fence.committed(500), 0);
        assert!(!fence.has_majority());
        assert!(!fence.note_copy(node(2), 3, Some(300)), "of an older term");
        assert!(!fence.note_copy(node(9), 4, Some(300)), "no member");
        assert!(fence.note_copy(node(2), 4, Some(90)) && fence.has_majority());
        assert_eq!(
            fence.committed(500),
            0,
            "the frame of the term is not there"
        );
        assert!(fence.note_copy(node(2), 4, Some(300)));
        assert!(!fence.note_copy(node(3), 4, Some(200)));
        assert_eq!((fence.committed(500), fence.committed(250)), (300, 250));
        fence.note_copy(node(2), 4, None);
        assert_eq!(fence.committed(500), 300, "what was committed stays so");
        assert!(fence.begin_office(fence.shard(), 5, 400));
        assert_eq!(
            fence.committed(500),
            0,
            "no acknowledgement survives a term"
        );
    }

    /// One of two copies was promoted alone, and then there is a third: with that one the former
    /// primary would be two of three.
    #[test]
    fn with_members_of_a_later_term_an_office_of_before_commits_nothing() {
        let of_term = |term, members: &[u8]| Shard {
            term,
            ..shard(members)
        };
        let fence = grouped();
        fence.set_members(&of_term(1, &[1, 2]));
        assert!(fence.begin_office(fence.shard(), 1, 8));
        assert!(fence.note_copy(node(2), 1, Some(16)));
        assert_eq!(fence.committed(64), 16);
        fence.set_members(&of_term(2, &[1, 2, 3]));
        let _noted = fence.note_copy(node(3), 1, Some(64));
        assert_eq!(fence.committed(64), 0);
        assert!(fence.begin_office(fence.shard(), 2, 72));
        assert!(fence.note_copy(node(3), 2, Some(80)));
        assert_eq!(fence.committed(80), 80);
    }

    #[test]
    fn while_members_change_both_sets_have_to_have_it() {
        let fence = grouped();
        let both = Shard {
            old_members: Some(shard(&[1, 2, 3]).members),
            ..shard(&[1, 4, 5])
        };
        fence.set_members(&both);
        assert!(fence.begin_office(fence.shard(), 1, 0));
        fence.note_copy(node(2), 1, Some(50));
        assert_eq!(fence.committed(100), 0);
        fence.note_copy(node(4), 1, Some(40));
        assert_eq!(fence.committed(100), 40);
    }

    #[test]
    fn what_one_member_had_alone_is_not_committed_among_three() {
        let fence = grouped();
        fence.set_members(&shard(&[1]));
        assert!(fence.begin_office(fence.shard(), 1, 8));
        assert_eq!(fence.committed(64), 64);
        fence.set_members(&shard(&[1, 2, 3]));
        assert_eq!(fence.committed(64), 0);
        assert!(fence.note_copy(node(3), 1, Some(48)));
        assert_eq!(fence.committed(64), 48);
    }

    #[test]
    fn a_node_alone_is_its_own_majority() {
        let fence = grouped();
        fence.set_members(&shard(&[1]));
        assert!(fence.begin_office(fence.shard(), 1, 8));
        assert!(fence.has_majority());
        assert_eq!(fence.committed(64), 64);
    }

    #[test]
    fn a_lease_ends_by_the_clock() {
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let fence = grouped_by(&clock);
        assert!(fence.begin_office(fence.shard(), 1, 0));
        assert!(!fence.has_lease());
        fence.set_lease_until_ms(1_000);
        clock.advance_ms(999);
        assert!(fence.has_lease());
        clock.advance_ms(1);
        assert!(!fence.has_lease() && fence.is_lapsed());
    }

    #[test]
    fn a_seal_refuses_frames_of_lower_terms_and_ends_their_office() {
        let fence = grouped();
        assert!(fence.begin_office(fence.shard(), 3, 0));
        fence.set_lease_until_ms(1_000);
        assert!(fence.raise(4));
        assert_eq!((fence.office(), fence.lease_until_ms()), (0, 0));
        assert!(!fence.accept(3) && !fence.begin_office(fence.shard(), 3, 0));
        assert!(fence.accept(4));
        assert!(fence.accept(6), "a later primary seals out those before it");
        assert!(!fence.accept(5));
        assert!(!fence.raise(5), "a late seal changes nothing");
        assert_eq!(fence.seal(), 6);
    }

    #[test]
    fn a_lease_takes_an_office_and_grows_unless_it_is_shortened() {
        let fence = grouped();
        fence.set_lease_until_ms(1_000);
        assert_eq!(fence.lease_until_ms(), 0);
        assert!(fence.begin_office(fence.shard(), 1, 0));
        fence.set_lease_until_ms(1_000);
        fence.set_lease_until_ms(900);
        assert_eq!(fence.lease_until_ms(), 1_000);
        fence.shorten_lease_to_ms(950);
        fence.shorten_lease_to_ms(980);
        assert_eq!(fence.lease_until_ms(), 950);
        assert!(
            fence.begin_office(fence.shard(), 2, 0),
            "the lease of another term counts no more"
        );
        assert_eq!(fence.lease_until_ms(), 0);
        assert!(fence.end_office() && !fence.end_office());
    }

    #[test]
    fn a_node_that_moves_to_another_shard_owes_the_one_before_nothing() {
        let fence = grouped();
        let (before, after) = (ShardId(3), ShardId(8));
        fence.set_shard(before);
        assert_eq!(fence.take_log_for(Some(before)), Ok(true));
        assert!(fence.begin_office(fence.shard(), 5, 0));
        fence.set_shard(before);
        assert_eq!((fence.office(), fence.seal()), (5, 5));
        fence.set_shard(after);
        assert_eq!((fence.office(), fence.seal()), (0, 0));
        assert_eq!(fence.shard_of_log(), Some(before));
        assert!(fence.accept(2));
        assert!(fence.take_log_for(Some(before)).is_err());
        assert_eq!(fence.take_log_for(Some(after)), Ok(true));
        assert_eq!(fence.take_log_for(Some(after)), Ok(false));
    }

    /// Otherwise it would refuse the primary of its new shard for good.
    #[test]
    fn an_office_that_was_ordered_in_another_shard_does_not_begin() {
        let fence = grouped();
        let [before, after] = [ShardId(3), ShardId(1)];
        fence.set_shard(before);
        let of = fence.shard();
        fence.set_shard(after);
        assert!(fence.accept(11) && !fence.begin_office(of, 12, 0));
        assert_eq!((fence.seal(), fence.office()), (11, 0));
        assert!(fence.accept(11));
    }

    #[test]
    fn without_a_group_everybody_is_followed() {
        let fence = Fence::default();
        fence.raise(9);
        assert!(fence.accept(1));
    }
}
