//! A line a second of what a server does, and how long PING takes.

use std::io::Write;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use base::memory_size::human;

use super::options::Options;
use super::written;
use crate::endpoint::{databases, info_field};
use crate::error::BenchError;

/// Between two PING.
const PING_PAUSE: Duration = Duration::from_millis(10);
/// So long is measured where nobody reads along.
const UNATTENDED: Duration = Duration::from_secs(1);
/// The head is shown again after so many lines.
const LINES_PER_HEAD: u64 = 20;

/// A line a second.
pub(super) fn stat(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut session = options.endpoint.connect()?;
    let pause = match options.pause {
        Duration::ZERO => Duration::from_secs(1),
        pause => pause,
    };
    let (mut before, mut lines, mut left) = (0_i64, 0, options.repeats.filter(|count| *count > 1));
    loop {
        if lines % LINES_PER_HEAD == 0 {
            let head = "------- data ------ --------------------- load -------------------- - child -\nkeys       mem      clients \
                        blocked requests            connections          \n";
            written(out.write_all(head.as_bytes()))?;
        }
        let info = session.info("all")?;
        let field = |name: &str| info_field(&info, name).unwrap_or("0").to_owned();
        let number = |name: &str| field(name).parse::<i64>().unwrap_or(0);
        let keys: u64 = databases(&info).map(|(_, keys)| keys).sum();
        let requests = number("total_commands_processed");
        let delta = if lines == 0 { 0 } else { requests - before };
        before = requests;
        let child = match (
            number("rdb_bgsave_in_progress"),
            number("aof_rewrite_in_progress"),
            number("loading"),
        ) {
            (.., 1) => "LOAD",
            (1, 1, _) => "SAVE + AOF",
            (1, ..) => "SAVE",
            (_, 1, _) => "AOF",
            _ => "",
        };
        let line = format!(
            "{keys:<10} {:<8} {:<8}{:<8}{:<19} {:<20} {child}\n",
            human(number("used_memory").max(0).unsigned_abs()),
            field("connected_clients"),
            field("blocked_clients"),
            format!("{requests} (+{delta})"),
            field("total_connections_received"),
        );
        written(out.write_all(line.as_bytes()).and_then(|()| out.flush()))?;
        lines += 1;
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
}

/// How long PING takes: a line that is written over where somebody reads along, one line after a second elsewhere.
pub(super) fn latency(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut session = options.endpoint.connect()?;
    let clock = SystemClock::new();
    let begin_ns = clock.monotonic_ns();
    let limit = match options.pause {
        Duration::ZERO => UNATTENDED,
        pause => pause,
    };
    let (mut least, mut most, mut total, mut count) = (u64::MAX, 0, 0_u64, 0_u64);
    loop {
        let sent_ns = clock.monotonic_ns();
        session.demand("PING", &["PING"])?;
        let elapsed_us = (clock.monotonic_ns() - sent_ns) / 1000;
        least = least.min(elapsed_us);
        most = most.max(elapsed_us);
        total = total.saturating_add(elapsed_us);
        count += 1;
        #[expect(clippy::cast_precision_loss, reason = "three decimals are shown")]
        let (least, most, average) = (
            least as f64 / 1e3,
            most as f64 / 1e3,
            total as f64 / count as f64 / 1e3,
        );
        if options.is_terminal {
            let line = format!(
                "\r\x1b[Kmin: {least:.3} ms, max: {most:.3} ms, avg: {average:.3} ms ({count} samples)"
            );
            written(out.write_all(line.as_bytes()).and_then(|()| out.flush()))?;
        } else if Duration::from_nanos(clock.monotonic_ns() - begin_ns) >= limit {
            let line = format!("{least:.3} {most:.3} {average:.3} {count}\n");
            return written(out.write_all(line.as_bytes()));
        }
        std::thread::sleep(PING_PAUSE);
    }
}
