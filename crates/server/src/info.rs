//! INFO: the server described as `name:value` lines in sections.
//!
//! Tools parse this text and take a missing name for a broken server, so every name that monitoring
//! of Redis and Valkey reads is there; what this server does not have is 0.

mod persistence;

use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering;

use access::Reason;
use base::memory_size::human;
use base::words::quote;
use engine::{Counts, ServerMemory, TopicKind};
use store::{DatabaseId, Handle, Statistics};

use crate::allocator;
use crate::counters::{Count, Counter, Sums, WorkerCounters};
use crate::identity;
use crate::node::Node;
use crate::process::{self, Whose};

/// When a section is shown, besides when it is asked for by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// By INFO without arguments.
    ByDefault,
    /// By INFO ALL.
    WithAll,
    /// Never: tools know no such section.
    ByName,
}

/// A section: its name, when it is shown, and what writes it.
struct Section {
    name: &'static str,
    shown: Shown,
    write: fn(&mut Report<'_>),
}

const SECTIONS: &[Section] = &[
    Section {
        name: "Server",
        shown: Shown::ByDefault,
        write: server,
    },
    Section {
        name: "Clients",
        shown: Shown::ByDefault,
        write: clients,
    },
    Section {
        name: "Memory",
        shown: Shown::ByDefault,
        write: memory,
    },
    Section {
        name: "Persistence",
        shown: Shown::ByDefault,
        write: persistence::write,
    },
    Section {
        name: "Stats",
        shown: Shown::ByDefault,
        write: stats,
    },
    Section {
        name: "Replication",
        shown: Shown::ByDefault,
        write: replication,
    },
    Section {
        name: "CPU",
        shown: Shown::ByDefault,
        write: cpu,
    },
    Section {
        name: "Modules",
        shown: Shown::ByDefault,
        write: |_| {},
    },
    Section {
        name: "Commandstats",
        shown: Shown::WithAll,
        write: command_statistics,
    },
    Section {
        name: "Errorstats",
        shown: Shown::ByDefault,
        write: error_statistics,
    },
    Section {
        name: "Latencystats",
        shown: Shown::WithAll,
        write: latency_statistics,
    },
    Section {
        name: "Debug",
        shown: Shown::ByName,
        write: debug,
    },
    Section {
        name: "Hotkeys",
        shown: Shown::ByName,
        write: hot_keys,
    },
    Section {
        name: "TLS",
        shown: Shown::ByName,
        write: tls,
    },
    Section {
        name: "Cluster",
        shown: Shown::ByDefault,
        write: cluster,
    },
    Section {
        name: "Keyspace",
        shown: Shown::ByDefault,
        write: keyspace,
    },
];

/// The text of the sections asked for (in lower case); none means the default ones.
#[must_use]
pub fn report(node: &Node, store: &mut Handle, asked: &[String]) -> String {
    let statistics = store.statistics();
    let mut report = Report {
        node,
        store,
        statistics,
        memory: node.memory(),
        text: String::new(),
    };
    for section in SECTIONS {
        if is_asked(section, asked) {
            if !report.text.is_empty() {
                report.text.push_str("\r\n");
            }
            let _ = write!(report.text, "# {}\r\n", section.name);
            (section.write)(&mut report);
        }
    }
    report.text
}

fn is_asked(section: &Section, asked: &[String]) -> bool {
    if asked.is_empty() {
        return section.shown == Shown::ByDefault;
    }
    asked.iter().any(|name| match name.as_str() {
        "all" | "everything" => section.shown != Shown::ByName,
        "default" => section.shown == Shown::ByDefault,
        name => section.name.eq_ignore_ascii_case(name),
    })
}

/// The text so far and where its values come from.
struct Report<'a> {
    node: &'a Node,
    store: &'a mut Handle,
    statistics: Statistics,
    memory: ServerMemory,
    text: String,
}

impl Report<'_> {
    fn field(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// Names that tools look for and that are always 0 here.
    fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.field(name, 0);
        }
    }

    /// A number of bytes, and the same for people under `…_human`.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human(bytes));
    }
}

fn server(report: &mut Report<'_>) {
    let node = report.node;
    let now_us = node.core.clock.now_unix_us();
    let uptime_seconds = node.uptime_ms() / 1000;
    report.field("redis_version", identity::redis_version());
    report.field("redis_git_sha1", "00000000");
    report.field("redis_git_dirty", 0);
    report.field("redis_build_id", identity::build_id());
    report.field("redis_mode", "standalone");
    report.field("server_name", identity::SERVER_NAME);
    report.field("iolite_version", identity::IOLITE_VERSION);
    report.field("os", process::operating_system());
    report.field("arch_bits", usize::BITS);
    report.field("monotonic_clock", "POSIX clock_gettime");
    report.field("multiplexing_api", "epoll");
    report.field("atomicvar_api", "rust");
    report.field("gcc_version", "0.0.0");
    report.field("process_id", std::process::id());
    report.field("process_supervised", node.process.supervisor.name());
    report.field("run_id", &node.process.run_id);
    report.field("tcp_port", node.core.config.current().port);
    report.field("server_time_usec", now_us);
    report.field("uptime_in_seconds", uptime_seconds);
    report.field("uptime_in_days", uptime_seconds / 86_400);
    let hz = node.core.config.current().hz;
    report.field("hz", hz);
    report.field("configured_hz", hz);
    report.field("lru_clock", (now_us / 1_000_000) & 0x00FF_FFFF);
    report.field("executable", executable());
    report.field("config_file", config_file(node));
    report.field("io_threads_active", u8::from(node.workers().len() > 1));
    report.field("worker_threads", node.workers().len());
    report.field(
        "availability_zone",
        &node.core.config.current().availability_zone,
    );
    let left_ms = node.replication.stop_delay_ms(now_us / 1000);
    if let Some(left_ms) = left_ms {
        report.field("shutdown_in_milliseconds", left_ms);
    }
}

fn executable() -> String {
    std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string())
}

fn config_file(node: &Node) -> String {
    let file = node.core.config.origin().file.as_ref();
    file.map_or_else(String::new, |path| path.display().to_string())
}

fn clients(report: &mut Report<'_>) {
    let node = report.node;
    report.field("connected_clients", node.sessions.clients.staying());
    report.field("cluster_connections", 0);
    report.field("maxclients", node.core.config.current().clients_max);
    let (query_max, output_max) = node.sessions.clients.buffer_bytes_max();
    report.field("client_recent_max_input_buffer", query_max);
    report.field("client_recent_max_output_buffer", output_max);
    report.field("blocked_clients", node.sessions.clients.blocked());
    report.field(
        "tracking_clients",
        node.sessions.client_cache.clients_count(),
    );
    report.field("pubsub_clients", node.sessions.clients.subscribed());
    let (watching, watched) = node.sessions.clients.watching();
    report.field("watching_clients", watching);
    let timeouts = node.workers().iter().map(|one| one.counters.timeouts.get());
    report.field("clients_in_timeout_table", timeouts.sum::<u64>());
    report.field("total_watched_keys", watched);
    let waited = node.sessions.waiters.waited_keys();
    report.field("total_blocking_keys", waited.all);
    report.field("total_blocking_keys_on_nokey", waited.known_streams);
}

fn memory(report: &mut Report<'_>) {
    used_memory(report);
    script_memory(report);
    let config = report.node.core.config.current();
    report.bytes("maxmemory", config.memory_bytes_max);
    report.field("maxmemory_policy", policy_name(report.node));
    fragmentation(report);
    report.field(
        "mem_not_counted_for_evict",
        report.node.uncounted_log_bytes(),
    );
    let backlog = report.node.replication.stream.memory_bytes();
    report.field("mem_replication_backlog", backlog);
    report.field("mem_total_replication_buffers", backlog);
    report.zeros(&["mem_clients_slaves"]);
    let memory = report.memory;
    report.field("mem_clients_normal", memory.clients);
    report.zeros(&["mem_cluster_links"]);
    report.field("mem_aof_buffer", memory.log);
    report.field("mem_allocator", allocator::installed().name());
    report.zeros(&["mem_overhead_db_hashtable_rehashing"]);
    report.field(
        "active_defrag_running",
        u8::from(report.statistics.is_moving),
    );
    report.field(
        "lazyfree_pending_objects",
        report.statistics.lazyfree_pending,
    );
    report.field("lazyfreed_objects", report.statistics.lazyfreed);
}

fn policy_name(node: &Node) -> String {
    let mut name = String::new();
    node.core
        .config
        .get(&[b"maxmemory-policy"], &mut |_, value| {
            name = String::from_utf8_lossy(value).into_owned();
        });
    name
}

fn used_memory(report: &mut Report<'_>) {
    let memory = report.memory;
    let since_startup = memory.used.saturating_sub(memory.startup);
    let dataset = memory.dataset();
    report.bytes("used_memory", memory.used);
    report.bytes("used_memory_rss", memory.resident);
    report.bytes("used_memory_peak", memory.peak);
    let of_peak = percent(memory.used, memory.peak);
    report.field("used_memory_peak_perc", format_args!("{of_peak:.2}%"));
    report.field("used_memory_overhead", memory.overhead);
    report.field("used_memory_startup", memory.startup);
    report.field("used_memory_dataset", dataset);
    let of_rest = percent(dataset.min(since_startup), since_startup);
    report.field("used_memory_dataset_perc", format_args!("{of_rest:.2}%"));
    report.field("allocator_allocated", memory.allocator.allocated);
    report.field("allocator_active", memory.allocator.active);
    report.field("allocator_resident", memory.allocator.resident);
    report.field("allocator_muzzy", memory.allocator.muzzy);
    report.bytes("total_system_memory", process::machine_bytes());
}

fn script_memory(report: &mut Report<'_>) {
    let known = &report.node.core.settings.scripts;
    let (machine_bytes, functions_bytes) = (known.machine_bytes(), known.libraries_bytes());
    let (scripts, scripts_bytes) = known.counts();
    report.field("used_memory_lua", machine_bytes);
    report.field("used_memory_vm_eval", machine_bytes);
    report.field("used_memory_lua_human", human(machine_bytes));
    report.field("used_memory_scripts_eval", scripts_bytes);
    report.field("number_of_cached_scripts", scripts);
    let (libraries, functions) = report.node.core.settings.scripts.libraries.now().counts();
    report.field("number_of_functions", functions);
    report.field("number_of_libraries", libraries);
    report.zeros(&["used_memory_vm_functions"]);
    report.bytes("used_memory_vm_total", machine_bytes);
    report.field("used_memory_functions", functions_bytes);
    report.bytes(
        "used_memory_scripts",
        functions_bytes + scripts_bytes as u64,
    );
}

fn fragmentation(report: &mut Report<'_>) {
    let memory = report.memory;
    let of = memory.allocator;
    let resident = memory.resident_without_log();
    let unused = resident.saturating_sub(memory.used);
    let ratio = |part, whole| format!("{:.2}", percent(part, whole) / 100.0);
    for (name, part, whole) in [
        ("allocator_frag", of.active, of.allocated),
        ("allocator_rss", of.resident, of.active),
        ("rss_overhead", resident, of.resident),
    ] {
        report.field(&format!("{name}_ratio"), ratio(part, whole));
        report.field(&format!("{name}_bytes"), part.saturating_sub(whole));
    }
    report.field("mem_fragmentation_ratio", ratio(resident, memory.used));
    report.field("mem_fragmentation_bytes", unused);
}

/// What was moved so that memory becomes free: every record is one allocation and one key.
fn defragmentation(report: &mut Report<'_>) {
    let (moved, left) = (report.statistics.moved, report.statistics.left);
    report.field("active_defrag_hits", moved);
    report.field("active_defrag_misses", left);
    report.field("active_defrag_key_hits", moved);
    report.field("active_defrag_key_misses", left);
    let (moving, uptime_ms) = (&report.node.work.rates.moving, report.node.uptime_ms());
    report.field("total_active_defrag_time", moving.total_ms(uptime_ms));
    report.field("current_active_defrag_time", moving.current_ms(uptime_ms));
}

/// `part` of `whole` in per cent; 0 of nothing.
#[allow(clippy::cast_precision_loss, reason = "shown with two digits")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

fn stats(report: &mut Report<'_>) {
    let node = report.node;
    let sums = node.sums();
    let [requests, input, output, ..] = node.work.rates.per_second();
    let counts = node.counts();
    report.field("total_connections_received", sums.of(Count::Connections));
    report.field("total_commands_processed", counts.calls());
    report.field("instantaneous_ops_per_sec", format!("{requests:.0}"));
    report.field("total_net_input_bytes", sums.of(Count::InputBytes));
    report.field("total_net_output_bytes", sums.of(Count::OutputBytes));
    let replication = &node.replication.counts;
    for (name, count) in [
        ("total_net_repl_input_bytes", &replication.input_bytes),
        ("total_net_repl_output_bytes", &replication.output_bytes),
    ] {
        report.field(name, count.load(Ordering::Relaxed));
    }
    report.field("instantaneous_input_kbps", format!("{:.2}", input / 1024.0));
    report.field(
        "instantaneous_output_kbps",
        format!("{:.2}", output / 1024.0),
    );
    report.field("instantaneous_input_repl_kbps", "0.00");
    report.field("instantaneous_output_repl_kbps", "0.00");
    report.field("rejected_connections", sums.of(Count::Rejections));
    for (name, count) in [
        ("sync_full", &replication.full_syncs),
        ("sync_partial_ok", &replication.partial_syncs),
        ("sync_partial_err", &replication.refused_partial_syncs),
    ] {
        report.field(name, count.load(Ordering::Relaxed));
    }
    removals(report, &sums);
    report.field("keyspace_hits", report.statistics.hits);
    report.field("keyspace_misses", report.statistics.misses);
    subscriptions(report);
    report.zeros(&[
        "latest_fork_usec",
        "total_forks",
        "migrate_cached_sockets",
        "slave_expires_tracked_keys",
    ]);
    defragmentation(report);
    let [keys, items, prefixes] = node.sessions.client_cache.counts();
    report.field("tracking_total_keys", keys);
    report.field("tracking_total_items", items);
    report.field("tracking_total_prefixes", prefixes);
    for (reason, count) in node.core.settings.denials.counts() {
        let name = match reason {
            Reason::LogIn => "acl_access_denied_auth",
            Reason::Command => "acl_access_denied_cmd",
            Reason::Key => "acl_access_denied_key",
            Reason::Channel => "acl_access_denied_channel",
        };
        report.field(name, count);
    }
    report.zeros(&["unexpected_error_replies"]);
    report.field("total_error_replies", counts.error_replies());
    traffic(report, &sums, &counts);
    report.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"]);
    report.field(
        "http_requests_refused",
        node.core.settings.observer.browsers.count(),
    );
    event_loops(report);
}

/// Keys, fields, clients and scripts that went because their time had come, or because memory was needed.
fn removals(report: &mut Report<'_>, sums: &Sums) {
    let node = report.node;
    report.field("expired_keys", report.statistics.expired);
    report.field("expired_subkeys", report.statistics.expired_members);
    report.field("expired_stale_perc", "0.00");
    report.field(
        "expired_time_cap_reached_count",
        report.statistics.expiry_left,
    );
    let expire_ms = sums.of(Count::ExpireNs) / 1_000_000;
    report.field("expire_cycle_cpu_milliseconds", expire_ms);
    report.field("evicted_keys", report.statistics.evicted);
    report.field("evicted_clients", sums.of(Count::EvictedClients));
    report.field("evicted_scripts", node.core.settings.scripts.evicted());
    let uptime_ms = node.uptime_ms();
    let over_limit = &node.work.rates.over_limit;
    report.field(
        "total_eviction_exceeded_time",
        over_limit.total_ms(uptime_ms),
    );
    report.field(
        "current_eviction_exceeded_time",
        over_limit.current_ms(uptime_ms),
    );
}

/// What was received, sent and checked.
fn traffic(report: &mut Report<'_>, sums: &Sums, counts: &Counts) {
    let checked = counts.rows.iter().zip(0..).filter(|(_, index)| {
        let name = report
            .node
            .core
            .env
            .table
            .full_name(*index)
            .unwrap_or_default();
        name.starts_with("restore")
    });
    let checked = checked.map(|(row, _)| row.calls).sum::<u64>();
    report.field("dump_payload_sanitizations", checked);
    report.field("total_reads_processed", sums.of(Count::Reads));
    report.field("total_writes_processed", sums.of(Count::Writes));
    // The first worker is what the one thread of Redis is, the others are its helpers.
    report.field("io_threaded_reads_processed", sums.of(Count::ReadsBeside));
    report.field("io_threaded_writes_processed", sums.of(Count::WritesBeside));
    report.field(
        "client_query_buffer_limit_disconnections",
        sums.of(Count::QueryLimitCloses),
    );
    report.field(
        "client_output_buffer_limit_disconnections",
        sums.of(Count::OutputLimitCloses),
    );
}

/// The loops of all workers together; rates are those of one of them, on average.
#[allow(clippy::cast_precision_loss, reason = "a few workers")]
fn event_loops(report: &mut Report<'_>) {
    let node = report.node;
    let sums = node.sums();
    let [.., turns, busy_ns] = node.work.rates.per_second();
    let turns_of_one = turns / node.workers().len().max(1) as f64;
    let busy_us_of_one = if turns > 0.0 {
        busy_ns / turns / 1000.0
    } else {
        0.0
    };
    report.field("eventloop_cycles", sums.of(Count::Turns));
    report.field("eventloop_duration_sum", sums.of(Count::BusyNs) / 1000);
    report.field("eventloop_duration_cmd_sum", node.counts().ns() / 1000);
    report.field(
        "instantaneous_eventloop_cycles_per_sec",
        format!("{turns_of_one:.0}"),
    );
    report.field(
        "instantaneous_eventloop_duration_usec",
        format!("{busy_us_of_one:.0}"),
    );
}

fn debug(report: &mut Report<'_>) {
    let node = report.node;
    let upkeep_us = node.sums().of(Count::UpkeepNs) / 1000;
    let most = |of: fn(&WorkerCounters) -> &Counter| {
        let all = node.workers().iter().map(|one| of(&one.counters).get());
        all.max().unwrap_or_default()
    };
    let busy_us_max = most(|counters| &counters.busy_ns_max) / 1000;
    let cpu_us_max = most(|counters| &counters.cpu_ns_max) / 1000;
    let requests_max = most(|counters| &counters.requests_max);
    report.zeros(&["eventloop_duration_aof_sum"]);
    report.field("eventloop_duration_cron_sum", upkeep_us);
    report.field("eventloop_duration_max", busy_us_max);
    // Ours: while the latency monitor is on, which is what it costs two system calls a turn for.
    report.field("eventloop_cpu_max", cpu_us_max);
    report.field("eventloop_cmd_per_cycle_max", requests_max);
}

fn replication(report: &mut Report<'_>) {
    let node = report.node;
    for (name, value) in node.replication.fields(node) {
        report.field(&name, value);
    }
}

fn cpu(report: &mut Report<'_>) {
    for (whose, suffix) in [
        (Whose::Process, ""),
        (Whose::Children, "_children"),
        (Whose::Thread, "_main_thread"),
    ] {
        let time = process::processor_time(whose);
        report.field(&format!("used_cpu_sys{suffix}"), seconds(time.system_us));
        report.field(&format!("used_cpu_user{suffix}"), seconds(time.user_us));
    }
}

fn seconds(microseconds: u64) -> String {
    format!(
        "{}.{:06}",
        microseconds / 1_000_000,
        microseconds % 1_000_000
    )
}

#[allow(clippy::cast_precision_loss, reason = "shown with two digits")]
fn command_statistics(report: &mut Report<'_>) {
    for (index, counters) in (0..).zip(report.node.counts().rows) {
        if counters.calls + counters.rejected > 0 {
            let name = report
                .node
                .core
                .env
                .table
                .full_name(index)
                .unwrap_or_default();
            report.field(
                &format!("cmdstat_{name}"),
                format_args!(
                    "calls={},usec={},usec_per_call={:.2},rejected_calls={},failed_calls={}",
                    counters.calls,
                    counters.ns / 1000,
                    microseconds(counters.ns) / counters.calls.max(1) as f64,
                    counters.rejected,
                    counters.failed
                ),
            );
        }
    }
}

fn latency_statistics(report: &mut Report<'_>) {
    let config = report.node.core.config.current();
    if config.percentiles.is_empty() {
        return;
    }
    for (index, histogram) in report.node.latencies().0 {
        let shown: Vec<String> = config
            .percentiles
            .iter()
            .map(|percent| {
                let ns = histogram.percentile_ns(percent.parse().unwrap_or(0.0));
                format!("p{percent}={:.3}", microseconds(ns))
            })
            .collect();
        let name = report
            .node
            .core
            .env
            .table
            .full_name(index)
            .unwrap_or_default();
        report.field(&format!("latency_percentiles_usec_{name}"), shown.join(","));
    }
}

#[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn error_statistics(report: &mut Report<'_>) {
    for (code, count) in report.node.counts().errors {
        report.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

/// So many keys are shown that are asked for most, and that take most memory.
const KEYS_SHOWN: usize = 10;

fn hot_keys(report: &mut Report<'_>) {
    let observer = &report.node.core.settings.observer;
    let now_s = report.node.core.clock.now_unix_ms() / 1000;
    let hot = observer.hot_keys.report(now_s, KEYS_SHOWN);
    report.field("hot_keys_samples", hot.samples);
    report.field("hot_keys_seconds", hot.seconds);
    for (number, key) in hot.keys.iter().enumerate() {
        let (calls_per_second, percent) = hot.rate_of(key);
        let (database, name) = (key.database, quote(&key.key));
        report.field(
            &format!("hot_key_{number}"),
            format_args!(
                "db={database},key={name},calls_per_sec={calls_per_second},percent={percent:.2}"
            ),
        );
    }
    for (number, key) in observer.big_keys.report(KEYS_SHOWN).iter().enumerate() {
        let (database, name) = (key.database, quote(&key.key));
        let (kind, bytes) = (key.kind.name(), key.bytes);
        report.field(
            &format!("big_key_{number}"),
            format_args!("db={database},key={name},type={kind},bytes={bytes}"),
        );
    }
}

fn tls(report: &mut Report<'_>) {
    let now_unix_ms = report.node.core.clock.now_unix_ms();
    report
        .text
        .push_str(&report.node.process.secret.info(now_unix_ms));
}

fn cluster(report: &mut Report<'_>) {
    report.field("cluster_enabled", 0);
}

fn keyspace(report: &mut Report<'_>) {
    for database in 0..report.store.store().databases() {
        let keys = report.store.len(database);
        if keys > 0 {
            let expires = report.store.expiring_len(database);
            let ttl_ms = average_ttl_ms(report.store, database, expires);
            let hashes = hashes_with_deadlines(report.store, database, keys);
            report.field(
                &format!("db{database}"),
                format_args!("keys={keys},expires={expires},avg_ttl={ttl_ms},subexpiry={hashes}"),
            );
        }
    }
}

/// Records looked at for the average of what is left to live.
const TTL_SAMPLES: usize = 256;

/// How long the keys of a database that have a deadline live on, on average of those among the
/// first records of a walk: their places follow from hashes, so that they are as good as drawn.
fn average_ttl_ms(store: &mut Handle, database: DatabaseId, expires: usize) -> u64 {
    if expires == 0 {
        return 0;
    }
    let now_unix_ms = store.now_unix_ms();
    let (mut sum_ms, mut count) = (0_u128, 0_u128);
    store.survey(database, 0, TTL_SAMPLES, |record| {
        if let Some(deadline_unix_ms) = record.deadline_unix_ms() {
            sum_ms += u128::from(deadline_unix_ms.saturating_sub(now_unix_ms));
            count += 1;
        }
    });
    let average_ms = sum_ms.checked_div(count).unwrap_or(0);
    u64::try_from(average_ms).unwrap_or(u64::MAX)
}

/// Records looked at for the number of hashes whose fields have deadlines.
const HASH_SAMPLES: usize = 16_384;

/// How many hashes of a database have fields with deadlines: all are looked at where there are not too many keys,
/// else it is what follows from the first of a walk.
fn hashes_with_deadlines(store: &mut Handle, database: DatabaseId, keys: usize) -> u64 {
    if !store.has_member_deadlines() {
        return 0;
    }
    let (mut seen, mut found, mut cursor) = (0_u64, 0_u64, 0);
    while seen < HASH_SAMPLES as u64 {
        cursor = store.survey(database, cursor, HASH_SAMPLES, |record| {
            seen += 1;
            let object = record.object();
            found += u64::from(object.is_some_and(|object| object.has_member_deadlines()));
        });
        if cursor == 0 {
            return found;
        }
    }
    (u128::from(found) * keys as u128 / u128::from(seen))
        .try_into()
        .unwrap_or(u64::MAX)
}

/// What is subscribed to.
fn subscriptions(report: &mut Report<'_>) {
    let pubsub = &report.node.sessions.pubsub;
    let channels = pubsub.channels_count(TopicKind::Channel);
    let shard_channels = pubsub.channels_count(TopicKind::ShardChannel);
    let patterns = pubsub.patterns_count();
    report.field("pubsub_channels", channels);
    report.field("pubsub_patterns", patterns);
    report.field("pubsubshard_channels", shard_channels);
}
