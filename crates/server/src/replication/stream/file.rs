//! The part of the stream's state that outlives the process: its names, and the log positions of
//! its offsets.
//!
//! ```text
//!   iolite-stream 1
//!   form 0
//!   id 3c0d8f5f4a2b1e6d7c8b9a0f1e2d3c4b5a697887
//!   second 91c0…  4097
//!   place 4096 123456 0
//!   place 1052672 1200000 -
//!   end 5ad9c2e1f0b3a487
//! ```
//!
//! The stream is made from the log again, so an old position is as good as a new one while the log
//! still has it. If the file cannot be read, replicas get a full sync.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use base::crc::crc64;
use durability::whole_file;
use persistence::recovery::Place as FilePlace;
use replication::transcode::Place;

use super::super::history::{History, ReplicationId};

const NAME: &str = "stream";
const TITLE: &str = "iolite-stream 1";
/// Maximum length of the file. It fits more positions than an index has.
const BYTES_MAX: u64 = 4 << 20;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Tag of the form in which offsets are counted.
    pub(super) form: u8,
    /// The names of the stream.
    pub(super) history: History,
    /// Positions in the stream, the oldest first.
    pub(super) places: Vec<Place>,
}

impl Kept {
    fn encode(&self) -> String {
        let mut text = format!("{TITLE}\nform {}\nid {}\n", self.form, self.history.id);
        // Writing to a string does not fail.
        if let Some((id, next)) = self.history.second {
            let _written = writeln!(text, "second {id} {next}");
        }
        for place in &self.places {
            let Place {
                sequence, offset, ..
            } = place;
            let database = place
                .database
                .map_or_else(|| "-".to_owned(), |it| it.to_string());
            let _written = writeln!(text, "place {sequence} {offset} {database}");
        }
        let sum = crc64(0, text.as_bytes());
        let _written = writeln!(text, "end {sum:016x}");
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let end = text.rfind("end ")?;
        let sum = text[end..].strip_prefix("end ")?.strip_suffix('\n')?;
        if u64::from_str_radix(sum, 16).ok()? != crc64(0, &text.as_bytes()[..end]) {
            return None;
        }
        let mut lines = text[..end].lines();
        if lines.next()? != TITLE {
            return None;
        }
        let form = lines.next()?.strip_prefix("form ")?.parse().ok()?;
        let id = ReplicationId::parse(lines.next()?.strip_prefix("id ")?.as_bytes())?;
        let mut kept = Self {
            form,
            history: History { id, second: None },
            places: Vec::new(),
        };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["second", id, next] => {
                    let id = ReplicationId::parse(id.as_bytes())?;
                    kept.history.second = Some((id, next.parse().ok()?));
                }
                ["place", sequence, offset, database] => kept.places.push(Place {
                    sequence: sequence.parse().ok()?,
                    offset: offset.parse().ok()?,
                    database: match *database {
                        "-" => None,
                        number => Some(number.parse().ok()?),
                    },
                }),
                _ => return None,
            }
        }
        Some(kept)
    }

    /// Replaces the former file. The new one is durable when this returns.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn write(&self, place: &FilePlace) -> io::Result<()> {
        let bytes = self.encode().into_bytes();
        whole_file::replace(&*place.disk, &place.directory, NAME, &bytes).map(drop)
    }

    /// Reads the file, or returns `None` if it is missing or invalid.
    pub(super) fn read(place: &FilePlace) -> Option<Self> {
        let bytes = whole_file::read(&*place.disk, &path_of(place), BYTES_MAX).ok()??;
        Self::parse(std::str::from_utf8(&bytes).ok()?)
    }
}

/// Removes the file, so that no replica can continue from it.
pub(super) fn forget(place: &FilePlace) {
    // If the system does not remove it, its content does not match the log.
    let _left = whole_file::remove(&*place.disk, &path_of(place));
}

fn path_of(place: &FilePlace) -> PathBuf {
    place.directory.join(NAME)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use base::random::Prng;

    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_nothing_else_does() {
        let mut history = History::new(&mut Prng::seeded(3));
        history.begin_term(
            super::super::super::history::new_id(&mut Prng::seeded(4)),
            78,
        );
        let place = |sequence, database| Place {
            sequence,
            offset: sequence * 2,
            database,
        };
        let kept = Kept {
            form: 3,
            history,
            places: vec![place(8, None), place(4096, Some(5))],
        };
        let text = kept.encode();
        assert_eq!(Kept::parse(&text), Some(kept.clone()));
        let plain = Kept {
            history: History::new(&mut Prng::seeded(5)),
            places: Vec::new(),
            ..kept
        };
        assert_eq!(Kept::parse(&plain.encode()), Some(plain));
        assert_eq!(Kept::parse(&text.replace("4096", "4097")), None);
        for len in 0..text.len() {
            assert_eq!(Kept::parse(&text[..len]), None, "{len}");
        }
    }
}
