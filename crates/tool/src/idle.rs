//! Measures what idle connections cost the server.

use std::io::Write;
use std::time::Duration;

use base::process::raise_open_files;

use crate::endpoint::Session;
use crate::error::BenchError;
use crate::options::Options;
use crate::process::{Process, Usage};
use crate::workload::Limit;

/// Time for the server to settle after the last connection.
const SETTLE: Duration = Duration::from_millis(500);
/// How long connections are held without a given time: until the process is stopped.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 2);

/// Opens the connections, prints what they cost, and holds them for the given time.
pub(crate) fn hold(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let count = options.connections.first().copied().unwrap_or(1);
    raise_open_files(count as u64 + 64)
        .map_err(|error| BenchError::System("the limit of open files", error))?;
    let process = options.endpoint.find_pid()?.map(Process::new);
    let usage = || process.as_ref().and_then(Process::usage);
    let before = usage();
    let mut sessions: Vec<Session> = Vec::new();
    for _ in 0..count {
        sessions.push(options.endpoint.connect()?);
    }
    std::thread::sleep(SETTLE);
    let text = match (before, usage()) {
        (Some(before), Some(after)) => cost(count, before, after),
        _ => format!("{count} connections are open\n"),
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| BenchError::System("standard output", error))?;
    std::thread::sleep(match options.shape.limit {
        Limit::Time(time) => time,
        Limit::Requests(_) => FOREVER,
    });
    Ok(())
}

fn cost(count: usize, before: Usage, after: Usage) -> String {
    let grown = after.rss_bytes.saturating_sub(before.rss_bytes);
    let each = grown as f64 / count.max(1) as f64;
    format!("{count} connections are open; the server holds {each:.0} B more for each\n")
}
