//! What the controls of a log say to whoever reads it through: the terms that it has, and the place in a Redis stream that
//! it has followed.
//!
//! A control has its place among the effects. Some are for those alone who pass the log on (a ping), and change nothing
//! here; one that this server cannot apply is refused by name, for what follows it would not be what it was.

use std::collections::VecDeque;
use std::fmt;

use durability::checkpoint::{TERMS_MAX, TermEntry};
use durability::log::Control;
use store::Source;

use crate::followed::OWN;

/// What was said so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controls {
    /// The terms that begin in the log, oldest first; the newest ones where there are many.
    pub terms: VecDeque<TermEntry>,
    /// What the data is of, as it was said last: a place in a stream that was followed, or this server's own.
    pub stream: Option<Source>,
}

/// A control that this server cannot apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotApplied {
    /// The frame that it is in.
    pub sequence: u64,
    /// How it is called.
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
    /// Takes a control of the frame at a sequence.
    ///
    /// # Errors
    /// When it changes what the effects after it find, and nobody here can do so.
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
