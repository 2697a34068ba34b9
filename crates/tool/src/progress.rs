//! The line that shows the progress of a run on a terminal.

use std::io::{IsTerminal as _, Write as _};

use crate::run::Moment;
use crate::units::{short_count, short_duration};

/// A line on standard error that is overwritten.
#[derive(Debug)]
pub(crate) struct Progress {
    is_shown: bool,
    title: String,
    is_dirty: bool,
}

impl Progress {
    /// Creates the line. It is shown only on a terminal.
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self {
            is_shown: is_wanted && std::io::stderr().is_terminal(),
            title: String::new(),
            is_dirty: false,
        }
    }

    /// Sets the title of the present run.
    pub(crate) fn begin(&mut self, title: &str) {
        title.clone_into(&mut self.title);
        if self.is_shown {
            self.write(&format!("{title} ..."));
        }
    }

    pub(crate) fn show(&mut self, moment: &Moment) {
        if self.is_shown {
            let line = line(&self.title, moment);
            self.write(&line);
        }
    }

    /// Clears the line for the following output.
    pub(crate) fn clear(&mut self) {
        if self.is_dirty {
            self.write("");
            self.is_dirty = false;
        }
    }

    fn write(&mut self, line: &str) {
        self.is_dirty = true;
        // A closed terminal does not stop the measurement.
        let _written = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

fn line(title: &str, moment: &Moment) -> String {
    let per_second = moment.requests as f64 * 1e9 / moment.lasted_ns.max(1) as f64;
    let mut line = match moment.at_ns {
        0 => format!("{title}  warm-up"),
        at_ns => format!("{title}  {:.1} s", at_ns as f64 / 1e9),
    };
    line += &format!(
        "  {} requests/s  p50 {}  p99 {}",
        short_count(per_second),
        short_duration(moment.p50_ns as f64),
        short_duration(moment.p99_ns as f64)
    );
    if let Some(cpu_ns) = moment.server_cpu_ns.filter(|_| moment.requests > 0) {
        let each = cpu_ns as f64 / moment.requests as f64;
        line += &format!("  server {}/request", short_duration(each));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_rate_latency_and_cost() {
        let moment = Moment {
            at_ns: 1_500_000_000,
            lasted_ns: 500_000_000,
            requests: 1_000_000,
            p50_ns: 120_000,
            p99_ns: 900_000,
            server_cpu_ns: Some(250_000_000),
        };
        assert_eq!(
            line("GET", &moment),
            "GET  1.5 s  2 M requests/s  p50 120 \u{b5}s  p99 900 \u{b5}s  server 250 ns/request"
        );
    }
}
