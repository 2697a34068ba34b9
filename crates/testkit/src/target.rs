//! Targets that a transcript or a random sequence can run against.

use std::io;

use crate::client::Client;

/// A running server of any kind: a process, or one inside the test.
pub trait Target {
    /// Returns its name in messages.
    fn name(&self) -> &str;

    /// Opens a connection.
    ///
    /// # Errors
    /// If the target accepts none.
    fn connect(&self) -> io::Result<Client>;
}

/// Starts a target with additional words on its command line.
pub type Start = dyn Fn(&[String]) -> io::Result<Box<dyn Target>> + Sync;

/// A source of targets. Each transcript gets its own target.
pub struct Launcher {
    /// Name of its targets in messages.
    pub name: &'static str,
    /// Whether its targets are the oracle, which others are compared with. The oracle does not know
    /// what is newer than itself.
    pub is_oracle: bool,
    /// Starts a target.
    pub start: Box<Start>,
}

impl Launcher {
    /// Returns a launcher of `redis-server`.
    #[must_use]
    pub fn oracle() -> Self {
        Self {
            name: "oracle",
            is_oracle: true,
            start: Box::new(|args| {
                let server = crate::process::ServerBuilder::oracle().args(args).start()?;
                Ok(Box::new(server))
            }),
        }
    }

    /// Returns a launcher of the built server over TCP.
    #[must_use]
    pub fn iolite() -> Self {
        Self {
            name: "iolite",
            is_oracle: false,
            start: Box::new(|args| {
                let builder = crate::process::ServerBuilder::iolite();
                Ok(Box::new(builder.args(args).tcp().start()?))
            }),
        }
    }

    /// Returns a launcher of the built server over its Unix socket, for tests that connect so often
    /// that ports would run out.
    #[must_use]
    pub fn iolite_nearby() -> Self {
        Self {
            name: "iolite",
            is_oracle: false,
            start: Box::new(|args| {
                let builder = crate::process::ServerBuilder::iolite();
                Ok(Box::new(builder.args(args).start()?))
            }),
        }
    }
}
