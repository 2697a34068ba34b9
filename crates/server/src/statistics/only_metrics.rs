//! Values that only metrics have: identity, configuration, command logs, events, and figures of our
//! own.

use engine::observer::Matter;

use super::memory;
use super::metrics::{Metric, MetricKind};
use super::row::described;
use super::row::{Family, Item};
use super::sample::Sample;
use crate::config::OutputLimit;
use crate::counters::Count;
use crate::identity;

pub(super) const ITEMS: &[Item] = &[Item::Family(Family {
    info: "",
    help: "What only metrics have.",
    lines: |_, _| {},
    described: &[
        described("redis_up", "gauge", "", "Always 1: who answers is up."),
        described(
            "redis_exporter_last_scrape_error",
            "gauge",
            "err",
            "Always 0: nothing is asked of anybody else.",
        ),
        described(
            "redis_exporter_last_scrape_duration_seconds",
            "gauge",
            "",
            "Always 0: values are read when they are asked for.",
        ),
        described(
            "redis_exporter_last_scrape_connect_time_seconds",
            "gauge",
            "",
            "Always 0: nobody connects.",
        ),
        described(
            "redis_instance_info",
            "gauge",
            "role, redis_version, redis_build_id, redis_mode, os, maxmemory_policy, tcp_port, run_id, process_id, master_replid",
            "Always 1: which server this is.",
        ),
        described(
            "redis_start_time_seconds",
            "gauge",
            "",
            "When the server started, in seconds since 1970.",
        ),
        described(
            "redis_config_maxclients",
            "gauge",
            "",
            "Clients that are served at a time (maxclients).",
        ),
        described(
            "redis_config_maxmemory",
            "gauge",
            "",
            "Most bytes of memory (maxmemory).",
        ),
        described(
            "redis_config_io_threads",
            "gauge",
            "",
            "Threads that serve clients (threads).",
        ),
        described(
            "redis_config_client_output_buffer_limit_bytes",
            "gauge",
            "class, limit",
            "Unread output at which a client is closed.",
        ),
        described(
            "redis_config_client_output_buffer_limit_overcome_seconds",
            "gauge",
            "class, limit",
            "How long a client may be above the soft limit.",
        ),
        described(
            "redis_slowlog_length",
            "gauge",
            "",
            "Entries of the slow log.",
        ),
        described(
            "redis_slowlog_last_id",
            "gauge",
            "",
            "Number of its last entry.",
        ),
        described(
            "redis_last_slow_execution_duration_seconds",
            "gauge",
            "",
            "How long the command of its last entry took.",
        ),
        described(
            "redis_commandlog_slow_length",
            "gauge",
            "",
            "Entries of the log of slow commands.",
        ),
        described(
            "redis_commandlog_large_request_length",
            "gauge",
            "",
            "Entries of the log of large requests.",
        ),
        described(
            "redis_commandlog_large_reply_length",
            "gauge",
            "",
            "Entries of the log of large replies.",
        ),
        described(
            "redis_commandlog_execution_slower_than",
            "gauge",
            "",
            "From how many microseconds on a command is slow.",
        ),
        described(
            "redis_commandlog_request_larger_than",
            "gauge",
            "",
            "From how many bytes on a request is large.",
        ),
        described(
            "redis_commandlog_reply_larger_than",
            "gauge",
            "",
            "From how many bytes on a reply is large.",
        ),
        described(
            "redis_commandlog_slow_execution_max_len",
            "gauge",
            "",
            "Most entries of the log of slow commands.",
        ),
        described(
            "redis_commandlog_large_request_max_len",
            "gauge",
            "",
            "Most entries of the log of large requests.",
        ),
        described(
            "redis_commandlog_large_reply_max_len",
            "gauge",
            "",
            "Most entries of the log of large replies.",
        ),
        described(
            "redis_latency_spike_last",
            "gauge",
            "event_name",
            "When an event took long last, in seconds since 1970.",
        ),
        described(
            "redis_latency_spike_duration_seconds",
            "gauge",
            "event_name",
            "How long it took.",
        ),
        described(
            "redis_active_time_main_thread_seconds_total",
            "counter",
            "",
            "Time that the first worker did not wait.",
        ),
        described(
            "iolite_build_info",
            "gauge",
            "version, redis_version",
            "Always 1: which program this is.",
        ),
        described(
            "iolite_worker_busy_seconds_total",
            "counter",
            "worker",
            "Time that a worker did not wait.",
        ),
        described(
            "iolite_memory_bytes",
            "gauge",
            "kind",
            "Memory by what it is for.",
        ),
        described(
            "iolite_audit_lines_dropped_total",
            "counter",
            "",
            "Lines of the audit log that were dropped.",
        ),
    ],
    metrics: only_metrics,
})];

fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
    Metric::new(name, MetricKind::Gauge, help).with(value)
}

fn only_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    metrics.push(gauge("redis_up", "Always 1: who answers is up.", 1.0));
    let help = "Always 0: nothing is asked of anybody else.";
    let mut error = Metric::new("redis_exporter_last_scrape_error", MetricKind::Gauge, help);
    error.add("", &[("err", "")], 0.0);
    metrics.push(error);
    metrics.extend([
        gauge(
            "redis_exporter_last_scrape_duration_seconds",
            "Always 0: values are read when they are asked for.",
            0.0,
        ),
        gauge(
            "redis_exporter_last_scrape_connect_time_seconds",
            "Always 0: nobody connects.",
            0.0,
        ),
    ]);
    identity_metrics(sample, metrics);
    config_metrics(sample, metrics);
    log_metrics(sample, metrics);
    event_metrics(sample, metrics);
    own_metrics(sample, metrics);
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn identity_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let fields = sample.node.replication.fields(sample.node);
    let field = |wanted: &str| {
        let found = fields.iter().find(|(name, _)| name == wanted);
        found.map_or_else(String::new, |(_, value)| value.clone())
    };
    let labels = [
        ("role", field("role")),
        ("redis_version", identity::redis_version().to_string()),
        ("redis_build_id", identity::build_id()),
        ("redis_mode", super::server::mode(sample).to_owned()),
        ("os", crate::process::operating_system()),
        ("maxmemory_policy", memory::policy_name(sample)),
        ("tcp_port", sample.config.port.to_string()),
        ("run_id", sample.node.process.run_id.clone()),
        ("process_id", std::process::id().to_string()),
        ("master_replid", field("master_replid")),
    ];
    let labels: Vec<(&'static str, &str)> = labels
        .iter()
        .map(|(name, of)| (*name, of.as_str()))
        .collect();
    let mut info = Metric::new(
        "redis_instance_info",
        MetricKind::Gauge,
        "Always 1: which server this is.",
    );
    info.add("", &labels, 1.0);
    let mut build = Metric::new(
        "iolite_build_info",
        MetricKind::Gauge,
        "Always 1: which program this is.",
    );
    let version = identity::redis_version().to_string();
    build.add(
        "",
        &[
            ("version", identity::IOLITE_VERSION),
            ("redis_version", &version),
        ],
        1.0,
    );
    let started_unix = sample.node.process.started_unix_ms / 1000;
    metrics.extend([
        info,
        build,
        gauge(
            "redis_start_time_seconds",
            "When the server started, in seconds since 1970.",
            started_unix as f64,
        ),
    ]);
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn config_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let config = &sample.config;
    metrics.extend([
        gauge(
            "redis_config_maxclients",
            "Clients that are served at a time (maxclients).",
            f64::from(config.clients_max),
        ),
        gauge(
            "redis_config_maxmemory",
            "Most bytes of memory (maxmemory).",
            config.memory_bytes_max as f64,
        ),
        gauge(
            "redis_config_io_threads",
            "Threads that serve clients (threads).",
            f64::from(config.threads_count),
        ),
    ]);
    let help = "Unread output at which a client is closed.";
    let mut bytes = Metric::new(
        "redis_config_client_output_buffer_limit_bytes",
        MetricKind::Gauge,
        help,
    );
    let help = "How long a client may be above the soft limit.";
    let mut seconds = Metric::new(
        "redis_config_client_output_buffer_limit_overcome_seconds",
        MetricKind::Gauge,
        help,
    );
    let limits: [(&str, &OutputLimit); 3] = [
        ("normal", &config.output_limits.normal),
        ("slave", &config.output_limits.replica),
        ("pubsub", &config.output_limits.pubsub),
    ];
    for (class, limit) in limits {
        bytes.add(
            "",
            &[("class", class), ("limit", "hard")],
            limit.hard_bytes as f64,
        );
        bytes.add(
            "",
            &[("class", class), ("limit", "soft")],
            limit.soft_bytes as f64,
        );
        seconds.add(
            "",
            &[("class", class), ("limit", "soft")],
            limit.soft_s as f64,
        );
    }
    metrics.extend([bytes, seconds]);
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn log_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let observer = &sample.node.core.shared.observer;
    let of = |matter| {
        let log = observer.log(matter);
        let newest = log.newest(1).next().map(|entry| (entry.id, entry.value));
        (log.len() as f64, newest)
    };
    let (slow, newest) = of(Matter::Slow);
    let (last_id, last_us) = newest.unwrap_or_default();
    metrics.extend([
        gauge("redis_slowlog_length", "Entries of the slow log.", slow),
        gauge(
            "redis_slowlog_last_id",
            "Number of its last entry.",
            last_id as f64,
        ),
        gauge(
            "redis_last_slow_execution_duration_seconds",
            "How long the command of its last entry took.",
            last_us as f64 / 1e6,
        ),
        gauge(
            "redis_commandlog_slow_length",
            "Entries of the log of slow commands.",
            slow,
        ),
        gauge(
            "redis_commandlog_large_request_length",
            "Entries of the log of large requests.",
            of(Matter::LargeRequest).0,
        ),
        gauge(
            "redis_commandlog_large_reply_length",
            "Entries of the log of large replies.",
            of(Matter::LargeReply).0,
        ),
    ]);
    threshold_metrics(sample, metrics);
}

/// Adds the thresholds of these logs, and their number of entries.
#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn threshold_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let noticed = &sample.config.noticed;
    let [slow, request, reply] = noticed.least;
    let [slow_max, request_max, reply_max] = noticed.entries_max;
    metrics.extend([
        gauge(
            "redis_commandlog_execution_slower_than",
            "From how many microseconds on a command is slow.",
            slow as f64,
        ),
        gauge(
            "redis_commandlog_request_larger_than",
            "From how many bytes on a request is large.",
            request as f64,
        ),
        gauge(
            "redis_commandlog_reply_larger_than",
            "From how many bytes on a reply is large.",
            reply as f64,
        ),
        gauge(
            "redis_commandlog_slow_execution_max_len",
            "Most entries of the log of slow commands.",
            slow_max as f64,
        ),
        gauge(
            "redis_commandlog_large_request_max_len",
            "Most entries of the log of large requests.",
            request_max as f64,
        ),
        gauge(
            "redis_commandlog_large_reply_max_len",
            "Most entries of the log of large replies.",
            reply_max as f64,
        ),
    ]);
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn event_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let help = "When an event took long last, in seconds since 1970.";
    let mut last = Metric::new("redis_latency_spike_last", MetricKind::Gauge, help);
    let mut duration = Metric::new(
        "redis_latency_spike_duration_seconds",
        MetricKind::Gauge,
        "How long it took.",
    );
    for (name, at, _) in sample.node.core.shared.observer.events().latest() {
        last.add("", &[("event_name", name)], at.unix_s as f64);
        duration.add("", &[("event_name", name)], at.ms as f64 / 1000.0);
    }
    metrics.extend([last, duration]);
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn own_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let help = "Time that a worker did not wait.";
    let mut busy = Metric::new(
        "iolite_worker_busy_seconds_total",
        MetricKind::Counter,
        help,
    );
    for (number, worker) in sample.node.workers().iter().enumerate() {
        let ns = worker.counters.cell(Count::BusyNs).get();
        let seconds = ns as f64 / 1e9;
        busy.add("", &[("worker", &number.to_string())], seconds);
        if number == 0 {
            let name = "redis_active_time_main_thread_seconds_total";
            let help = "Time that the first worker did not wait.";
            metrics.push(Metric::new(name, MetricKind::Counter, help).with(seconds));
        }
    }
    let (memory, of) = (sample.memory(), &sample.statistics.memory);
    let mut kinds = Metric::new(
        "iolite_memory_bytes",
        MetricKind::Gauge,
        "Memory by what it is for.",
    );
    let scripts = &sample.node.core.shared.scripts;
    for (kind, bytes) in [
        ("index", of.index_bytes),
        ("records", of.slot_bytes),
        ("long_values", of.long_value_bytes),
        (
            "free_slots",
            of.slot_held_bytes.saturating_sub(of.slot_bytes),
        ),
        ("log", memory.log),
        ("clients", memory.clients),
        ("scripts", scripts.machine_bytes()),
        ("backlog", sample.node.replication.stream.memory_bytes()),
    ] {
        kinds.add("", &[("kind", kind)], bytes as f64);
    }
    let audit = &sample.node.core.shared.observer.audit;
    let help = "Lines of the audit log that were dropped.";
    let dropped = Metric::new(
        "iolite_audit_lines_dropped_total",
        MetricKind::Counter,
        help,
    );
    metrics.extend([busy, kinds, dropped.with(audit.dropped() as f64)]);
}
