//! What can be subscribed to.

use std::sync::Arc;

/// A channel or a set of channels, by the commands that subscribe to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopicKind {
    /// SUBSCRIBE: messages of PUBLISH to a channel.
    Channel,
    /// PSUBSCRIBE: messages of PUBLISH to all channels of which the name matches a pattern.
    Pattern,
    /// SSUBSCRIBE: messages of SPUBLISH to a channel.
    ShardChannel,
}

impl TopicKind {
    /// All of them, in the order in which CLIENT LIST counts them.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::ShardChannel];
}

/// One thing that can be subscribed to; clones share the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// How it is subscribed to.
    pub kind: TopicKind,
    /// The channel, or the pattern.
    pub name: Arc<[u8]>,
}
