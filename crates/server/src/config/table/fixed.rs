//! Directives of things this version does not have: only the value that says so is accepted.
//!
//! A row leaves this file when the thing arrives.

use super::super::directive::Directive;
use super::super::value::Kind;
use super::{
    BYTES, COUNT, INT_MAX, LONG_COUNT, LONG_MAX, PORT_MAX, SWITCH, TEXT, UINT_MAX, integer, words,
};

const NO_REPLICATION: &str = "has no replication";
const NO_CLUSTER: &str = "has no cluster mode";
const NO_TLS: &str = "makes no TLS connections to others";
const NO_PINNING: &str = "does not pin threads to processors";
const NO_OOM: &str = "does not change how the kernel ranks it when memory runs out";
const EVICTS_A_LITTLE: &str = "evicts as many keys as each write needs, up to a fixed number";
const NO_SYSLOG: &str = "does not log to syslog";
const NO_WATCHDOG: &str = "has no software watchdog";
const NO_CRASH_LOG: &str = "writes no crash report";
const NO_OUTGOING: &str = "opens no connections of its own";
const HUGE_PAGES: &str = "asks for huge pages only where it wants them";
const NO_USER_DATA: &str = "logs no user data";

/// Words of Redis' files that are no directives with a value, and why they are refused.
pub(in crate::config) const REFUSED_WORDS: &[(&str, &str)] = &[
    ("loadmodule", "loads no modules"),
    ("sentinel", "has no sentinel mode"),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const REPLICATION: &[Directive] = &[
    lacking("replicaof", words(2), "", NO_REPLICATION).aliases(&["slaveof"]).or(&["no one"])
        .at_start(),
    lacking("masterauth", TEXT, "", NO_REPLICATION).secret().aliases(&["primaryauth"]),
    lacking("masteruser", TEXT, "", NO_REPLICATION).aliases(&["primaryuser"]),
    lacking("replica-read-only", SWITCH, "yes", NO_REPLICATION).aliases(&["slave-read-only"]),
    lacking("replica-serve-stale-data", SWITCH, "yes", NO_REPLICATION)
        .aliases(&["slave-serve-stale-data"]),
    lacking("replica-priority", COUNT, "100", NO_REPLICATION).aliases(&["slave-priority"]),
    lacking("replica-announced", SWITCH, "yes", NO_REPLICATION),
    lacking("replica-announce-ip", TEXT, "", NO_REPLICATION).aliases(&["slave-announce-ip"]),
    lacking("replica-announce-port", integer(0, PORT_MAX), "0", NO_REPLICATION)
        .aliases(&["slave-announce-port"]),
    lacking("replica-ignore-maxmemory", SWITCH, "yes", NO_REPLICATION)
        .aliases(&["slave-ignore-maxmemory"]),
    lacking("replica-ignore-disk-write-errors", SWITCH, "no", NO_REPLICATION),
    lacking("replica-lazy-flush", SWITCH, "no", NO_REPLICATION).aliases(&["slave-lazy-flush"]),
    lacking("repl-backlog-size", Kind::Memory { min: 1, max: LONG_MAX }, "1048576", NO_REPLICATION),
    lacking("repl-backlog-ttl", LONG_COUNT, "3600", NO_REPLICATION),
    lacking("repl-disable-tcp-nodelay", SWITCH, "no", NO_REPLICATION),
    lacking("repl-diskless-sync", SWITCH, "yes", NO_REPLICATION),
    lacking("repl-diskless-sync-delay", COUNT, "5", NO_REPLICATION),
    lacking("repl-diskless-sync-max-replicas", COUNT, "0", NO_REPLICATION),
    lacking("repl-diskless-load", Kind::Choice(DISKLESS_LOADS), "disabled", NO_REPLICATION),
    lacking("repl-ping-replica-period", integer(1, INT_MAX), "10", NO_REPLICATION)
        .aliases(&["repl-ping-slave-period"]),
    lacking("repl-timeout", integer(1, INT_MAX), "60", NO_REPLICATION),
    lacking("min-replicas-to-write", COUNT, "0", NO_REPLICATION).aliases(&["min-slaves-to-write"]),
    lacking("min-replicas-max-lag", COUNT, "10", NO_REPLICATION).aliases(&["min-slaves-max-lag"]),
    lacking("propagation-error-behavior", Kind::Choice(ON_ERROR), "ignore", NO_REPLICATION),
    lacking("rdb-del-sync-files", SWITCH, "no", NO_REPLICATION),
    lacking("bind-source-addr", TEXT, "", NO_OUTGOING),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const CLUSTER: &[Directive] = &[
    lacking("cluster-enabled", SWITCH, "no", NO_CLUSTER).at_start(),
    lacking("cluster-config-file", TEXT, "nodes.conf", NO_CLUSTER).at_start(),
    lacking("cluster-port", integer(0, PORT_MAX), "0", NO_CLUSTER).at_start(),
    lacking("cluster-node-timeout", LONG_COUNT, "15000", NO_CLUSTER),
    lacking("cluster-announce-ip", TEXT, "", NO_CLUSTER),
    lacking("cluster-announce-hostname", TEXT, "", NO_CLUSTER),
    lacking("cluster-announce-port", integer(0, PORT_MAX), "0", NO_CLUSTER),
    lacking("cluster-announce-tls-port", integer(0, PORT_MAX), "0", NO_CLUSTER),
    lacking("cluster-announce-bus-port", integer(0, PORT_MAX), "0", NO_CLUSTER),
    lacking("cluster-link-sendbuf-limit", BYTES, "0", NO_CLUSTER),
    lacking("cluster-migration-barrier", COUNT, "1", NO_CLUSTER),
    lacking("cluster-allow-replica-migration", SWITCH, "yes", NO_CLUSTER),
    lacking("cluster-allow-reads-when-down", SWITCH, "no", NO_CLUSTER),
    lacking("cluster-allow-pubsubshard-when-down", SWITCH, "yes", NO_CLUSTER),
    lacking("cluster-require-full-coverage", SWITCH, "yes", NO_CLUSTER),
    lacking("cluster-replica-no-failover", SWITCH, "no", NO_CLUSTER)
        .aliases(&["cluster-slave-no-failover"]),
    lacking("cluster-replica-validity-factor", COUNT, "10", NO_CLUSTER)
        .aliases(&["cluster-slave-validity-factor"]),
    lacking("cluster-preferred-endpoint-type", Kind::Choice(ENDPOINTS), "ip", NO_CLUSTER),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const SECURITY: &[Directive] = &[
    lacking("tls-cluster", SWITCH, "no", NO_TLS),
    lacking("tls-replication", SWITCH, "no", NO_TLS),
    lacking("tls-client-cert-file", TEXT, "", NO_TLS),
    lacking("tls-client-key-file", TEXT, "", NO_TLS),
    lacking("tls-client-key-file-pass", TEXT, "", NO_TLS).secret(),
    lacking("hide-user-data-from-log", SWITCH, "yes", NO_USER_DATA).or(&["no"]),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const MACHINE: &[Directive] = &[
    lacking("maxmemory-eviction-tenacity", integer(0, 100), "10", EVICTS_A_LITTLE),
    lacking("disable-thp", SWITCH, "yes", HUGE_PAGES).at_start(),
    lacking("oom-score-adj", Kind::Choice(OOM_RANKS), "no", NO_OOM),
    lacking("oom-score-adj-values", words(3), "0 200 800", NO_OOM),
    lacking("server-cpulist", TEXT, "", NO_PINNING).aliases(&["server_cpulist"]).at_start(),
    lacking("bio-cpulist", TEXT, "", NO_PINNING).aliases(&["bio_cpulist"]).at_start(),
    lacking("aof-rewrite-cpulist", TEXT, "", NO_PINNING).aliases(&["aof_rewrite_cpulist"])
        .at_start(),
    lacking("bgsave-cpulist", TEXT, "", NO_PINNING).aliases(&["bgsave_cpulist"]).at_start(),
    lacking("unixsocketgroup", TEXT, "", "sets no group for its socket").at_start(),
    lacking("socket-mark-id", integer(0, UINT_MAX), "0", "does not mark its sockets").at_start(),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const OBSERVATION: &[Directive] = &[
    lacking("crash-log-enabled", SWITCH, "yes", NO_CRASH_LOG).or(&["no"]),
    lacking("crash-memcheck-enabled", SWITCH, "yes", NO_CRASH_LOG).or(&["no"]),
    lacking("watchdog-period", COUNT, "0", NO_WATCHDOG),
    lacking("syslog-enabled", SWITCH, "no", NO_SYSLOG).at_start(),
    lacking("syslog-ident", TEXT, "redis", NO_SYSLOG).at_start(),
    lacking("syslog-facility", Kind::Choice(FACILITIES), "local0", NO_SYSLOG).at_start(),
];

const DISKLESS_LOADS: &[&str] = &["disabled", "on-empty-db", "swapdb"];
const ON_ERROR: &[&str] = &["ignore", "panic", "panic-on-replicas"];
const ENDPOINTS: &[&str] = &["ip", "hostname", "unknown-endpoint"];
const OOM_RANKS: &[&str] = &["no", "yes", "relative", "absolute"];
const FACILITIES: &[&str] = &[
    "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

const fn lacking(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    lacks: &'static str,
) -> Directive {
    Directive::new(name, kind, default).fixed(lacks)
}
