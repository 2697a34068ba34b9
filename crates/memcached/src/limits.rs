//! Limits of a client's input.

/// Maximum length of a key in bytes, as in memcached.
pub const KEY_BYTES_MAX: usize = 250;
/// Maximum length of a request's line without its end, except for the commands of
/// [`GET_LINE_BYTES_MAX`].
pub const LINE_BYTES_MAX: usize = 2048;
/// Maximum length of a line of `get`, `gets`, `gat` and `gats`, which name many keys.
pub const GET_LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum length of the opaque token of a meta command, as in memcached.
pub const OPAQUE_BYTES_MAX: usize = 32;
/// Maximum number of lines that are read before their commands run.
pub const AHEAD_REQUESTS_MAX: usize = 64;
/// Number of command bytes after which no further line is read before the commands run.
pub const AHEAD_BYTES_MAX: usize = 64 << 10;
/// Number of bytes that a client's buffers keep between requests.
pub const KEPT_BYTES_MAX: usize = 64 << 10;
