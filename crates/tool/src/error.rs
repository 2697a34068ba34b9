//! Reasons why a run is impossible or failed.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::endpoint::Address;
use crate::replies::NotAReply;

/// Why a run is impossible or failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// The command line is invalid.
    Usage(String),
    /// The server cannot be reached, or closed the connection.
    Connection(Address, io::Error),
    /// The server sent something other than a reply, or more replies than requests.
    Reply(Address, NotAReply),
    /// The server refused something that a run needs: authentication, a database, RESP3.
    Refused {
        /// The request's name.
        request: String,
        /// The server's reply.
        reply: String,
    },
    /// The operating system refused something else.
    System(&'static str, io::Error),
    /// A file cannot be read, written or parsed.
    File(PathBuf, String),
    /// The server holds data, and the run would delete it.
    HoldsData {
        /// The server's name.
        server: String,
        /// Number of its keys.
        keys: i64,
    },
}

impl BenchError {
    /// Prints it to standard error, except if a reader of the output stopped reading, as `head`
    /// does: that is not a failure.
    pub(crate) fn tell(&self) {
        if matches!(self, Self::System(_, error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return;
        }
        // Without standard error the message is lost.
        let _told = writeln!(io::stderr(), "{self}");
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => f.write_str(text),
            Self::Connection(address, error) => write!(f, "Could not talk to {address}: {error}"),
            Self::Reply(address, error) => write!(f, "{address}: {error}"),
            Self::Refused { request, reply } => write!(f, "{request} was refused: {reply}"),
            Self::System(what, error) => write!(f, "{what}: {error}"),
            Self::File(path, reason) => write!(f, "{}: {reason}", path.display()),
            Self::HoldsData { server, keys } => write!(
                f,
                "{server} holds data (DBSIZE {keys}), which this would delete; --flush allows it"
            ),
        }
    }
}

impl std::error::Error for BenchError {}
