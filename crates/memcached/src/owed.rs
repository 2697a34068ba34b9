//! What the reply of a command becomes.

use crate::meta_flags::MetaFlags;

/// One thing that a client is owed, in the order of its requests.
#[derive(Debug)]
pub(crate) enum Owed {
    /// These bytes; no command runs for them.
    Text(&'static [u8]),
    /// As `Text`, but with a text composed for this request.
    Made(Box<[u8]>),
    /// An item of `get` and similar commands, if it exists.
    Item { key: Key, shows_cas: bool },
    /// The end of the items of a line.
    EndOfItems,
    /// STORED or another result of storing.
    Stored { is_quiet: bool },
    /// The number of `incr` and `decr`.
    Counted { is_quiet: bool },
    /// DELETED or NOT_FOUND.
    Deleted { is_quiet: bool },
    /// TOUCHED or NOT_FOUND.
    Touched { is_quiet: bool },
    /// OK for every reply that is not an error.
    Ok { is_quiet: bool },
    /// STORED if the login succeeds.
    LoggedIn,
    /// Statistics from the text of INFO.
    Stats(&'static str),
    /// RESET.
    Reset,
    /// The reply of a meta command.
    Meta(Box<Meta>),
}

/// The position of a key in the front's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The meta commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaKind {
    Get,
    Set,
    Delete,
    Arithmetic,
    Debug,
}

/// A meta command that has been sent.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) kind: MetaKind,
    /// The key as received, which `k` returns.
    pub(crate) key: Box<[u8]>,
    pub(crate) flags: MetaFlags,
    /// Length of the data block of `ms`.
    pub(crate) data_bytes: usize,
    pub(crate) now_unix_ms: u64,
    /// Whether the item may have to be requested once more.
    pub(crate) asks_again: bool,
    /// The first reply, if the item was requested once more.
    pub(crate) first: Box<[u8]>,
}
