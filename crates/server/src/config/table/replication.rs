//! Directives of replication: those with an effect, those without, and those with only one value.

use super::super::directive::Directive;
use super::super::value::{Kind, Value};
use super::{BYTES, COUNT, INT_MAX, LONG_COUNT, LONG_MAX, PORT_MAX, SWITCH, TEXT, integer, words};

const FROM_DISK: &str = "replicas are given a checkpoint, which is on disk";
const SHARED: &str = "replicas that wait share a checkpoint, whenever they came";
const NEVER_EVICTS: &str = "a replica removes nothing by itself";
const FLUSHED_BESIDE: &str = "what a full sync replaces is freed beside the commands";
const WHOLE_PIECES: &str = "the stream is sent in pieces as large as there are";
const ONE_CHANNEL: &str = "the stream begins where the checkpoint ends, in the log";
const NO_LEFTOVERS: &str = "files of a full sync that are no checkpoint of ours are always removed";
const STOPS: &str = "a disk that cannot be written pauses the link and heals by itself";
const READ_ONLY: &str =
    "writes to a replica what its primary wrote and nothing else, so that both have one log";
const NO_MPTCP: &str = "links are plain TCP";
const NO_PANIC: &str = "ends the link where a command of the primary fails, whatever it is";

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    Directive::new("replicaof", words(2), "").aliases(&["slaveof"]).admit(port_of_a_primary).at_start(),
    Directive::new("masterauth", TEXT, "").secret().aliases(&["primaryauth"]),
    Directive::new("masteruser", TEXT, "").aliases(&["primaryuser"]),
    Directive::new("min-replicas-to-write", COUNT, "0").aliases(&["min-slaves-to-write"]),
    Directive::new("min-replicas-max-lag", COUNT, "10").aliases(&["min-slaves-max-lag"]),
    Directive::new("repl-max-lag-bytes", BYTES, "0"),
    Directive::new("replica-serve-stale-data", SWITCH, "yes").aliases(&["slave-serve-stale-data"]),
    Directive::new("replica-priority", COUNT, "100").aliases(&["slave-priority"]),
    Directive::new("replica-announced", SWITCH, "yes"),
    Directive::new("replica-announce-ip", TEXT, "").aliases(&["slave-announce-ip"]),
    Directive::new("replica-announce-port", integer(0, PORT_MAX), "0")
        .aliases(&["slave-announce-port"]),
    Directive::new("repl-port", integer(0, PORT_MAX), "0").at_start(),
    Directive::new("repl-link-plaintext", SWITCH, "no").at_start(),
    Directive::new("repl-tls", Kind::Choice(ENCRYPTS), "auto").at_start(),
    Directive::new("tls-replication", SWITCH, "no").at_start(),
    Directive::new("tls-cluster", SWITCH, "no").at_start(),
    Directive::new("cluster-secret", TEXT, "").secret(),
    Directive::new("repl-log-keep", BYTES, "0"),
    Directive::new("repl-verify-interval", COUNT, "86400"),
    Directive::new("repl-backlog-size", Kind::Memory { min: 1, max: LONG_MAX }, "67108864"),
    Directive::new("repl-backlog-ttl", LONG_COUNT, "3600"),
    Directive::new("repl-ping-replica-period", integer(1, INT_MAX), "10")
        .aliases(&["repl-ping-slave-period"]),
    Directive::new("shutdown-timeout", COUNT, "10"),
    Directive::new("repl-timeout", integer(1, INT_MAX), "60"),
    Directive::new("repl-peer", Kind::Choice(PEERS), "redis-7").at_start(),
    Directive::new("repl-peer-loss", Kind::Choice(ON_LOSS), "refuse").at_start(),
    Directive::new("repl-diskless-load", Kind::Choice(DISKLESS_LOADS), "disabled"),
    Directive::new("replica-accept-older-primary", SWITCH, "no"),
    Directive::new("replica-unknown-command", Kind::Choice(ON_UNKNOWN), "stop"),
    Directive::new("replica-read-only", SWITCH, "yes").fixed(READ_ONLY).aliases(&["slave-read-only"]),
    Directive::new("propagation-error-behavior", Kind::Choice(ON_ERROR), "ignore").fixed(NO_PANIC),
    accepted("replica-ignore-maxmemory", SWITCH, "yes", NEVER_EVICTS)
        .aliases(&["slave-ignore-maxmemory"]),
    accepted("replica-ignore-disk-write-errors", SWITCH, "no", STOPS),
    accepted("replica-lazy-flush", SWITCH, "no", FLUSHED_BESIDE).aliases(&["slave-lazy-flush"]),
    accepted("repl-disable-tcp-nodelay", SWITCH, "no", WHOLE_PIECES),
    accepted("repl-diskless-sync", SWITCH, "yes", FROM_DISK),
    accepted("repl-diskless-sync-delay", COUNT, "5", SHARED),
    accepted("repl-diskless-sync-max-replicas", COUNT, "0", SHARED),
    accepted("dual-channel-replication-enabled", SWITCH, "no", ONE_CHANNEL),
    accepted("rdb-del-sync-files", SWITCH, "no", NO_LEFTOVERS),
    accepted("repl-rdb-channel", SWITCH, "no", ONE_CHANNEL),
    accepted("repl-mptcp", SWITCH, "no", NO_MPTCP).at_start(),
    accepted("replica-full-sync-buffer-limit", BYTES, "0", FROM_DISK),
];

const DISKLESS_LOADS: &[&str] = &["disabled", "on-empty-db", "swapdb", "flush-before-load"];
const PEERS: &[&str] = &[
    "redis-7",
    "redis-6.2",
    "redis-7.2",
    "redis-7.4",
    "redis-8",
    "valkey-8",
    "valkey-9",
];
const ON_LOSS: &[&str] = &["refuse", "allow"];
const ENCRYPTS: &[&str] = &["auto", "yes", "no"];
const ON_UNKNOWN: &[&str] = &["stop", "skip"];
const ON_ERROR: &[&str] = &["ignore", "panic", "panic-on-replicas"];

/// A host and a port, or none.
fn port_of_a_primary(value: Value) -> Result<Value, String> {
    let Value::Words(words) = &value else {
        return Ok(value);
    };
    match words.as_slice() {
        [] => Ok(value),
        [_] => Err("wrong number of arguments".to_owned()),
        [host, port, ..] => {
            let is_nobody = host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one");
            let port = std::str::from_utf8(port)
                .ok()
                .and_then(|port| port.parse().ok());
            let is_port = port.is_some_and(|port: i128| (0..=PORT_MAX).contains(&port));
            if is_nobody {
                Ok(Value::Words(Vec::new()))
            } else if is_port {
                Ok(value)
            } else {
                Err("Invalid master port".to_owned())
            }
        }
    }
}

const fn accepted(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reason: &'static str,
) -> Directive {
    Directive::new(name, kind, default).without_effect(reason)
}
