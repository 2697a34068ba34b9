//! The topics of subscriptions.

use std::sync::Arc;

/// A channel or a set of channels, by the command that subscribes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicKind {
    /// SUBSCRIBE: messages of PUBLISH to a channel.
    Channel,
    /// PSUBSCRIBE: messages of PUBLISH to all channels whose name matches a pattern.
    Pattern,
    /// SSUBSCRIBE: messages of SPUBLISH to a channel.
    ShardChannel,
}

impl TopicKind {
    /// All kinds, in the order in which CLIENT LIST counts them.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::ShardChannel];
}

/// One topic of subscriptions; clones share the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// The kind of subscription.
    pub kind: TopicKind,
    /// The channel, or the pattern.
    pub name: Arc<[u8]>,
}
