//! The names of the stream: the present replication ID, and the one before.
//!
//! A replica asks with an ID and an offset. Either ID is accepted, the older one up to where its
//! stream ended. So a replica needs no full sync when its primary has changed.

use base::random::Prng;
use replication::TermId;
use replication::transcode::Form;

pub use replication::psync::ReplicationId;

/// Returns a new random ID.
#[must_use]
pub fn new_id(random: &mut Prng) -> ReplicationId {
    let mut id = TermId::default();
    random.fill(&mut id.0);
    ReplicationId::of_term(id, Form::default())
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
    /// Creates the history of a new stream.
    #[must_use]
    pub fn new(random: &mut Prng) -> Self {
        Self {
            id: new_id(random),
            second: None,
        }
    }

    /// Continues the stream under another ID from `next_offset`: the first byte that the old ID
    /// does not name.
    pub fn begin_term(&mut self, id: ReplicationId, next_offset: u64) {
        self.second = Some((self.id, next_offset));
        self.id = id;
    }

    /// The value that INFO shows as `master_replid2`.
    #[must_use]
    pub fn second_id(&self) -> ReplicationId {
        self.second.map_or(ReplicationId::NONE, |(id, _)| id)
    }

    /// The value that INFO shows as `second_repl_offset`.
    #[must_use]
    pub fn second_offset(&self) -> i64 {
        self.second
            .map_or(-1, |(_, offset)| i64::try_from(offset).unwrap_or(i64::MAX))
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
        let (old, new) = (history.id, new_id(&mut Prng::seeded(2)));
        history.begin_term(new, 15);
        assert_eq!((history.id, history.second), (new, Some((old, 15))));
        assert_eq!(ReplicationId::parse(old.as_str().as_bytes()), Some(old));
        assert_eq!(ReplicationId::parse(b"?"), None);
    }
}
