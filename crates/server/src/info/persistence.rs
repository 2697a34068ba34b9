//! INFO persistence: what is loaded, saved and logged.

use engine::SaveKind;

use super::Report;
use crate::keeping::records::Record;
use crate::keeping::saving::kind_of;
use persistence::checkpointer::{Figures, Progress};
use persistence::loading;
use persistence::log_owner::LogOwner;
use persistence::running::Persistence;

pub(super) fn write(report: &mut Report<'_>) {
    let progress = report.node.core.env.loading.progress();
    report.field("loading", u8::from(progress.goes_on));
    report.zeros(&["async_loading"]);
    let figures = report.node.persistence().map_or_else(
        || Figures {
            last_save_unix_ms: report.node.process.started_unix_ms,
            ..Figures::default()
        },
        |persistence| persistence.checkpointer.figures(),
    );
    let [snapshots, rewrites] = report.node.keeping.saving.records();
    current(report, &figures);
    saves(report, &figures, snapshots);
    log(report, &figures, rewrites);
    report.zeros(&["module_fork_in_progress", "module_fork_last_cow_size"]);
    loading(report, progress);
    checkpoints(report, &figures);
}

/// The checkpoint that is being made. What Redis copies on write is here what is held for it.
fn current(report: &mut Report<'_>, figures: &Figures) {
    let current = figures.current;
    let held = current.map_or(0, |current| current.held_bytes);
    report.field("current_cow_peak", held);
    report.field("current_cow_size", held);
    report.zeros(&["current_cow_size_age"]);
    let per_mille = current.map_or(0, |current| current.walked_per_mille);
    report.field(
        "current_fork_perc",
        format_args!("{}.{}0", per_mille / 10, per_mille % 10),
    );
    report.field(
        "current_save_keys_processed",
        current.map_or(0, |current| current.records),
    );
    let databases = report.store.store().databases();
    let keys: usize = (0..databases).map(|one| report.store.len(one)).sum();
    report.field(
        "current_save_keys_total",
        if current.is_some() { keys } else { 0 },
    );
}

fn saves(report: &mut Report<'_>, figures: &Figures, record: Record) {
    let current = current_of(figures, SaveKind::Snapshot);
    report.field("rdb_changes_since_last_save", changes(report, figures));
    report.field("rdb_bgsave_in_progress", u8::from(current.is_some()));
    report.field("rdb_last_save_time", figures.last_save_unix_ms / 1000);
    report.field("rdb_last_bgsave_status", status(record));
    report.field("rdb_last_bgsave_time_sec", seconds(record.last_duration_ms));
    report.field(
        "rdb_current_bgsave_time_sec",
        seconds(current.map(|current| current.elapsed_ms)),
    );
    report.field("rdb_saves", record.count);
    report.field("rdb_last_cow_size", figures.last_held_bytes_max);
    let [loaded, expired] = report.node.core.env.loading.keys();
    report.field("rdb_last_load_keys_expired", expired);
    report.field("rdb_last_load_keys_loaded", loaded);
}

/// Changes that are not in a checkpoint. Before the first save all are.
fn changes(report: &Report<'_>, figures: &Figures) -> u64 {
    match report.node.persistence() {
        Some(_) => report.node.changes_to_save(figures),
        None => report.statistics.changes,
    }
}

fn log(report: &mut Report<'_>, figures: &Figures, record: Record) {
    let current = current_of(figures, SaveKind::Rewrite);
    let level = report.node.core.config.current().durability.level;
    report.field("aof_enabled", u8::from(level.has_log()));
    let persistence = report.node.persistence();
    let is_begun = persistence.is_some_and(|it| it.log().state().is_beginning());
    let is_rewritten = current.is_some() || is_begun;
    report.field("aof_rewrite_in_progress", u8::from(is_rewritten));
    let is_scheduled = figures.scheduled.is_some();
    report.field("aof_rewrite_scheduled", u8::from(is_scheduled));
    report.field(
        "aof_last_rewrite_time_sec",
        seconds(record.last_duration_ms),
    );
    report.field(
        "aof_current_rewrite_time_sec",
        seconds(current.map(|current| current.elapsed_ms)),
    );
    report.field("aof_last_bgrewrite_status", status(record));
    report.field("aof_rewrites", record.count);
    report.field(
        "aof_rewrites_consecutive_failures",
        record.failures_in_a_row,
    );
    let is_faulty = report.node.core.settings.refusals.is_log_faulty();
    report.field(
        "aof_last_write_status",
        if is_faulty { "err" } else { "ok" },
    );
    report.field("aof_last_cow_size", figures.last_held_bytes_max);
    let log = report.node.persistence().map(Persistence::log);
    let base_bytes = log.map_or(0, LogOwner::base_bytes);
    let log_bytes = log.and_then(LogOwner::bytes);
    let held_bytes = log
        .and_then(LogOwner::log)
        .map_or(0, |log| log.held_bytes());
    report.field(
        "aof_current_size",
        log_bytes.map_or(0, |bytes| base_bytes + bytes),
    );
    report.field("aof_base_size", log_bytes.map_or(0, |_| base_bytes));
    report.field("aof_buffer_length", held_bytes);
    report.field("aof_pending_rewrite", u8::from(is_scheduled));
    report.zeros(&["aof_pending_bio_fsync", "aof_delayed_fsync"]);
}

/// How far the loading is that goes on; zeros at other times, for tools that look for the names.
fn loading(report: &mut Report<'_>, progress: loading::Progress) {
    let shown = if progress.goes_on {
        progress
    } else {
        loading::Progress::default()
    };
    report.field("loading_start_time", shown.began_unix_ms / 1000);
    report.field("loading_total_bytes", shown.total_bytes);
    report.field("loading_rdb_used_mem", 0);
    report.field("loading_loaded_bytes", shown.loaded_bytes);
    report.field("loading_loaded_perc", format!("{:.2}", shown.percent()));
    let now_unix_ms = report.node.core.clock.now_unix_ms();
    report.field("loading_eta_seconds", shown.eta_seconds(now_unix_ms));
}

/// What Redis has no names for.
fn checkpoints(report: &mut Report<'_>, figures: &Figures) {
    let current = figures.current;
    report.field("checkpoint_buffer_limit", figures.buffer_limit_bytes);
    report.field("checkpoint_failures", figures.failures);
    report.field("checkpoint_last_bytes", figures.last_bytes);
    report.field("checkpoint_last_records", figures.last_records);
    let written = current.map_or(0, |current| current.bytes);
    report.field("checkpoint_current_bytes", written);
    let rate = current.map_or(0, |current| current.bytes_per_second());
    report.field("checkpoint_current_bytes_per_sec", rate);
}

/// The checkpoint that is being made, if it is made for this.
fn current_of(figures: &Figures, kind: SaveKind) -> Option<Progress> {
    figures
        .current
        .filter(|current| kind_of(current.why) == kind)
}

fn status(record: Record) -> &'static str {
    if record.failures_in_a_row == 0 {
        "ok"
    } else {
        "err"
    }
}

/// Whole seconds; -1 where there are none.
fn seconds(ms: Option<u64>) -> i64 {
    ms.map_or(-1, |ms| i64::try_from(ms / 1000).unwrap_or(i64::MAX))
}
