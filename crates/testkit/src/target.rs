//! What a transcript or a random sequence can be run against.

use std::io;

use crate::client::Client;

/// A running server of any kind: a process, or one inside the test.
pub trait Target {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// A new connection.
    ///
    /// # Errors
    /// When it accepts none.
    fn connect(&self) -> io::Result<Client>;
}

/// Starts a target with additional words on its command line.
pub type Start = dyn Fn(&[String]) -> io::Result<Box<dyn Target>> + Sync;

/// What starts targets; each transcript gets one of its own.
pub struct Launcher {
    /// Its name in messages.
    pub name: &'static str,
    /// Whether it is the server that others are judged by, which does not know what is newer than
    /// itself.
    pub is_oracle: bool,
    /// Starts one.
    pub start: Box<Start>,
}

impl Launcher {
    /// Starts `redis-server`.
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

    /// Starts the built server, reached over TCP.
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

    /// Starts the built server, reached over its Unix socket: for tests that connect so often that
    /// ports would run out.
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
