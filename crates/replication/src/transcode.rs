//! Converts the log to the stream of commands that a Redis or Valkey replica reads.
//!
//! ```text
//!   log     │ term │ SET a 1 (db 0) │ group: SET b 1, DEL c (db 2)              │ ping │
//!   stream         │ SELECT 0 SET a 1 │ SELECT 2 MULTI SET b 1 DEL c EXEC         │ PING │
//!   offset         0                  ↑ a place: sequence, offset, database
//! ```
//!
//! Invariants
//!  1. The output is a function of the log and the [`Form`] only. Every copy of a log that begins
//!     to count at the same byte has the same bytes at the same offsets, whoever reads it and in
//!     whatever pieces. The [`Place`] is the only state that is carried from one frame to the next.
//!  2. The first command after a term frame, and at the beginning, is preceded by a SELECT: a node
//!     that continues there need not know the database of the stream.
//!  3. A frame is one step for the replica, too: several commands are enclosed in MULTI and EXEC.
//!  4. A frame that cannot be expressed for the peer takes one byte of the offsets, which is sent
//!     to no replica ([`Transcoder::unsaid`]): a replica that has everything before the frame is
//!     not mistaken for one that has the frame's effects.
//!
//! A full sync sends a checkpoint and then the log from a sequence at which the checkpoint already
//! contains some of the effects. These become newlines, as many as the effect has bytes
//! ([`Transcoder::hide`]). A replica ignores empty lines from its primary and counts them, so
//! offsets are the same for all replicas.

mod form;
mod sink;
#[cfg(test)]
mod tests;

use std::fmt;

use durability::checkpoint::Overlap;
use durability::log::Effect;

pub use form::{Form, Peer};
pub use sink::{Count, Sink, Skip};

use form::{Said, is_beyond, translate};
use sink::Counted;

/// A position in the log and the corresponding position in the stream, between two frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The sequence of the next frame.
    pub sequence: u64,
    /// Number of bytes of the stream before it.
    pub offset: u64,
    /// The selected database of the stream, or `None` if the next command needs a SELECT.
    pub database: Option<u16>,
}

/// The peer has no command for the effect of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Sequence of the frame.
    pub sequence: u64,
    /// The command of our log that states the effect.
    pub command: String,
    /// Kind of the peer.
    pub peer: Peer,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unsupported by {}: {}", self.peer, self.command)
    }
}

impl std::error::Error for Unsupported {}

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// The command that requests a replica's offset at once.
const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

/// Converts frames to commands, one frame after the other.
#[derive(Clone, Debug)]
pub struct Transcoder {
    form: Form,
    reader: Peer,
    place: Place,
    hidden: Overlap,
    lost: u64,
}

impl Transcoder {
    /// Creates a transcoder that continues at a place.
    #[must_use]
    pub fn new(form: Form, place: Place) -> Self {
        Self {
            form,
            reader: form.peer,
            place,
            hidden: Overlap::NONE,
            lost: 0,
        }
    }

    /// Sets which peer of the form's family reads. What that peer cannot load ends the stream, or
    /// is left out.
    #[must_use]
    pub fn for_reader(mut self, reader: Peer) -> Self {
        self.reader = reader;
        self
    }

    /// Replaces these effects by newlines, because the checkpoint that was sent contains them. Each
    /// primary has its own generations, so everything after the overlap is sent, whatever its
    /// generation.
    pub fn hide(&mut self, overlap: Overlap) {
        self.hidden = overlap;
    }

    /// Returns its place.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the form that it writes.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns the number of effects that were not sent, or not in full, because the form allows
    /// loss.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Passes a term frame, which ends at `end`. The next command is preceded by a SELECT.
    pub fn term(&mut self, end: u64) {
        self.place.database = None;
        self.place.sequence = end;
    }

    /// Writes a ping frame, which ends at `end`.
    pub fn ping(&mut self, end: u64, sink: &mut impl Sink) {
        self.put_alone(PING, end, sink);
    }

    /// Writes a frame that requests the replicas' offsets, which ends at `end`.
    pub fn getack(&mut self, end: u64, sink: &mut impl Sink) {
        self.put_alone(GETACK, end, sink);
    }

    /// Passes a frame that is not sent to a Redis replica, which ends at `end`.
    pub fn silent(&mut self, end: u64) {
        self.place.sequence = end;
    }

    /// Passes a frame, which ends at `end`, that [cannot be expressed](Unsupported). Only a
    /// transcoder that counts continues after it.
    pub fn unsaid(&mut self, end: u64) {
        self.place.offset += 1;
        self.place.sequence = end;
    }

    /// Handles a frame that gives slots away. The log does not say which keys these were, so
    /// replicas from before the frame need a full sync.
    ///
    /// # Errors
    /// [`Unsupported`], always.
    pub fn trim(&mut self) -> Result<(), Unsupported> {
        Err(Unsupported {
            sequence: self.place.sequence,
            command: "slots that were given away".to_owned(),
            peer: self.reader,
        })
    }

    /// Writes a frame of effects, which ends at `end`.
    ///
    /// # Errors
    /// [`Unsupported`]: nothing was written, and the place is still before the frame.
    pub fn effects<'a>(
        &mut self,
        effects: impl Iterator<Item = Effect<'a>> + Clone,
        end: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Unsupported> {
        let (mut commands, mut lost) = (0_u64, 0);
        for effect in effects.clone() {
            let said = match self.translate(&effect) {
                Ok(said) => said,
                Err(unsupported) => {
                    let mut effects = effects;
                    if !effects.all(|one| self.is_hidden(&one)) {
                        return Err(unsupported);
                    }
                    // The replica has the effects from the checkpoint.
                    sink.put(b"\n");
                    self.unsaid(end);
                    return Ok(());
                }
            };
            commands += said.commands();
            lost += u64::from(said.is_lossy());
        }
        self.lost += lost;
        let is_group = commands > 1;
        let mut sink = Counted::new(sink);
        let mut is_begun = false;
        for effect in effects {
            let said = self.translate(&effect)?;
            if said.commands() == 0 {
                continue;
            }
            if self.place.database != Some(effect.database) {
                self.place.database = Some(effect.database);
                put_select(effect.database, &mut sink);
            }
            if is_group && !is_begun {
                sink.put(MULTI);
            }
            is_begun = true;
            if self.is_hidden(&effect) || is_beyond(self.reader, effect.parts) {
                let mut count = Count::default();
                said.put(&mut count);
                sink.fill(count.bytes());
            } else {
                said.put(&mut sink);
            }
        }
        if is_group {
            sink.put(EXEC);
        }
        self.place.offset += sink.bytes();
        self.place.sequence = end;
        Ok(())
    }

    fn put_alone(&mut self, command: &[u8], end: u64, sink: &mut impl Sink) {
        sink.put(command);
        self.place.offset += command.len() as u64;
        self.place.sequence = end;
    }

    fn is_hidden(&self, effect: &Effect<'_>) -> bool {
        self.hidden.has(self.place.sequence, effect.generation)
    }

    fn translate<'a>(&self, effect: &Effect<'a>) -> Result<Said<'a>, Unsupported> {
        let unsupported = |command| Unsupported {
            sequence: self.place.sequence,
            command,
            peer: self.reader,
        };
        let said = translate(self.form, effect.parts).map_err(unsupported)?;
        if is_beyond(self.reader, effect.parts) && !self.form.allows_loss && !self.is_hidden(effect)
        {
            return Err(unsupported("RESTORE".to_owned()));
        }
        Ok(said)
    }
}

fn put_select(database: u16, sink: &mut impl Sink) {
    let number = base::number::IntegerText::new_u64(database.into());
    sink.put(b"*2\r\n$6\r\nSELECT\r\n");
    put_part(number.as_bytes(), sink);
}

/// Writes one argument.
fn put_part(part: &[u8], sink: &mut impl Sink) {
    put_head(b"$", part.len(), sink);
    sink.put(part);
    sink.put(b"\r\n");
}

/// Writes the line before an argument, or before all of them.
fn put_head(mark: &[u8], count: usize, sink: &mut impl Sink) {
    sink.put(mark);
    let count = base::number::IntegerText::new_u64(count as u64);
    sink.put(count.as_bytes());
    sink.put(b"\r\n");
}
