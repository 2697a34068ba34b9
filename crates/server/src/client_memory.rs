//! Limit of the memory of all clients together: the clients that hold most are closed.

use std::sync::Arc;

use engine::{ClientFilter, ClientRecord};

use crate::limits::held_by;
use crate::node::Node;

impl Node {
    /// Closes the clients that hold most until the rest is within the limit. Spares clients that
    /// asked not to be evicted. Returns the number of closed clients.
    pub fn enforce_client_memory(&self, bytes_max: u64) -> usize {
        if self.clients_held_bytes() <= bytes_max {
            return 0;
        }
        let mut clients = self.sessions.clients.matching(&ClientFilter::default(), 0);
        // A client that is closing already frees its memory anyway.
        clients.retain(|client| {
            !client.has_flag(ClientRecord::KILLED) && !client.has_flag(ClientRecord::EVICTED)
        });
        // Other workers change the figures meanwhile, so each is read once, for both order and sum.
        let mut clients: Vec<_> = clients
            .into_iter()
            .map(|client| (held_by(&client), client))
            .collect();
        let mut held_bytes: u64 = clients.iter().map(|(held, _)| held).sum();
        clients.retain(|(_, client)| !client.has_flag(ClientRecord::NO_EVICT));
        clients.sort_by_key(|(held, _)| std::cmp::Reverse(*held));
        let too_much = |(held, _): &(u64, Arc<ClientRecord>)| {
            let is_too_much = held_bytes > bytes_max;
            held_bytes = held_bytes.saturating_sub(*held);
            is_too_much
        };
        let evicted: Vec<_> = clients.into_iter().take_while(too_much).collect();
        for (_, client) in &evicted {
            self.evict(client);
        }
        evicted.len()
    }
}
