//! The limits of the management port.

use std::time::Duration;

/// Maximum number of simultaneous connections. Others wait in the kernel's queue.
pub(crate) const CONNECTIONS_MAX: usize = 64;
/// Maximum number of simultaneous event streams.
pub(crate) const STREAMS_MAX: usize = 8;
/// Maximum size of a request's line and headers.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of headers of a request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Maximum size of a request's body.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Maximum time for a request's head, and then again for its body.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time for a command sent over HTTP.
pub(crate) const COMMAND_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of commands in one request.
pub(crate) const PIPELINE_MAX: usize = 128;
/// Maximum number of arguments of a command.
pub(crate) const ARGUMENTS_MAX: usize = 1024;
/// Maximum size of a command's reply.
pub(crate) const REPLY_BYTES_MAX: usize = 8 << 20;
/// Maximum number of simultaneous logins.
pub(crate) const SESSIONS_MAX: usize = 64;
/// Maximum size of a user's name or password.
pub(crate) const CREDENTIAL_BYTES_MAX: usize = 512;
/// Number of seconds for which the history has a frame each: an hour.
pub(crate) const SECONDS_KEPT: usize = 3600;
/// Number of minutes for which it has a frame each: a day.
pub(crate) const MINUTES_KEPT: usize = 1440;
/// Number of past seconds that a stream begins with.
pub(crate) const SECONDS_FIRST: usize = 300;
/// Number of spans that the page shows.
pub(crate) const SPANS_SHOWN: usize = 100;
