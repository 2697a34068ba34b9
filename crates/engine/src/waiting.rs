//! Requests that wait for keys: BLPOP and similar.
//!
//! ```text
//!   handler finds nothing ── Context::wait_for ──► a place in line, Session::wait ── Next::Blocks
//!                                                      │
//!   somebody changes the key ── engine, after the change: the handler again, as that client
//!                                                      │ Turn::take: now or never
//!   ClientsPort::answer ◄─ the reply ◄─────────────────┘
//! ```
//!
//! A blocking command is a plain one whose handler returns "nothing yet" instead of a null reply.
//! It runs again, as it was sent, when there may be something. A handler whose argument means "now"
//! (XREAD's `$`) supplies a request with the concrete value. Until then, only the request and its
//! client are kept.

use std::cell::Cell;
use std::sync::Arc;

use base::extended::Extended;
use protocol::{OwnedRequest, Reply, ReplyBuffer, Request, Resp};
use store::{Key, Wanted};

use crate::client_record::ClientRecord;
use crate::command_index::CommandIndex;
use crate::error::{CommandError, CommandResult};
use crate::replication::Copies;

/// All clients of a server that wait for keys.
pub type Waiters = store::Waiters<Waiting>;
/// One of these clients.
pub type Waiter = store::Waiter<Waiting>;

/// A request that waits, and its client.
pub struct Waiting {
    /// The client that sent it and gets the reply.
    pub client: Arc<ClientRecord>,
    /// The request to run when there may be something.
    pub(crate) request: OwnedRequest,
    /// The command of the request.
    pub(crate) command: CommandIndex,
    /// The protocol of the reply.
    pub(crate) resp: Resp,
    /// Whether the client wants no reply.
    pub(crate) is_silent: bool,
    /// The reply after the timeout.
    pub(crate) in_vain: InVain,
}

/// The wait of a session.
pub struct Wait {
    /// Its place in line.
    pub waiter: Arc<Waiter>,
    /// Maximum wait; `None` for no limit.
    pub timeout_ms: Option<u64>,
    /// The wait also ends when the log is on disk up to here.
    pub log_end: Option<u64>,
}

/// The reply to a request that waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InVain {
    /// A null array.
    Nothing,
    /// The number of replicas that have the log up to a sequence.
    Copies {
        /// The sequence.
        sequence: u64,
        /// Number of replicas that are enough.
        wanted: usize,
    },
    /// Whether the log is on the local disk up to a sequence, and how many replicas have it on
    /// theirs. Without a log, nothing is on disk.
    OnDisks {
        /// The sequence.
        sequence: Option<u64>,
        /// Whether the request waits for the local disk.
        wants_local: bool,
        /// Number of replicas that are enough.
        wanted: usize,
    },
}

/// The progress of the log on the disk and at replicas, for requests that wait for it.
pub trait Progress {
    /// Returns the sequence up to which it is on disk here.
    fn durable(&self) -> u64;

    /// Returns how many replicas have it up to a sequence.
    fn copies(&self, sequence: u64) -> Copies;
}

/// Approximate memory of each argument of a waiting request besides its bytes: most are keys, each
/// with a place in a line.
const ARGUMENT_BYTES: usize = 96;

impl Waiting {
    /// Returns the request as received.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        self.request.request()
    }

    /// Returns its approximate memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let request = self.request.request();
        size_of::<Self>() + request.wire_bytes() + request.len() * ARGUMENT_BYTES
    }

    /// Returns the reply when the wait ends in vain: that nothing came, or how far the log is.
    #[must_use]
    pub fn in_vain(&self, progress: &dyn Progress) -> Vec<u8> {
        self.encoded(|reply| match self.in_vain {
            InVain::Nothing => reply.null_array(),
            InVain::Copies { sequence, .. } => {
                reply.integer(as_integer(progress.copies(sequence).applied));
            }
            InVain::OnDisks { sequence, .. } => {
                let is_on_disk = sequence.is_some_and(|end| end <= progress.durable());
                let copies = progress.copies(sequence.unwrap_or(0)).durable;
                reply.array(2);
                reply.integer(i64::from(is_on_disk));
                reply.integer(as_integer(copies));
            }
        })
    }

    /// Whether the log has reached what the client waits for. Always false if it waits for
    /// something else.
    #[must_use]
    pub fn is_reached(&self, progress: &dyn Progress) -> bool {
        match self.in_vain {
            InVain::Nothing => false,
            InVain::Copies { sequence, wanted } => progress.copies(sequence).applied >= wanted,
            InVain::OnDisks {
                sequence,
                wants_local,
                wanted,
            } => {
                let is_on_disk = sequence.is_some_and(|end| end <= progress.durable());
                (is_on_disk || !wants_local)
                    && progress.copies(sequence.unwrap_or(0)).durable >= wanted
            }
        }
    }

    /// Returns the reply for a wait that is ended with an error.
    #[must_use]
    pub fn refusal(&self, text: &str) -> Vec<u8> {
        self.encoded(|reply| reply.error(text))
    }

    /// Returns a reply in the client's protocol, or nothing if the client wants none.
    pub(crate) fn encoded(&self, write: impl FnOnce(&mut Reply<'_>)) -> Vec<u8> {
        let mut buffer = ReplyBuffer::with_capacity(0);
        if !self.is_silent {
            write(&mut Reply::new(&mut buffer, self.resp));
        }
        buffer.to_vec()
    }
}

/// Whose turn it is: a client that just sent a request, or a client that has waited.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    pub(crate) waiters: &'a Arc<Waiters>,
    /// The client that has waited.
    pub(crate) waiter: Option<Waited<'a>>,
}

/// A client that has waited and whose request is retried.
#[derive(Clone, Copy)]
pub(crate) struct Waited<'a> {
    pub(crate) waiter: &'a Arc<Waiter>,
    /// Whether its wait was ended to serve it.
    pub(crate) is_claimed: &'a Cell<bool>,
}

impl<'a> Turn<'a> {
    /// Whether the request has waited.
    pub fn is_later(self) -> bool {
        self.waiter.is_some()
    }

    /// Returns the turn of a client that just sent a request.
    pub(crate) fn of_newcomer(waiters: &'a Arc<Waiters>) -> Self {
        Self {
            waiters,
            waiter: None,
        }
    }

    /// Whether the request may take from a key, because no other client has waited longer. The key
    /// is locked.
    #[inline]
    pub fn has_come(self, key: &Key<'_>, wanted: Wanted) -> bool {
        let ticket = self.waiter.map(|waited| waited.waiter.ticket());
        !self.waiters.is_ahead(key, wanted, ticket)
    }

    /// Claims the turn. To be called before the request changes anything: after this it must be
    /// answered.
    ///
    /// # Errors
    /// [`CommandError::Blocks`] if it no longer waits: nothing may be changed.
    #[inline]
    pub fn take(self) -> CommandResult {
        match self.waiter {
            Some(waited) if !waited.is_claimed.get() => {
                waited.is_claimed.set(waited.waiter.claim());
                waited
                    .is_claimed
                    .get()
                    .then_some(())
                    .ok_or(CommandError::Blocks)
            }
            _ => Ok(()),
        }
    }
}

fn as_integer(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Parses a timeout in seconds. Returns milliseconds, rounded up, or `None` for 0, which means no
/// limit.
///
/// # Errors
/// If it is not a number, is negative, or ends when milliseconds since 1970 exceed 63 bits.
pub fn seconds(argument: &[u8], now_unix_ms: u64) -> Result<Option<u64>, CommandError> {
    let Some(seconds) = base::float::parse(argument) else {
        return seconds_beyond_doubles(argument, now_unix_ms);
    };
    if seconds.is_nan() {
        return Err(NO_FLOAT);
    }
    let ms = (seconds * 1000.0).ceil();
    if ms < 0.0 {
        return Err(NEGATIVE);
    }
    // From 2^53 on, a double is a whole number, and 2^63 is exact.
    if ms >= 9_223_372_036_854_775_808.0 {
        return Err(OUT_OF_RANGE);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 0 to below 2^63"
    )]
    let ms = ms as u64;
    bounded(ms, now_unix_ms)
}

/// Does the same for a number outside the range of a double: Redis reads a `long double`.
#[cold]
fn seconds_beyond_doubles(argument: &[u8], now_unix_ms: u64) -> Result<Option<u64>, CommandError> {
    let seconds = Extended::parse(argument).ok_or(NO_FLOAT)?;
    let is_negative = argument.starts_with(b"-");
    match (seconds.is_below_one(), is_negative) {
        (true, false) => bounded(1, now_unix_ms),
        // Rounded up.
        (true, true) => Ok(None),
        (false, false) => Err(OUT_OF_RANGE),
        (false, true) => Err(NEGATIVE),
    }
}

/// Parses a timeout in milliseconds. Returns `None` for 0, which means no limit.
///
/// # Errors
/// The errors of [`seconds`].
pub fn milliseconds(argument: &[u8], now_unix_ms: u64) -> Result<Option<u64>, CommandError> {
    let ms = base::number::parse_i64(argument).ok_or(CommandError::fixed(
        "ERR timeout is not an integer or out of range",
    ))?;
    bounded(u64::try_from(ms).map_err(|_| NEGATIVE)?, now_unix_ms)
}

const NO_FLOAT: CommandError = CommandError::fixed("ERR timeout is not a float or out of range");
const NEGATIVE: CommandError = CommandError::fixed("ERR timeout is negative");
const OUT_OF_RANGE: CommandError = CommandError::fixed("ERR timeout is out of range");

fn bounded(ms: u64, now_unix_ms: u64) -> Result<Option<u64>, CommandError> {
    let end_unix_ms = now_unix_ms.checked_add(ms);
    let fits = end_unix_ms.is_some_and(|end| i64::try_from(end).is_ok());
    if ms > 0 && !fits {
        return Err(OUT_OF_RANGE);
    }
    Ok(Some(ms).filter(|ms| *ms > 0))
}
