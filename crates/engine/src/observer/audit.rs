//! Who ran what: a line for each request that the operator wants to know of, executed or denied.
//!
//! A line names the user, where it came from, the command and its keys. Values are never in it: of the
//! other arguments it tells nothing. What wants no lines costs no more than any other observer that is
//! off; a line is handed on without a wait, and is dropped, and counted, where too many are on their way.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use base::glob::{Case, matches};
use base::words::quote;
use protocol::Request;

use crate::context::Context;
use crate::key_places as places;
use crate::spec::{CommandSpec, categories_of};

/// Keys that a line names; of a request with more it tells how many there are.
const KEYS_SHOWN_MAX: usize = 16;
/// Bytes of a key that a line shows.
const KEY_BYTES_MAX: usize = 256;

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
    rules: RwLock<Option<Arc<Rules>>>,
    /// The second that is counted, and its lines.
    second: AtomicU64,
    lines: AtomicU64,
    dropped: AtomicU64,
}

struct Rules {
    filter: AuditFilter,
    sink: Box<dyn AuditSink>,
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

    /// Writes a line about a request, if it is wanted; `verdict` says what became of it.
    #[cold]
    pub(crate) fn note(
        &self,
        context: &Context<'_>,
        spec: &CommandSpec,
        name: &str,
        request: Request<'_>,
        verdict: &str,
    ) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let Some(rules) = rules.as_ref().map(Arc::clone) else {
            return;
        };
        let user = context.session.permit.user().name();
        let keys: Vec<&[u8]> = places::that_fit(context.table, spec, &request)
            .into_iter()
            .filter_map(|(at, _)| request.arg(at))
            .collect();
        if !rules.filter.wants(user, spec, &keys) {
            return;
        }
        let limit = rules.filter.lines_per_second_max;
        let is_taken = self.has_room(context.now_unix_ms / 1000, limit)
            && rules.sink.take(line(context, name, &keys, verdict));
        if !is_taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a line of this second; whether it is not one too many.
    fn has_room(&self, second: u64, limit: u64) -> bool {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.lines.store(0, Ordering::Relaxed);
        }
        self.lines.fetch_add(1, Ordering::Relaxed) < limit
    }
}

impl AuditFilter {
    fn wants(&self, user: &[u8], spec: &CommandSpec, keys: &[&[u8]]) -> bool {
        let fits = |patterns: &[Vec<u8>], text: &[u8]| {
            let mut patterns = patterns.iter();
            patterns.any(|pattern| matches(pattern, text, Case::Sensitive))
        };
        let is_in = || {
            let categories = categories_of(spec);
            let mut wanted = self.categories.iter();
            wanted.any(|wanted| categories.contains(&wanted.as_str()))
        };
        (self.users.is_empty() || fits(&self.users, user))
            && (self.categories.is_empty() || is_in())
            && (self.keys.is_empty() || keys.iter().any(|key| fits(&self.keys, key)))
    }
}

fn line(context: &Context<'_>, name: &str, keys: &[&[u8]], verdict: &str) -> String {
    let client = &context.session.client;
    let mut line = format!(
        "time_ms={} verdict={verdict} user={} client={} address={} database={} command={name}",
        context.now_unix_ms,
        quote(context.session.permit.user().name()),
        client.id,
        quote(client.address.as_bytes()),
        context.session.database,
    );
    if client.came_by_http() {
        line.push_str(" via=http");
    }
    for key in keys.iter().take(KEYS_SHOWN_MAX) {
        let shown = &key[..key.len().min(KEY_BYTES_MAX)];
        let _infallible = write!(line, " key={}", quote(shown));
    }
    if keys.len() > KEYS_SHOWN_MAX {
        let _infallible = write!(line, " keys={}", keys.len());
    }
    line
}
