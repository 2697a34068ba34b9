//! INFO persistence: loading, checkpoints and the log.

use engine::SaveKind;
use persistence::checkpointer::{Figures, Progress};
use persistence::log_owner::LogOwner;
use persistence::running::Persistence;

use super::row::{Item, Unit, Value};
use super::row::{counter, gauge, words, zero};
use super::sample::Sample;
use crate::keeping::records::Record;
use crate::keeping::saving::kind_of;

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    gauge("loading", "redis_loading_dump_file", Unit::Switch, "Whether data is being loaded.", |s| s.node.core.env.loading.progress().goes_on.into()),
    zero("async_loading", "redis_async_loading", Unit::Switch, "Always 0: nothing is served from old data meanwhile."),
    gauge("current_cow_peak", "iolite_checkpoint_held_peak_bytes", Unit::Bytes, "Memory held for the checkpoint that is being made.", |s| held_bytes(s).into()),
    gauge("current_cow_size", "iolite_checkpoint_held_bytes", Unit::Bytes, "The same.", |s| held_bytes(s).into()),
    zero("current_cow_size_age", "iolite_checkpoint_held_age_seconds", Unit::Seconds, "Always 0: it is known at once."),
    gauge("current_fork_perc", "iolite_checkpoint_walked_percent", Unit::Percent, "How much of the keyspace the checkpoint has walked that is being made.", |s| {
        let per_mille = s.figures().current.map_or(0, |current| current.walked_per_mille);
        format!("{}.{}0", per_mille / 10, per_mille % 10).into()
    }),
    gauge("current_save_keys_processed", "iolite_checkpoint_keys_written", Unit::Count, "Keys that it has written.", |s| s.figures().current.map_or(0, |current| current.records).into()),
    gauge("current_save_keys_total", "iolite_checkpoint_keys", Unit::Count, "Keys that there are while it is made.", |s| {
        if s.figures().current.is_some() { keys(s).into() } else { Value::Whole(0) }
    }),
    gauge("rdb_changes_since_last_save", "redis_rdb_changes_since_last_save", Unit::Count, "Changes that are in no checkpoint.", |s| changes(s).into()).otel("redis.rdb.changes_since_last_save"),
    gauge("rdb_bgsave_in_progress", "redis_rdb_bgsave_in_progress", Unit::Switch, "Whether a checkpoint is being made so that everything is saved.", |s| snapshot(s).is_some().into()),
    gauge("rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds", Unit::Seconds, "When everything was saved last, in seconds since 1970.", |s| (s.figures().last_save_unix_ms / 1000).into()),
    gauge("rdb_last_bgsave_status", "redis_rdb_last_bgsave_status", Unit::Switch, "Whether the last such checkpoint was made.", |s| status(snapshots(s)).into()),
    gauge("rdb_last_bgsave_time_sec", "redis_rdb_last_bgsave_duration_sec", Unit::Seconds, "How long it took; -1 if there was none.", |s| seconds(snapshots(s).last_duration_ms)),
    gauge("rdb_current_bgsave_time_sec", "redis_rdb_current_bgsave_duration_sec", Unit::Seconds, "For how long one is being made; -1 if none is.", |s| seconds(snapshot(s).map(|current| current.elapsed_ms))),
    gauge("rdb_saves", "redis_rdb_saves_total", Unit::Count, "How many were made.", |s| snapshots(s).count.into()),
    gauge("rdb_last_cow_size", "redis_rdb_last_cow_size_bytes", Unit::Bytes, "The most memory that was held for the last checkpoint.", |s| s.figures().last_held_bytes_max.into()),
    gauge("rdb_last_load_keys_expired", "redis_rdb_last_load_expired_keys", Unit::Count, "Keys that had expired when they were loaded.", |s| Value::Whole(s.node.core.env.loading.keys()[1])),
    gauge("rdb_last_load_keys_loaded", "redis_rdb_last_load_loaded_keys", Unit::Count, "Keys that were loaded.", |s| Value::Whole(s.node.core.env.loading.keys()[0])),
    gauge("aof_enabled", "redis_aof_enabled", Unit::Switch, "Whether there is a log.", |s| s.config.durability.level.has_log().into()),
    gauge("aof_rewrite_in_progress", "redis_aof_rewrite_in_progress", Unit::Switch, "Whether a checkpoint is being made so that the log becomes short.", |s| {
        let persistence = s.node.persistence();
        let is_begun = persistence.is_some_and(|it| it.log().state().is_beginning());
        (rewrite(s).is_some() || is_begun).into()
    }),
    gauge("aof_rewrite_scheduled", "redis_aof_rewrite_scheduled", Unit::Switch, "Whether one is to follow.", |s| s.figures().scheduled.is_some().into()),
    gauge("aof_last_rewrite_time_sec", "redis_aof_last_rewrite_duration_sec", Unit::Seconds, "How long the last one took; -1 if there was none.", |s| seconds(rewrites(s).last_duration_ms)),
    gauge("aof_current_rewrite_time_sec", "redis_aof_current_rewrite_duration_sec", Unit::Seconds, "For how long one is being made; -1 if none is.", |s| seconds(rewrite(s).map(|current| current.elapsed_ms))),
    gauge("aof_last_bgrewrite_status", "redis_aof_last_bgrewrite_status", Unit::Switch, "Whether the last one was made.", |s| status(rewrites(s)).into()),
    counter("aof_rewrites", "iolite_log_rewrites_total", Unit::Count, "How many were made.", |s| rewrites(s).count.into()),
    gauge("aof_rewrites_consecutive_failures", "iolite_log_rewrites_failed_in_a_row", Unit::Count, "How many failed since the last that did not.", |s| rewrites(s).failures_in_a_row.into()),
    gauge("aof_last_write_status", "redis_aof_last_write_status", Unit::Switch, "Whether the log can be written.", |s| {
        if s.node.core.shared.refusals.is_log_faulty() { "err".into() } else { "ok".into() }
    }),
    gauge("aof_last_cow_size", "redis_aof_last_cow_size_bytes", Unit::Bytes, "The most memory that was held for the last checkpoint.", |s| s.figures().last_held_bytes_max.into()),
    gauge("aof_current_size", "redis_aof_current_size_bytes", Unit::Bytes, "Bytes of the checkpoint and of the log after it.", |s| log_bytes(s).map_or(0, |bytes| base_bytes(s) + bytes).into()),
    gauge("aof_base_size", "redis_aof_base_size_bytes", Unit::Bytes, "Bytes of the checkpoint.", |s| log_bytes(s).map_or(0, |_| base_bytes(s)).into()),
    gauge("aof_buffer_length", "redis_aof_buffer_length", Unit::Bytes, "Bytes of the log that are not durable.", |s| {
        let log = s.node.persistence().map(Persistence::log).and_then(LogOwner::log);
        log.map_or(0, |log| log.held_bytes()).into()
    }),
    gauge("aof_pending_rewrite", "redis_aof_pending_rewrite", Unit::Switch, "Whether a checkpoint is to follow.", |s| s.figures().scheduled.is_some().into()),
    zero("aof_pending_bio_fsync", "redis_aof_pending_bio_fsync", Unit::Count, "Always 0: the log's thread syncs."),
    zero("aof_delayed_fsync", "redis_aof_delayed_fsync", Unit::Count, "Always 0: no write waits for a sync."),
    zero("module_fork_in_progress", "redis_module_fork_in_progress", Unit::Switch, "Always 0: there are no modules."),
    zero("module_fork_last_cow_size", "redis_module_fork_last_cow_size", Unit::Bytes, "Always 0: there are no modules."),
    words("loading_start_time", "When the loading began that goes on, in seconds since 1970.", |s| (s.loading().began_unix_ms / 1000).into()),
    gauge("loading_total_bytes", "iolite_loading_bytes", Unit::Bytes, "Bytes that are to be loaded.", |s| s.loading().total_bytes.into()),
    zero("loading_rdb_used_mem", "iolite_loading_rdb_used_memory_bytes", Unit::Bytes, "Always 0: files do not tell."),
    gauge("loading_loaded_bytes", "iolite_loading_loaded_bytes", Unit::Bytes, "Bytes that are loaded.", |s| s.loading().loaded_bytes.into()),
    gauge("loading_loaded_perc", "iolite_loading_loaded_percent", Unit::Percent, "The same in per cent.", |s| Value::Decimal(s.loading().percent(), 2)),
    gauge("loading_eta_seconds", "iolite_loading_left_seconds", Unit::Seconds, "How long the loading will take yet, about.", |s| s.loading().eta_seconds(s.now_unix_us / 1000).to_string().into()),
    gauge("checkpoint_buffer_limit", "iolite_checkpoint_buffer_limit_bytes", Unit::Bytes, "How much memory a checkpoint may hold.", |s| s.figures().buffer_limit_bytes.into()),
    counter("checkpoint_failures", "iolite_checkpoint_failures_total", Unit::Count, "Checkpoints that failed.", |s| s.figures().failures.into()),
    gauge("checkpoint_last_bytes", "iolite_checkpoint_last_bytes", Unit::Bytes, "Bytes of the last checkpoint.", |s| s.figures().last_bytes.into()),
    gauge("checkpoint_last_records", "iolite_checkpoint_last_records", Unit::Count, "Keys in the last checkpoint.", |s| s.figures().last_records.into()),
    gauge("checkpoint_current_bytes", "iolite_checkpoint_current_bytes", Unit::Bytes, "Bytes written of the one that is being made.", |s| s.figures().current.map_or(0, |current| current.bytes).into()),
    gauge("checkpoint_current_bytes_per_sec", "iolite_checkpoint_current_bytes_per_second", Unit::Bytes, "Bytes a second of the one that is being made.", |s| s.figures().current.map_or(0, |current| current.bytes_per_second()).into()),
];

fn held_bytes(sample: &Sample<'_>) -> u64 {
    let current = sample.figures().current;
    current.map_or(0, |current| current.held_bytes)
}

fn keys(sample: &Sample<'_>) -> u64 {
    let mut store = sample.store.borrow_mut();
    let databases = store.store().databases();
    (0..databases).map(|one| store.len(one) as u64).sum()
}

/// Returns the number of changes that are not in a checkpoint: before the first save, all.
fn changes(sample: &Sample<'_>) -> u64 {
    match sample.node.persistence() {
        Some(_) => sample.node.changes_to_save(sample.figures()),
        None => sample.statistics.changes,
    }
}

fn snapshots(sample: &Sample<'_>) -> Record {
    sample.node.keeping.saving.records()[0]
}

fn rewrites(sample: &Sample<'_>) -> Record {
    sample.node.keeping.saving.records()[1]
}

fn snapshot(sample: &Sample<'_>) -> Option<Progress> {
    current_of(sample.figures(), SaveKind::Snapshot)
}

fn rewrite(sample: &Sample<'_>) -> Option<Progress> {
    current_of(sample.figures(), SaveKind::Rewrite)
}

/// Returns the progress of the present checkpoint, if it is of this kind.
fn current_of(figures: &Figures, kind: SaveKind) -> Option<Progress> {
    let current = figures.current;
    current.filter(|current| kind_of(current.why) == kind)
}

fn base_bytes(sample: &Sample<'_>) -> u64 {
    let log = sample.node.persistence().map(Persistence::log);
    log.map_or(0, LogOwner::base_bytes)
}

fn log_bytes(sample: &Sample<'_>) -> Option<u64> {
    let log = sample.node.persistence().map(Persistence::log);
    log.and_then(LogOwner::bytes)
}

fn status(record: Record) -> &'static str {
    if record.failures_in_a_row == 0 {
        "ok"
    } else {
        "err"
    }
}

/// Returns whole seconds, or -1 for `None`.
fn seconds(ms: Option<u64>) -> Value {
    Value::Signed(ms.map_or(-1, |ms| i64::try_from(ms / 1000).unwrap_or(i64::MAX)))
}
