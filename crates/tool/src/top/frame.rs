//! The difference between two samples, as a frame of text or as JSON.

use std::fmt::Write as _;

use base::memory_size::human;
use serde_json::{Value, json};

use super::sample::{CommandStat, Sample, part};

/// Width of a frame in columns.
const WIDTH: usize = 80;
/// Maximum number of replicas in a frame.
const REPLICAS_SHOWN: usize = 3;

/// A command's activity between two samples.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    calls_per_s: f64,
    /// Share of the time between the samples, in percent of one core.
    busy_percent: f64,
    us_per_call: f64,
    failed: u64,
    percentiles_us: Option<[f64; 3]>,
}

/// A replica, as its primary reports it.
#[derive(Clone, Debug, PartialEq)]
struct Replica {
    address: String,
    state: String,
    lag_bytes: u64,
}

impl Row {
    fn line(&self) -> String {
        let [p50, p99] = match self.percentiles_us {
            Some([p50, p99, _]) => [format!("{p50:.0}"), format!("{p99:.0}")],
            None => ["-".to_owned(), "-".to_owned()],
        };
        format!(
            "{:<22}{:>11}{:>8.1}{:>10.2}{p50:>9}{p99:>9}{:>9}",
            self.name,
            count(self.calls_per_s),
            self.busy_percent,
            self.us_per_call,
            self.failed
        )
    }
}

impl Replica {
    fn line(&self) -> String {
        format!(
            "  replica {:<28} {:<12} {} behind",
            self.address,
            self.state,
            human(self.lag_bytes)
        )
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    address: String,
    version: String,
    mode: String,
    uptime_s: u64,
    interval_s: f64,
    requests_per_s: f64,
    input_bytes_per_s: f64,
    output_bytes_per_s: f64,
    hits_percent: Option<f64>,
    expired_per_s: f64,
    evicted_per_s: f64,
    keys: u64,
    clients: u64,
    blocked_clients: u64,
    used_bytes: u64,
    limit_bytes: u64,
    resident_bytes: u64,
    role: String,
    link: String,
    offset: u64,
    replicas: Vec<Replica>,
    persistence: String,
    rows: Vec<Row>,
}

impl Frame {
    pub(super) fn between(address: &str, before: &Sample, now: &Sample) -> Self {
        let uptime_s = now.number("uptime_in_seconds").max(1.0);
        let interval_s = match before.at_ns {
            0 => uptime_s,
            at => seconds(now.at_ns.saturating_sub(at)),
        };
        let change = |name: &str| (now.number(name) - before.number(name)).max(0.0);
        let rate = |name: &str| change(name) / interval_s;
        let (hits, misses) = (change("keyspace_hits"), change("keyspace_misses"));
        let version = match (now.text("server_name"), now.text("valkey_version")) {
            ("", _) => format!("redis {}", now.text("redis_version")),
            (name, "") => format!("{name} {}", own_version(now)),
            (name, version) => format!("{name} {version}"),
        };
        let mut rows: Vec<Row> = now
            .commands
            .iter()
            .filter_map(|(name, stat)| row(name, before.commands.get(name), stat, interval_s))
            .collect();
        rows.sort_by(|a, b| b.calls_per_s.total_cmp(&a.calls_per_s));
        Self {
            address: address.to_owned(),
            version,
            mode: now.text("redis_mode").to_owned(),
            uptime_s: whole(uptime_s),
            interval_s,
            requests_per_s: rate("total_commands_processed"),
            input_bytes_per_s: rate("total_net_input_bytes"),
            output_bytes_per_s: rate("total_net_output_bytes"),
            hits_percent: (hits + misses > 0.0).then(|| 100.0 * hits / (hits + misses)),
            expired_per_s: rate("expired_keys"),
            evicted_per_s: rate("evicted_keys"),
            keys: now.keys(),
            clients: whole(now.number("connected_clients")),
            blocked_clients: whole(now.number("blocked_clients")),
            used_bytes: whole(now.number("used_memory")),
            limit_bytes: whole(now.number("maxmemory")),
            resident_bytes: whole(now.number("used_memory_rss")),
            role: now.text("role").to_owned(),
            link: now.text("master_link_status").to_owned(),
            offset: whole(now.number("master_repl_offset")),
            replicas: replicas(now),
            persistence: persistence(now),
            rows,
        }
    }

    /// Returns at most `lines` lines.
    pub(super) fn text(&self, lines: usize) -> String {
        let mut all = self.head();
        all.extend(self.replicas.iter().take(REPLICAS_SHOWN).map(Replica::line));
        all.push(String::new());
        all.push(format!(
            "{:<22}{:>11}{:>8}{:>10}{:>9}{:>9}{:>9}",
            "COMMAND", "CALLS/S", "BUSY %", "US/CALL", "P50 US", "P99 US", "FAILED"
        ));
        all.extend(self.rows.iter().map(Row::line));
        let mut text = String::new();
        for line in all.iter().take(lines) {
            let shown: String = line.chars().take(WIDTH).collect();
            // Writing to a string does not fail.
            let _written = writeln!(text, "{}", shown.trim_end());
        }
        text
    }

    /// Returns the lines above the commands.
    fn head(&self) -> Vec<String> {
        let limit = match self.limit_bytes {
            0 => "no limit".to_owned(),
            limit => format!(
                "{:.0} % of {}",
                100.0 * share(self.used_bytes, limit),
                human(limit)
            ),
        };
        let hits = self.hits_percent.map(|percent| format!("{percent:.1} %"));
        vec![
            format!(
                "{}  {}  {}  up {}",
                self.address,
                self.version,
                self.mode,
                duration(self.uptime_s)
            ),
            format!(
                "requests   {:>10}/s   in {:>9}/s   out {:>9}/s   hits {}",
                count(self.requests_per_s),
                human(whole(self.input_bytes_per_s)),
                human(whole(self.output_bytes_per_s)),
                hits.as_deref().unwrap_or("-")
            ),
            format!(
                "keys       {:>10}     expired {:>6}/s   evicted {:>6}/s",
                self.keys,
                count(self.expired_per_s),
                count(self.evicted_per_s)
            ),
            format!(
                "memory     {:>10}     {limit}   resident {}",
                human(self.used_bytes),
                human(self.resident_bytes)
            ),
            format!(
                "clients    {:>10}     blocked {}",
                self.clients, self.blocked_clients
            ),
            format!("kept       {}", self.persistence),
            self.replication(),
        ]
    }

    fn replication(&self) -> String {
        let link = match self.link.as_str() {
            "" => String::new(),
            link => format!("   link {link}"),
        };
        format!(
            "role       {:>10}     offset {}   replicas {}{link}",
            self.role,
            self.offset,
            self.replicas.len()
        )
    }

    /// Returns the whole frame as one object.
    pub(super) fn json(&self) -> String {
        let commands: Vec<Value> = self.rows.iter().map(row_json).collect();
        let replicas: Vec<Value> = self
            .replicas
            .iter()
            .map(|one| json!({"address": one.address, "state": one.state, "lag_bytes": one.lag_bytes}))
            .collect();
        json!({
            "address": self.address,
            "version": self.version,
            "mode": self.mode,
            "uptime_s": self.uptime_s,
            "interval_s": self.interval_s,
            "requests_per_s": self.requests_per_s,
            "input_bytes_per_s": self.input_bytes_per_s,
            "output_bytes_per_s": self.output_bytes_per_s,
            "hits_percent": self.hits_percent,
            "keys": self.keys,
            "expired_per_s": self.expired_per_s,
            "evicted_per_s": self.evicted_per_s,
            "clients": {"connected": self.clients, "blocked": self.blocked_clients},
            "memory": {
                "used_bytes": self.used_bytes,
                "limit_bytes": self.limit_bytes,
                "resident_bytes": self.resident_bytes,
            },
            "replication": {
                "role": self.role,
                "link": self.link,
                "offset": self.offset,
                "replicas": replicas,
            },
            "persistence": self.persistence,
            "commands": commands,
        })
        .to_string()
    }
}

fn row_json(row: &Row) -> Value {
    let [p50, p99, p999] = match row.percentiles_us {
        Some(all) => all.map(Value::from),
        None => [Value::Null, Value::Null, Value::Null],
    };
    json!({
        "name": row.name,
        "calls_per_s": row.calls_per_s,
        "busy_percent": row.busy_percent,
        "us_per_call": row.us_per_call,
        "failed": row.failed,
        "p50_us": p50,
        "p99_us": p99,
        "p999_us": p999,
    })
}

/// Returns a command's row, if it was called between the samples.
fn row(
    name: &str,
    before: Option<&CommandStat>,
    now: &CommandStat,
    interval_s: f64,
) -> Option<Row> {
    let before = before.copied().unwrap_or_default();
    // After CONFIG RESETSTAT the counts are lower than before.
    let calls = now.calls.saturating_sub(before.calls);
    if calls == 0 {
        return None;
    }
    let busy_us = now.busy_us.saturating_sub(before.busy_us);
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let (calls, busy_us) = (calls as f64, busy_us as f64);
    Some(Row {
        name: name.replace('|', " "),
        calls_per_s: calls / interval_s,
        busy_percent: busy_us / interval_s / 1e4,
        us_per_call: busy_us / calls,
        failed: now.failed.saturating_sub(before.failed),
        percentiles_us: now.percentiles_us,
    })
}

fn own_version(now: &Sample) -> &str {
    match now.text("iolite_version") {
        "" => now.text("redis_version"),
        version => version,
    }
}

fn replicas(now: &Sample) -> Vec<Replica> {
    let offset = whole(now.number("master_repl_offset"));
    let lines = now.fields.iter().filter(|(name, _)| {
        name.strip_prefix("slave")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    });
    lines
        .map(|(_, value)| {
            let text = |name| part(value, name).unwrap_or_default();
            let own: u64 = text("offset").parse().unwrap_or(0);
            Replica {
                address: format!("{}:{}", text("ip"), text("port")),
                state: text("state").to_owned(),
                lag_bytes: offset.saturating_sub(own),
            }
        })
        .collect()
}

fn persistence(now: &Sample) -> String {
    let on = |name| now.text(name) == "1";
    let mut words = Vec::new();
    if on("loading") {
        words.push(format!("loading {} %", now.text("loading_loaded_perc")));
    }
    words.push(match on("aof_enabled") {
        true => format!("log {}", human(whole(now.number("aof_current_size")))),
        false => "no log".to_owned(),
    });
    if on("rdb_bgsave_in_progress") {
        words.push("checkpoint in progress".to_owned());
    }
    words.push(format!(
        "{} changes since the last checkpoint ({})",
        now.text("rdb_changes_since_last_save"),
        now.text("rdb_last_bgsave_status")
    ));
    words.join(", ")
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", seconds % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

fn count(rate: f64) -> String {
    match rate {
        rate if rate >= 1e7 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e5 => format!("{:.1}k", rate / 1e3),
        rate if rate >= 100.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

/// Converts a server's count, which is whole and not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast saturates, and what is below 0 is 0"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[expect(clippy::cast_precision_loss, reason = "a share in percent is shown")]
fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a pause")]
fn seconds(ns: u64) -> f64 {
    (ns as f64 / 1e9).max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ns: u64, text: &str) -> Sample {
        Sample {
            at_ns,
            ..Sample::read(text)
        }
    }

    fn frame() -> Frame {
        let before = sample(
            1_000_000_000,
            "total_commands_processed:100\r\nkeyspace_hits:10\r\ncmdstat_get:calls=50,usec=100,failed_calls=1\r\n\
             cmdstat_set:calls=5,usec=5\r\n",
        );
        let now = sample(
            3_000_000_000,
            "redis_version:7.2.4\r\nserver_name:iolite\r\niolite_version:0.1.0\r\nuptime_in_seconds:90061\r\n\
             total_commands_processed:500\r\nkeyspace_hits:19\r\nkeyspace_misses:1\r\nused_memory:1048576\r\n\
             maxmemory:2097152\r\nrole:master\r\nmaster_repl_offset:2048\r\n\
             slave0:ip=10.0.0.2,port=6379,state=online,offset=1024,lag=0\r\ndb0:keys=7,expires=0\r\ndb3:keys=2\r\n\
             cmdstat_get:calls=450,usec=900,failed_calls=3\r\ncmdstat_set:calls=5,usec=5\r\n\
             latency_percentiles_usec_get:p50=1.003,p99=2.5,p99.9=9.0\r\n",
        );
        Frame::between("127.0.0.1:6379", &before, &now)
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let frame = frame();
        let json: Value = serde_json::from_str(&frame.json()).unwrap();
        assert_eq!(json["requests_per_s"], 200.0);
        assert_eq!(json["hits_percent"], 90.0);
        assert_eq!(json["keys"], 9);
        assert_eq!(json["version"], "iolite 0.1.0");
        assert_eq!(json["replication"]["replicas"][0]["lag_bytes"], 1024);
        // A command without calls is not shown.
        assert_eq!(json["commands"].as_array().unwrap().len(), 1);
        let get = &json["commands"][0];
        assert_eq!(get["calls_per_s"], 200.0);
        assert_eq!(get["us_per_call"], 2.0);
        assert_eq!(get["failed"], 2);
        assert_eq!(get["p99_us"], 2.5);
    }

    #[test]
    fn a_frame_fits_a_small_terminal() {
        let text = frame().text(24);
        assert!(text.lines().count() <= 24);
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.contains("50 % of 2.00M"), "{text}");
        assert!(text.contains("up 1 d 1 h"), "{text}");
        // Without an earlier sample, the frame covers the time since the start of the server.
        let now = sample(5, "uptime_in_seconds:10\r\ntotal_commands_processed:50\r\n");
        let first = Frame::between("x", &Sample::default(), &now);
        assert!((first.requests_per_s - 5.0).abs() < 1e-9);
    }
}
