//! INFO server: the program, its machine and its start.

use super::row::{Item, Unit, Value};
use super::row::{gauge, words};
use super::sample::Sample;
use crate::{identity, process};

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    words("redis_version", "The version of Redis that clients are told.", |_| identity::redis_version().into()),
    words("redis_git_sha1", "Always zeros.", |_| "00000000".into()),
    words("redis_git_dirty", "Always 0.", |_| "0".into()),
    words("redis_build_id", "Identity of the build.", |_| identity::build_id().into()),
    words("redis_mode", "Whether the server is part of a cluster.", |s| mode(s).into()),
    words("server_name", "The program's name.", |_| identity::SERVER_NAME.into()),
    words("iolite_version", "The version of this program.", |_| identity::IOLITE_VERSION.into()),
    words("os", "The operating system.", |_| process::operating_system().into()),
    words("arch_bits", "Bits of a machine word.", |_| usize::BITS.to_string().into()),
    words("monotonic_clock", "Where the monotonic time comes from.", |_| "POSIX clock_gettime".into()),
    words("multiplexing_api", "How the event loops wait.", |_| "epoll".into()),
    words("atomicvar_api", "Where atomic operations come from.", |_| "rust".into()),
    words("gcc_version", "Always 0.0.0: no C compiler made this.", |_| "0.0.0".into()),
    gauge("process_id", "redis_process_id", Unit::Count, "Number of the process.", |_| u64::from(std::process::id()).into()),
    words("process_supervised", "Who was told that the server is ready.", |s| s.node.process.supervisor.name().into()),
    words("run_id", "Identity of this run.", |s| s.node.process.run_id.clone().into()),
    gauge("tcp_port", "iolite_tcp_port", Unit::Count, "Port of plain connections; 0 for none.", |s| u64::from(s.config.port).into()),
    words("server_time_usec", "The server's time, in microseconds since 1970.", |s| s.now_unix_us.into()),
    gauge("uptime_in_seconds", "redis_uptime_in_seconds", Unit::Seconds, "Seconds since the start.", |s| uptime_s(s).into()).otel("redis.uptime"),
    words("uptime_in_days", "Days since the start.", |s| (uptime_s(s) / 86_400).into()),
    words("shutdown_in_milliseconds", "How long a stop still waits for replicas; only while one does.", stop_delay_ms),
    gauge("hz", "redis_hz", Unit::PerSecond, "Housekeeping turns a second.", |s| u64::from(s.config.hz).into()),
    gauge("configured_hz", "redis_configured_hz", Unit::PerSecond, "Housekeeping turns a second, as configured.", |s| u64::from(s.config.hz).into()),
    words("lru_clock", "The clock of idle times, in seconds, 24 bits.", |s| ((s.now_unix_us / 1_000_000) & 0x00FF_FFFF).into()),
    words("executable", "Path of the program.", |_| executable().into()),
    words("config_file", "Path of the configuration file.", |s| config_file(s).into()),
    gauge("io_threads_active", "redis_io_threads_active", Unit::Switch, "Whether there is more than one worker.", |s| (s.node.workers().len() > 1).into()),
    gauge("worker_threads", "iolite_worker_threads", Unit::Count, "Threads that serve clients.", |s| s.node.workers().len().into()),
    words("availability_zone", "Name of the availability zone, as configured.", |s| s.config.availability_zone.clone().into()),
];

fn uptime_s(sample: &Sample<'_>) -> u64 {
    sample.uptime_ms / 1000
}

fn stop_delay_ms(sample: &Sample<'_>) -> Value {
    let now_unix_ms = sample.now_unix_us / 1000;
    let left_ms = sample.node.replication.stop_delay_ms(now_unix_ms);
    left_ms.map_or(Value::Absent, Value::Whole)
}

fn executable() -> String {
    std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string())
}

fn config_file(sample: &Sample<'_>) -> String {
    let file = sample.node.core.config.origin().file.as_ref();
    file.map_or_else(String::new, |path| path.display().to_string())
}

/// `cluster` or `standalone`.
pub(super) fn mode(sample: &Sample<'_>) -> &'static str {
    match sample.config.cluster.is_on {
        true => "cluster",
        false => "standalone",
    }
}
