//! The history of this node's log: which term wrote which part of it, as far as this node knows.
//!
//! Recovery reads the history from the manifest of the checkpoint, for the part that the log no
//! longer has, and from the log after it. From then on the code that appends a term frame, own or
//! received, notes it here. Each checkpoint keeps the terms that begin below its cut. So every term
//! is always in the log or in the manifest in force.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use durability::checkpoint::{Manifest, TermEntry};
use durability::log::{Control, Frame, Log, READ_BYTES_MAX, Read, frames};
use replication::{Lineage, Term, TermId};

/// The history of one log.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    known: Mutex<Lineage>,
}

impl Terms {
    /// The history.
    pub(crate) fn lineage(&self) -> Lineage {
        self.lock().clone()
    }

    /// Replaces the history: another log is in use, with these terms so far.
    pub(crate) fn begin(&self, terms: &[TermEntry]) {
        let terms = terms.iter().map(|term| Term {
            number: term.number,
            id: TermId(term.id),
            start: term.start,
        });
        // An inconsistent history counts as none.
        *self.lock() = Lineage::new(terms.collect()).unwrap_or_default();
    }

    /// Forgets the terms that began at or after `end`: the log was truncated there.
    pub(crate) fn truncate(&self, end: u64) {
        self.lock().truncate(end);
    }

    /// Notes a frame that was appended.
    pub(crate) fn note(&self, frame: &Frame<'_>) {
        if let Some(Control::Term(term)) = frame.control() {
            let term = Term {
                number: term.number,
                id: TermId(term.id),
                start: frame.sequence,
            };
            // A term out of order is ignored: no correct primary writes one.
            let _out_of_order = self.lock().begin(term);
        }
    }

    /// Notes the frames that were appended from a sequence on, at which a frame begins.
    pub(crate) fn note_from(&self, log: &Arc<Log>, mut from: u64) {
        let mut cursor = log.cursor();
        let mut bytes = Vec::new();
        while let Read::Frames { first, end } = cursor.read(from, READ_BYTES_MAX, &mut bytes) {
            // A frame in pieces is never a term frame, because those are short.
            for frame in frames(first, &bytes) {
                self.note(&frame);
            }
            from = end;
        }
    }

    /// Returns the terms that begin below a sequence, in the form of a manifest.
    pub(crate) fn below(&self, sequence: u64) -> Vec<TermEntry> {
        let known = self.lock();
        let below = known.terms().iter().filter(|term| term.start < sequence);
        let entry = |term: &Term| TermEntry {
            number: term.number,
            id: term.id.0,
            start: term.start,
        };
        below.map(entry).collect()
    }

    /// Returns the start of a term that began before the log had everything that the checkpoint
    /// contains in part. From there on the log has another history than the checkpoint, which may
    /// contain writes that are in no log.
    pub(crate) fn other_history(&self, base: &Manifest) -> Option<u64> {
        let from = base.log_sequence?;
        let settled = base.history.settled_sequence?;
        let known = self.lock();
        let mut starts = known.terms().iter().rev().map(|term| term.start);
        starts.find(|start| (from..settled).contains(start))
    }

    fn lock(&self) -> MutexGuard<'_, Lineage> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use durability::checkpoint::History;

    use super::*;

    #[test]
    fn a_term_that_begins_before_a_checkpoint_is_settled_is_of_another_history() {
        let terms = Terms::default();
        let of = |number, start| TermEntry {
            number,
            id: [7; 20],
            start,
        };
        terms.begin(&[of(1, 0), of(2, 64), of(3, 640)]);
        let base = |from, settled| Manifest {
            log_sequence: Some(from),
            history: History {
                settled_sequence: settled,
                ..History::default()
            },
            ..Manifest::default()
        };
        assert_eq!(terms.other_history(&base(65, Some(640))), None);
        assert_eq!(terms.other_history(&base(64, Some(65))), Some(64));
        assert_eq!(terms.other_history(&base(8, Some(8_000))), Some(640));
        assert_eq!(terms.other_history(&base(8, None)), None, "its own cut");
    }

    #[test]
    fn a_manifest_has_the_terms_below_its_cut() {
        let terms = Terms::default();
        let of = |number, id, start| TermEntry {
            number,
            id: [id; 20],
            start,
        };
        let all = [of(1, 7, 0), of(4, 8, 64), of(5, 9, 4_096)];
        terms.begin(&all);
        assert_eq!(terms.below(8_000), all);
        assert_eq!(terms.below(4_096), all[..2]);
        terms.truncate(4_096);
        assert_eq!(terms.lineage().last_number(), 4);
        terms.begin(&[of(2, 1, 8), of(1, 2, 16)]);
        assert_eq!(terms.below(u64::MAX), []);
    }
}
