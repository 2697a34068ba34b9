//! Under which names the stream is known: the replication ID of now, and the one before.
//!
//! A replica asks by an ID and an offset. It is answered by either name, by the older one up to where that ended:
//! so it needs not begin anew when its primary has changed.

use std::fmt;

use base::random::Prng;

/// A replication ID: forty hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplicationId([u8; 40]);

impl ReplicationId {
    /// The one that stands for none.
    pub const NONE: Self = Self([b'0'; 40]);

    /// A new one.
    #[must_use]
    pub fn random(random: &mut Prng) -> Self {
        Self::parse(random.hex_id().as_bytes()).unwrap_or(Self::NONE)
    }

    /// The one that is spelt so, if it is one.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits: [u8; 40] = text.try_into().ok()?;
        let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
        digits.iter().all(is_digit).then_some(Self(digits))
    }

    /// Its digits.
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
        f.write_str(self.as_str())
    }
}

/// The names of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The present one.
    pub id: ReplicationId,
    /// The one before, and the first offset that it does not name.
    pub second: Option<(ReplicationId, u64)>,
}

impl History {
    /// A stream that nobody knows yet.
    #[must_use]
    pub fn new(random: &mut Prng) -> Self {
        Self {
            id: ReplicationId::random(random),
            second: None,
        }
    }

    /// Goes on under another name from this offset: the first byte that the old name does not name.
    pub fn begin_term(&mut self, id: ReplicationId, next_offset: u64) {
        self.second = Some((self.id, next_offset));
        self.id = id;
    }

    /// What INFO shows as `master_replid2`.
    #[must_use]
    pub fn second_id(&self) -> ReplicationId {
        self.second.map_or(ReplicationId::NONE, |(id, _)| id)
    }

    /// What INFO shows as `second_repl_offset`.
    #[must_use]
    pub fn second_offset(&self) -> i64 {
        self.second.map_or(-1, |(_, offset)| {
            i64::try_from(offset).unwrap_or(i64::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_before_is_known_up_to_where_it_ended() {
        let mut history = History::new(&mut Prng::seeded(1));
        assert_eq!(history.second_id(), ReplicationId::NONE);
        assert_eq!(history.second_offset(), -1);
        let (old, new) = (history.id, ReplicationId::random(&mut Prng::seeded(2)));
        history.begin_term(new, 15);
        assert_eq!((history.id, history.second), (new, Some((old, 15))));
        assert_eq!(ReplicationId::parse(old.as_str().as_bytes()), Some(old));
        assert_eq!(ReplicationId::parse(b"?"), None);
    }
}
