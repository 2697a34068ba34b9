//! Directives that have an effect.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use engine::Promotion;
use reactor::RING_DEPTH_MAX;
use reactor::workers::available_cores;
use tier::Compression;

use super::super::directive::Directive;
use super::super::fields::{EvictionPolicy, OomScore, Permission, Supervised};
use super::super::tier::TierIo;
use super::super::value::{Kind, Value};
use super::{
    BYTES, COUNT, INT_MAX, INT_MIN, LONG_BYTES, LONG_COUNT, LONG_MAX, PORT_MAX, SWITCH, TEXT,
    UINT_MAX, integer, words,
};
use crate::identity::REDIS_VERSION;
use crate::log::Level;
use base::os_error::system_reason;

/// Maximum number of addresses of `bind`.
const ADDRESSES_MAX: usize = 16;
/// Maximum number of databases: their numbers have 16 bits.
const DATABASES_MAX: i128 = 65_535;
/// Maximum number of worker threads.
const THREADS_MAX: i128 = 128;
/// Range of housekeeping turns per second; values outside are clamped.
const HZ: (i128, i128) = (1, 500);
/// Number of scores in `oom-score-adj-values`: for a primary, a replica and a child.
const OOM_SCORES_COUNT: usize = 3;
const OOM_SCORE_MAX: i32 = 2000;
/// Minimum of the limits on a client's input.
const INPUT_LIMIT_MIN: i128 = 1 << 20;

/// Spellings of [`Permission`].
pub(crate) const PERMISSIONS: [(&str, Permission); 3] = [
    ("no", Permission::No),
    ("yes", Permission::Yes),
    ("local", Permission::Local),
];
/// Spellings of whether new users may use all channels.
pub(crate) const CHANNEL_DEFAULTS: [(&str, bool); 2] =
    [("allchannels", true), ("resetchannels", false)];
/// Spellings of [`Supervised`].
pub(crate) const SUPERVISORS: [(&str, Supervised); 4] = [
    ("upstart", Supervised::Upstart),
    ("systemd", Supervised::Systemd),
    ("auto", Supervised::Auto),
    ("no", Supervised::No),
];
/// Spellings of [`Level`].
pub(crate) const LEVELS: [(&str, Level); 5] = [
    ("debug", Level::Debug),
    ("verbose", Level::Verbose),
    ("notice", Level::Notice),
    ("warning", Level::Warning),
    ("nothing", Level::Nothing),
];
/// Facilities of the machine's log, with the numbers of RFC 3164.
pub(crate) const FACILITIES: [(&str, u8); 9] = [
    ("user", 1),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];
/// Spellings of [`EvictionPolicy`].
pub(crate) const EVICTION_POLICIES: [(&str, EvictionPolicy); 8] = [
    ("volatile-lru", EvictionPolicy::VolatileLru),
    ("volatile-lfu", EvictionPolicy::VolatileLfu),
    ("volatile-random", EvictionPolicy::VolatileRandom),
    ("volatile-ttl", EvictionPolicy::VolatileTtl),
    ("allkeys-lru", EvictionPolicy::AllKeysLru),
    ("allkeys-lfu", EvictionPolicy::AllKeysLfu),
    ("allkeys-random", EvictionPolicy::AllKeysRandom),
    ("noeviction", EvictionPolicy::NoEviction),
];

/// Spellings of [`OomScore`].
pub(crate) const OOM_SCORES: [(&str, OomScore); 4] = [
    ("no", OomScore::Left),
    ("yes", OomScore::Relative),
    ("relative", OomScore::Relative),
    ("absolute", OomScore::Absolute),
];

pub(super) const PERMISSION: Kind = Kind::Choice(&spellings(PERMISSIONS));
const CHANNEL_DEFAULT: Kind = Kind::Choice(&spellings(CHANNEL_DEFAULTS));
const FACILITY: Kind = Kind::Choice(&spellings(FACILITIES));
const SUPERVISOR: Kind = Kind::Choice(&spellings(SUPERVISORS));
const LEVEL: Kind = Kind::Choice(&spellings(LEVELS));
const OOM_SCORE: Kind = Kind::Choice(&spellings(OOM_SCORES));
const EVICTION_POLICY: Kind = Kind::Choice(&spellings(EVICTION_POLICIES));
/// Maximum number of patterns that filter the audit log.
const PATTERNS_MAX: usize = 64;
const PATTERNS: Kind = words(PATTERNS_MAX);
const ADDRESSES: Kind = Kind::Words {
    max: ADDRESSES_MAX,
    excess: "Too many bind addresses specified.",
};
const PERCENTILES: Kind = Kind::Words {
    max: 100,
    excess: "wrong number of arguments",
};
/// Longer than any kernel takes to wake a thread.
const BUSY_POLL_US_MAX: i128 = 1_000;
const OUTPUT_LIMITS_DEFAULT: &str =
    "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
/// A memory size of at least one byte.
const SOME_BYTES: Kind = Kind::Memory {
    min: 1,
    max: LONG_MAX,
};
const INPUT_LIMIT: Kind = Kind::Memory {
    min: INPUT_LIMIT_MIN,
    max: LONG_MAX,
};

/// 1 KiB to 512 MiB; memcached's default is 1 MiB.
const ITEM: Kind = Kind::Memory {
    min: 1 << 10,
    max: 512 << 20,
};

#[rustfmt::skip] // One row, one directive.
pub(super) const MEMCACHED: &[Directive] = &[
    // Only at start, because workers recognise its connections by the port.
    Directive::new("memcached-port", integer(0, PORT_MAX), "0").at_start(),
    Directive::new("memcached-user", TEXT, ""),
    Directive::new("memcached-item-size-max", ITEM, "1048576"),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const NETWORK: &[Directive] = &[
    Directive::new("bind", ADDRESSES, "127.0.0.1 -::1"),
    Directive::new("port", integer(0, PORT_MAX), "6379"),
    Directive::new("unixsocket", TEXT, "").at_start(),
    Directive::new("unixsocketperm", Kind::Mode { max: 0o777 }, "0").at_start(),
    Directive::new("tcp-backlog", COUNT, "511").at_start(),
    Directive::new("tcp-keepalive", COUNT, "300"),
    Directive::new("timeout", COUNT, "0"),
    Directive::new("maxclients", integer(1, UINT_MAX), "10000"),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const SECURITY: &[Directive] = &[
    Directive::new("protected-mode", SWITCH, "yes"),
    Directive::new("requirepass", TEXT, "").secret(),
    Directive::new("enable-debug-command", PERMISSION, "no").at_start(),
    Directive::new("enable-protected-configs", PERMISSION, "no").at_start(),
    Directive::new("audit-log-file", TEXT, "").at_start(),
    Directive::new("audit-log-users", PATTERNS, ""),
    Directive::new("audit-log-categories", PATTERNS, ""),
    Directive::new("audit-log-keys", PATTERNS, ""),
    Directive::new("audit-log-rate", integer(1, INT_MAX), "1000"),
    Directive::new("aclfile", TEXT, "").at_start(),
    Directive::new("acl-pubsub-default", CHANNEL_DEFAULT, "resetchannels"),
    Directive::new("acllog-max-len", LONG_COUNT, "128"),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const PROCESS: &[Directive] = &[
    Directive::new("databases", integer(1, INT_MAX), "16").at_start().admit(numbered_databases),
    Directive::new("threads", integer(0, THREADS_MAX), "0").aliases(&["io-threads"]).at_start()
        .admit(threads_of_the_machine),
    Directive::new("busy-poll-us", integer(0, BUSY_POLL_US_MAX), "50").at_start(),
    Directive::new("key-load-delay", integer(INT_MIN, INT_MAX), "0").hidden(),
    Directive::new("rdb-key-save-delay", integer(INT_MIN, INT_MAX), "0").hidden(),
    Directive::new("hz", COUNT, "10").admit(hz_in_range),
    Directive::new("dir", TEXT, "./").protected().admit(existing_directory),
    Directive::new("loglevel", LEVEL, "notice"),
    Directive::new("logfile", TEXT, "").at_start(),
    Directive::new("syslog-enabled", SWITCH, "no").at_start(),
    Directive::new("syslog-ident", TEXT, "redis").at_start(),
    Directive::new("syslog-facility", FACILITY, "local0").at_start(),
    Directive::new("daemonize", SWITCH, "no").at_start(),
    Directive::new("supervised", SUPERVISOR, "no").at_start(),
    Directive::new("pidfile", TEXT, "").at_start(),
    Directive::new("always-show-logo", SWITCH, "no").at_start(),
    Directive::new("availability-zone", TEXT, ""),
    Directive::new("redis-version", TEXT, REDIS_VERSION).at_start().admit(three_numbers),
    Directive::new("oom-score-adj", OOM_SCORE, "no").admit(one_name_for_relative),
    Directive::new("oom-score-adj-values", words(3), "0 200 800").admit(oom_scores),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const MEMORY: &[Directive] = &[
    Directive::new("maxmemory", BYTES, "0"),
    Directive::new("maxmemory-policy", EVICTION_POLICY, "noeviction"),
    Directive::new("maxmemory-samples", integer(1, INT_MAX), "5"),
    Directive::new("maxmemory-eviction-tenacity", integer(0, 100), "10"),
    Directive::new("maxmemory-clients", Kind::MemoryOrPercent, "0"),
    Directive::new("lfu-log-factor", COUNT, "10"),
    Directive::new("lfu-decay-time", COUNT, "1"),
    Directive::new("activedefrag", SWITCH, "no"),
    Directive::new("active-defrag-ignore-bytes", SOME_BYTES, "104857600"),
    Directive::new("active-defrag-threshold-lower", integer(0, 1000), "10"),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const LIMITS: &[Directive] = &[
    Directive::new("client-query-buffer-limit", INPUT_LIMIT, "1073741824"),
    Directive::new("client-output-buffer-limit", Kind::OutputLimits, OUTPUT_LIMITS_DEFAULT),
    Directive::new("proto-max-bulk-len", INPUT_LIMIT, "536870912"),
    Directive::new("rdbcompression", SWITCH, "yes"),
];

const AT_LEAST: Kind = integer(-1, LONG_MAX);

#[rustfmt::skip] // One row, one directive.
pub(super) const OBSERVATION: &[Directive] = &[
    Directive::new("slowlog-log-slower-than", AT_LEAST, "10000")
        .aliases(&["commandlog-execution-slower-than"]),
    Directive::new("slowlog-max-len", LONG_COUNT, "128")
        .aliases(&["commandlog-slow-execution-max-len"]),
    Directive::new("commandlog-request-larger-than", AT_LEAST, "1048576"),
    Directive::new("commandlog-large-request-max-len", LONG_COUNT, "128"),
    Directive::new("commandlog-reply-larger-than", AT_LEAST, "1048576"),
    Directive::new("commandlog-large-reply-max-len", LONG_COUNT, "128"),
    Directive::new("latency-monitor-threshold", LONG_COUNT, "0"),
    Directive::new("busy-reply-threshold", LONG_COUNT, "5000").aliases(&["lua-time-limit"]),
    Directive::new("busy-refuses-all", SWITCH, "no"),
    Directive::new("tracking-table-max-keys", LONG_COUNT, "1000000"),
    Directive::new("latency-tracking", SWITCH, "yes"),
    Directive::new("latency-tracking-info-percentiles", PERCENTILES, "50 99 99.9")
        .admit(percentiles),
    Directive::new("notify-keyspace-events", Kind::Notifications, ""),
];

/// Sizes at which collections change their encoding.
#[rustfmt::skip] // One row, one directive.
pub(super) const THRESHOLDS: &[Directive] = &[
    Directive::new("hash-max-listpack-entries", LONG_COUNT, "512")
        .aliases(&["hash-max-ziplist-entries"]),
    Directive::new("hash-max-listpack-value", LONG_BYTES, "64")
        .aliases(&["hash-max-ziplist-value"]),
    Directive::new("list-max-listpack-size", integer(INT_MIN, INT_MAX), "-2")
        .aliases(&["list-max-ziplist-size"]),
    Directive::new("set-max-intset-entries", LONG_COUNT, "512"),
    Directive::new("set-max-listpack-entries", LONG_COUNT, "128"),
    Directive::new("set-max-listpack-value", LONG_BYTES, "64"),
    Directive::new("zset-max-listpack-entries", LONG_COUNT, "128")
        .aliases(&["zset-max-ziplist-entries"]),
    Directive::new("zset-max-listpack-value", LONG_BYTES, "64")
        .aliases(&["zset-max-ziplist-value"]),
    Directive::new("hll-sparse-max-bytes", LONG_BYTES, "3000"),
    Directive::new("stream-node-max-bytes", LONG_BYTES, "4096"),
    Directive::new("stream-node-max-entries", LONG_COUNT, "100"),
];

pub(super) const fn spellings<C: Copy, const N: usize>(
    choices: [(&'static str, C); N],
) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = choices[at].0;
        at += 1;
    }
    names
}

fn numbered_databases(value: Value) -> Result<Value, String> {
    match value {
        Value::Integer(count) if count > DATABASES_MAX => {
            Err(format!("Iolite has at most {DATABASES_MAX} databases"))
        }
        other => Ok(other),
    }
}

/// Replaces 0 with the number of threads that the machine runs at a time.
fn threads_of_the_machine(value: Value) -> Result<Value, String> {
    let Value::Integer(0) = value else {
        return Ok(value);
    };
    let processors = i128::try_from(available_cores()).unwrap_or(THREADS_MAX);
    Ok(Value::Integer(processors.min(THREADS_MAX)))
}

/// Checks for one score per role that a server may have.
fn oom_scores(value: Value) -> Result<Value, String> {
    let Value::Words(words) = &value else {
        return Ok(value);
    };
    if words.len() != OOM_SCORES_COUNT {
        return Err("wrong number of arguments".to_owned());
    }
    let scores = words
        .iter()
        .map(|word| std::str::from_utf8(word).ok()?.parse::<i32>().ok());
    let is_score = |score: Option<i32>| {
        score.is_some_and(|score| (-OOM_SCORE_MAX..=OOM_SCORE_MAX).contains(&score))
    };
    if scores.into_iter().all(is_score) {
        Ok(value)
    } else {
        Err(format!(
            "Invalid oom-score-adj-values, elements must be between -{OOM_SCORE_MAX} and \
             {OOM_SCORE_MAX}."
        ))
    }
}

/// Merges two spellings of the same value into the one that is shown.
fn one_name_for_relative(value: Value) -> Result<Value, String> {
    let is_relative = |at: usize| OOM_SCORES[at].1 == OomScore::Relative;
    Ok(match value {
        Value::Choice(at) if is_relative(at) => Value::Choice(
            OOM_SCORES
                .iter()
                .position(|row| row.0 == "yes")
                .unwrap_or(at),
        ),
        other => other,
    })
}

/// Checks for a version of three numbers, because clients parse it.
fn three_numbers(value: Value) -> Result<Value, String> {
    let Value::Text(text) = &value else {
        return Ok(value);
    };
    let is_number =
        |part: &[u8]| (1..=3).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b'.').collect();
    if parts.len() == 3 && parts.iter().all(|part| is_number(part)) {
        Ok(value)
    } else {
        Err("argument must be a version such as 7.2.4".to_owned())
    }
}

fn hz_in_range(value: Value) -> Result<Value, String> {
    match value {
        Value::Integer(hz) => Ok(Value::Integer(hz.clamp(HZ.0, HZ.1))),
        other => Ok(other),
    }
}

/// Writes percentages as short as possible.
fn percentiles(value: Value) -> Result<Value, String> {
    let Value::Words(words) = value else {
        return Ok(value);
    };
    let mut shown = Vec::with_capacity(words.len());
    for word in words {
        let text = String::from_utf8_lossy(&word);
        let percent: f64 = text
            .parse()
            .map_err(|_| "Invalid latency-tracking-info-percentiles parameters".to_owned())?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                    .to_owned(),
            );
        }
        shown.push(percent.to_string().into_bytes());
    }
    Ok(Value::Words(shown))
}

fn existing_directory(value: Value) -> Result<Value, String> {
    if let Value::Text(path) = &value {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        // Reading the entry `.` inside fails if the path is not a directory.
        std::fs::metadata(path.join(".")).map_err(|error| system_reason(&error))?;
    }
    Ok(value)
}

/// Spellings of [`Promotion`].
pub(crate) const PROMOTIONS: [(&str, Promotion); 3] = [
    ("first", Promotion::First),
    ("second", Promotion::Second),
    ("never", Promotion::Never),
];
const PROMOTION: Kind = Kind::Choice(&spellings(PROMOTIONS));

/// Spellings of [`Compression`].
pub(crate) const COMPRESSIONS: [(&str, Compression); 4] = [
    ("auto", Compression::Auto),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
    ("no", Compression::No),
];
const COMPRESSION: Kind = Kind::Choice(&spellings(COMPRESSIONS));

/// Spellings of [`TierIo`].
pub(crate) const TIER_IOS: [(&str, TierIo); 3] = [
    ("auto", TierIo::Auto),
    ("io_uring", TierIo::IoUring),
    ("threads", TierIo::Threads),
];
const TIER_IO: Kind = Kind::Choice(&spellings(TIER_IOS));

/// The length field of an entry has 20 bits, in units of 16 bytes.
const TIER_VALUE: Kind = Kind::Memory {
    min: 1,
    max: (16 << 20) - 1024,
};

/// The offset field of an entry has 22 bits, in units of 16 bytes.
const TIER_SEGMENT: Kind = Kind::Memory {
    min: 1 << 16,
    max: 1 << 26,
};

/// Directives of the tier.
#[rustfmt::skip] // One row, one directive.
pub(super) const TIER: &[Directive] = &[
    Directive::new("tier-path", TEXT, "").at_start(),
    Directive::new("tier-max-size", LONG_BYTES, "0"),
    Directive::new("tier-min-value", TIER_VALUE, "64"),
    Directive::new("tier-max-value", TIER_VALUE, "8388608"),
    Directive::new("tier-demote-at", integer(0, 100), "90"),
    Directive::new("tier-promotion", PROMOTION, "second"),
    Directive::new("tier-compact-below", integer(1, 90), "50"),
    Directive::new("tier-read-buffer", LONG_BYTES, "16777216").at_start(),
    Directive::new("tier-io", TIER_IO, "auto").at_start(),
    Directive::new("tier-read-depth", integer(1, RING_DEPTH_MAX as i128), "64").at_start(),
    Directive::new("tier-read-timeout", integer(10, 3_600_000), "1000"),
    Directive::new("tier-segment-size", TIER_SEGMENT, "67108864").at_start(),
    Directive::new("tier-compression", COMPRESSION, "auto"),
    Directive::new("tier-scrub", LONG_BYTES, "8388608"),
];
