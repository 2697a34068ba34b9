//! Requests of Redis or Valkey replicas, and their answers.
//!
//! ```text
//!   replica   PSYNC <id> <offset + 1> [FAILOVER]
//!   primary   +CONTINUE [<id>]          the bytes from that offset on
//!             +FULLRESYNC <id> <offset> a snapshot, then the bytes from there on
//! ```
//!
//! An offset here is the number of preceding bytes of the stream: 0 at its beginning. On the wire
//! it is the number of the first requested byte, which is one more.

mod replconf;

use std::fmt;

use base::number::parse_i64;

use crate::lineage::TermId;
use crate::transcode::Form;

pub use replconf::{REPLY_OK, Replconf, ReplconfAnswer, ReplconfEvent};

/// The name of a history of a stream: 40 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicationId([u8; 40]);

impl ReplicationId {
    /// The id that belongs to no history.
    pub const NONE: Self = Self([b'0'; 40]);

    /// Returns the id of the stream that a term writes in a form. In the default form it is the
    /// term's id.
    #[must_use]
    pub fn of_term(term: TermId, form: Form) -> Self {
        let mut bytes = term.0;
        let mask = form.tag().wrapping_mul(0x9d);
        for byte in &mut bytes {
            *byte ^= mask;
        }
        let mut digits = [b'0'; 40];
        digits.copy_from_slice(base::hex::text(&bytes).as_bytes());
        Self(digits)
    }

    /// Parses the id that a peer sent: any 40 letters or digits.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits: [u8; 40] = text.try_into().ok()?;
        let is_plain = digits.iter().all(u8::is_ascii_alphanumeric);
        is_plain.then_some(Self(digits))
    }

    /// Returns its 40 characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The part of a stream that a primary can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The stream that is written now.
    pub id: ReplicationId,
    /// The stream before it, and the offset at which that ended: up to there both are the same.
    pub second: Option<(ReplicationId, u64)>,
    /// The oldest offset from which the primary can still send the stream.
    pub oldest: u64,
    /// End of the stream.
    pub end: u64,
}

/// The request of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The position to continue from, or `None` for a full sync.
    pub from: Option<(ReplicationId, u64)>,
    /// Whether the primary gives up its office: the receiver becomes the primary from here on.
    pub is_failover: bool,
}

impl Asked {
    /// Parses the arguments of PSYNC, without its name. An invalid id, or an offset that no stream
    /// has, requests a full sync.
    ///
    /// # Errors
    /// The text of the error reply.
    pub fn parse(args: &[&[u8]]) -> Result<Self, &'static str> {
        let (id, offset, is_failover) = match args {
            [id, offset] => (id, offset, false),
            [id, offset, word] if word.eq_ignore_ascii_case(b"FAILOVER") => (id, offset, true),
            [_, _, _] => return Err("ERR syntax error"),
            _ => return Err("ERR wrong number of arguments for 'psync' command"),
        };
        let Some(first) = parse_i64(offset) else {
            return Err("ERR value is not an integer or out of range");
        };
        let id = ReplicationId::parse(id);
        let offset = first.checked_sub(1).and_then(|it| u64::try_from(it).ok());
        Ok(Self {
            from: id.zip(offset),
            is_failover,
        })
    }
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The replica gets the stream from this offset on.
    Continue(u64),
    /// The replica gets a full sync.
    Full(FullCause),
}

/// Why a replica gets a full sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullCause {
    /// The replica requested it.
    Asked,
    /// The replica followed another history.
    OtherHistory,
    /// The replica followed our former history for longer than we did: the histories parted before
    /// its offset.
    Parted,
    /// The offset is before the start or after the end of the stream.
    OutOfReach,
}

impl fmt::Display for FullCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "it asked for a full sync",
            Self::OtherHistory => "it followed another history",
            Self::Parted => "the histories parted before its offset",
            Self::OutOfReach => "the log does not have its offset",
        })
    }
}

/// Returns a primary's answer to a replica.
#[must_use]
pub fn decide(history: &History, asked: &Asked) -> Decision {
    let Some((id, offset)) = asked.from else {
        return Decision::Full(FullCause::Asked);
    };
    if id != history.id {
        match history.second {
            Some((second, end)) if second == id && offset <= end => {}
            Some((second, _)) if second == id => return Decision::Full(FullCause::Parted),
            _ => return Decision::Full(FullCause::OtherHistory),
        }
    }
    if (history.oldest..=history.end).contains(&offset) {
        Decision::Continue(offset)
    } else {
        Decision::Full(FullCause::OutOfReach)
    }
}

/// Whether a replica takes over when its primary sends `PSYNC … FAILOVER`. `followed` is the
/// history that it follows.
///
/// # Errors
/// The text of the error reply. The caller must not change anything then.
pub fn judge_takeover(followed: Option<&History>, asked: &Asked) -> Result<(), &'static str> {
    let Some(followed) = followed else {
        return Err("ERR PSYNC FAILOVER can't be sent to a master.");
    };
    match asked.from {
        Some((id, _)) if id == followed.id => Ok(()),
        _ => Err("ERR PSYNC FAILOVER replid must match my replid."),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::transcode::Peer;

    fn id(digit: u8) -> ReplicationId {
        ReplicationId([digit; 40])
    }

    fn history() -> History {
        History {
            id: id(b'a'),
            second: Some((id(b'b'), 500)),
            oldest: 100,
            end: 900,
        }
    }

    fn asked(id: ReplicationId, offset: u64) -> Asked {
        Asked {
            from: Some((id, offset)),
            is_failover: false,
        }
    }

    #[test]
    fn a_replica_continues_where_both_histories_are_the_same() {
        for (asked, decision) in [
            (asked(id(b'a'), 100), Decision::Continue(100)),
            (asked(id(b'a'), 900), Decision::Continue(900)),
            (asked(id(b'a'), 99), Decision::Full(FullCause::OutOfReach)),
            (asked(id(b'a'), 901), Decision::Full(FullCause::OutOfReach)),
            (asked(id(b'b'), 500), Decision::Continue(500)),
            (asked(id(b'b'), 501), Decision::Full(FullCause::Parted)),
            (
                asked(id(b'c'), 500),
                Decision::Full(FullCause::OtherHistory),
            ),
        ] {
            assert_eq!(decide(&history(), &asked), decision, "{asked:?}");
        }
    }

    #[test]
    fn requests_are_read_as_redis_reads_them() {
        let digits = [b'a'; 40];
        let parse = |args: &[&[u8]]| Asked::parse(args);
        assert_eq!(parse(&[b"?", b"-1"]).unwrap().from, None);
        assert_eq!(
            parse(&[&digits, b"101"]).unwrap().from,
            Some((id(b'a'), 100))
        );
        assert_eq!(parse(&[&digits, b"0"]).unwrap().from, None);
        assert_eq!(
            parse(&[&digits, b"-9223372036854775808"]).unwrap().from,
            None
        );
        assert_eq!(parse(&[b"short", b"5"]).unwrap().from, None);
        assert!(parse(&[&digits, b"5", b"failover"]).unwrap().is_failover);
        assert!(parse(&[&digits, b"5", b"other"]).is_err());
        assert!(parse(&[&digits, b"x"]).is_err());
        assert!(parse(&[&digits]).is_err());
    }

    #[test]
    fn only_a_replica_of_that_history_takes_over() {
        let asked = Asked {
            from: Some((id(b'a'), 900)),
            is_failover: true,
        };
        assert!(judge_takeover(None, &asked).is_err());
        assert!(judge_takeover(Some(&history()), &asked).is_ok());
        let other = History {
            id: id(b'd'),
            ..history()
        };
        assert!(judge_takeover(Some(&other), &asked).is_err());
    }

    #[test]
    fn each_form_has_an_id_of_its_own() {
        let term = TermId([0x5a; 20]);
        let mut peers = Peer::ALL.map(Peer::family).to_vec();
        peers.sort();
        peers.dedup();
        let mut ids: Vec<_> = peers
            .iter()
            .copied()
            .flat_map(|peer| {
                [false, true]
                    .map(|allows_loss| ReplicationId::of_term(term, Form { peer, allows_loss }))
            })
            .collect();
        let plain = ReplicationId::of_term(term, Form::default());
        let loses = Form {
            allows_loss: true,
            ..Form::of(Peer::Valkey90)
        };
        assert_eq!(Form::of_tag(loses.tag()), Some(loses));
        assert_eq!(plain.as_str(), "5a".repeat(20));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 2 * peers.len());
    }
}
