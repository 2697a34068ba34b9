//! Long-running scripts that are visible to other threads: which may be killed, and whether one
//! exceeds its time limit.
//!
//! A script is entered here only after it has run for a while, by the hook that its machine calls
//! periodically, so that a quick script pays nothing.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::CommandError;

/// Kind of code that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// A script (EVAL and its kin).
    Script,
    /// A function (FCALL).
    Function,
}

/// Why a script is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killing {
    /// SCRIPT KILL or FUNCTION KILL.
    Asked,
    /// The server stops.
    Stopping,
}

/// A script that has run for long.
#[derive(Debug)]
pub struct LongRun {
    pub(crate) kind: RunKind,
    /// The name of a function.
    pub name: Vec<u8>,
    /// The request that began it.
    pub command: Vec<Vec<u8>>,
    /// Start on the monotonic clock.
    pub started_ns: u64,
    wrote: AtomicBool,
    killed: AtomicBool,
}

/// See the module.
#[derive(Debug)]
pub struct Running {
    runs: Mutex<Vec<Arc<LongRun>>>,
    /// Kind of the script that exceeds its time limit, or 0.
    late: AtomicU8,
    stops: AtomicBool,
    /// `busy-reply-threshold`, in milliseconds; 0 for no limit.
    pub threshold_ms: AtomicU64,
    /// Whether clients that do not wait for a late script are refused, too.
    pub refuses_all: AtomicBool,
}

const LATE_SCRIPT: u8 = 1;
const LATE_FUNCTION: u8 = 2;

impl Default for Running {
    fn default() -> Self {
        Self {
            runs: Mutex::default(),
            late: AtomicU8::new(0),
            stops: AtomicBool::new(false),
            threshold_ms: AtomicU64::new(5000),
            refuses_all: AtomicBool::new(false),
        }
    }
}

impl LongRun {
    pub(crate) fn new(
        kind: RunKind,
        name: &[u8],
        command: Vec<Vec<u8>>,
        started_ns: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            kind,
            name: name.to_vec(),
            command,
            started_ns,
            wrote: AtomicBool::new(false),
            killed: AtomicBool::new(false),
        })
    }

    /// Records that it has changed data, so that it can no longer be killed.
    pub(crate) fn note_write(&self) {
        self.wrote.store(true, Ordering::Release);
    }
}

impl Running {
    pub(crate) fn enter(&self, run: &Arc<LongRun>) {
        self.runs().push(Arc::clone(run));
    }

    pub(crate) fn leave(&self, run: &Arc<LongRun>) {
        let mut runs = self.runs();
        runs.retain(|one| !Arc::ptr_eq(one, run));
        self.late.store(0, Ordering::Release);
    }

    /// Returns why a script has to stop now, or `None` if it may continue.
    pub(crate) fn verdict(&self, run: &LongRun) -> Option<Killing> {
        if self.stops.load(Ordering::Relaxed) {
            Some(Killing::Stopping)
        } else if run.killed.load(Ordering::Acquire) {
            Some(Killing::Asked)
        } else {
            None
        }
    }

    /// Stops all scripts because the server stops.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Records that a script exceeds its time limit. Returns whether this is new.
    pub(crate) fn set_late(&self, kind: RunKind) -> bool {
        let kind = match kind {
            RunKind::Script => LATE_SCRIPT,
            RunKind::Function => LATE_FUNCTION,
        };
        self.late.swap(kind, Ordering::AcqRel) != kind
    }

    /// Returns the error for requests that would have to wait for a late script, or `None` if no
    /// script is late.
    #[must_use]
    pub fn busy(&self) -> Option<&'static str> {
        match self.late.load(Ordering::Acquire) {
            0 => None,
            LATE_SCRIPT => Some(BUSY_SCRIPT),
            _ => Some(BUSY_FUNCTION),
        }
    }

    /// Kills the running script of a kind.
    ///
    /// # Errors
    /// If nothing runs, or the script has changed data.
    pub fn kill(&self, kind: RunKind) -> Result<(), CommandError> {
        let runs = self.runs();
        let mut of_kind = runs.iter().filter(|run| run.kind == kind).peekable();
        if of_kind.peek().is_none() {
            return Err(CommandError::fixed(match (runs.is_empty(), kind) {
                (true, _) => NOT_BUSY,
                (false, RunKind::Script) => BUSY_FUNCTION,
                (false, RunKind::Function) => BUSY_SCRIPT,
            }));
        }
        let mut is_any = false;
        for run in of_kind {
            if !run.wrote.load(Ordering::Acquire) {
                run.killed.store(true, Ordering::Release);
                is_any = true;
            }
        }
        if is_any {
            Ok(())
        } else {
            Err(CommandError::fixed(UNKILLABLE))
        }
    }

    /// Returns the script that has run longest, if any.
    pub fn longest(&self) -> Option<Arc<LongRun>> {
        self.runs().iter().min_by_key(|run| run.started_ns).cloned()
    }

    fn runs(&self) -> MutexGuard<'_, Vec<Arc<LongRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";
const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the \
    dataset. You can either wait the script termination or kill the server in a hard way using the \
    SHUTDOWN NOSAVE command.";
const BUSY_SCRIPT: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or \
    SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str = "BUSY Redis is busy running a script. You can only call FUNCTION KILL or \
    SHUTDOWN NOSAVE.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_nothing_is_killed() {
        let running = Running::default();
        assert_eq!(
            running.kill(RunKind::Script),
            Err(CommandError::fixed(NOT_BUSY))
        );
        let run = LongRun::new(RunKind::Script, b"", Vec::new(), 1);
        running.enter(&run);
        assert_eq!(running.verdict(&run), None);
        let refusal = Err(CommandError::fixed(BUSY_SCRIPT));
        assert_eq!(running.kill(RunKind::Function), refusal);
        assert!(running.kill(RunKind::Script).is_ok());
        assert_eq!(running.verdict(&run), Some(Killing::Asked));
        let other = LongRun::new(RunKind::Script, b"", Vec::new(), 2);
        other.note_write();
        running.leave(&run);
        running.enter(&other);
        let refusal = Err(CommandError::fixed(UNKILLABLE));
        assert_eq!(running.kill(RunKind::Script), refusal);
    }

    #[test]
    fn who_waits_for_what_is_late_hears_of_it() {
        let running = Running::default();
        assert_eq!(running.busy(), None);
        assert!(running.set_late(RunKind::Function));
        assert!(!running.set_late(RunKind::Function));
        assert_eq!(running.busy(), Some(BUSY_FUNCTION));
        let run = LongRun::new(RunKind::Function, b"f", Vec::new(), 1);
        running.leave(&run);
        assert_eq!(running.busy(), None);
    }
}
