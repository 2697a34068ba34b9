//! `stats`, computed from the text of INFO.

use protocol::ReplyBuffer;

/// Names of memcached, and the fields of INFO that hold their values.
const FIELDS: &[(&str, &str)] = &[
    ("pid", "process_id"),
    ("uptime", "uptime_in_seconds"),
    ("pointer_size", "arch_bits"),
    ("threads", "worker_threads"),
    ("rusage_user", "used_cpu_user"),
    ("rusage_system", "used_cpu_sys"),
    ("max_connections", "maxclients"),
    ("curr_connections", "connected_clients"),
    ("total_connections", "total_connections_received"),
    ("rejected_connections", "rejected_connections"),
    ("get_hits", "keyspace_hits"),
    ("get_misses", "keyspace_misses"),
    ("bytes_read", "total_net_input_bytes"),
    ("bytes_written", "total_net_output_bytes"),
    ("limit_maxbytes", "maxmemory"),
    ("bytes", "used_memory"),
    ("evictions", "evicted_keys"),
    ("expired", "expired_keys"),
];

/// Names of memcached, and the commands whose calls they count.
const CALLS: &[(&str, &[&str])] = &[
    ("cmd_get", &["mcget", "mcgat"]),
    ("cmd_set", &["mcset"]),
    ("cmd_flush", &["flushdb"]),
    ("cmd_touch", &["mcgat"]),
];

/// Writes `STAT` lines. `version` is the same as in the reply of the command `version`.
pub(crate) fn write(info: &[u8], version: &str, out: &mut ReplyBuffer) {
    let info = String::from_utf8_lossy(info);
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let mut stat = |name: &str, value: &str| {
        out.push_slice(format!("STAT {name} {value}\r\n").as_bytes());
    };
    stat("version", version);
    let time = field("server_time_usec").and_then(|text| text.parse::<u64>().ok());
    if let Some(time_us) = time {
        stat("time", &(time_us / 1_000_000).to_string());
    }
    for (name, from) in FIELDS {
        if let Some(value) = field(from) {
            stat(name, value);
        }
    }
    for (name, commands) in CALLS {
        let calls = commands.iter().filter_map(|command| {
            let text = field(&format!("cmdstat_{command}"))?;
            number_of(text, "calls")
        });
        let sum = calls.fold(0_u64, u64::saturating_add);
        stat(name, &sum.to_string());
    }
    let items = field("db0").and_then(|text| number_of(text, "keys"));
    stat("curr_items", &items.unwrap_or_default().to_string());
    out.push_slice(b"END\r\n");
}

/// Returns the number after `name=` in a text such as `calls=3,usec=9`.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let mut parts = text.split(',');
    let value = parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok())
}
