//! The server log, in Redis' line format: `pid:role day month year time level message`.
//!
//! ```text
//! 4711:M 21 Nov 2026 02:21:07.417 * Ready to accept connections tcp
//! ```
//!
//! A line is one append to the log file, or one write to standard output. The file is opened for
//! each line, so that it can be moved away at any time. With `syslog-enabled` the message also goes
//! to the machine's log. A line that cannot be written is lost: the log never stops the server.

use std::collections::VecDeque;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use base::clock::{Clock as _, SystemClock};
use base::process;
use persistence::lines::{self, Lines};

use crate::syslog::{Severity, Syslog};

/// Maximum length of a message; the rest is cut off.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Number of lines that are kept for the console.
const RECENT_MAX: usize = 1000;
/// The role in each line: a server that accepts writes.
const ROLE: char = 'M';
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// For developers.
    Debug,
    /// Rarely useful.
    Verbose,
    /// Useful for an operator.
    Notice,
    /// Essential for an operator.
    Warning,
    /// As a threshold: nothing is logged.
    Nothing,
}

impl Level {
    /// Returns the sign in front of the message.
    fn sign(self) -> char {
        match self {
            Self::Debug => '.',
            Self::Verbose => '-',
            Self::Notice => '*',
            Self::Warning | Self::Nothing => '#',
        }
    }

    /// Returns the severity for the machine's log.
    fn severity(self) -> Severity {
        match self {
            Self::Debug => Severity::Debug,
            Self::Verbose => Severity::Informational,
            Self::Notice => Severity::Notice,
            Self::Warning | Self::Nothing => Severity::Warning,
        }
    }
}

/// Writes log lines; shared by all threads.
#[derive(Debug)]
pub struct Log {
    level: AtomicU8,
    file: Option<PathBuf>,
    syslog: Option<Syslog>,
    clock: SystemClock,
    recent: Mutex<Recent>,
}

/// The last lines, and the number of the last of them.
#[derive(Debug, Default)]
struct Recent {
    lines: VecDeque<String>,
    last: u64,
}

impl Log {
    /// Logs lines of `level` and above to `file`, or to standard output. A relative path is
    /// relative to the present working directory.
    pub fn new(level: Level, file: Option<PathBuf>) -> Self {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        Self {
            level: AtomicU8::new(level as u8),
            file: file.map(absolute),
            syslog: None,
            clock: SystemClock::new(),
            recent: Mutex::default(),
        }
    }

    /// Adds a sender to the machine's log.
    pub(crate) fn with_syslog(self, syslog: Option<Syslog>) -> Self {
        Self { syslog, ..self }
    }

    /// Returns the last lines after number `after`, with their numbers.
    pub fn recent(&self, after: u64) -> Vec<(u64, String)> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let first = recent.last + 1 - recent.lines.len() as u64;
        let lines = (first..).zip(&recent.lines);
        let lines = lines.filter(|(number, _)| *number > after);
        lines.map(|(number, line)| (number, line.clone())).collect()
    }

    fn keep(&self, line: &str) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.lines.len() == RECENT_MAX {
            recent.lines.pop_front();
        }
        recent.lines.push_back(line.trim_end().to_owned());
        recent.last += 1;
    }

    /// Changes the threshold (CONFIG SET loglevel).
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Whether a line of `level` would be written.
    pub fn is_on(&self, level: Level) -> bool {
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    /// Whether lines go to standard output.
    pub fn is_on_standard_output(&self) -> bool {
        self.file.is_none()
    }

    /// Logs at [`Level::Debug`].
    pub fn debug(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Debug, message);
    }

    /// Logs at [`Level::Verbose`].
    pub fn verbose(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Verbose, message);
    }

    /// Logs at [`Level::Notice`].
    pub fn notice(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Notice, message);
    }

    /// Logs at [`Level::Warning`].
    pub fn warning(&self, message: fmt::Arguments<'_>) {
        self.log(Level::Warning, message);
    }

    /// Writes `text` unchanged, without the prefix of a line.
    pub fn raw(&self, text: &str) {
        let _lost = self.write(text.as_bytes());
    }

    /// Logs at a level.
    pub fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.is_on(level) {
            let message = shortened(message);
            let line = line(self.clock.now_unix_ms(), level, &message);
            self.keep(&line);
            let _lost = self.write(line.as_bytes());
            if let Some(syslog) = &self.syslog {
                let _lost = syslog.send(level.severity(), &message);
            }
        }
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        match &self.file {
            Some(path) => {
                let mut options = OpenOptions::new();
                options
                    .append(true)
                    .create(true)
                    .open(path)?
                    .write_all(text)
            }
            None => {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            }
        }
    }
}

impl Lines for Log {
    fn line(&self, level: lines::Level, message: fmt::Arguments<'_>) {
        self.log(Level::from(level), message);
    }
}

impl From<lines::Level> for Level {
    fn from(level: lines::Level) -> Self {
        match level {
            lines::Level::Debug => Self::Debug,
            lines::Level::Notice => Self::Notice,
            lines::Level::Warning => Self::Warning,
        }
    }
}

fn shortened(message: fmt::Arguments<'_>) -> String {
    let mut message = message.to_string();
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
    message
}

fn line(unix_ms: u64, level: Level, message: &str) -> String {
    let process::WallTime {
        year,
        month_index,
        day,
        hour,
        minute,
        second,
    } = process::wall_time(unix_ms / 1000);
    let month = MONTHS.get(month_index).copied().unwrap_or_default();
    let (pid, ms, sign) = (std::process::id(), unix_ms % 1000, level.sign());
    format!(
        "{pid}:{ROLE} {day:02} {month} {year} {hour:02}:{minute:02}:{second:02}.{ms:03} {sign} \
         {message}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_format_that_tools_read() {
        let line = line(1_795_228_267_007, Level::Notice, "Ready");
        let pid = std::process::id();
        let rest = line.strip_prefix(&format!("{pid}:M ")).unwrap();
        let shape: String = rest
            .chars()
            .map(|c| if c.is_ascii_digit() { '9' } else { c })
            .collect();
        assert_eq!(shape, "99 Nov 9999 99:99:99.999 * Ready\n");
        assert!(rest.contains(" 2026 ") && rest.contains(".007 "), "{rest}");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let message = "\u{e4}".repeat(MESSAGE_BYTES_MAX);
        let line = line(0, Level::Warning, &shortened(format_args!("x{message}")));
        assert!(line.len() < MESSAGE_BYTES_MAX + 60);
        assert!(line.ends_with("\u{e4}\n"));
    }

    #[test]
    fn only_lines_at_the_threshold_reach_the_file_wherever_it_went() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let path = dir.join("server.log");
        let log = Log::new(Level::Notice, Some(path.clone()));
        log.verbose(format_args!("unseen"));
        log.notice(format_args!("before"));
        std::fs::rename(&path, dir.join("moved.log")).unwrap();
        log.set_level(Level::Debug);
        log.debug(format_args!("after"));
        log.set_level(Level::Nothing);
        log.warning(format_args!("unseen"));
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert!(read("moved.log").ends_with("* before\n"));
        assert!(read("server.log").ends_with(". after\n"));
        assert_eq!(read("server.log").lines().count(), 1);
    }

    #[test]
    fn lines_at_the_threshold_reach_the_machines_log_without_their_head() {
        let (listens, syslog, directory) = crate::syslog::tests::listening(17);
        let file = directory.path().join("server.log");
        let log = Log::new(Level::Verbose, Some(file)).with_syslog(Some(syslog));
        log.debug(format_args!("unseen"));
        log.verbose(format_args!("one"));
        log.warning(format_args!("two"));
        let pid = std::process::id();
        for line in [
            format!("<142>redis[{pid}]: one"),
            format!("<140>redis[{pid}]: two"),
        ] {
            assert_eq!(crate::syslog::tests::line(&listens), line);
        }
    }
}
