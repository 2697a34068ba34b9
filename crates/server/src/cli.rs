//! From `argv`, the environment and files to [`Settings`].

use std::ffi::OsString;
use std::fmt;
use std::io::Read;

use crate::config::{Origin, Settings};

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run the server.
    Serve(Box<Startup>),
    /// Print `text` on standard output and exit with `code`.
    Print {
        /// The text, with its last newline.
        text: String,
        /// The exit code.
        code: u8,
    },
}

/// A server to start.
#[derive(Debug)]
pub struct Startup {
    /// The settings.
    pub settings: Settings,
    /// Where they came from.
    pub origin: Origin,
    /// Lines for the log, once there is one: settings accepted without effect, and the like.
    pub remarks: Vec<String>,
}

/// The command line, the environment or a file cannot be used: print it on standard error, exit 1.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Reads the command line, and with it the environment, files and standard input.
///
/// # Errors
/// [`StartError`], whose text is for standard error.
pub fn read(
    arguments: Vec<OsString>,
    _environment: impl Iterator<Item = (OsString, OsString)>,
    _stdin: &mut dyn Read,
) -> Result<Invocation, StartError> {
    Ok(Invocation::Serve(Box::new(Startup {
        settings: Settings::default(),
        origin: Origin {
            file: None,
            arguments,
        },
        remarks: Vec::new(),
    })))
}
