//! The audit log: a line for each request that the operator wants recorded, executed or denied.
//!
//! A line names the user, the client's address, the command and its keys. It contains neither
//! values nor other arguments. If the log is off, it costs no more than any other inactive
//! observer. A line is passed on without waiting. If too many are pending, it is dropped and
//! counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The destination of lines.
pub trait AuditSink: Send + Sync {
    /// Takes a line, without its line end. Returns whether there was space for it. Never waits.
    fn take(&self, line: String) -> bool;
}

/// Which requests are recorded. An empty list selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Patterns of user names.
    pub users: Vec<Vec<u8>>,
    /// Categories of commands, without `@`.
    pub categories: Vec<String>,
    /// Patterns of keys, one of which must match.
    pub keys: Vec<Vec<u8>>,
    /// Maximum number of lines per second.
    pub lines_per_second_max: u64,
}

/// The audit log as engines see it.
#[derive(Default)]
pub struct Audit {
    is_on: AtomicBool,
    pub(super) rules: RwLock<Option<Arc<Rules>>>,
    /// The current second, and the number of its lines.
    second: AtomicU64,
    lines: AtomicU64,
    pub(super) dropped: AtomicU64,
}

pub(super) struct Rules {
    pub(super) filter: AuditFilter,
    pub(super) sink: Box<dyn AuditSink>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Audit")
            .field("is_on", &self.is_on)
            .finish_non_exhaustive()
    }
}

impl Audit {
    /// Directs lines to a sink, or turns the log off.
    pub fn set(&self, rules: Option<(AuditFilter, Box<dyn AuditSink>)>) {
        let rules = rules.map(|(filter, sink)| Arc::new(Rules { filter, sink }));
        let is_on = rules.is_some();
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        self.is_on.store(is_on, Ordering::Release);
    }

    /// Whether lines are wanted.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the number of lines dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts a line of this second. Returns whether it is within the limit.
    pub(super) fn has_room(&self, second: u64, limit: u64) -> bool {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.lines.store(0, Ordering::Relaxed);
        }
        self.lines.fetch_add(1, Ordering::Relaxed) < limit
    }
}
