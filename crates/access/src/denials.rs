//! The recent denials (ACL LOG), and their counts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum time between two similar denials that share one entry.
const GROUPING_MS_MAX: u64 = 60_000;
/// Maximum number of entries that are searched for a similar one.
const COMPARED_MAX: usize = 10;
/// Maximum number of bytes of the requested object that are kept.
const OBJECT_BYTES_MAX: usize = 4096;

/// The reason why a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user may not run the command.
    Command,
    /// The user may not use a key.
    Key,
    /// The user may not use a channel.
    Channel,
    /// The name or the password is wrong.
    LogIn,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::LogIn, Self::Command, Self::Key, Self::Channel];

    /// Returns the reason as ACL LOG shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::LogIn => "auth",
        }
    }
}

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    Client,
    /// A transaction of a client.
    Transaction,
    /// A script.
    Script,
}

impl Origin {
    /// Returns the origin as ACL LOG shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "toplevel",
            Self::Transaction => "multi",
            Self::Script => "lua",
        }
    }
}

/// A denied request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The reason of the denial.
    pub reason: Reason,
    /// The origin of the request.
    pub origin: Origin,
    /// The command, key, or channel.
    pub object: Vec<u8>,
    /// The user of the request. For a failed login, the name that the client gave.
    pub user: Vec<u8>,
    /// The client, as CLIENT LIST shows it.
    pub client: String,
}

/// Similar denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Unique for the life of the server.
    pub id: u64,
    /// Number of denials.
    pub count: u64,
    /// Time of the first denial.
    pub created_unix_ms: u64,
    /// Time of the last denial.
    pub updated_unix_ms: u64,
    /// The last denial.
    pub report: Report,
}

/// All denials: the latest ones, and their counts.
#[derive(Debug)]
pub struct Denials {
    entries: Mutex<VecDeque<Entry>>,
    entries_max: AtomicUsize,
    next_id: AtomicU64,
    counts: [AtomicU64; Reason::ALL.len()],
}

impl Default for Denials {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            entries_max: AtomicUsize::new(128),
            next_id: AtomicU64::new(0),
            counts: Default::default(),
        }
    }
}

impl Denials {
    /// Sets the maximum number of entries (`acllog-max-len`).
    pub fn set_entries_max(&self, entries_max: usize) {
        self.entries_max.store(entries_max, Ordering::Relaxed);
    }

    /// Adds a denial.
    pub fn add(&self, mut report: Report, now_unix_ms: u64) {
        let counted = Reason::ALL.iter().zip(&self.counts);
        for (reason, count) in counted {
            count.fetch_add(u64::from(*reason == report.reason), Ordering::Relaxed);
        }
        report.object.truncate(OBJECT_BYTES_MAX);
        report.user.truncate(OBJECT_BYTES_MAX);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_like = |entry: &Entry| {
            let known = &entry.report;
            known.reason == report.reason
                && known.origin == report.origin
                && known.object == report.object
                && known.user == report.user
                && now_unix_ms.saturating_sub(entry.updated_unix_ms) <= GROUPING_MS_MAX
        };
        let known = entries.iter().take(COMPARED_MAX).position(is_like);
        let entry = match known.and_then(|at| entries.remove(at)) {
            Some(known) => Entry {
                count: known.count + 1,
                updated_unix_ms: now_unix_ms,
                report,
                ..known
            },
            None => Entry {
                id: self.next_id.fetch_add(1, Ordering::Relaxed),
                count: 1,
                created_unix_ms: now_unix_ms,
                updated_unix_ms: now_unix_ms,
                report,
            },
        };
        entries.push_front(entry);
        entries.truncate(self.entries_max.load(Ordering::Relaxed));
    }

    /// Returns the latest entries, at most `count`, newest first.
    #[must_use]
    pub fn latest(&self, count: usize) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().take(count).cloned().collect()
    }

    /// Removes the entries. The counts stay.
    pub fn forget(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clear();
    }

    /// Returns the count of each of [`Reason::ALL`] since the start or [`Denials::reset_counts`].
    #[must_use]
    pub fn counts(&self) -> [(Reason, u64); Reason::ALL.len()] {
        let mut counts = Reason::ALL.map(|reason| (reason, 0));
        for ((_, shown), count) in counts.iter_mut().zip(&self.counts) {
            *shown = count.load(Ordering::Relaxed);
        }
        counts
    }

    /// Resets the counts to 0.
    pub fn reset_counts(&self) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(object: &str) -> Report {
        Report {
            reason: Reason::Key,
            origin: Origin::Client,
            object: object.into(),
            user: b"u".to_vec(),
            client: String::new(),
        }
    }

    #[test]
    fn like_denials_are_one_entry_for_a_minute() {
        let denials = Denials::default();
        for now_unix_ms in [0, 60_000, 120_001] {
            denials.add(report("a"), now_unix_ms);
        }
        denials.add(report("b"), 120_002);
        denials.add(report("a"), 120_003);
        let entries = denials.latest(10);
        let shown: Vec<_> = entries.iter().map(|one| (one.id, one.count)).collect();
        assert_eq!(shown, [(1, 2), (2, 1), (0, 2)]);
        assert_eq!(entries[0].created_unix_ms, 120_001);
        assert_eq!(denials.counts()[2], (Reason::Key, 5));
        denials.forget();
        denials.reset_counts();
        assert!(denials.latest(10).is_empty() && denials.counts()[2].1 == 0);
    }

    #[test]
    fn old_entries_go() {
        let denials = Denials::default();
        denials.set_entries_max(2);
        for object in ["a", "b", "c"] {
            denials.add(report(object), 0);
        }
        let entries = denials.latest(10);
        let kept: Vec<_> = entries.iter().map(|one| &one.report.object).collect();
        assert_eq!(kept, [b"c", b"b"]);
    }
}
