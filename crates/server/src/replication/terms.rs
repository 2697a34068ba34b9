//! The history of this node's log: which term wrote which part of it, as far as that is known here.
//!
//! It is read from the term frames of the log once, and kept up by whoever appends. What the log has no more stands in a
//! file beside the parts of the checkpoint that the log goes on from, written before the log is cut there:
//!
//! ```text
//!   checkpoint-7-1/terms      term 1 5f2e… 0
//!                             term 2 91c0… 4096
//! ```

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::hex;
use durability::checkpoint::Manifest;
use durability::log::{Control, Frame, Log, READ_BYTES_MAX, Read, frames};
use persistence::recovery::Place;
use replication::{Lineage, Term, TermId};

/// The name of the file.
const NAME: &str = "terms";
/// It is not longer than this: more terms than a lineage keeps.
const BYTES_MAX: usize = 256 << 10;

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
                    for frame in frames(first, &bytes) {
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

    /// The terms that begin below a sequence, as text.
    pub(crate) fn below(&self, sequence: u64) -> String {
        let mut text = String::new();
        for term in self.lock().lineage.terms() {
            if term.start < sequence {
                let Term { number, id, start } = term;
                // Writing to a string does not fail.
                let _written = writeln!(text, "term {number} {id} {start}");
            }
        }
        text
    }

    /// Keeps the terms that begin below where the log goes on from a checkpoint, beside its parts. It is durable when this
    /// returns.
    ///
    /// # Errors
    /// Those of the system: then the log is not to be cut.
    pub(crate) fn write_beside(&self, place: &Place, manifest: &Manifest) -> io::Result<()> {
        let text = self.below(manifest.log_sequence.unwrap_or(0));
        if text.is_empty() || manifest.directory.is_empty() {
            return Ok(());
        }
        keep(place, manifest, &text)
    }

    /// The terms that are kept beside a checkpoint; none where nothing can be read.
    pub(crate) fn read_beside(place: &Place, manifest: &Manifest) -> Vec<Term> {
        let path = place.directory.join(&manifest.directory).join(NAME);
        let Ok(file) = place.disk.open(&path) else {
            return Vec::new();
        };
        let mut bytes = vec![0; BYTES_MAX];
        let count = file.read_at(&mut bytes, 0).unwrap_or(0);
        parse(&String::from_utf8_lossy(&bytes[..count])).unwrap_or_default()
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

/// Writes terms beside the parts of a checkpoint.
///
/// # Errors
/// Those of the system.
pub(crate) fn keep(place: &Place, manifest: &Manifest, text: &str) -> io::Result<()> {
    let directory = place.directory.join(&manifest.directory);
    let path = directory.join(NAME);
    match place.disk.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = place.disk.create(&path)?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync()?;
    place.disk.sync_directory(&directory)
}

/// The terms that a text names; none where it is no such text.
pub(crate) fn parse(text: &str) -> Option<Vec<Term>> {
    let term = |line: &str| {
        let mut words = line.strip_prefix("term ")?.split(' ');
        let (number, id, start) = (words.next()?, words.next()?, words.next()?);
        let mut bytes = [0; 20];
        for (byte, digits) in bytes.iter_mut().zip(id.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        let term = Term {
            number: number.parse().ok()?,
            id: TermId(bytes),
            start: start.parse().ok()?,
        };
        (id.len() == 40 && words.next().is_none() && hex::text(&bytes) == id).then_some(term)
    };
    text.lines().map(term).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn terms_come_back_from_their_text() {
        let terms = Terms::default();
        let of = |number, id, start| Term {
            number,
            id: TermId([id; 20]),
            start,
        };
        let all = vec![of(1, 7, 0), of(4, 8, 64), of(5, 9, 4_096)];
        terms.begin(all.clone(), 8_000);
        assert_eq!(parse(&terms.below(8_000)).unwrap(), all);
        assert_eq!(parse(&terms.below(4_096)).unwrap(), all[..2]);
        for text in ["term 1 00 0", "term 1", "other", "term 1 zz 0 0"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("").unwrap(), []);
    }
}
