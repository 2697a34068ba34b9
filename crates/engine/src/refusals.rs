//! What keeps commands from running though nothing is wrong with them: the data set is being loaded,
//! the last save failed and writes shall not go on as if they were kept, or the log cannot be written.
//!
//! The server says so; engines look once a visit, as one load, and take the long way for every request
//! while there is something to refuse.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::CommandError;
use crate::session::Session;
use crate::spec::{CommandSpec, Flags, InTransaction};

/// Which commands are refused.
#[derive(Debug)]
pub struct Refusals {
    kinds: AtomicU8,
    /// Why the log cannot be written.
    log_fault: Mutex<String>,
    /// What is answered while a script is late.
    busy: Mutex<&'static str>,
}

const LOADING: u8 = 1;
const SAVE_FAILED: u8 = 2;
const LOG_FAULT: u8 = 4;
const BUSY: u8 = 8;

impl Refusals {
    /// None.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            kinds: AtomicU8::new(0),
            log_fault: Mutex::new(String::new()),
            busy: Mutex::new(""),
        }
    }

    /// Says whether the data set is being loaded: only commands that need none of it run then
    /// ([`Flags::LOADING`]).
    pub fn set_loading(&self, on: bool) {
        self.set(LOADING, on);
    }

    /// Whether the data set is being loaded.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & LOADING != 0
    }

    /// Says whether writes are refused because the last save failed.
    pub fn set_save_failed(&self, on: bool) {
        self.set(SAVE_FAILED, on);
    }

    /// Says why writes are refused because the log cannot be written, or that it can; whether that has begun or
    /// ended with this.
    pub fn set_log_fault(&self, reason: Option<&str>) -> bool {
        let mut known = self.log_fault();
        if let Some(reason) = reason {
            reason.clone_into(&mut known);
        }
        let was_faulty = self.is_log_faulty();
        self.set(LOG_FAULT, reason.is_some());
        was_faulty != reason.is_some()
    }

    /// Says what everybody is answered while a script is late, or that none is: only commands that are for such
    /// a time run then ([`Flags::ALLOW_BUSY`]), and what scripts call.
    pub fn set_busy(&self, answer: Option<&'static str>) {
        let mut known = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answer {
            *known = answer;
        }
        self.set(BUSY, answer.is_some());
    }

    /// Whether writes are refused because the log cannot be written.
    #[must_use]
    pub fn is_log_faulty(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & LOG_FAULT != 0
    }

    fn log_fault(&self) -> MutexGuard<'_, String> {
        self.log_fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, bit: u8, on: bool) {
        if on {
            self.kinds.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.kinds.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Whether some commands are refused.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// Lets a command of a client pass, or not.
    #[inline]
    pub fn pass(&self, spec: &CommandSpec, session: &Session) -> Result<(), CommandError> {
        if self.are_any() {
            self.judge(spec, session)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn judge(&self, spec: &CommandSpec, session: &Session) -> Result<(), CommandError> {
        let shut = self.kinds.load(Ordering::Acquire);
        let queue = match &session.transaction {
            Some(transaction) if spec.in_transaction == InTransaction::Runs => transaction.queue(),
            _ => &[],
        };
        let queued = queue.iter().map(|queued| queued.spec);
        let mut specs = std::iter::once(spec).chain(queued);
        // Whoever watches over the server is to see that something is wrong.
        let is_write =
            |spec: &CommandSpec| spec.flags.has(Flags::WRITE) || spec.flags.has(Flags::PROBES);
        let runs_when_busy = spec.flags.has(Flags::ALLOW_BUSY) || session.in_script;
        if shut & BUSY != 0 && !runs_when_busy {
            let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(CommandError::fixed(*busy));
        }
        if shut & SAVE_FAILED != 0 && specs.clone().any(is_write) {
            return Err(CommandError::fixed(NOT_SAVED));
        }
        if shut & LOADING != 0 && specs.clone().any(|spec| !spec.flags.has(Flags::LOADING)) {
            return Err(CommandError::fixed(
                "LOADING Redis is loading the dataset in memory",
            ));
        }
        // Behind that: who waits until a server can be read is not to take this for its answer.
        if shut & LOG_FAULT != 0 && specs.any(is_write) {
            let text = log_fault_text(&self.log_fault());
            return Err(CommandError::Text(text.into()));
        }
        Ok(())
    }
}

/// What is answered, code included, where a write was not done, or not kept, because the log cannot be
/// written.
#[must_use]
pub fn log_fault_text(reason: &str) -> String {
    format!(
        "MISCONF Errors writing to the log: {reason}. Commands that change data are refused until it \
         can be written again."
    )
}

/// Clients know it by its words.
pub const NOT_SAVED: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently \
    unable to persist to disk. Commands that may modify the data set are disabled, because this \
    instance is configured to report errors during writes if RDB snapshotting fails \
    (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
    error.";
