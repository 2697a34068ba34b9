//! Messages to the operator: the port through which this room writes to the server's log file.

use std::fmt;

/// Importance of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For developers.
    Debug,
    /// Useful for an operator.
    Notice,
    /// Necessary for an operator to know.
    Warning,
}

/// Receives messages to the operator.
pub trait Lines: Send + Sync {
    /// Writes a line. Fails silently: nothing depends on it.
    fn line(&self, level: Level, message: fmt::Arguments<'_>);

    /// Writes a line at [`Level::Debug`].
    fn debug(&self, message: fmt::Arguments<'_>) {
        self.line(Level::Debug, message);
    }

    /// Writes a line at [`Level::Notice`].
    fn notice(&self, message: fmt::Arguments<'_>) {
        self.line(Level::Notice, message);
    }

    /// Writes a line at [`Level::Warning`].
    fn warning(&self, message: fmt::Arguments<'_>) {
        self.line(Level::Warning, message);
    }
}

/// Discards all messages.
impl Lines for () {
    fn line(&self, _: Level, _: fmt::Arguments<'_>) {}
}
