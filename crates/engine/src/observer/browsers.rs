//! HTTP requests that came to a port of this server, as a web page in a browser can cause: their
//! number, and the address of the last one. They are reported rarely, because a client that sends
//! one can send many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Minimum time between two reports.
const TOLD_EVERY_MS: u64 = 60_000;

/// HTTP requests that were refused.
#[derive(Debug, Default)]
pub struct Browsers {
    count: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The address of the last one, if it has not been reported.
    address: Option<String>,
    told_ms: Option<u64>,
    told_count: u64,
}

impl Browsers {
    /// Counts an HTTP request from an address.
    pub(crate) fn note(&self, address: &str) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.state().address = Some(address.to_owned());
    }

    /// Returns the number of such requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns a report if there is something new and a report is due: the number of requests since
    /// the last report, and the last address.
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
