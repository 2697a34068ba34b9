//! Limits of failed logins per address.
//!
//! A password that can be guessed offline is lost anyhow. These limits keep a client from guessing
//! one online. Each address may fail a number of times at once, and regains a few attempts every
//! second. An address without attempts is refused before the password is checked. The number of
//! addresses is bounded: failures of addresses beyond the bound are not counted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of failures at once.
const FAILURES_MAX: u32 = 100;
/// Time after which an address regains one attempt.
const FAILURE_MS: u64 = 50;
/// Maximum number of addresses that are counted separately.
const ADDRESSES_MAX: usize = 4096;

/// Counts of failures, by address.
#[derive(Debug, Default)]
pub struct Throttle {
    accounts: Mutex<HashMap<Box<str>, Account>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    failures: u32,
    /// The time up to which regained attempts are counted.
    since_ms: u64,
}

impl Account {
    fn give_back(&mut self, now_ms: u64) {
        let past_ms = now_ms.saturating_sub(self.since_ms);
        let back = u32::try_from(past_ms / FAILURE_MS).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_sub(back);
        self.since_ms = if self.failures == 0 {
            now_ms
        } else {
            self.since_ms + u64::from(back) * FAILURE_MS
        };
    }
}

impl Throttle {
    /// Returns whether an address may try to log in.
    #[must_use]
    pub fn admits(&self, address: &str, now_ms: u64) -> bool {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.get_mut(address);
        account.is_none_or(|account| {
            account.give_back(now_ms);
            account.failures < FAILURES_MAX
        })
    }

    /// Counts a failed login of an address.
    pub fn note_failure(&self, address: &str, now_ms: u64) {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= ADDRESSES_MAX && !accounts.contains_key(address) {
            accounts.retain(|_, account| {
                account.give_back(now_ms);
                account.failures > 0
            });
            if accounts.len() >= ADDRESSES_MAX {
                return;
            }
        }
        let account = accounts.entry(address.into()).or_insert(Account {
            failures: 0,
            since_ms: now_ms,
        });
        account.give_back(now_ms);
        account.failures = account.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_too_often_has_to_wait() {
        let throttle = Throttle::default();
        for _ in 0..FAILURES_MAX {
            assert!(throttle.admits("a", 1000));
            throttle.note_failure("a", 1000);
        }
        assert!(!throttle.admits("a", 1000) && throttle.admits("b", 1000));
        assert!(!throttle.admits("a", 1000 + FAILURE_MS - 1));
        assert!(throttle.admits("a", 1000 + FAILURE_MS));
        throttle.note_failure("a", 1000 + FAILURE_MS);
        assert!(!throttle.admits("a", 1000 + FAILURE_MS));
        assert!(throttle.admits("a", 1_000_000));
    }

    #[test]
    fn accounts_are_bounded() {
        let throttle = Throttle::default();
        for number in 0..ADDRESSES_MAX + 10 {
            throttle.note_failure(&number.to_string(), 0);
        }
        let count = throttle.accounts.lock().map(|accounts| accounts.len());
        assert_eq!(count.ok(), Some(ADDRESSES_MAX));
        throttle.note_failure("late", 1_000_000);
        let count = throttle.accounts.lock().map(|accounts| accounts.len());
        assert_eq!(count.ok(), Some(1));
    }
}
