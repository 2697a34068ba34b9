//! Refusals of CONFIG SET and CONFIG REWRITE, in Redis' words.

use std::fmt;
use std::io;

use base::os_error::system_reason;

/// A refusal; its text is the error reply without the `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(Vec<u8>);

impl ConfigError {
    /// Returns the text, on one line. It may repeat bytes that the client sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// There is no directive called `name`.
    pub(super) fn unknown(name: &[u8]) -> Self {
        Self::new(&[
            b"ERR Unknown option or number of arguments for CONFIG SET - '",
            name,
            b"'",
        ])
    }

    /// The directive called `name` is at fault.
    pub(crate) fn refused(name: &str, reason: &str) -> Self {
        Self::new(&[
            b"ERR CONFIG SET failed (possibly related to argument '",
            name.as_bytes(),
            b"') - ",
            reason.as_bytes(),
        ])
    }

    /// There is no file to rewrite.
    pub(super) fn no_file() -> Self {
        Self::new(&[b"ERR The server is running without a config file"])
    }

    /// The file could not be read or written.
    pub(super) fn rewriting(error: &io::Error) -> Self {
        Self::new(&[
            b"ERR Rewriting config file: ",
            system_reason(error).as_bytes(),
        ])
    }

    fn new(parts: &[&[u8]]) -> Self {
        let mut text = parts.concat();
        for byte in &mut text {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        Self(text)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for ConfigError {}
