//! What the controls of a log tell its readers: the terms in the log, and the position in a
//! followed Redis stream.
//!
//! Controls are ordered among the effects. Some, like a ping, matter only to code that passes the
//! log on, and change nothing here. A control that this server cannot apply is refused by name,
//! because the effects after it would have a different meaning.

use std::collections::VecDeque;
use std::fmt;

use durability::checkpoint::{TERMS_MAX, TermEntry};
use durability::log::Control;
use store::Source;

use crate::followed::OWN;

/// The content of the controls so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controls {
    /// The terms that begin in the log, oldest first; only the newest ones if there are many.
    pub terms: VecDeque<TermEntry>,
    /// The last stated origin of the data: a position in a followed stream, or this server itself.
    pub stream: Option<Source>,
}

/// A control that this server cannot apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotApplied {
    /// Sequence of its frame.
    pub sequence: u64,
    /// Name of the control.
    pub name: &'static str,
}

impl fmt::Display for NotApplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, name } = self;
        write!(
            f,
            "the log has a control at sequence {sequence} that this server cannot apply: {name}"
        )
    }
}

impl std::error::Error for NotApplied {}

impl Controls {
    /// Notes a control of the frame at a sequence.
    ///
    /// # Errors
    /// If the control changes what later effects find, and this server cannot apply it.
    pub fn note(&mut self, sequence: u64, control: &Control<'_>) -> Result<(), NotApplied> {
        match control {
            Control::Term(term) => {
                if self.terms.len() == TERMS_MAX {
                    self.terms.pop_front();
                }
                self.terms.push_back(TermEntry {
                    number: term.number,
                    id: term.id,
                    start: sequence,
                });
                self.stream = Some(OWN);
            }
            Control::Source(source) => {
                self.stream = Some(Source {
                    id: source.replid,
                    offset: source.offset,
                    database: source.database,
                });
            }
            Control::Ping
            | Control::GetAck
            | Control::DigestPoint { .. }
            | Control::Config { .. } => {}
            Control::Trim(_) => {
                return Err(NotApplied {
                    sequence,
                    name: control.name(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use durability::log::{SlotRanges, SourceFrame, TermFrame};

    use super::*;

    #[test]
    fn terms_and_the_last_source_are_kept_and_trim_is_refused() {
        let mut controls = Controls::default();
        let term = |number| TermFrame {
            number,
            id: [1; 20],
            previous: [2; 20],
            node: [3; 20],
            resp_offset: 4,
            flags: 0,
        };
        for number in 0..=TERMS_MAX as u64 {
            let control = Control::Term(term(number));
            controls.note(number * 8, &control).unwrap();
        }
        assert_eq!(controls.terms.len(), TERMS_MAX);
        let oldest = controls.terms.front().unwrap();
        assert_eq!((oldest.number, oldest.start, oldest.id), (1, 8, [1; 20]));
        assert_eq!(controls.stream, Some(OWN));
        let source = |offset| SourceFrame {
            replid: [b'a'; 40],
            offset,
            database: 3,
        };
        for offset in [7, 9] {
            controls
                .note(offset, &Control::Source(source(offset)))
                .unwrap();
        }
        let of_stream = controls.stream.unwrap();
        assert_eq!((of_stream.id, of_stream.offset), ([b'a'; 40], 9));
        let before = controls.clone();
        for control in [
            Control::Ping,
            Control::GetAck,
            Control::DigestPoint { number: 1 },
        ] {
            controls.note(9, &control).unwrap();
        }
        let ranges = SlotRanges::new(&[]).unwrap();
        let error = controls.note(16, &Control::Trim(ranges)).unwrap_err();
        let text = "the log has a control at sequence 16 that this server cannot apply: trim";
        assert_eq!(error.to_string(), text);
        assert_eq!(controls, before);
    }
}
