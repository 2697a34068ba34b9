//! INFO memory: the server's memory, by purpose.

use base::memory_size::human;

use super::row::{Item, Unit, Value};
use super::row::{counter, gauge, words, zero};
use super::sample::Sample;
use crate::{allocator, process};

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    gauge("used_memory", "redis_memory_used_bytes", Unit::Bytes, "Memory in use: what was taken at the start, records, index and clients.", |s| s.memory().used.into()).otel("redis.memory.used"),
    words("used_memory_human", "The same for people.", |s| human(s.memory().used).into()),
    gauge("used_memory_rss", "redis_memory_used_rss_bytes", Unit::Bytes, "Memory of the process, as the system counts it.", |s| s.memory().resident.into()).otel("redis.memory.rss"),
    words("used_memory_rss_human", "The same for people.", |s| human(s.memory().resident).into()),
    gauge("used_memory_peak", "redis_memory_used_peak_bytes", Unit::Bytes, "The most memory that was in use.", |s| s.memory().peak.into()).otel("redis.memory.peak"),
    words("used_memory_peak_human", "The same for people.", |s| human(s.memory().peak).into()),
    gauge("used_memory_peak_perc", "iolite_memory_used_peak_percent", Unit::Percent, "Memory in use, of the most that was.", |s| Value::Percent(percent(s.memory().used, s.memory().peak))),
    gauge("used_memory_overhead", "redis_memory_used_overhead_bytes", Unit::Bytes, "The part of the memory in use that is neither keys nor values.", |s| s.memory().overhead.into()),
    gauge("used_memory_startup", "redis_memory_used_startup_bytes", Unit::Bytes, "Memory in use before the first client.", |s| s.memory().startup.into()),
    gauge("used_memory_dataset", "redis_memory_used_dataset_bytes", Unit::Bytes, "Memory of keys and values.", |s| s.memory().dataset().into()),
    gauge("used_memory_dataset_perc", "iolite_memory_used_dataset_percent", Unit::Percent, "Memory of keys and values, of what is in use since the start.", |s| {
        let since_startup = s.memory().used.saturating_sub(s.memory().startup);
        Value::Percent(percent(s.memory().dataset().min(since_startup), since_startup))
    }),
    gauge("allocator_allocated", "redis_allocator_allocated_bytes", Unit::Bytes, "What was asked of the allocator and of the store's own.", |s| s.memory().allocator.allocated.into()),
    gauge("allocator_active", "redis_allocator_active_bytes", Unit::Bytes, "What they have in pages with something in them.", |s| s.memory().allocator.active.into()),
    gauge("allocator_resident", "redis_allocator_resident_bytes", Unit::Bytes, "What they have in memory.", |s| s.memory().allocator.resident.into()),
    gauge("allocator_muzzy", "redis_allocator_muzzy_bytes", Unit::Bytes, "Pages that the system may take back when it wants.", |s| s.memory().allocator.muzzy.into()),
    gauge("total_system_memory", "redis_total_system_memory_bytes", Unit::Bytes, "Memory of the machine.", |_| process::machine_bytes().into()),
    words("total_system_memory_human", "The same for people.", |_| human(process::machine_bytes()).into()),
    gauge("used_memory_lua", "redis_memory_used_lua_bytes", Unit::Bytes, "Memory of the virtual machines of scripts.", |s| scripts_bytes(s).into()).otel("redis.memory.lua"),
    gauge("used_memory_vm_eval", "redis_memory_used_vm_eval_bytes", Unit::Bytes, "The same.", |s| scripts_bytes(s).into()),
    words("used_memory_lua_human", "The same for people.", |s| human(scripts_bytes(s)).into()),
    gauge("used_memory_scripts_eval", "redis_memory_used_scripts_eval_bytes", Unit::Bytes, "Memory of the scripts that EVAL and SCRIPT LOAD brought.", |s| Value::Whole(s.node.core.shared.scripts.counts().1 as u64)),
    gauge("number_of_cached_scripts", "redis_number_of_cached_scripts", Unit::Count, "These scripts.", |s| Value::Whole(s.node.core.shared.scripts.counts().0 as u64)),
    gauge("number_of_functions", "redis_number_of_functions", Unit::Count, "Functions of libraries (FUNCTION LOAD).", |s| Value::Whole(s.node.core.shared.scripts.libraries.now().counts().1 as u64)),
    gauge("number_of_libraries", "redis_number_of_libraries", Unit::Count, "Libraries of functions.", |s| Value::Whole(s.node.core.shared.scripts.libraries.now().counts().0 as u64)),
    zero("used_memory_vm_functions", "redis_memory_used_vm_functions_bytes", Unit::Bytes, "Always 0: functions run in the machines of scripts."),
    gauge("used_memory_vm_total", "redis_memory_used_vm_total", Unit::Bytes, "Memory of all virtual machines.", |s| scripts_bytes(s).into()),
    words("used_memory_vm_total_human", "The same for people.", |s| human(scripts_bytes(s)).into()),
    gauge("used_memory_functions", "redis_memory_used_functions_bytes", Unit::Bytes, "Memory of libraries of functions.", |s| s.node.core.shared.scripts.libraries_bytes().into()),
    gauge("used_memory_scripts", "redis_memory_used_scripts_bytes", Unit::Bytes, "Memory of scripts and libraries.", |s| all_scripts_bytes(s).into()),
    words("used_memory_scripts_human", "The same for people.", |s| human(all_scripts_bytes(s)).into()),
    gauge("maxmemory", "redis_memory_max_bytes", Unit::Bytes, "Most bytes before keys are evicted or writes refused (maxmemory); 0 for no limit.", |s| s.config.memory_bytes_max.into()).otel("redis.maxmemory"),
    words("maxmemory_human", "The same for people.", |s| human(s.config.memory_bytes_max).into()),
    words("maxmemory_policy", "What goes when memory is short.", |s| policy_name(s).into()),
    gauge("allocator_frag_ratio", "redis_allocator_frag_ratio", Unit::Ratio, "Bytes in pages with something in them, per byte asked for.", |s| ratio(s.memory().allocator.active, s.memory().allocator.allocated)),
    gauge("allocator_frag_bytes", "redis_allocator_frag_bytes", Unit::Bytes, "Bytes in such pages that nobody asked for.", |s| s.memory().allocator.active.saturating_sub(s.memory().allocator.allocated).into()),
    gauge("allocator_rss_ratio", "redis_allocator_rss_ratio", Unit::Ratio, "Bytes in memory, per byte in pages with something in them.", |s| ratio(s.memory().allocator.resident, s.memory().allocator.active)),
    gauge("allocator_rss_bytes", "redis_allocator_rss_bytes", Unit::Bytes, "Bytes in memory in pages with nothing in them.", |s| s.memory().allocator.resident.saturating_sub(s.memory().allocator.active).into()),
    gauge("rss_overhead_ratio", "iolite_rss_overhead_ratio", Unit::Ratio, "Bytes of the process in memory, per byte of the allocators.", |s| ratio(s.memory().resident_without_log(), s.memory().allocator.resident)),
    gauge("rss_overhead_bytes", "iolite_rss_overhead_bytes", Unit::Bytes, "Bytes of the process in memory beside those of the allocators and the log.", |s| s.memory().resident_without_log().saturating_sub(s.memory().allocator.resident).into()),
    gauge("mem_fragmentation_ratio", "redis_mem_fragmentation_ratio", Unit::Ratio, "Bytes of the process in memory without the log's, per byte in use.", |s| ratio(s.memory().resident_without_log(), s.memory().used)).otel("redis.memory.fragmentation_ratio"),
    gauge("mem_fragmentation_bytes", "redis_mem_fragmentation_bytes", Unit::Bytes, "Bytes of the process in memory that are not in use.", |s| s.memory().resident_without_log().saturating_sub(s.memory().used).into()),
    gauge("mem_not_counted_for_evict", "redis_mem_not_counted_for_eviction_bytes", Unit::Bytes, "Memory of the log that does not count for maxmemory.", |s| s.node.uncounted_log_bytes().into()),
    gauge("mem_replication_backlog", "redis_mem_replication_backlog_bytes", Unit::Bytes, "Memory of the backlog.", |s| backlog_bytes(s).into()),
    gauge("mem_total_replication_buffers", "redis_mem_total_replication_buffers_bytes", Unit::Bytes, "Memory of the backlog and of what waits for replicas.", |s| backlog_bytes(s).into()),
    zero("mem_clients_slaves", "redis_mem_clients_slaves", Unit::Bytes, "Always 0: replicas read the backlog."),
    gauge("mem_clients_normal", "redis_mem_clients_normal", Unit::Bytes, "Memory of clients with their buffers.", |s| s.memory().clients.into()),
    zero("mem_cluster_links", "redis_mem_cluster_links_bytes", Unit::Bytes, "Always 0: there is no cluster's bus."),
    gauge("mem_aof_buffer", "redis_mem_aof_buffer_bytes", Unit::Bytes, "Memory of the operation log.", |s| s.memory().log.into()),
    words("mem_allocator", "The allocator of the program.", |_| allocator::installed().name().into()),
    zero("mem_overhead_db_hashtable_rehashing", "redis_mem_overhead_db_hashtable_rehashing_bytes", Unit::Bytes, "Always 0: an index grows in place."),
    gauge("active_defrag_running", "redis_active_defrag_running", Unit::Switch, "Whether records are being moved together.", |s| s.statistics.is_moving.into()),
    gauge("lazyfree_pending_objects", "redis_lazyfree_pending_objects", Unit::Count, "Large values that wait to be freed in the background.", |s| s.statistics.lazyfree_pending.into()),
    counter("lazyfreed_objects", "redis_lazyfreed_objects", Unit::Count, "Large values that were freed in the background.", |s| s.statistics.lazyfreed.into()),
];

fn scripts_bytes(sample: &Sample<'_>) -> u64 {
    sample.node.core.shared.scripts.machine_bytes()
}

fn all_scripts_bytes(sample: &Sample<'_>) -> u64 {
    let known = &sample.node.core.shared.scripts;
    known.libraries_bytes() + known.counts().1 as u64
}

fn backlog_bytes(sample: &Sample<'_>) -> u64 {
    sample.node.replication.stream.memory_bytes()
}

pub(super) fn policy_name(sample: &Sample<'_>) -> String {
    let mut name = String::new();
    let config = &sample.node.core.config;
    config.get(&[b"maxmemory-policy"], &mut |_, value| {
        name = String::from_utf8_lossy(value).into_owned();
    });
    name
}

fn ratio(part: u64, whole: u64) -> Value {
    Value::Decimal(percent(part, whole) / 100.0, 2)
}

/// Returns `part` in percent of `whole`; 0 if `whole` is 0.
#[allow(clippy::cast_precision_loss, reason = "shown with two digits")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}
