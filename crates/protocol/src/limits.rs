//! Limits of what a peer may send.

use crate::error::ProtocolError;
use crate::request::SHORT_ARGUMENTS_MAX;

/// Maximum arguments of a request before the client is authenticated.
const UNAUTHENTICATED_ARGUMENTS_MAX: u32 = 10;
/// Maximum length of an argument before the client is authenticated.
const UNAUTHENTICATED_BULK_BYTES_MAX: u64 = 16_384;
/// Maximum length of an argument that is decoded by the short way: far below where sums exceed
/// `u32`.
const SHORT_BULK_BYTES_MAX: usize = 1 << 30;

/// Limits of what a peer may send. All are inclusive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum arguments of one request.
    pub multibulk_max: u32,
    /// Maximum bytes of one argument, the directive `proto-max-bulk-len`. A whole request is always
    /// shorter than 4 GiB.
    pub bulk_bytes_max: u64,
    /// Maximum bytes of an inline request, or of a line that announces a count or length.
    pub inline_bytes_max: usize,
    /// Whether the peer is authenticated. If not, much lower limits apply, and requests are decoded
    /// one at a time, because each may be the one that raises the limits.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            multibulk_max: 1_048_576,
            bulk_bytes_max: 512 * 1024 * 1024,
            inline_bytes_max: 64 * 1024,
            authenticated: true,
        }
    }
}

/// The limits in force for one call of the decoder.
pub(crate) struct Ceilings {
    limits: Limits,
    arguments_max: u64,
    bulk_bytes_max: u64,
    /// Whether few arguments with lengths of up to three digits need no further check.
    pub(crate) allow_short: bool,
    /// Maximum length of an argument that needs no further check.
    pub(crate) short_bulk_bytes_max: usize,
}

impl Ceilings {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (arguments_max, bulk_bytes_max) = if limits.authenticated {
            (u32::MAX, u64::MAX)
        } else {
            (
                UNAUTHENTICATED_ARGUMENTS_MAX,
                UNAUTHENTICATED_BULK_BYTES_MAX,
            )
        };
        let arguments_max = u64::from(limits.multibulk_max.min(arguments_max));
        let bulk_bytes_max = limits.bulk_bytes_max.min(bulk_bytes_max);
        Self {
            limits: *limits,
            arguments_max,
            bulk_bytes_max,
            allow_short: arguments_max >= SHORT_ARGUMENTS_MAX as u64 && bulk_bytes_max >= 999,
            short_bulk_bytes_max: at_most(bulk_bytes_max, SHORT_BULK_BYTES_MAX),
        }
    }

    pub(crate) fn line_bytes_max(&self) -> usize {
        self.limits.inline_bytes_max
    }

    /// Checks the count after `*`. A negative count counts as 0.
    pub(crate) fn check_count(&self, count: Option<i64>) -> Result<usize, ProtocolError> {
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?;
        let count = u64::try_from(count).unwrap_or(0);
        if count > u64::from(self.limits.multibulk_max) {
            Err(ProtocolError::InvalidMultibulkLength)
        } else if count > self.arguments_max {
            Err(ProtocolError::UnauthenticatedMultibulkLength)
        } else {
            usize::try_from(count).map_err(|_| ProtocolError::InvalidMultibulkLength)
        }
    }

    /// Checks the length after `$`. The argument begins `position` bytes after the start of its
    /// request, and must end within the range of `u32`.
    pub(crate) fn check_length(
        &self,
        length: Option<i64>,
        position: usize,
    ) -> Result<usize, ProtocolError> {
        let length = length.and_then(|length| u64::try_from(length).ok());
        let length = length.ok_or(ProtocolError::InvalidBulkLength)?;
        if length > self.limits.bulk_bytes_max {
            Err(ProtocolError::InvalidBulkLength)
        } else if length > self.bulk_bytes_max {
            Err(ProtocolError::UnauthenticatedBulkLength)
        } else if length >= u64::from(u32::MAX).saturating_sub(position as u64 + 2) {
            Err(ProtocolError::InvalidBulkLength)
        } else {
            usize::try_from(length).map_err(|_| ProtocolError::InvalidBulkLength)
        }
    }
}

fn at_most(limit: u64, max: usize) -> usize {
    usize::try_from(limit).map_or(max, |limit| limit.min(max))
}
