//! Requests of HTTP that came to a port of this server, as those of a page in somebody's browser do: how many, and
//! from where the last one was. What is told of them is told seldom, since whoever sends one can send many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What is told of them comes at least so long after what was told before.
const TOLD_EVERY_MS: u64 = 60_000;

/// Requests of HTTP that were refused.
#[derive(Debug, Default)]
pub struct Browsers {
    count: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the last one, if nothing was told since.
    address: Option<String>,
    told_ms: Option<u64>,
    told_count: u64,
}

impl Browsers {
    /// Counts one, which came from an address.
    pub(crate) fn note(&self, address: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.state().address = Some(address.to_owned());
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// What is to be told, if there is something and it is time: how many more there were since this was last
    /// asked with success, and the address of the last.
    pub fn take_news(&self, now_ms: u64) -> Option<(u64, String)> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let mut state = self.state();
        let is_early = |told_ms: u64| now_ms.saturating_sub(told_ms) < TOLD_EVERY_MS;
        if state.told_ms.is_some_and(is_early) {
            return None;
        }
        let address = state.address.take()?;
        let more = count.saturating_sub(state.told_count);
        state.told_ms = Some(now_ms);
        state.told_count = count;
        Some((more, address))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_once_a_minute_at_most() {
        let browsers = Browsers::default();
        assert_eq!(browsers.take_news(0), None);
        browsers.note("1.2.3.4:5");
        assert_eq!(browsers.take_news(10), Some((1, "1.2.3.4:5".to_owned())));
        browsers.note("a");
        browsers.note("b");
        assert_eq!(browsers.take_news(60_009), None);
        assert_eq!(browsers.take_news(60_010), Some((2, "b".to_owned())));
        assert_eq!((browsers.take_news(200_000), browsers.count()), (None, 3));
    }
}
