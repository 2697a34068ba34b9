//! Clients that need no cluster support: what other nodes serve is done there for them (`forward-port`, CLIENT FORWARD ON).
//!
//! ```text
//!   client ─► worker: rules ─► own keys: engine ───────────────┐
//!                      └─► window of requests ─► upstream ─► node that owns the slot
//!   client ◄─ replies in the order of the requests ◄───────────┘
//! ```
//!
//! All of it is done by the worker of the client. An upstream is a connection to one node, served by the same event loop; it has
//! a database, a protocol version and a user. What is quickly done goes over one that the worker's clients of that kind share,
//! everything else over one of the client's own ([`client::Lane`]), so transactions, watched keys and commands that block are
//! that node's business and keep nobody else waiting. A thread makes it ([`dial`]): it asks the other node over the link of the
//! cluster for a token, which lets a connection in as a user, once.
//!
//! Invariants
//!  1. Replies leave in the order of the requests ([`window`]). Requests about one slot reach its node in their order: what is
//!     sent again holds back what comes after it, and a client changes between connections when nothing is on its way.
//!  2. What may have run is not sent again, unless it only reads.
//!  3. A request that was forwarded is not forwarded again: an upstream's session is one that does not forward.
//!  4. A client has at most so many requests and bytes of requests on their way ([`window::REQUESTS_MAX`],
//!     [`window::BYTES_MAX`]); beyond it is not read from.

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

/// Bytes of a token.
pub(crate) const TOKEN_BYTES: usize = 20;
/// Who was given a token has so long to use it.
const TOKEN_MS: u64 = 10_000;
/// Tokens that are not used yet.
const TOKENS_MAX: usize = 4_096;

/// For which user a connection is let in.
struct Token {
    user: Box<[u8]>,
    until_ms: u64,
}

/// A connection to another node on its way to the worker that wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    /// The client that it is for; none where the worker's clients share it.
    pub(crate) client: Option<ConnectionId>,
    /// Which of their upstreams.
    pub(crate) serial: u64,
}

/// What the workers of a node have in common to forward.
#[derive(Default)]
pub struct Forward {
    balancer: OnceLock<Arc<Balancer>>,
    tokens: Mutex<HashMap<[u8; TOKEN_BYTES], Token>>,
    /// By their descriptors.
    newcomers: Mutex<HashMap<i32, Newcomer>>,
    dials: AtomicUsize,
}

impl Forward {
    /// Says how connections reach workers; once.
    pub(crate) fn set_balancer(&self, balancer: &Arc<Balancer>) {
        let _already_set = self.balancer.set(Arc::clone(balancer));
    }

    /// A token that lets one connection in as a user; none where too many are not used yet.
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

    /// The user whom a token, as text, lets in. It holds once.
    pub(crate) fn redeem(&self, token: &[u8], now_ms: u64) -> Option<Box<[u8]>> {
        let token = base::hex::bytes(std::str::from_utf8(token).ok()?)?;
        let token = lock(&self.tokens).remove(&token)?;
        (token.until_ms > now_ms).then_some(token.user)
    }

    /// Whom a connection is for that no listener accepted.
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
