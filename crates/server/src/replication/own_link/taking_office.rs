//! Taking office: what the log has and the data has not yet is applied, and the first frame of a term is in the log before
//! anybody is answered in that.

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
    /// A primary's reign begins: the first frame of it is in the log when this returns. Under a control group the term has
    /// a number there.
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
        // That it is with the system is seen to before anybody is answered in it.
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

    /// The first term of a log that has none.
    pub(super) fn begin_first_term(&self, node: &Arc<Node>) {
        if self.terms.lineage().last().is_none() {
            self.begin_term(node, None);
        }
    }

    /// This node has stopped following, and takes writes next. Under a control group the term has a number there.
    pub(crate) fn take_over(&self, node: &Arc<Node>, number: Option<u64>) {
        if !self.follows.load(Ordering::Acquire) {
            // It was started as a replica, and never met its primary: the term that its log ends in is that one's.
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
        // The data is what the log says from the first write on. Half of a full sync is nobody's data, and what the disk has
        // is whole.
        if let Err(reason) = apply_rest(node) {
            node.core.log.warning(format_args!(
                "This node takes writes with less than its log has: {reason}"
            ));
        }
        // Whatever is cut from now on is newer than what the primary's frames say, and has the term that begins.
        let suspended = node.persistence().map(|kept| kept.checkpointer.suspend());
        let generation = self.generation.load(Ordering::Relaxed);
        while node.core.store.raise_generation(generation).is_err() && !node.is_stopping() {
            // Somebody else's snapshot ends soon.
            std::thread::sleep(LOOK);
        }
        self.begin_term(node, number);
        drop(suspended);
        if let Some(kept) = node.persistence() {
            kept.log().take_back();
        }
        node.replication.stream.set_foreign(false);
        self.follows.store(false, Ordering::Release);
        // Whatever the store has is this node's data from now on.
        self.is_store_broken.store(false, Ordering::Release);
    }

    /// Has everybody be given everything who ends where the data here has writes that are in no log: a term began before
    /// the log had all that the checkpoint below it has in part.
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

    /// Whoever asks is given what this log has, as of a term: this node keeps the log alone and is sealed for it, so that nothing comes
    /// to it meanwhile.
    pub(in super::super) fn hand_on(&self, node: &Arc<Node>, term: u64) {
        self.links(node).begin_term(term);
    }
}

/// Begins the log after the checkpoint of a full sync whose last step failed, on a full disk say. The data is loaded again
/// before it is anybody's.
///
/// # Errors
/// Why it cannot be begun yet: there is no log until it is.
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

/// Applies what the log has more than the store, before this node takes office; where the store has half of something else,
/// all that is on disk is loaded again. The log is lent.
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
