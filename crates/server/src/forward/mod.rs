//! Clients without cluster support: requests for other nodes are run there on their behalf
//! (`forward-port`, CLIENT FORWARD ON).
//!
//! ```text
//!   client ─► worker: rules ─► own keys: engine ───────────────┐
//!                      └─► window of requests ─► upstream ─► node that owns the slot
//!   client ◄─ replies in the order of the requests ◄───────────┘
//! ```
//!
//! The client's worker does all of it. An upstream is a connection to one node, served by the same
//! event loop; it has a database, a protocol version and a user. Quick requests use an upstream
//! that the worker's clients with the same terms share. All others use one of the client's own
//! ([`client::Lane`]), so transactions, watched keys and blocking commands are handled by that node
//! and delay no other client. A thread makes an upstream ([`dial`]): over the cluster's link it
//! asks the other node for a token, which admits one connection as a user.
//!
//! Invariants
//!  1. Replies leave in the order of the requests ([`window`]). Requests about one slot reach its
//!     node in order: a request that is sent again holds back later ones, and a client changes
//!     between connections only when nothing is in flight.
//!  2. A request that may have run is not sent again, unless it only reads.
//!  3. A forwarded request is not forwarded again: an upstream's session does not forward.
//!  4. A client's requests in flight are limited in number and bytes ([`window::REQUESTS_MAX`],
//!     [`window::BYTES_MAX`]). Beyond that, the client is not read from.

pub(crate) mod client;
pub(crate) mod dial;
pub(crate) mod merge;
pub(crate) mod replies;
pub(crate) mod rules;
pub(crate) mod upstream;
pub(crate) mod window;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::random::fill_from_os;
use reactor::{Balancer, ConnectionId};

/// Length of a token.
pub(crate) const TOKEN_BYTES: usize = 20;
/// How long a token is valid.
const TOKEN_MS: u64 = 10_000;
/// Maximum number of unused tokens.
const TOKENS_MAX: usize = 4_096;

/// The user for whom a token admits a connection.
struct Token {
    user: Box<[u8]>,
    until_ms: u64,
}

/// A connection to another node on its way to the worker that requested it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    /// The client that it is for, or `None` if the worker's clients share it.
    pub(crate) client: Option<ConnectionId>,
    /// The serial of its upstream.
    pub(crate) serial: u64,
}

/// The state for forwarding that a node's workers share.
#[derive(Default)]
pub struct Forward {
    balancer: OnceLock<Arc<Balancer>>,
    tokens: Mutex<HashMap<[u8; TOKEN_BYTES], Token>>,
    /// Newcomers by descriptor.
    newcomers: Mutex<HashMap<i32, Newcomer>>,
    dials: AtomicUsize,
}

impl Forward {
    /// Sets the balancer that passes connections to workers; once.
    pub(crate) fn set_balancer(&self, balancer: &Arc<Balancer>) {
        let _already_set = self.balancer.set(Arc::clone(balancer));
    }

    /// Issues a token that admits one connection as a user, or returns `None` if too many are
    /// unused.
    pub(crate) fn issue(&self, user: &[u8], now_ms: u64) -> Option<[u8; TOKEN_BYTES]> {
        let mut tokens = lock(&self.tokens);
        tokens.retain(|_, token| token.until_ms > now_ms);
        if tokens.len() >= TOKENS_MAX {
            return None;
        }
        let mut bytes = [0; TOKEN_BYTES];
        fill_from_os(&mut bytes);
        let token = Token {
            user: user.into(),
            until_ms: now_ms + TOKEN_MS,
        };
        tokens.insert(bytes, token);
        Some(bytes)
    }

    /// Returns the user whom a token, as text, admits. A token works once.
    pub(crate) fn redeem(&self, token: &[u8], now_ms: u64) -> Option<Box<[u8]>> {
        let token = base::hex::bytes(std::str::from_utf8(token).ok()?)?;
        let token = lock(&self.tokens).remove(&token)?;
        (token.until_ms > now_ms).then_some(token.user)
    }

    /// Takes the record of a connection that no listener accepted.
    pub(crate) fn take_newcomer(&self, fd: i32) -> Option<Newcomer> {
        lock(&self.newcomers).remove(&fd)
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_holds_once_and_not_for_long() {
        let forward = Forward::default();
        let text = |token: [u8; TOKEN_BYTES]| base::hex::text(&token).into_bytes();
        let token = text(forward.issue(b"ann", 100).unwrap());
        assert_eq!(forward.redeem(b"x", 100), None);
        assert_eq!(forward.redeem(&token, 200).as_deref(), Some(&b"ann"[..]));
        assert_eq!(forward.redeem(&token, 200), None);
        let late = text(forward.issue(b"ann", 100).unwrap());
        assert_eq!(forward.redeem(&late, 100 + TOKEN_MS), None);
        for _ in 0..TOKENS_MAX {
            assert!(forward.issue(b"ann", 0).is_some());
        }
        assert!(forward.issue(b"ann", 1).is_none());
        assert!(forward.issue(b"ann", TOKEN_MS).is_some());
    }
}
