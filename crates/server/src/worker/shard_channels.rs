//! Subscriptions to shard channels end when the hash slot of the channel moves to another shard.

use base::hash_slot;
use engine::{Topic, TopicKind};
use protocol::Reply;
use reactor::Io;

use super::{Arena, Worker};

impl Worker {
    /// Ends the subscriptions to channels whose hash slots this node's shard no longer has, and
    /// notifies the clients. Messages that were published earlier come first.
    #[cold]
    pub(super) fn end_shard_subscriptions(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        let routes = self.node.core.shared.hash_slots.routes();
        let is_lost = |topic: &Topic| !routes.is_of_shard(hash_slot::of(&topic.name));
        for connected in self.sessions.iter_mut() {
            let (id, session) = (connected.id, &mut connected.session);
            let own = session.subscriptions.as_deref();
            let topics = own.into_iter();
            let topics = topics.flat_map(|own| own.of_kind(TopicKind::ShardChannel));
            let lost: Vec<Topic> = topics.filter(is_lost).collect();
            if lost.is_empty() {
                continue;
            }
            for topic in lost {
                let reply = &mut Reply::new(&mut *output, session.resp);
                self.deliveries.unsubscribe((session, id), &topic, reply);
                let Some(own) = session.subscriptions.as_deref_mut() else {
                    break;
                };
                own.remove(&topic);
                own.tell(&session.client);
                let left = own.count(&[TopicKind::ShardChannel]);
                reply.push(3);
                reply.bulk(b"sunsubscribe");
                reply.bulk(&topic.name);
                reply.count(left);
                if own.count(&TopicKind::ALL) == 0 {
                    session.subscriptions = None;
                }
            }
            io.address(id, output.len());
        }
    }
}
