//! The history of this node's log: which term wrote which part of it, as far as that is known here.
//!
//! It is read from the term frames of the log once, and kept up by whoever appends.

use std::sync::{Mutex, MutexGuard, PoisonError};

use durability::log::{Control, Frame, Frames, Log, READ_BYTES_MAX, Read};
use replication::{Lineage, Term, TermId};
use std::sync::Arc;

/// The history of one log.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    lineage: Lineage,
    /// Frames below were looked at.
    read: u64,
}

impl Terms {
    /// The history.
    pub(crate) fn lineage(&self) -> Lineage {
        self.lock().lineage.clone()
    }

    /// Forgets everything: the log is another one, whose terms before its beginning are these.
    pub(crate) fn begin(&self, terms: Vec<Term>, start: u64) {
        *self.lock() = Known {
            // What is no history is as good as none.
            lineage: Lineage::new(terms).unwrap_or_default(),
            read: start,
        };
    }

    /// Forgets the terms that began at or behind a place: the log was truncated there.
    pub(crate) fn truncate(&self, end: u64) {
        let mut known = self.lock();
        known.lineage.truncate(end);
        known.read = known.read.min(end);
    }

    /// Notes a frame that was appended.
    pub(crate) fn note(&self, frame: &Frame<'_>) {
        let mut known = self.lock();
        known.read = frame.sequence + frame.length;
        if let Some(term) = term_of(frame) {
            // One that does not follow is of a log that nobody should have written.
            let _out_of_order = known.lineage.begin(term);
        }
    }

    /// Looks at what the log has that was not looked at.
    pub(crate) fn catch_up(&self, log: &Arc<Log>) {
        let mut cursor = log.cursor();
        let mut bytes = Vec::new();
        let mut from = self.lock().read.max(log.oldest());
        loop {
            match cursor.read(from, READ_BYTES_MAX, &mut bytes) {
                Read::Frames { first, end } => {
                    // Of a frame in pieces there is nothing to see: a term frame is a short one.
                    for frame in Frames::new(&bytes, first).map_while(Result::ok) {
                        self.note(&frame);
                    }
                    from = end;
                }
                Read::AtTail | Read::Damaged(_) => break,
                Read::Lapped { oldest } => from = oldest,
            }
        }
        self.lock().read = from;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn term_of(frame: &Frame<'_>) -> Option<Term> {
    match frame.control()? {
        Control::Term(term) => Some(Term {
            number: term.number,
            id: TermId(term.id),
            start: frame.sequence,
        }),
        _ => None,
    }
}
