//! Error replies to malformed requests, after which the connection is closed.
//!
//! The texts are an interface: clients and test suites match them byte by byte.

use std::fmt;

use crate::reply::Reply;

/// A request that violates the protocol. The session answers it and closes the connection, because
/// nothing after it can be trusted to be a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count after `*` is not a number or exceeds the limit.
    InvalidMultibulkLength,
    /// The count after `*` exceeds what a client may send before it is authenticated.
    UnauthenticatedMultibulkLength,
    /// The length after `$` is not a number, is negative or exceeds the limit.
    InvalidBulkLength,
    /// The length after `$` exceeds what a client may send before it is authenticated.
    UnauthenticatedBulkLength,
    /// An argument starts with this byte instead of `$`.
    ExpectedBulk(u8),
    /// A quoted argument of an inline request has no end, or its end is not followed by a space.
    UnbalancedQuotes,
    /// The line of an inline request exceeds the limit.
    TooBigInlineRequest,
    /// The line that starts with `*` exceeds the limit.
    TooBigMultibulkCount,
    /// The line that should hold an argument's length exceeds the limit.
    TooBigBulkCount,
}

impl ProtocolError {
    /// Writes the error reply, `-ERR Protocol error: …`.
    pub fn write_to(self, reply: &mut Reply<'_>) {
        match self {
            Self::ExpectedBulk(byte) => {
                let mut text = *b"ERR Protocol error: expected '$', got '?'";
                let at = text.len() - 2;
                text[at] = byte;
                reply.error_bytes(&text);
            }
            other => reply.error(other.full_text()),
        }
    }

    fn full_text(self) -> &'static str {
        match self {
            Self::InvalidMultibulkLength => "ERR Protocol error: invalid multibulk length",
            Self::UnauthenticatedMultibulkLength => {
                "ERR Protocol error: unauthenticated multibulk length"
            }
            Self::InvalidBulkLength => "ERR Protocol error: invalid bulk length",
            Self::UnauthenticatedBulkLength => "ERR Protocol error: unauthenticated bulk length",
            Self::ExpectedBulk(_) => "ERR Protocol error: expected '$'",
            Self::UnbalancedQuotes => "ERR Protocol error: unbalanced quotes in request",
            Self::TooBigInlineRequest => "ERR Protocol error: too big inline request",
            Self::TooBigMultibulkCount => "ERR Protocol error: too big mbulk count string",
            Self::TooBigBulkCount => "ERR Protocol error: too big bulk count string",
        }
    }
}

/// Formats the text for a log line, without the code with which a reply begins.
impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.full_text().trim_start_matches("ERR "))?;
        match self {
            Self::ExpectedBulk(byte) => write!(f, ", got '{}'", byte.escape_ascii()),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ProtocolError {}
