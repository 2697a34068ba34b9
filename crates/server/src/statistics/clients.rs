//! INFO clients: connected and waiting clients.

use super::row::{Item, Unit, Value};
use super::row::{gauge, zero};

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    gauge("connected_clients", "redis_connected_clients", Unit::Count, "Clients that are connected.", |s| Value::Whole(s.node.sessions.clients.staying() as u64)).otel("redis.clients.connected"),
    zero("cluster_connections", "redis_cluster_connections", Unit::Count, "Links of a cluster's bus; there is none."),
    gauge("maxclients", "redis_max_clients", Unit::Count, "Clients that are served at a time (maxclients).", |s| u64::from(s.config.clients_max).into()),
    gauge("client_recent_max_input_buffer", "redis_client_recent_max_input_buffer_bytes", Unit::Bytes, "The largest query buffer of a client.", |s| Value::Whole(s.node.sessions.clients.buffer_bytes_max().0)).otel("redis.clients.max_input_buffer"),
    gauge("client_recent_max_output_buffer", "redis_client_recent_max_output_buffer_bytes", Unit::Bytes, "The largest output buffer of a client.", |s| Value::Whole(s.node.sessions.clients.buffer_bytes_max().1)).otel("redis.clients.max_output_buffer"),
    gauge("blocked_clients", "redis_blocked_clients", Unit::Count, "Clients that wait for keys.", |s| Value::Whole(s.node.sessions.clients.blocked() as u64)).otel("redis.clients.blocked"),
    gauge("tracking_clients", "redis_tracking_clients", Unit::Count, "Clients that keep a cache of their own (CLIENT TRACKING).", |s| Value::Whole(s.node.sessions.client_cache.clients_count() as u64)),
    gauge("pubsub_clients", "redis_pubsub_clients", Unit::Count, "Clients that are subscribed to something.", |s| Value::Whole(s.node.sessions.clients.subscribed() as u64)),
    gauge("watching_clients", "redis_watching_clients", Unit::Count, "Clients that watch keys (WATCH).", |s| Value::Whole(s.node.sessions.clients.watching().0 as u64)),
    gauge("clients_in_timeout_table", "redis_clients_in_timeout_table", Unit::Count, "Clients that wait for keys, and not for ever.", |s| {
        let timeouts = s.node.workers().iter().map(|one| one.counters.timeouts.get());
        timeouts.sum::<u64>().into()
    }),
    gauge("total_watched_keys", "redis_total_watched_keys", Unit::Count, "Keys that are watched.", |s| Value::Whole(s.node.sessions.clients.watching().1)),
    gauge("total_blocking_keys", "redis_total_blocking_keys", Unit::Count, "Keys that clients wait for.", |s| Value::Whole(s.node.sessions.waiters.waited_keys().all as u64)),
    gauge("total_blocking_keys_on_nokey", "redis_total_blocking_keys_on_nokey", Unit::Count, "Those of them whose clients go on when the key is deleted.", |s| Value::Whole(s.node.sessions.waiters.waited_keys().known_streams as u64)),
];
