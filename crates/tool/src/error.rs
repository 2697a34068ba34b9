//! Why a run cannot be made or went wrong.

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::endpoint::Address;
use crate::replies::NotAReply;

/// Why a run cannot be made or went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// The command line cannot be understood.
    Usage(String),
    /// The server cannot be reached, or left.
    Connection(Address, io::Error),
    /// The server sent what is no reply, or more replies than requests.
    Reply(Address, NotAReply),
    /// The server refused what a run needs: authentication, a database, RESP3.
    Refused {
        /// The request's name.
        request: String,
        /// What the server answered.
        reply: String,
    },
    /// The operating system refused something else.
    System(&'static str, io::Error),
    /// A file cannot be read, written or understood.
    File(PathBuf, String),
    /// The server holds data, and the run would delete it.
    HoldsData {
        /// Its name.
        server: String,
        /// How many keys.
        keys: i64,
    },
}

impl BenchError {
    /// Tells it on standard error, but for the one that nobody asks for: who reads no further, as `head` does, has what he
    /// wanted.
    pub(crate) fn tell(&self) {
        if matches!(self, Self::System(_, error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return;
        }
        // Without standard error there is nobody to tell.
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
