//! Families that are told by others: replication, encrypted connections, and what only metrics have.

use engine::observer::Matter;

use super::metrics::{Metric, MetricKind};
use super::row::{described, zero};
use super::{Family, Item, Sample, Unit, memory};
use crate::config::OutputLimit;
use crate::counters::Count;
use crate::identity;

pub(super) const REPLICATION: &[Item] = &[Item::Family(Family {
    info: "<field of replication>",
    help: "Role, primary, replicas and stream: Redis' fields in its order, and after them ours.",
    lines: |sample, show| {
        for (name, value) in sample.node.replication.fields(sample.node) {
            show(&name, &value);
        }
    },
    described: REPLICATION_DESCRIBED,
    metrics: replication_metrics,
})];

/// Fields of INFO replication that are numbers, and their metrics.
const REPLICATION_GAUGES: &[(&str, &str, &str, &str)] = &[
    (
        "connected_slaves",
        "redis_connected_slaves",
        "redis.slaves.connected",
        "Replicas that are connected.",
    ),
    (
        "master_repl_offset",
        "redis_master_repl_offset",
        "redis.replication.offset",
        "Offset of the stream.",
    ),
    (
        "second_repl_offset",
        "redis_second_repl_offset",
        "iolite.second_repl_offset",
        "Up to where the stream had its second name.",
    ),
    (
        "repl_backlog_active",
        "redis_repl_backlog_is_active",
        "iolite.repl_backlog_active",
        "Whether there is a backlog.",
    ),
    (
        "repl_backlog_size",
        "redis_replication_backlog_bytes",
        "iolite.repl_backlog_size",
        "Bytes that the backlog may have (repl-backlog-size).",
    ),
    (
        "repl_backlog_first_byte_offset",
        "redis_repl_backlog_first_byte_offset",
        "redis.replication.backlog_first_byte_offset",
        "The first offset of the backlog.",
    ),
    (
        "repl_backlog_histlen",
        "redis_repl_backlog_history_bytes",
        "iolite.repl_backlog_histlen",
        "Bytes in the backlog.",
    ),
    (
        "slave_priority",
        "redis_slave_priority",
        "iolite.slave_priority",
        "Which replica is promoted first (replica-priority).",
    ),
    (
        "min_slaves_good_slaves",
        "iolite_replicas_good",
        "iolite.replicas_good",
        "Replicas that are close enough behind (min-replicas-max-lag).",
    ),
    (
        "master_link_down_since_seconds",
        "iolite_primary_link_down_seconds",
        "iolite.primary_link_down",
        "For how long the link to the primary is down.",
    ),
];

/// Fields about the primary, with its address as labels.
const PRIMARY_GAUGES: &[(&str, &str, &str)] = &[
    (
        "master_link_status",
        "redis_master_link_up",
        "Whether the link to the primary is up.",
    ),
    (
        "master_last_io_seconds_ago",
        "redis_master_last_io_seconds_ago",
        "When the primary was heard last.",
    ),
    (
        "master_sync_in_progress",
        "redis_master_sync_in_progress",
        "Whether everything is being read from the primary.",
    ),
    (
        "slave_repl_offset",
        "redis_slave_repl_offset",
        "Offset up to which the primary's stream was applied.",
    ),
];

const REPLICATION_DESCRIBED: &[super::row::Described] = &[
    described(
        "redis_connected_slaves",
        "gauge",
        "",
        "Replicas that are connected.",
    ),
    described(
        "redis_master_repl_offset",
        "gauge",
        "",
        "Offset of the stream.",
    ),
    described(
        "redis_second_repl_offset",
        "gauge",
        "",
        "Up to where the stream had its second name.",
    ),
    described(
        "redis_repl_backlog_is_active",
        "gauge",
        "",
        "Whether there is a backlog.",
    ),
    described(
        "redis_replication_backlog_bytes",
        "gauge",
        "",
        "Bytes that the backlog may have (repl-backlog-size).",
    ),
    described(
        "redis_repl_backlog_first_byte_offset",
        "gauge",
        "",
        "The first offset of the backlog.",
    ),
    described(
        "redis_repl_backlog_history_bytes",
        "gauge",
        "",
        "Bytes in the backlog.",
    ),
    described(
        "redis_slave_priority",
        "gauge",
        "",
        "Which replica is promoted first (replica-priority).",
    ),
    described(
        "iolite_replicas_good",
        "gauge",
        "",
        "Replicas that are close enough behind (min-replicas-max-lag).",
    ),
    described(
        "iolite_primary_link_down_seconds",
        "gauge",
        "",
        "For how long the link to the primary is down.",
    ),
    described(
        "redis_master_link_up",
        "gauge",
        "master_host, master_port",
        "Whether the link to the primary is up.",
    ),
    described(
        "redis_master_last_io_seconds_ago",
        "gauge",
        "master_host, master_port",
        "When the primary was heard last.",
    ),
    described(
        "redis_master_sync_in_progress",
        "gauge",
        "master_host, master_port",
        "Whether everything is being read from the primary.",
    ),
    described(
        "redis_slave_repl_offset",
        "gauge",
        "master_host, master_port",
        "Offset up to which the primary's stream was applied.",
    ),
    described(
        "redis_connected_slave_offset_bytes",
        "gauge",
        "slave_ip, slave_port, slave_state",
        "Offset that a replica has acknowledged.",
    ),
    described(
        "redis_connected_slave_lag_seconds",
        "gauge",
        "slave_ip, slave_port, slave_state",
        "Seconds since a replica was heard.",
    ),
    described(
        "redis_slave_info",
        "gauge",
        "master_host, master_port, read_only",
        "Always 1: whom this replica follows.",
    ),
];

fn replication_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let fields = sample.node.replication.fields(sample.node);
    let field = |wanted: &str| {
        let found = fields.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str())
    };
    for (name, metric, otel, help) in REPLICATION_GAUGES {
        if let Some(value) = field(name).and_then(|value| value.parse().ok()) {
            let mut metric = Metric::new(metric, MetricKind::Gauge, help).with(value);
            metric.otel = Some((*otel).to_owned());
            metrics.push(metric);
        }
    }
    if let (Some(host), Some(port)) = (field("master_host"), field("master_port")) {
        for (name, metric, help) in PRIMARY_GAUGES {
            let Some(value) = field(name) else { continue };
            let value = match value {
                "up" => 1.0,
                "down" => 0.0,
                number => number.parse().unwrap_or(0.0),
            };
            let mut metric = Metric::new(metric, MetricKind::Gauge, help);
            metric.add("", &[("master_host", host), ("master_port", port)], value);
            metrics.push(metric);
        }
        let help = "Always 1: whom this replica follows.";
        let mut info = Metric::new("redis_slave_info", MetricKind::Gauge, help);
        let read_only = field("slave_read_only").unwrap_or("1");
        info.add(
            "",
            &[
                ("master_host", host),
                ("master_port", port),
                ("read_only", read_only),
            ],
            1.0,
        );
        metrics.push(info);
    }
    replicas(&fields, metrics);
}

/// Of the lines `slave<n>:ip=...,port=...`.
fn replicas(fields: &[(String, String)], metrics: &mut Vec<Metric>) {
    let help = "Offset that a replica has acknowledged.";
    let mut offset = Metric::new(
        "redis_connected_slave_offset_bytes",
        MetricKind::Gauge,
        help,
    );
    let help = "Seconds since a replica was heard.";
    let mut lag = Metric::new("redis_connected_slave_lag_seconds", MetricKind::Gauge, help);
    let is_line = |name: &str| {
        let number = name.strip_prefix("slave").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    for (_, line) in fields.iter().filter(|(name, _)| is_line(name)) {
        let part = |wanted: &str| {
            let mut parts = line.split(',').filter_map(|part| part.split_once('='));
            parts
                .find(|(name, _)| *name == wanted)
                .map_or("", |(_, value)| value)
        };
        let labels = [
            ("slave_ip", part("ip")),
            ("slave_port", part("port")),
            ("slave_state", part("state")),
        ];
        offset.add("", &labels, part("offset").parse().unwrap_or(0.0));
        lag.add("", &labels, part("lag").parse().unwrap_or(0.0));
    }
    metrics.extend([offset, lag]);
}

pub(super) const TLS: &[Item] = &[Item::Family(Family {
    info: "tls_<field>",
    help: "Serial and seconds left of certificates, and handshakes.",
    lines: |sample, show| {
        for line in tls_text(sample).lines() {
            if let Some((name, value)) = line.split_once(':') {
                show(name, value);
            }
        }
    },
    described: &[
        described(
            "iolite_tls_certificate_expires_seconds",
            "gauge",
            "whose",
            "Seconds until a certificate ends; 0 once it has, or where there is none.",
        ),
        described(
            "iolite_tls_handshakes_total",
            "counter",
            "outcome",
            "Handshakes, by how they ended.",
        ),
    ],
    metrics: tls_metrics,
})];

fn tls_text(sample: &Sample<'_>) -> String {
    sample.node.process.secret.info(sample.now_unix_us / 1000)
}

fn tls_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let text = tls_text(sample);
    let value = |wanted: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(name, _)| *name == wanted);
        found
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(0.0)
    };
    let help = "Seconds until a certificate ends; 0 once it has, or where there is none.";
    let mut left = Metric::new(
        "iolite_tls_certificate_expires_seconds",
        MetricKind::Gauge,
        help,
    );
    for whose in ["server", "ca"] {
        left.add(
            "",
            &[("whose", whose)],
            value(&format!("tls_{whose}_cert_expires_in_seconds")),
        );
    }
    let mut ended = Metric::new(
        "iolite_tls_handshakes_total",
        MetricKind::Counter,
        "Handshakes, by how they ended.",
    );
    for outcome in ["completed", "resumed", "failed"] {
        ended.add(
            "",
            &[("outcome", outcome)],
            value(&format!("tls_handshakes_{outcome}")),
        );
    }
    metrics.extend([left, ended]);
}

pub(super) const CLUSTER: &[Item] = &[zero(
    "cluster_enabled",
    "redis_cluster_enabled",
    Unit::Switch,
    "Always 0: this server is no part of a cluster.",
)];

pub(super) const METRICS_ONLY: &[Item] = &[Item::Family(Family {
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
        ("redis_build_id", identity::build_id().to_string()),
        ("redis_mode", "standalone".to_owned()),
        ("os", crate::process::operating_system().to_string()),
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
    let observer = &sample.node.core.settings.observer;
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
    for (name, at, _) in sample.node.core.settings.observer.events().latest() {
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
        busy.add("", &[("worker", &number.to_string())], ns as f64 / 1e9);
    }
    let (memory, of) = (sample.memory(), &sample.statistics.memory);
    let mut kinds = Metric::new(
        "iolite_memory_bytes",
        MetricKind::Gauge,
        "Memory by what it is for.",
    );
    let scripts = &sample.node.core.settings.scripts;
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
    let audit = &sample.node.core.settings.observer.audit;
    let help = "Lines of the audit log that were dropped.";
    let dropped = Metric::new(
        "iolite_audit_lines_dropped_total",
        MetricKind::Counter,
        help,
    );
    metrics.extend([busy, kinds, dropped.with(audit.dropped() as f64)]);
}
