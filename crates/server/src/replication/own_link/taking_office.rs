//! Taking office: the rest of the log is applied to the data, and the term's first frame is in the
//! log before any request is answered in that term.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::random::fill_from_os;
use durability::log::{Control, TermFrame};

use super::super::applied_log::AppliedLog;
use super::super::following::{Authority, Following, Primary};
use super::super::own_links::OwnLinks;
use super::super::replica_link::ReplicaData as _;
use super::at_primary::LOOK;
use super::at_replica::AtReplica;
use super::both_ends::lock;
use super::log_on_disk::{own_log, place_of};
use crate::node::Node;

impl OwnLinks {
    /// Begins a term: its first frame is in the log when this returns. Under a control group
    /// `number` is the group's number of the term.
    pub(crate) fn begin_term(&self, node: &Arc<Node>, number: Option<u64>) {
        let Some(log) = own_log(node) else { return };
        let _alone = lock(&self.beginning);
        let before_it = log.tail_complete();
        let lineage = self.terms.lineage();
        let before = lineage.last();
        let mut id = [0; 20];
        fill_from_os(&mut id);
        let mut appender = log.appender();
        appender.set_time(node.core.clock.now_unix_ms());
        appender.control(&Control::Term(TermFrame {
            number: number.unwrap_or_else(|| lineage.last_number() + 1),
            id,
            previous: before.map_or([0; 20], |term| term.id.0),
            node: self.id().0,
            resp_offset: 0,
            flags: 0,
        }));
        // Callers ensure that the frame is with the system before they answer any request in the
        // term.
        let _fault = log.write_out(appender.end());
        drop(appender);
        self.terms.note_from(&log, before_it);
        self.note_other_history(node);
        let term = self.terms.lineage().last_number();
        self.links(node).begin_term(term);
        node.core
            .log
            .notice(format_args!("Term {term} of this log begins"));
    }

    /// Begins the first term of a log that has none.
    pub(super) fn begin_first_term(&self, node: &Arc<Node>) {
        if self.terms.lineage().last().is_none() {
            self.begin_term(node, None);
        }
    }

    /// Ends following; this node takes writes next. Under a control group `number` is the group's
    /// number of the term.
    pub(crate) fn take_over(&self, node: &Arc<Node>, number: Option<u64>) {
        if !self.follows.load(Ordering::Acquire) {
            // The node started as a replica and never reached its primary: the last term in its log
            // is that primary's.
            if self.terms.lineage().last().is_some() {
                self.begin_term(node, number);
            }
            return;
        }
        if let Err(reason) = begin_missing_log(node)
            && let Some(kept) = node.persistence()
        {
            kept.log().give_up_missing(reason);
        }
        // From the first write on the data must match the log. A partial full sync is useless, and
        // what the disk has is complete.
        if let Err(reason) = apply_rest(node) {
            node.core.log.warning(format_args!(
                "This node takes writes with less than its log has: {reason}"
            ));
        }
        // Later cuts must be newer than the generations in the primary's frames, and belong to the
        // new term.
        let suspended = node.persistence().map(|kept| kept.checkpointer.suspend());
        let generation = self.generation.load(Ordering::Relaxed);
        while node.core.store.raise_generation(generation).is_err() && !node.is_stopping() {
            // A snapshot of another thread ends soon.
            std::thread::sleep(LOOK);
        }
        self.begin_term(node, number);
        drop(suspended);
        if let Some(kept) = node.persistence() {
            kept.log().take_back();
        }
        node.replication.stream.set_foreign(false);
        self.follows.store(false, Ordering::Release);
        // From now on the store is this node's data, whatever it contains.
        self.is_store_broken.store(false, Ordering::Release);
    }

    /// Makes replicas get a full sync if their log ends where the data here has writes that are in
    /// no log: a term began before the log had everything that its checkpoint contains in part.
    fn note_other_history(&self, node: &Node) {
        let base = place_of(node).manifest().ok().flatten();
        if let Some(start) = base.and_then(|base| self.terms.other_history(&base)) {
            node.core.log.warning(format_args!(
                "A term began at sequence {start}, before the log had all that the checkpoint of the last full sync has: \
                 replicas that end there are given everything"
            ));
            self.whole_from.fetch_max(start + 1, Ordering::AcqRel);
        }
    }

    /// Lets other members fetch this log as of a term. This node is a log-only copy and is sealed
    /// for that term, so nothing is appended meanwhile.
    pub(in super::super) fn hand_on(&self, node: &Arc<Node>, term: u64) {
        self.links(node).begin_term(term);
    }
}

/// Begins the log after the checkpoint of a full sync whose last step failed, for example because
/// the disk was full. The data is loaded again before it is used.
///
/// # Errors
/// Why the log cannot be begun yet. Until then there is no log.
pub(in super::super) fn begin_missing_log(node: &Node) -> Result<(), String> {
    let Some(kept) = node.persistence() else {
        return Ok(());
    };
    if let Some(manifest) = kept.log().begin_missing()? {
        let own = &node.replication.own;
        own.terms.begin(&manifest.history.terms);
        own.is_store_broken.store(true, Ordering::Release);
    }
    Ok(())
}

/// Applies the rest of the log to the store before this node takes office. If the store has part of
/// a full sync, all data on disk is loaded again. The log must be lent.
pub(in super::super) fn apply_rest(node: &Arc<Node>) -> Result<(), String> {
    let Some(log) = own_log(node) else {
        return Ok(());
    };
    let own = &node.replication.own;
    let is_broken = own.is_store_broken.load(Ordering::Acquire);
    if !is_broken && own.applied.load(Ordering::Acquire) >= log.tail() {
        return Ok(());
    }
    let (host, port) = (String::new(), 0);
    let now_unix_ms = node.core.clock.now_unix_ms();
    let nobody = Following::new(
        Arc::downgrade(node),
        Primary { host, port },
        Authority::default(),
        now_unix_ms,
    );
    let home = AtReplica {
        shard: node.replication.fence.shard(),
        following: &nobody,
        weak: Arc::downgrade(node),
        node: Arc::clone(node),
        port,
    };
    let mut data = AppliedLog::new(&home, home.applier())?;
    match is_broken {
        true => data.restore()?,
        false => data.apply(u64::MAX)?,
    }
    own.generation
        .fetch_max(data.generation(), Ordering::Relaxed);
    Ok(())
}
