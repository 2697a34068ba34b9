//! INFO stats: counts since the start or CONFIG RESETSTAT, and recent rates.

use std::sync::atomic::{AtomicU64, Ordering};

use access::Reason;
use engine::TopicKind;

use super::row::{Item, Unit, Value};
use super::row::{counter, gauge, zero, zero_counter};
use super::sample::Sample;
use crate::counters::Count;

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    counter("total_connections_received", "redis_connections_received_total", Unit::Count, "Connections that were taken in.", |s| s.sum(Count::Connections).into()).otel("redis.connections.received"),
    counter("total_commands_processed", "redis_commands_processed_total", Unit::Count, "Commands that ran.", |s| s.counts().calls().into()).otel("redis.commands.processed"),
    gauge("instantaneous_ops_per_sec", "iolite_operations_per_second", Unit::PerSecond, "Commands a second, of late.", |s| Value::Decimal(s.rates()[0], 0)).otel("redis.commands"),
    counter("total_net_input_bytes", "redis_net_input_bytes_total", Unit::Bytes, "Bytes received from clients.", |s| s.sum(Count::InputBytes).into()).otel("redis.net.input"),
    counter("total_net_output_bytes", "redis_net_output_bytes_total", Unit::Bytes, "Bytes sent to clients.", |s| s.sum(Count::OutputBytes).into()).otel("redis.net.output"),
    counter("total_net_repl_input_bytes", "redis_net_repl_input_bytes_total", Unit::Bytes, "Bytes received from a primary.", |s| load(&s.node.replication.counts.input_bytes)),
    counter("total_net_repl_output_bytes", "redis_net_repl_output_bytes_total", Unit::Bytes, "Bytes sent to replicas.", |s| load(&s.node.replication.counts.output_bytes)),
    gauge("instantaneous_input_kbps", "iolite_input_bytes_per_second", Unit::KilobytesPerSecond, "KiB a second received, of late.", |s| Value::Decimal(s.rates()[1] / 1024.0, 2)).times(1024.0),
    gauge("instantaneous_output_kbps", "iolite_output_bytes_per_second", Unit::KilobytesPerSecond, "KiB a second sent, of late.", |s| Value::Decimal(s.rates()[2] / 1024.0, 2)).times(1024.0),
    gauge("instantaneous_input_repl_kbps", "iolite_replication_input_bytes_per_second", Unit::KilobytesPerSecond, "Always 0: see the counter.", |_| Value::Decimal(0.0, 2)).times(1024.0),
    gauge("instantaneous_output_repl_kbps", "iolite_replication_output_bytes_per_second", Unit::KilobytesPerSecond, "Always 0: see the counter.", |_| Value::Decimal(0.0, 2)).times(1024.0),
    counter("rejected_connections", "redis_rejected_connections_total", Unit::Count, "Connections that were turned away.", |s| s.sum(Count::Rejections).into()).otel("redis.connections.rejected"),
    gauge("sync_full", "redis_replica_resyncs_full", Unit::Count, "Replicas that were given everything.", |s| load(&s.node.replication.counts.full_syncs)),
    gauge("sync_partial_ok", "redis_replica_partial_resync_accepted", Unit::Count, "Replicas that went on where they were.", |s| load(&s.node.replication.counts.partial_syncs)),
    gauge("sync_partial_err", "redis_replica_partial_resync_denied", Unit::Count, "Replicas that asked to go on and could not.", |s| load(&s.node.replication.counts.refused_partial_syncs)),
    counter("expired_keys", "redis_expired_keys_total", Unit::Count, "Keys that went because their time had come.", |s| s.statistics.expired.into()).otel("redis.keys.expired"),
    counter("expired_subkeys", "redis_expired_subkeys_total", Unit::Count, "Fields of hashes that went because their time had come.", |s| s.statistics.expired_members.into()),
    gauge("expired_stale_perc", "redis_expired_stale_percentage", Unit::Percent, "Always 0: what has expired goes at its time.", |_| Value::Decimal(0.0, 2)),
    counter("expired_time_cap_reached_count", "redis_expired_time_cap_reached_total", Unit::Count, "Steps of housekeeping that left something expired for the next one.", |s| s.statistics.expiry_left.into()),
    counter("expire_cycle_cpu_milliseconds", "redis_expire_cycle_cpu_time_ms_total", Unit::Milliseconds, "Time that expiry took.", |s| (s.sum(Count::ExpireNs) / 1_000_000).into()),
    counter("evicted_keys", "redis_evicted_keys_total", Unit::Count, "Keys that went because memory was needed.", |s| s.statistics.evicted.into()).otel("redis.keys.evicted"),
    counter("evicted_clients", "redis_evicted_clients_total", Unit::Count, "Clients that were closed because all together held too much.", |s| s.sum(Count::EvictedClients).into()),
    counter("evicted_scripts", "redis_evicted_scripts_total", Unit::Count, "Scripts that went because there were too many.", |s| Value::Whole(s.node.core.shared.scripts.evicted())),
    counter("total_eviction_exceeded_time", "redis_eviction_exceeded_time_ms_total", Unit::Milliseconds, "For how long more memory was held than the limit allows.", |s| s.node.work.rates.over_limit.total_ms(s.uptime_ms).into()),
    gauge("current_eviction_exceeded_time", "redis_current_eviction_exceeded_time_ms", Unit::Milliseconds, "For how long that has been so by now.", |s| s.node.work.rates.over_limit.current_ms(s.uptime_ms).into()),
    counter("keyspace_hits", "redis_keyspace_hits_total", Unit::Count, "Reads that found their key.", |s| s.statistics.hits.into()).otel("redis.keyspace.hits"),
    counter("keyspace_misses", "redis_keyspace_misses_total", Unit::Count, "Reads that found no key.", |s| s.statistics.misses.into()).otel("redis.keyspace.misses"),
    gauge("pubsub_channels", "redis_pubsub_channels", Unit::Count, "Channels with subscribers.", |s| Value::Whole(s.node.sessions.pubsub.channels_count(TopicKind::Channel) as u64)),
    gauge("pubsub_patterns", "redis_pubsub_patterns", Unit::Count, "Patterns of channels with subscribers.", |s| Value::Whole(s.node.sessions.pubsub.patterns_count() as u64)),
    gauge("pubsubshard_channels", "redis_pubsubshard_channels", Unit::Count, "Shard channels with subscribers.", |s| Value::Whole(s.node.sessions.pubsub.channels_count(TopicKind::ShardChannel) as u64)),
    zero("latest_fork_usec", "redis_latest_fork_seconds", Unit::Microseconds, "Always 0: nothing forks.").otel("redis.latest_fork"),
    zero_counter("total_forks", "iolite_forks_total", Unit::Count, "Always 0: nothing forks."),
    zero("migrate_cached_sockets", "redis_migrate_cached_sockets_total", Unit::Count, "Always 0: no connection is kept for MIGRATE."),
    zero("slave_expires_tracked_keys", "redis_slave_expires_tracked_keys", Unit::Count, "Always 0: replicas write nothing of their own."),
    gauge("active_defrag_hits", "redis_defrag_hits", Unit::Count, "Records that were moved so that memory becomes free.", |s| s.statistics.moved.into()),
    gauge("active_defrag_misses", "redis_defrag_misses", Unit::Count, "Places that were looked at for that and left.", |s| s.statistics.left.into()),
    gauge("active_defrag_key_hits", "redis_defrag_key_hits", Unit::Count, "Keys that were moved: every record is one.", |s| s.statistics.moved.into()),
    gauge("active_defrag_key_misses", "redis_defrag_key_misses", Unit::Count, "Keys that were left.", |s| s.statistics.left.into()),
    counter("total_active_defrag_time", "iolite_defragmentation_seconds_total", Unit::Milliseconds, "For how long records were moved.", |s| s.node.work.rates.moving.total_ms(s.uptime_ms).into()).times(1e-3),
    gauge("current_active_defrag_time", "iolite_defragmentation_current_seconds", Unit::Milliseconds, "For how long they have been moved by now.", |s| s.node.work.rates.moving.current_ms(s.uptime_ms).into()).times(1e-3),
    gauge("tracking_total_keys", "redis_tracking_total_keys", Unit::Count, "Keys whose changes clients are told.", |s| Value::Whole(cached(s)[0])),
    gauge("tracking_total_items", "redis_tracking_total_items", Unit::Count, "The same, once for each client.", |s| Value::Whole(cached(s)[1])),
    gauge("tracking_total_prefixes", "redis_tracking_total_prefixes", Unit::Count, "Prefixes of keys whose changes clients are told.", |s| Value::Whole(cached(s)[2])),
    counter("acl_access_denied_auth", "redis_acl_access_denied_auth_total", Unit::Count, "Logins that failed.", |s| denied(s, Reason::LogIn)),
    counter("acl_access_denied_cmd", "redis_acl_access_denied_cmd_total", Unit::Count, "Commands that their user may not run.", |s| denied(s, Reason::Command)),
    counter("acl_access_denied_key", "redis_acl_access_denied_key_total", Unit::Count, "Keys that their user may not use.", |s| denied(s, Reason::Key)),
    counter("acl_access_denied_channel", "redis_acl_access_denied_channel_total", Unit::Count, "Channels that their user may not use.", |s| denied(s, Reason::Channel)),
    zero_counter("unexpected_error_replies", "redis_unexpected_error_replies", Unit::Count, "Always 0."),
    counter("total_error_replies", "redis_total_error_replies", Unit::Count, "Replies that were errors.", |s| s.counts().error_replies().into()),
    counter("dump_payload_sanitizations", "redis_dump_payload_sanitizations", Unit::Count, "Payloads of RESTORE that were checked: all are.", |s| checked_payloads(s).into()),
    counter("total_reads_processed", "redis_total_reads_processed", Unit::Count, "Receives that gave something.", |s| s.sum(Count::Reads).into()),
    counter("total_writes_processed", "redis_total_writes_processed", Unit::Count, "Sends that took something.", |s| s.sum(Count::Writes).into()),
    // The first worker corresponds to Redis' one thread, and the others to its helpers.
    counter("io_threaded_reads_processed", "redis_io_threaded_reads_processed", Unit::Count, "Receives of all workers but the first.", |s| s.sum(Count::ReadsBeside).into()),
    counter("io_threaded_writes_processed", "redis_io_threaded_writes_processed", Unit::Count, "Sends of all workers but the first.", |s| s.sum(Count::WritesBeside).into()),
    counter("client_query_buffer_limit_disconnections", "redis_client_query_buffer_limit_disconnections_total", Unit::Count, "Clients that were closed because of their query buffer.", |s| s.sum(Count::QueryLimitCloses).into()),
    counter("client_output_buffer_limit_disconnections", "redis_client_output_buffer_limit_disconnections_total", Unit::Count, "Clients that were closed because of their output buffer.", |s| s.sum(Count::OutputLimitCloses).into()),
    zero_counter("reply_buffer_shrinks", "redis_reply_buffer_shrinks_total", Unit::Count, "Always 0: replies are written into one arena of the worker."),
    zero_counter("reply_buffer_expands", "redis_reply_buffer_expands_total", Unit::Count, "Always 0: replies are written into one arena of the worker."),
    counter("http_requests_refused", "iolite_http_requests_refused_total", Unit::Count, "Requests of HTTP that came to a port of clients.", |s| Value::Whole(s.node.core.shared.observer.browsers.count())),
    counter("eventloop_cycles", "redis_eventloop_cycles_total", Unit::Count, "Turns of the workers' loops.", |s| s.sum(Count::Turns).into()),
    counter("eventloop_duration_sum", "redis_eventloop_duration_sum_usec_total", Unit::Microseconds, "Time of these, waiting left out.", |s| (s.sum(Count::BusyNs) / 1000).into()),
    counter("eventloop_duration_cmd_sum", "redis_eventloop_duration_cmd_sum_usec_total", Unit::Microseconds, "Time that commands took.", |s| (s.counts().ns() / 1000).into()),
    gauge("instantaneous_eventloop_cycles_per_sec", "redis_instantaneous_eventloop_cycles_per_sec", Unit::PerSecond, "Turns a second of one worker, of late.", |s| Value::Decimal(turns_of_one(s), 0)),
    gauge("instantaneous_eventloop_duration_usec", "redis_instantaneous_eventloop_duration_usec", Unit::Microseconds, "Time of a turn, of late.", |s| Value::Decimal(busy_us_of_one(s), 0)),
];

fn load(cell: &AtomicU64) -> Value {
    Value::Whole(cell.load(Ordering::Relaxed))
}

fn cached(sample: &Sample<'_>) -> [u64; 3] {
    let counts = sample.node.sessions.client_cache.counts();
    counts.map(|count| count as u64)
}

fn denied(sample: &Sample<'_>, reason: Reason) -> Value {
    let counts = sample.node.core.shared.access.denials.counts();
    let of = counts.iter().find(|(one, _)| *one == reason);
    Value::Whole(of.map_or(0, |(_, count)| *count))
}

fn checked_payloads(sample: &Sample<'_>) -> u64 {
    let checked = sample.counts().rows.iter().zip(0..);
    let checked = checked.filter(|(_, index)| sample.command(*index).starts_with("restore"));
    checked.map(|(row, _)| row.calls).sum()
}

/// Returns the average rate of turns of one loop.
#[allow(clippy::cast_precision_loss, reason = "a few workers")]
fn turns_of_one(sample: &Sample<'_>) -> f64 {
    let [.., turns, _] = sample.rates();
    turns / sample.node.workers().len().max(1) as f64
}

fn busy_us_of_one(sample: &Sample<'_>) -> f64 {
    let [.., turns, busy_ns] = sample.rates();
    if turns > 0.0 {
        busy_ns / turns / 1000.0
    } else {
        0.0
    }
}
