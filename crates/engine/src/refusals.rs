//! What keeps commands from running though nothing is wrong with them: the data set is being loaded,
//! the last save failed and writes shall not go on as if they were kept, the log cannot be written, the server
//! is a replica, or has too few.
//!
//! The server says so; engines look once a visit, as one load, and take the long way for every request
//! while there is something to refuse.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{CommandError, CommandResult};
use crate::flags::{Flags, InTransaction};
use crate::session::Session;

/// Which commands are refused.
#[derive(Debug, Default)]
pub struct Refusals {
    kinds: AtomicU16,
    /// Why the log cannot be written.
    log_fault: Mutex<String>,
    /// Everybody's writes wait for a majority.
    quorum_for_all: AtomicBool,
    /// Libraries of functions are a control group's: any of its nodes has them changed.
    shares_libraries: AtomicBool,
    /// What is answered while a script is late.
    busy: Mutex<&'static str>,
}

const LOADING: u16 = 1;
const SAVE_FAILED: u16 = 2;
const LOG_FAULT: u16 = 4;
const BUSY: u16 = 8;
const READ_ONLY: u16 = 16;
const STALE: u16 = 32;
const FEW_REPLICAS: u16 = 64;
/// A control group gave no lease: no write begins.
const NO_LEASE: u16 = 128;
/// There is no majority of copies; of concern to who waits for one.
const NO_MAJORITY: u16 = 256;
/// The same where everybody waits for one.
const NO_MAJORITY_FOR_ALL: u16 = 512;
/// What concerns commands alone that write.
const ABOUT_WRITES: u16 = READ_ONLY | FEW_REPLICAS | NO_LEASE | NO_MAJORITY | NO_MAJORITY_FOR_ALL;

impl Refusals {
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

    /// Says whether the server is a replica: what its primary did not do is not done here.
    pub fn set_read_only(&self, on: bool) {
        self.set(READ_ONLY, on);
    }

    /// Whether the server is a replica.
    #[inline]
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & READ_ONLY != 0
    }

    fn takes_no_writes(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & (READ_ONLY | NO_LEASE) != 0
    }

    /// Says whether what a replica has may be old, and shall not be shown then: only commands that need none of
    /// it run ([`Flags::STALE`]).
    pub fn set_stale(&self, on: bool) {
        self.set(STALE, on);
    }

    /// Whether what there is may be old, and is not shown.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & STALE != 0
    }

    /// Says whether there are too few replicas for writes.
    pub fn set_few_replicas(&self, on: bool) {
        self.set(FEW_REPLICAS, on);
    }

    /// Whether there are too few replicas for writes.
    #[must_use]
    pub fn has_few_replicas(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & FEW_REPLICAS != 0
    }

    /// Says whether a control group decides who writes, and has given this server no lease.
    pub fn set_no_lease(&self, on: bool) {
        self.set(NO_LEASE, on);
    }

    /// Whether there is no lease.
    #[inline]
    #[must_use]
    pub fn has_no_lease(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & NO_LEASE != 0
    }

    /// Says whether too few copies are there for writes that wait for a majority.
    pub fn set_no_majority(&self, on: bool) {
        self.set(NO_MAJORITY, on);
        self.set(NO_MAJORITY_FOR_ALL, on && self.is_quorum_for_all());
    }

    /// Whether too few are there.
    #[must_use]
    pub fn has_no_majority(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & NO_MAJORITY != 0
    }

    /// Says whether everybody's writes wait for a majority.
    pub fn set_quorum_for_all(&self, on: bool) {
        self.quorum_for_all.store(on, Ordering::Release);
        self.set(NO_MAJORITY_FOR_ALL, on && self.has_no_majority());
    }

    /// Says whether libraries of functions are those of a control group.
    pub fn set_shares_libraries(&self, on: bool) {
        self.shares_libraries.store(on, Ordering::Release);
    }

    /// Whether they are. Never where what somebody else did is done again: there a stream, a log or a file says what was.
    #[must_use]
    pub fn shares_libraries(&self) -> bool {
        self.shares_libraries.load(Ordering::Acquire)
    }

    fn is_quorum_for_all(&self) -> bool {
        self.quorum_for_all.load(Ordering::Acquire)
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

    fn set(&self, bit: u16, on: bool) {
        if on {
            self.kinds.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.kinds.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Whether some commands are refused that change nothing.
    #[inline]
    pub(crate) fn concern_reads(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) & !ABOUT_WRITES != 0
    }

    /// Whether some commands are refused.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// Lets a command of a client pass, or not, by what its row says.
    #[inline]
    pub fn pass(&self, row: (Flags, InTransaction), session: &Session) -> Result<(), CommandError> {
        if self.are_any() {
            self.judge(row, session)
        } else {
            Ok(())
        }
    }

    /// Lets a command pass that was queued before something was refused.
    #[inline]
    pub(crate) fn pass_queued(&self, flags: Flags, session: &Session) -> CommandResult {
        // A transaction may make the server a replica.
        let is_refused = self.are_any() && self.takes_no_writes() && !session.is_of_primary;
        if is_refused && flags.has(Flags::WRITE) {
            Err(CommandError::fixed(NO_WRITES))
        } else {
            Ok(())
        }
    }

    /// Lets a script or a function pass that says of itself what it does.
    pub fn pass_flagged(
        &self,
        (changes_nothing, runs_stale): (bool, bool),
        session: &Session,
    ) -> CommandResult {
        if !self.are_any() || session.is_of_primary {
            return Ok(());
        }
        let shut = self.kinds.load(Ordering::Acquire);
        if shut & STALE != 0 && !runs_stale {
            return Err(CommandError::fixed(MASTER_DOWN));
        }
        if changes_nothing {
            return Ok(());
        }
        if shut & READ_ONLY != 0 {
            return Err(CommandError::fixed(NO_WRITES));
        }
        if shut & FEW_REPLICAS != 0 {
            return Err(CommandError::fixed(TOO_FEW));
        }
        if shut & NO_LEASE != 0 {
            return Err(CommandError::fixed(NO_WRITES));
        }
        if has_no_majority(shut, session) {
            return Err(CommandError::fixed(TOO_FEW_TO_COMMIT));
        }
        Ok(())
    }

    #[cold]
    fn judge(
        &self,
        (flags, in_transaction): (Flags, InTransaction),
        session: &Session,
    ) -> Result<(), CommandError> {
        // Who says what goes is refused nothing: otherwise the server would not be what it follows.
        if session.is_of_primary {
            return Ok(());
        }
        let shut = self.kinds.load(Ordering::Acquire);
        let queue = match &session.transaction {
            Some(transaction) if in_transaction == InTransaction::Runs => transaction.queue(),
            _ => &[],
        };
        let queued = queue.iter().map(|queued| queued.flags);
        let mut all = std::iter::once(flags).chain(queued);
        // Whoever watches over the server is to see that something is wrong.
        let is_write = |flags: Flags| flags.has(Flags::WRITE) || flags.has(Flags::PROBES);
        let runs_when_busy = flags.has(Flags::ALLOW_BUSY) || session.in_script;
        if shut & BUSY != 0 && !runs_when_busy {
            let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(CommandError::fixed(*busy));
        }
        if shut & SAVE_FAILED != 0 && all.clone().any(is_write) {
            return Err(CommandError::fixed(NOT_SAVED));
        }
        let shares_libraries = self.shares_libraries();
        let changes_data = |flags: Flags| {
            let is_shared = shares_libraries && flags.has(Flags::CHANGES_LIBRARIES);
            flags.has(Flags::WRITE) && !is_shared
        };
        if shut & FEW_REPLICAS != 0 && all.clone().any(changes_data) {
            return Err(CommandError::fixed(TOO_FEW));
        }
        if shut & (READ_ONLY | NO_LEASE) != 0 && all.clone().any(changes_data) {
            return Err(CommandError::fixed(NO_WRITES));
        }
        if has_no_majority(shut, session) && all.clone().any(changes_data) {
            return Err(CommandError::fixed(TOO_FEW_TO_COMMIT));
        }
        if shut & STALE != 0 && all.clone().any(|flags| !flags.has(Flags::STALE)) {
            return Err(CommandError::fixed(if session.in_script {
                STALE_IN_SCRIPT
            } else {
                MASTER_DOWN
            }));
        }
        if shut & LOADING != 0 && all.clone().any(|flags| !flags.has(Flags::LOADING)) {
            return Err(CommandError::fixed(
                "LOADING Redis is loading the dataset in memory",
            ));
        }
        // Behind that: who waits until a server can be read is not to take this for its answer.
        if shut & LOG_FAULT != 0 && all.any(is_write) {
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

/// Whether a session's writes wait for a majority that is not there.
fn has_no_majority(shut: u16, session: &Session) -> bool {
    shut & NO_MAJORITY_FOR_ALL != 0 || (shut & NO_MAJORITY != 0 && session.waits_for_majority)
}

/// What a replica answers to writes.
pub const NO_WRITES: &str = "READONLY You can't write against a read only replica.";
/// What writes that wait for a majority are answered where there is none.
pub const TOO_FEW_TO_COMMIT: &str = "NOREPLICAS Not enough replicas to commit";
/// What is answered instead of a reply that waited for a majority in vain.
pub const NOT_COMMITTED: &str =
    "NOREPLICAS The reply waited for a majority in vain: whether a write is kept is not known";
/// What is answered at a replica to who reads at level quorum, where the primary does not say what there is.
pub const NOT_READABLE: &str =
    "MASTERDOWN The primary did not say in time what is committed: nothing is read at quorum here";
/// What writes are answered where there are too few replicas.
pub const TOO_FEW: &str = "NOREPLICAS Not enough good replicas to write.";
/// What is answered where data may be old and is not shown.
pub const MASTER_DOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
/// The same of a command in a script that runs.
pub const STALE_IN_SCRIPT: &str = "ERR Can not execute the command on a stale replica";

/// Clients know it by its words.
pub const NOT_SAVED: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently \
    unable to persist to disk. Commands that may modify the data set are disabled, because this \
    instance is configured to report errors during writes if RDB snapshotting fails \
    (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
    error.";
