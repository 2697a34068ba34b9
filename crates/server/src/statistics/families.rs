//! Families whose values come from other parts: replication and encrypted connections.

use super::metrics::{Metric, MetricKind};
use super::row::{Family, Item, Unit};
use super::row::{described, gauge};
use super::sample::Sample;

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

/// Fields about the primary. Their label is its address.
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

/// Adds the metrics of the lines `slave<n>:ip=...,port=...`.
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
    sample.node.process.tls.info(sample.now_unix_us / 1000)
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

pub(super) const CLUSTER: &[Item] = &[gauge(
    "cluster_enabled",
    "redis_cluster_enabled",
    Unit::Switch,
    "Whether the server is part of a cluster.",
    |s| s.config.cluster.is_on.into(),
)];
