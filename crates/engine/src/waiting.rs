//! Requests that wait for keys: BLPOP and its kin.
//!
//! ```text
//!   handler finds nothing ── Context::wait_for ──► a place in line, Session::wait ── Next::Blocks
//!                                                      │
//!   somebody changes the key ── engine, after the change: the handler again, as that client
//!                                                      │ Turn::take: now or never
//!   ClientsPort::answer ◄─ the reply ◄─────────────────┘
//! ```
//!
//! A blocking command is a plain one whose handler says "nothing yet" instead of a null reply. It runs
//! again, as it was sent, when something may be there; a handler that means now (XREAD's `$`) hands in
//! a request that says so by name. Until then nothing of it is kept but the request and who sent it.

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
/// One of them.
pub type Waiter = store::Waiter<Waiting>;

/// A request that waits, and who sent it.
pub struct Waiting {
    /// Who sent it, and gets the reply.
    pub client: Arc<ClientRecord>,
    /// What runs when there may be something.
    pub(crate) request: OwnedRequest,
    /// The command of the request.
    pub(crate) command: CommandIndex,
    /// The protocol of the reply.
    pub(crate) resp: Resp,
    /// Whether the client wants no reply.
    pub(crate) is_silent: bool,
    /// What is answered when there was nothing for too long.
    pub(crate) in_vain: InVain,
}

/// The wait of a session.
pub struct Wait {
    /// Its place in line.
    pub waiter: Arc<Waiter>,
    /// How long it waits at most; `None` for as long as it takes.
    pub timeout_ms: Option<u64>,
    /// It also ends when the log is on disk up to here.
    pub log_end: Option<u64>,
}

/// What a request that waited in vain is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InVain {
    /// A null array.
    Nothing,
    /// How many replicas have the log up to here.
    Copies {
        /// Up to where.
        sequence: u64,
        /// How many are enough.
        wanted: usize,
    },
    /// Whether the log is on the local disk up to here, and how many replicas have it on theirs. Without a log
    /// nothing is.
    OnDisks {
        /// Up to where.
        sequence: Option<u64>,
        /// Whether the local disk is waited for.
        wants_local: bool,
        /// How many replicas are enough.
        wanted: usize,
    },
}

/// How far the log is on the disk and at replicas, for who waits for that.
pub trait Progress {
    /// Up to where it is on disk here.
    fn durable(&self) -> u64;

    /// How many replicas have it up to a sequence.
    fn copies(&self, sequence: u64) -> Copies;
}

/// What each argument of a request that waits takes beside its bytes, about: most are keys, and
/// stand in a line each.
const ARGUMENT_BYTES: usize = 96;

impl Waiting {
    /// The request as it came.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        self.request.request()
    }

    /// Bytes of memory behind it, about.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let request = self.request.request();
        size_of::<Self>() + request.wire_bytes() + request.len() * ARGUMENT_BYTES
    }

    /// What the client gets when it waits no longer: that nothing came, or how far the log is.
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

    /// Whether the log is as far as the client waits for; never, where it waits for something else.
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

    /// What the client gets when somebody ends its wait with an error.
    #[must_use]
    pub fn refusal(&self, text: &str) -> Vec<u8> {
        self.encoded(|reply| reply.error(text))
    }

    /// A reply in the client's protocol; nothing if it wants none.
    pub(crate) fn encoded(&self, write: impl FnOnce(&mut Reply<'_>)) -> Vec<u8> {
        let mut buffer = ReplyBuffer::with_capacity(0);
        if !self.is_silent {
            write(&mut Reply::new(&mut buffer, self.resp));
        }
        buffer.to_vec()
    }
}

/// Whose turn it is: that of who just sent a request, or of somebody who has waited.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    pub(crate) waiters: &'a Arc<Waiters>,
    /// Who has waited.
    pub(crate) waiter: Option<Waited<'a>>,
}

/// Somebody who has waited and gets another try.
#[derive(Clone, Copy)]
pub(crate) struct Waited<'a> {
    pub(crate) waiter: &'a Arc<Waiter>,
    /// Whether its wait was ended to give it something.
    pub(crate) is_claimed: &'a Cell<bool>,
}

impl<'a> Turn<'a> {
    /// Whether the request has waited.
    pub fn is_later(self) -> bool {
        self.waiter.is_some()
    }

    /// The turn of who just sent a request.
    pub(crate) fn of_newcomer(waiters: &'a Arc<Waiters>) -> Self {
        Self {
            waiters,
            waiter: None,
        }
    }

    /// Whether something may be taken from a key, or others have waited longer. The key is locked.
    #[inline]
    pub fn has_come(self, key: &Key<'_>, wanted: Wanted) -> bool {
        let ticket = self.waiter.map(|waited| waited.waiter.ticket());
        !self.waiters.is_ahead(key, wanted, ticket)
    }

    /// To be called before anything is changed for the request: from now on it has to be answered.
    ///
    /// # Errors
    /// [`CommandError::Blocks`] when it waits no longer: nothing may be changed.
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

/// A timeout in seconds, in milliseconds and rounded up; `None` for 0, which means for ever.
///
/// # Errors
/// When it is no number, negative, or ends when milliseconds since 1970 do not fit 63 bits.
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
    // A double is a whole number from 2^53 on, and 2^63 is one.
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

/// The same of what is too large or too small for a double: Redis reads a `long double`.
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

/// A timeout in milliseconds; `None` for 0, which means for ever.
///
/// # Errors
/// As [`seconds`].
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
