//! A line per second about a server's activity, and the latency of PING.

use std::io::Write;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use base::memory_size::human;

use super::options::Options;
use super::out::written;
use super::print::Form;
use crate::endpoint::{databases, info_field};
use crate::error::BenchError;

/// Pause between two PINGs.
pub(super) const PING_PAUSE: Duration = Duration::from_millis(10);
/// Duration of the measurement if the output is not a terminal.
const UNATTENDED: Duration = Duration::from_secs(1);
/// Duration of a line of the history.
const HISTORY_SPAN: Duration = Duration::from_secs(15);
/// Number of lines after which the head is shown again.
const LINES_PER_HEAD: u64 = 20;

/// Prints one line per second.
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

/// The latencies of many PINGs.
struct Sampled {
    least_ms: u64,
    most_ms: u64,
    total_us: u64,
    count: u64,
}

impl Sampled {
    fn new() -> Self {
        Self {
            least_ms: u64::MAX,
            most_ms: 0,
            total_us: 0,
            count: 0,
        }
    }

    fn add(&mut self, elapsed_us: u64) {
        let elapsed_ms = elapsed_us / 1_000;
        self.least_ms = self.least_ms.min(elapsed_ms);
        self.most_ms = self.most_ms.max(elapsed_ms);
        self.total_us = self.total_us.saturating_add(elapsed_us);
        self.count += 1;
    }

    /// Formats as `redis-cli` does, in milliseconds.
    fn told(&self, form: Form) -> String {
        let Self {
            least_ms,
            most_ms,
            count,
            ..
        } = self;
        #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
        let average = self.total_us as f64 / self.count.max(1) as f64 / 1e3;
        match form {
            Form::Typed => {
                format!("min: {least_ms}, max: {most_ms}, avg: {average:.2} ({count} samples)")
            }
            Form::Csv => format!("{least_ms},{most_ms},{average:.2},{count}\n"),
            Form::Json | Form::QuotedJson => format!(
                "{{\"min\": {least_ms}, \"max\": {most_ms}, \"avg\": {average:.2}, \"count\": {count}}}\n"
            ),
            Form::Raw => format!("{least_ms} {most_ms} {average:.2} {count}\n"),
        }
    }
}

/// Shows the latency of PING: a line that is overwritten on a terminal, otherwise one line after a
/// second.
pub(super) fn latency(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let limit = match options.pause {
        Duration::ZERO => UNATTENDED,
        pause => pause,
    };
    sample(
        options,
        out,
        &mut |sampled, elapsed, out| match options.printer.form() {
            Form::Typed => over(sampled, out).map(|()| Next::On),
            _ if elapsed < limit => Ok(Next::On),
            form => {
                written(out.write_all(sampled.told(form).as_bytes()))?;
                Ok(Next::End)
            }
        },
    )
}

/// The same, with one line per time span.
pub(super) fn latency_history(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let span = match options.pause {
        Duration::ZERO => HISTORY_SPAN,
        pause => pause,
    };
    let mut left = options.repeats.filter(|count| *count > 1);
    sample(options, out, &mut |sampled, elapsed, out| {
        let form = options.printer.form();
        if form == Form::Typed {
            over(sampled, out)?;
        }
        if elapsed < span {
            return Ok(Next::On);
        }
        let text = match form {
            Form::Typed => format!(" -- {:.2} seconds range\n", elapsed.as_secs_f64()),
            form => sampled.told(form),
        };
        written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))?;
        left = left.map(|left| left - 1);
        Ok(if left == Some(0) {
            Next::End
        } else {
            Next::Anew
        })
    })
}

/// What follows a sample.
enum Next {
    On,
    /// Restart the sums.
    Anew,
    End,
}

fn over(sampled: &Sampled, out: &mut dyn Write) -> Result<(), BenchError> {
    let line = format!("\r\x1b[2K{}", sampled.told(Form::Typed));
    written(out.write_all(line.as_bytes()).and_then(|()| out.flush()))
}

type After<'a> = &'a mut dyn FnMut(&Sampled, Duration, &mut dyn Write) -> Result<Next, BenchError>;

/// Sends PING repeatedly. `after` gets the sums and the time since they began, and decides what
/// follows.
fn sample(options: &Options, out: &mut dyn Write, after: After<'_>) -> Result<(), BenchError> {
    let mut session = options.endpoint.connect()?;
    let clock = SystemClock::new();
    let mut begin_ns = clock.monotonic_ns();
    let mut sampled = Sampled::new();
    loop {
        let sent_ns = clock.monotonic_ns();
        session.demand("PING", &["PING"])?;
        let now_ns = clock.monotonic_ns();
        sampled.add((now_ns - sent_ns) / 1_000);
        match after(&sampled, Duration::from_nanos(now_ns - begin_ns), out)? {
            Next::On => {}
            Next::Anew => {
                sampled = Sampled::new();
                begin_ns = now_ns;
            }
            Next::End => return Ok(()),
        }
        std::thread::sleep(PING_PAUSE);
    }
}

/// Measures how long this machine keeps a process waiting that always wants to run.
pub(super) fn intrinsic_latency(time: Duration, out: &mut dyn Write) -> Result<(), BenchError> {
    let clock = SystemClock::new();
    let begin_ns = clock.monotonic_ns();
    let end_ns = begin_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (mut most_ns, mut count) = (0_u64, 0_u64);
    let mut before_ns = begin_ns;
    while before_ns < end_ns {
        std::hint::black_box(count);
        let now_ns = clock.monotonic_ns();
        let elapsed_ns = now_ns - before_ns;
        if elapsed_ns > most_ns {
            most_ns = elapsed_ns;
            let line = format!("Max latency so far: {} microseconds.\n", most_ns / 1_000);
            written(out.write_all(line.as_bytes()).and_then(|()| out.flush()))?;
        }
        before_ns = now_ns;
        count += 1;
    }
    let elapsed_ns = before_ns - begin_ns;
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let average_ns = elapsed_ns as f64 / count.max(1) as f64;
    #[expect(clippy::cast_precision_loss, reason = "a ratio is shown")]
    let ratio = most_ns as f64 / average_ns.max(f64::MIN_POSITIVE);
    let text = format!(
        "\n{count} total runs (avg latency: {:.4} microseconds / {average_ns:.2} nanoseconds per run).\n\
         Worst run took {ratio:.0}x longer than the average latency.\n",
        average_ns / 1e3
    );
    written(out.write_all(text.as_bytes()))
}
