//! The subscriptions of one client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use access::{ChannelUse, Rules};

use crate::client_record::ClientRecord;
use crate::topic::{Topic, TopicKind};

/// Approximate memory of a subscription besides its name: here, at its worker, and in what all
/// workers share.
const SUBSCRIPTION_BYTES: usize = 128;

/// The topics of one client, by kind.
#[derive(Debug, Default)]
pub struct Subscriptions {
    held_bytes: usize,
    channels: BTreeSet<Arc<[u8]>>,
    patterns: BTreeSet<Arc<[u8]>>,
    shard_channels: BTreeSet<Arc<[u8]>>,
}

impl Subscriptions {
    /// Whether the client is subscribed to a topic.
    #[must_use]
    pub fn contains(&self, kind: TopicKind, name: &[u8]) -> bool {
        self.names(kind).contains(name)
    }

    /// Adds a topic.
    pub fn insert(&mut self, topic: Topic) {
        let bytes = topic.name.len() + SUBSCRIPTION_BYTES;
        if self.names_mut(topic.kind).insert(topic.name) {
            self.held_bytes += bytes;
        }
    }

    /// Removes a topic.
    pub fn remove(&mut self, topic: &Topic) {
        if self.names_mut(topic.kind).remove(&topic.name) {
            self.held_bytes -= topic.name.len() + SUBSCRIPTION_BYTES;
        }
    }

    /// Whether the rules allow all topics.
    #[must_use]
    pub fn are_allowed(&self, rules: &Rules) -> bool {
        TopicKind::ALL.into_iter().all(|kind| {
            let wanted = match kind {
                TopicKind::Pattern => ChannelUse::Pattern,
                TopicKind::Channel | TopicKind::ShardChannel => ChannelUse::Channel,
            };
            let mut names = self.names(kind).iter();
            names.all(|name| rules.allows_channel(name, wanted))
        })
    }

    /// Returns their approximate memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns the topics of one kind, ordered by name.
    pub fn of_kind(&self, kind: TopicKind) -> impl Iterator<Item = Topic> {
        self.names(kind).iter().map(move |name| Topic {
            kind,
            name: Arc::clone(name),
        })
    }

    /// Returns all topics.
    pub fn all(&self) -> impl Iterator<Item = Topic> {
        TopicKind::ALL
            .into_iter()
            .flat_map(|kind| self.of_kind(kind))
    }

    /// Returns the topic with this name, or `None` if the client is not subscribed to it.
    #[must_use]
    pub fn find(&self, kind: TopicKind, name: &[u8]) -> Option<Topic> {
        let name = Arc::clone(self.names(kind).get(name)?);
        Some(Topic { kind, name })
    }

    /// Returns the number of topics of these kinds.
    #[must_use]
    pub fn count(&self, kinds: &[TopicKind]) -> usize {
        kinds.iter().map(|kind| self.names(*kind).len()).sum()
    }

    /// Copies the numbers of topics to the client's record.
    pub fn tell(&self, client: &ClientRecord) {
        for (cell, kind) in client.subscriptions.iter().zip(TopicKind::ALL) {
            let count = u32::try_from(self.names(kind).len()).unwrap_or(u32::MAX);
            cell.store(count, Ordering::Relaxed);
        }
        client.set_flag(ClientRecord::PUBSUB, self.count(&TopicKind::ALL) > 0);
    }

    fn names(&self, kind: TopicKind) -> &BTreeSet<Arc<[u8]>> {
        match kind {
            TopicKind::Channel => &self.channels,
            TopicKind::Pattern => &self.patterns,
            TopicKind::ShardChannel => &self.shard_channels,
        }
    }

    fn names_mut(&mut self, kind: TopicKind) -> &mut BTreeSet<Arc<[u8]>> {
        match kind {
            TopicKind::Channel => &mut self.channels,
            TopicKind::Pattern => &mut self.patterns,
            TopicKind::ShardChannel => &mut self.shard_channels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_counts_once() {
        let mut own = Subscriptions::default();
        let topic = |kind, name: &[u8]| Topic {
            kind,
            name: Arc::from(name),
        };
        for _ in 0..2 {
            own.insert(topic(TopicKind::Channel, b"news"));
            own.insert(topic(TopicKind::Pattern, b"news"));
        }
        assert_eq!(own.held_bytes(), 2 * (4 + SUBSCRIPTION_BYTES));
        for _ in 0..2 {
            own.remove(&topic(TopicKind::Channel, b"news"));
            own.remove(&topic(TopicKind::ShardChannel, b"news"));
        }
        assert_eq!(own.held_bytes(), 4 + SUBSCRIPTION_BYTES);
    }
}
