//! What a client may send.

/// The longest key, in bytes, as in memcached.
pub const KEY_BYTES_MAX: usize = 250;
/// The longest line of a request that is not one of the next, without its end.
pub const LINE_BYTES_MAX: usize = 2048;
/// The longest line of `get`, `gets`, `gat` and `gats`, which name many keys.
pub const GET_LINE_BYTES_MAX: usize = 1 << 20;
/// The longest opaque token of a meta command, as in memcached.
pub const OPAQUE_BYTES_MAX: usize = 32;
/// Lines that are read before what they ask for is run.
pub const AHEAD_REQUESTS_MAX: usize = 64;
/// Bytes of commands after which no further line is read before they are run.
pub const AHEAD_BYTES_MAX: usize = 64 << 10;
/// Memory that a client's buffers keep between requests.
pub const KEPT_BYTES_MAX: usize = 64 << 10;
