//! Lines for the operator: the port through which this room writes to the server's log file.

use std::fmt;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For developers.
    Debug,
    /// What an operator wants to know.
    Notice,
    /// What an operator has to know.
    Warning,
}

/// Takes lines for the operator.
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

/// Nobody reads them.
impl Lines for () {
    fn line(&self, _: Level, _: fmt::Arguments<'_>) {}
}
