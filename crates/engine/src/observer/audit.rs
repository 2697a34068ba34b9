//! Who ran what: a line for each request that the operator wants to know of, executed or denied.
//!
//! A line names the user, where it came from, the command and its keys. Values are never in it: of the
//! other arguments it tells nothing. What wants no lines costs no more than any other observer that is
//! off; a line is handed on without a wait, and is dropped, and counted, where too many are on their way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Where lines go.
pub trait AuditSink: Send + Sync {
    /// Takes a line, without its end; whether there is room for it. Waits for nothing.
    fn take(&self, line: String) -> bool;
}

/// Which requests are wanted. An empty list wants all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Patterns of users' names.
    pub users: Vec<Vec<u8>>,
    /// Categories of commands, without `@`.
    pub categories: Vec<String>,
    /// Patterns of keys, one of which must fit.
    pub keys: Vec<Vec<u8>>,
    /// Lines in a second.
    pub lines_per_second_max: u64,
}

/// The audit log as engines see it.
#[derive(Default)]
pub struct Audit {
    is_on: AtomicBool,
    pub(super) rules: RwLock<Option<Arc<Rules>>>,
    /// The second that is counted, and its lines.
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
    /// Has lines go to a sink, or to nobody.
    pub fn set(&self, rules: Option<(AuditFilter, Box<dyn AuditSink>)>) {
        let rules = rules.map(|(filter, sink)| Arc::new(Rules { filter, sink }));
        let is_on = rules.is_some();
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        self.is_on.store(is_on, Ordering::Release);
    }

    /// Whether somebody wants lines.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Lines that were dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts a line of this second; whether it is not one too many.
    pub(super) fn has_room(&self, second: u64, limit: u64) -> bool {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.lines.store(0, Ordering::Relaxed);
        }
        self.lines.fetch_add(1, Ordering::Relaxed) < limit
    }
}
