//! INFO persistence: what is loaded, saved and logged.

use super::Report;
use crate::persistence::loading::Progress;

pub(super) fn write(report: &mut Report<'_>) {
    let progress = report.node.loading.progress();
    report.field("loading", u8::from(progress.goes_on));
    report.zeros(&[
        "async_loading",
        "current_cow_peak",
        "current_cow_size",
        "current_cow_size_age",
    ]);
    report.field("current_fork_perc", "0.00");
    report.zeros(&["current_save_keys_processed", "current_save_keys_total"]);
    report.field("rdb_changes_since_last_save", report.statistics.changes);
    report.field("rdb_bgsave_in_progress", 0);
    report.field("rdb_last_save_time", report.node.started_unix_ms / 1000);
    report.field("rdb_last_bgsave_status", "ok");
    report.field("rdb_last_bgsave_time_sec", -1);
    report.field("rdb_current_bgsave_time_sec", -1);
    report.zeros(&["rdb_saves", "rdb_last_cow_size"]);
    let [loaded, expired] = report.node.loading.keys();
    report.field("rdb_last_load_keys_expired", expired);
    report.field("rdb_last_load_keys_loaded", loaded);
    report.zeros(&[
        "aof_enabled",
        "aof_rewrite_in_progress",
        "aof_rewrite_scheduled",
    ]);
    report.field("aof_last_rewrite_time_sec", -1);
    report.field("aof_current_rewrite_time_sec", -1);
    report.field("aof_last_bgrewrite_status", "ok");
    report.zeros(&["aof_rewrites", "aof_rewrites_consecutive_failures"]);
    report.field("aof_last_write_status", "ok");
    report.zeros(&[
        "aof_last_cow_size",
        "aof_current_size",
        "aof_base_size",
        "aof_pending_rewrite",
        "aof_buffer_length",
        "aof_pending_bio_fsync",
        "aof_delayed_fsync",
        "module_fork_in_progress",
        "module_fork_last_cow_size",
    ]);
    loading(report, progress);
}

/// How far the loading is that goes on; zeros at other times, for tools that look for the names.
fn loading(report: &mut Report<'_>, progress: Progress) {
    let shown = if progress.goes_on {
        progress
    } else {
        Progress::default()
    };
    report.field("loading_start_time", shown.began_unix_ms / 1000);
    report.field("loading_total_bytes", shown.total_bytes);
    report.field("loading_rdb_used_mem", 0);
    report.field("loading_loaded_bytes", shown.loaded_bytes);
    report.field("loading_loaded_perc", format!("{:.2}", shown.percent()));
    let now_unix_ms = report.node.clock.now_unix_ms();
    report.field("loading_eta_seconds", shown.eta_seconds(now_unix_ms));
}
