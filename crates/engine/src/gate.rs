//! The conditions for which valid requests have to wait, in one word that is usually zero: a pause
//! of clients, a full log, full memory, a change of the server's role.
//!
//! ```text
//!   63 ........................... 5 |     4     |      3      |      2       |      1      |    0
//!    paused until, ms since 1970 UTC | no office | memory full | role changes | writes only | log full
//! ```
//!
//! While the word is zero, a series of requests pays one load and one branch for all conditions.
//! Otherwise each request is checked by itself, before it takes a lock or changes anything.

use std::sync::atomic::{AtomicU64, Ordering};

const LOG_FULL: u64 = 1;
const WRITES_ONLY: u64 = 1 << 1;
/// This server hands its role over to another one, or takes it over: writes wait until that is
/// done.
const ROLE_CHANGES: u64 = 1 << 2;
/// Values are being moved out of memory: requests that need memory wait.
const MEMORY_FULL: u64 = 1 << 3;
/// This server's data may be out of date until its role has changed: reads wait, too.
const NO_OFFICE: u64 = 1 << 4;
const PAUSE_SHIFT: u32 = 5;

/// See the module. Any thread that learns of a condition writes it; any worker reads it.
#[derive(Debug, Default)]
pub struct Gate(AtomicU64);

impl Gate {
    /// Whether there is nothing to wait for. A thread that sees it open also sees everything
    /// published before it was opened.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Whether the log is at its limit, so that writes wait ([`crate::Next::LogFull`]).
    #[must_use]
    pub fn is_log_full(&self) -> bool {
        self.0.load(Ordering::Acquire) & LOG_FULL != 0
    }

    /// Sets this condition. Ordered with all of the caller's reads before and after it.
    pub fn set_log_full(&self, on: bool) {
        if on {
            self.0.fetch_or(LOG_FULL, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!LOG_FULL, Ordering::SeqCst);
        }
    }

    /// Whether requests that need memory wait until some values have been moved out.
    #[must_use]
    pub fn is_memory_full(&self) -> bool {
        self.0.load(Ordering::Acquire) & MEMORY_FULL != 0
    }

    /// Sets this condition. The caller must resume waiting clients after its end.
    pub fn set_memory_full(&self, on: bool) {
        if on {
            self.0.fetch_or(MEMORY_FULL, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!MEMORY_FULL, Ordering::SeqCst);
        }
    }

    /// Whether writes wait until the server has changed its role, or keeps it.
    #[must_use]
    pub fn changes_role(&self) -> bool {
        self.0.load(Ordering::Acquire) & ROLE_CHANGES != 0
    }

    /// Sets this condition. The caller must resume waiting clients after its end.
    pub fn set_changes_role(&self, on: bool) {
        if on {
            self.0.fetch_or(ROLE_CHANGES, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!ROLE_CHANGES, Ordering::SeqCst);
        }
    }

    /// Whether reads wait, too, until the server has another role.
    #[must_use]
    pub fn has_no_office(&self) -> bool {
        self.0.load(Ordering::Acquire) & NO_OFFICE != 0
    }

    /// Sets this condition. The caller must resume waiting clients after its end.
    pub fn set_no_office(&self, on: bool) {
        if on {
            self.0.fetch_or(NO_OFFICE, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!NO_OFFICE, Ordering::SeqCst);
        }
    }

    /// Returns the end of CLIENT PAUSE in milliseconds since 1970 UTC, or 0 if clients are not
    /// paused.
    #[must_use]
    pub fn paused_until_unix_ms(&self) -> u64 {
        self.0.load(Ordering::Acquire) >> PAUSE_SHIFT
    }

    /// Whether reads are allowed while clients are paused.
    #[must_use]
    pub fn pauses_writes_only(&self) -> bool {
        self.0.load(Ordering::Acquire) & WRITES_ONLY != 0
    }

    /// Pauses clients until a time (CLIENT PAUSE). May extend or tighten an existing pause, but not
    /// shorten or loosen it.
    pub fn pause(&self, until_unix_ms: u64, writes_only: bool, now_unix_ms: u64) {
        let until_unix_ms = until_unix_ms.min(u64::MAX >> PAUSE_SHIFT);
        self.change(|word| {
            let standing = word >> PAUSE_SHIFT;
            let all_wait = standing > now_unix_ms && word & WRITES_ONLY == 0;
            let kind = if writes_only && !all_wait {
                WRITES_ONLY
            } else {
                0
            };
            (until_unix_ms.max(standing) << PAUSE_SHIFT) | kind | without_pause(word)
        });
    }

    /// Ends a pause (CLIENT UNPAUSE).
    pub fn unpause(&self) {
        self.change(without_pause);
    }

    /// Clears a pause that is over. Returns whether clients are still paused.
    pub fn end_pause(&self, now_unix_ms: u64) -> bool {
        let before = self.change(|word| match word >> PAUSE_SHIFT {
            until if until > now_unix_ms => word,
            _ => without_pause(word),
        });
        before >> PAUSE_SHIFT > now_unix_ms
    }

    /// Changes the word, and returns its previous value.
    fn change(&self, change: impl Fn(u64) -> u64) -> u64 {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let next = change(word);
            if next == word {
                return word;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.0.compare_exchange(word, next, success, failure) {
                Ok(_) => return word,
                Err(now) => word = now,
            }
        }
    }
}

fn without_pause(word: u64) -> u64 {
    word & (LOG_FULL | ROLE_CHANGES | MEMORY_FULL | NO_OFFICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_lengthened_and_tightened_only() {
        let gate = Gate::default();
        gate.pause(100, true, 10);
        assert!(gate.pauses_writes_only() && !gate.is_open());
        gate.pause(50, false, 10);
        assert_eq!(gate.paused_until_unix_ms(), 100);
        assert!(!gate.pauses_writes_only());
        gate.pause(60, true, 10);
        assert!(!gate.pauses_writes_only());
        assert!(gate.end_pause(99));
        assert!(!gate.end_pause(100));
        assert!(gate.is_open());
        gate.pause(u64::MAX, true, 10);
        assert!(gate.paused_until_unix_ms() > 1 << 58);
        gate.unpause();
        assert!(gate.is_open());
    }

    #[test]
    fn reads_wait_for_an_office_whatever_else_waits() {
        let gate = Gate::default();
        gate.set_no_office(true);
        gate.pause(100, true, 10);
        assert!(gate.has_no_office() && !gate.changes_role());
        gate.unpause();
        assert!(gate.has_no_office() && !gate.is_open());
        gate.set_no_office(false);
        assert!(gate.is_open());
    }

    #[test]
    fn a_full_log_and_a_pause_come_and_go_by_themselves() {
        let gate = Gate::default();
        gate.set_log_full(true);
        gate.pause(100, false, 10);
        assert!(gate.is_log_full());
        assert_eq!(gate.paused_until_unix_ms(), 100);
        gate.unpause();
        assert!(gate.is_log_full());
        gate.pause(100, false, 10);
        gate.set_log_full(false);
        assert_eq!(gate.paused_until_unix_ms(), 100);
    }
}
