//! What the reply of a command is to become.

use crate::meta_flags::MetaFlags;

/// One thing that a client is owed, in the order of its requests.
#[derive(Debug)]
pub(crate) enum Owed {
    /// These bytes; no command runs for it.
    Text(&'static [u8]),
    /// As that, if the text was made for this occasion.
    Made(Box<[u8]>),
    /// An item of `get` and its kin, if there is one.
    Item { key: Key, shows_cas: bool },
    /// The end of the items of a line.
    EndOfItems,
    /// STORED and its kin.
    Stored { is_quiet: bool },
    /// The number of `incr` and `decr`.
    Counted { is_quiet: bool },
    /// DELETED or NOT_FOUND.
    Deleted { is_quiet: bool },
    /// TOUCHED or NOT_FOUND.
    Touched { is_quiet: bool },
    /// OK, whatever the command says that is no error.
    Ok { is_quiet: bool },
    /// STORED once the client is logged in.
    LoggedIn,
    /// Statistics out of what INFO says.
    Stats(&'static str),
    /// RESET.
    Reset,
    /// The reply of a meta command.
    Meta(Box<Meta>),
}

/// Where a key lies in the front's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Which meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaKind {
    Get,
    Set,
    Delete,
    Arithmetic,
    Debug,
}

/// A meta command that was sent.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) kind: MetaKind,
    /// The key as it came: what `k` returns.
    pub(crate) key: Box<[u8]>,
    pub(crate) flags: MetaFlags,
    /// Length of the data block of `ms`.
    pub(crate) data_bytes: usize,
    pub(crate) now_unix_ms: u64,
    /// The item may have to be asked for once more.
    pub(crate) asks_again: bool,
    /// The reply of the first time, then.
    pub(crate) first: Box<[u8]>,
}
