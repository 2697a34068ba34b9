//! Sessions that clients may resume, so that they need not prove again what they proved before.
//!
//! Sessions are bounded in number and in age. A session of TLS 1.3 is used once. Sessions belong to
//! the content that the server read from its files ([`Server`](crate::Server)): after the files are
//! read again, no client resumes a session that other authorities allowed.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::clock::Clock;
use rustls::server::StoresServerSessions;

/// See the module.
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    entries_max: usize,
    lifetime_ns: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    sessions: HashMap<Vec<u8>, Session>,
    /// Keys by age, oldest first. Some sessions may be gone already, or stored again.
    order: VecDeque<(u64, Vec<u8>)>,
}

struct Session {
    value: Vec<u8>,
    ends_ns: u64,
}

impl Sessions {
    /// Makes a store of at most `entries_max` sessions (0: 20,480) that live for `lifetime_s`
    /// seconds.
    pub(crate) fn new(clock: Arc<dyn Clock>, entries_max: usize, lifetime_s: u64) -> Self {
        Self {
            clock,
            entries_max: if entries_max == 0 {
                20_480
            } else {
                entries_max
            },
            lifetime_ns: lifetime_s.saturating_mul(1_000_000_000),
            kept: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // If a session is lost, it only cannot be resumed.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let now_ns = self.clock.monotonic_ns();
        let ends_ns = now_ns.saturating_add(self.lifetime_ns);
        let mut kept = self.lock();
        while let Some((end_ns, oldest)) = kept.order.front() {
            // The order may be longer than the map: it still holds sessions that were used.
            if *end_ns > now_ns && kept.order.len() < self.entries_max {
                break;
            }
            let is_same = |one: &Session| one.ends_ns == *end_ns;
            let oldest = kept
                .sessions
                .get(oldest)
                .is_some_and(is_same)
                .then(|| oldest.clone());
            if let Some(oldest) = oldest {
                kept.sessions.remove(&oldest);
            }
            kept.order.pop_front();
        }
        kept.order.push_back((ends_ns, key.clone()));
        kept.sessions.insert(key, Session { value, ends_ns });
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let kept = self.lock();
        let session = kept.sessions.get(key)?;
        (session.ends_ns > self.clock.monotonic_ns()).then(|| session.value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let session = self.lock().sessions.remove(key)?;
        (session.ends_ns > self.clock.monotonic_ns()).then_some(session.value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("entries_max", &self.entries_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use base::clock::ManualClock;

    use super::*;

    fn sessions(entries_max: usize) -> (Sessions, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at_unix_ms(0));
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        (Sessions::new(shared, entries_max, 300), clock)
    }

    #[test]
    fn a_session_goes_on_until_it_is_too_old() {
        let (sessions, clock) = sessions(10);
        sessions.put(b"k".to_vec(), b"v".to_vec());
        assert_eq!(sessions.get(b"k").as_deref(), Some(&b"v"[..]));
        clock.advance_ms(299_999);
        assert!(sessions.get(b"k").is_some());
        clock.advance_ms(1);
        assert!(sessions.get(b"k").is_none());
        sessions.put(b"l".to_vec(), b"w".to_vec());
        assert_eq!(sessions.lock().sessions.len(), 1, "the old one left");
    }

    #[test]
    fn a_session_is_taken_once_and_the_oldest_makes_room() {
        let (sessions, clock) = sessions(3);
        for key in [b"a", b"b", b"c", b"d"] {
            sessions.put(key.to_vec(), key.to_vec());
            clock.advance_ms(1);
        }
        assert!(sessions.get(b"a").is_none());
        assert!(sessions.take(b"b").is_some() && sessions.take(b"b").is_none());
        assert_eq!(sessions.lock().order.len(), 3);
    }
}
