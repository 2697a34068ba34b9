//! What the management port may be made to hold, by name.

use std::time::Duration;

/// Connections at a time; more wait in the kernel's queue.
pub(crate) const CONNECTIONS_MAX: usize = 64;
/// Event streams at a time.
pub(crate) const STREAMS_MAX: usize = 8;
/// Bytes of a request's line and headers.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes of a request's body.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long a request's head, and then its body, may take.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a command may take that came over HTTP.
pub(crate) const COMMAND_TIME_MAX: Duration = Duration::from_secs(10);
/// Commands of one request.
pub(crate) const PIPELINE_MAX: usize = 128;
/// Arguments of a command.
pub(crate) const ARGUMENTS_MAX: usize = 1024;
/// Bytes of a command's reply.
pub(crate) const REPLY_BYTES_MAX: usize = 8 << 20;
/// Logged in at a time.
pub(crate) const SESSIONS_MAX: usize = 64;
/// Bytes of a user's name or password.
pub(crate) const CREDENTIAL_BYTES_MAX: usize = 512;
/// Seconds of which the history has a frame each: an hour.
pub(crate) const SECONDS_KEPT: usize = 3600;
/// Minutes of which it has one each: a day.
pub(crate) const MINUTES_KEPT: usize = 1440;
/// Seconds that a stream begins with.
pub(crate) const SECONDS_FIRST: usize = 300;
/// Spans that the page shows.
pub(crate) const SPANS_SHOWN: usize = 100;
