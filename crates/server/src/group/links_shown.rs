//! This node's links as clients see them: CLUSTER LINKS, and the ping times of CLUSTER NODES.

use std::collections::BTreeMap;

use engine::cluster::{ClusterSeen, LinkSeen};

use super::control::Part;

impl Part {
    /// Adds this node's links, and when it last heard other nodes, to the view of the cluster.
    pub(super) fn show_links(&self, seen: &mut ClusterSeen) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let node_timeout_ms = node.core.config.current().group.node_timeout_ms;
        let clock = &node.core.clock;
        let (now_unix_ms, now_ms) = (clock.now_unix_ms(), clock.monotonic_ms());
        let unix_ms = |at_ms: u64| now_unix_ms.saturating_sub(now_ms.saturating_sub(at_ms));
        let contacts = self.links.table.contacts().into_iter();
        let contacts: BTreeMap<String, _> = contacts
            .map(|(node, contact)| (node.to_string(), contact))
            .collect();
        for node in seen.nodes.iter_mut().filter(|node| !node.is_me) {
            let Some(contact) = contacts.get(&node.id) else {
                continue;
            };
            let waits_since_ms = contact.waits_since_ms(now_ms, node_timeout_ms);
            node.ping_unix_ms = waits_since_ms.map_or(0, unix_ms);
            node.pong_unix_ms = match contact.heard_ms {
                0 => 0,
                heard_ms => unix_ms(heard_ms),
            };
            node.is_lost = contact.is_lost(now_ms, node_timeout_ms);
        }
        let tables = [&self.links.table, &self.relay.links.table];
        let links = tables.iter().flat_map(|table| table.links());
        let links = links.map(|link| LinkSeen {
            node: link.node.to_string(),
            is_to: link.is_to,
            created_unix_ms: link.created_unix_ms,
            waiting_bytes: link.waiting_bytes,
        });
        // A node that has not joined yet is not in the cluster.
        seen.links = links
            .filter(|link| seen.node(link.node.as_bytes()).is_some())
            .collect();
        seen.links.sort_by_key(|link| link.created_unix_ms);
        for (sent, received) in tables.iter().map(|table| table.counts()) {
            seen.messages.0 += sent;
            seen.messages.1 += received;
        }
        seen.dropped_messages = self.relay.dropped_count();
    }
}
