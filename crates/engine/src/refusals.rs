//! Conditions under which valid commands are refused: the data set is being loaded, the last save
//! failed and writes must not continue as if they were kept, the log cannot be written, the server
//! is a replica, or has too few.
//!
//! The server sets these conditions. Engines check them once per visit, with one load, and handle
//! every request with care while any condition is set.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{CommandError, CommandResult};
use crate::flags::{Flags, InTransaction};
use crate::session::Session;

/// The conditions under which commands are refused.
#[derive(Debug, Default)]
pub struct Refusals {
    kinds: AtomicU16,
    /// Why the log cannot be written.
    log_fault: Mutex<String>,
    /// Whether all clients' writes wait for a majority.
    quorum_for_all: AtomicBool,
    /// Whether libraries of functions belong to a control group: any of its nodes can change them.
    shares_libraries: AtomicBool,
    /// The error text while a script exceeds its time limit.
    busy: Mutex<&'static str>,
}

const LOADING: u16 = 1;
const SAVE_FAILED: u16 = 2;
const LOG_FAULT: u16 = 4;
const BUSY: u16 = 8;
const READ_ONLY: u16 = 16;
const STALE: u16 = 32;
const FEW_REPLICAS: u16 = 64;
/// The control group has granted no lease: no write begins.
const NO_LEASE: u16 = 128;
/// There is no majority of copies; this affects clients that wait for one.
const NO_MAJORITY: u16 = 256;
/// The same if all clients wait for one.
const NO_MAJORITY_FOR_ALL: u16 = 512;
/// The conditions that affect only writes.
const ABOUT_WRITES: u16 = READ_ONLY | FEW_REPLICAS | NO_LEASE | NO_MAJORITY | NO_MAJORITY_FOR_ALL;

impl Refusals {
    /// Sets whether the data set is being loaded. Only commands that need none of it run then
    /// ([`Flags::LOADING`]).
    pub fn set_loading(&self, on: bool) {
        self.set(LOADING, on);
    }

    /// Whether the data set is being loaded.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & LOADING != 0
    }

    /// Sets whether writes are refused because the last save failed.
    pub fn set_save_failed(&self, on: bool) {
        self.set(SAVE_FAILED, on);
    }

    /// Sets the reason why the log cannot be written, so that writes are refused, or clears it.
    /// Returns whether this begins or ends the condition.
    pub fn set_log_fault(&self, reason: Option<&str>) -> bool {
        let mut known = self.log_fault();
        if let Some(reason) = reason {
            reason.clone_into(&mut known);
        }
        let was_faulty = self.is_log_faulty();
        self.set(LOG_FAULT, reason.is_some());
        was_faulty != reason.is_some()
    }

    /// Sets the reply to all clients while a script exceeds its time limit, or clears it. Only
    /// commands for this case ([`Flags::ALLOW_BUSY`]) and commands called by scripts run then.
    pub fn set_busy(&self, answer: Option<&'static str>) {
        let mut known = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answer {
            *known = answer;
        }
        self.set(BUSY, answer.is_some());
    }

    /// Sets whether the server is a replica. A replica executes only the writes of its primary.
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

    /// Sets whether a replica's data may be out of date and must not be shown. Only commands that
    /// need none of it run then ([`Flags::STALE`]).
    pub fn set_stale(&self, on: bool) {
        self.set(STALE, on);
    }

    /// Whether the data may be out of date and is not shown.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & STALE != 0
    }

    /// Sets whether there are too few replicas for writes.
    pub fn set_few_replicas(&self, on: bool) {
        self.set(FEW_REPLICAS, on);
    }

    /// Whether there are too few replicas for writes.
    #[must_use]
    pub fn has_few_replicas(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & FEW_REPLICAS != 0
    }

    /// Sets whether a control group decides which server writes, and has granted this one no lease.
    pub fn set_no_lease(&self, on: bool) {
        self.set(NO_LEASE, on);
    }

    /// Whether this server lacks a lease.
    #[inline]
    #[must_use]
    pub fn has_no_lease(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & NO_LEASE != 0
    }

    /// Sets whether there are too few copies for writes that wait for a majority.
    pub fn set_no_majority(&self, on: bool) {
        self.set(NO_MAJORITY, on);
        self.set(NO_MAJORITY_FOR_ALL, on && self.is_quorum_for_all());
    }

    /// Whether there are too few copies for a majority.
    #[must_use]
    pub fn has_no_majority(&self) -> bool {
        self.kinds.load(Ordering::Acquire) & NO_MAJORITY != 0
    }

    /// Sets whether all clients' writes wait for a majority.
    pub fn set_quorum_for_all(&self, on: bool) {
        self.quorum_for_all.store(on, Ordering::Release);
        self.set(NO_MAJORITY_FOR_ALL, on && self.has_no_majority());
    }

    /// Sets whether libraries of functions belong to a control group.
    pub fn set_shares_libraries(&self, on: bool) {
        self.shares_libraries.store(on, Ordering::Release);
    }

    /// Whether libraries of functions belong to a control group. Never true during replay: there a
    /// stream, a log or a file decides.
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

    /// Whether some commands that change nothing are refused.
    #[inline]
    pub(crate) fn concern_reads(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) & !ABOUT_WRITES != 0
    }

    /// Whether some commands are refused.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// Checks whether a client's command may run, by the flags of its row.
    #[inline]
    pub fn pass(&self, row: (Flags, InTransaction), session: &Session) -> Result<(), CommandError> {
        if self.are_any() {
            self.judge(row, session)
        } else {
            Ok(())
        }
    }

    /// Checks whether a command may run that was queued before a condition was set.
    #[inline]
    pub(crate) fn pass_queued(&self, flags: Flags, session: &Session) -> CommandResult {
        // A transaction may turn the server into a replica.
        let is_refused = self.are_any() && self.takes_no_writes() && !session.is_of_primary;
        if is_refused && flags.has(Flags::WRITE) {
            Err(CommandError::fixed(NO_WRITES))
        } else {
            Ok(())
        }
    }

    /// Checks whether a script or function may run, by its declared flags.
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
        // Commands from the primary are never refused: otherwise this replica would diverge from
        // it.
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
        // A monitoring client must notice that something is wrong.
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
        // After the stale check: a client that waits until the server can be read must not take
        // this for its answer.
        if shut & LOG_FAULT != 0 && all.any(is_write) {
            let text = log_fault_text(&self.log_fault());
            return Err(CommandError::Text(text.into()));
        }
        Ok(())
    }
}

/// Returns the error text, code included, for a write that was not done, or not kept, because the
/// log cannot be written.
#[must_use]
pub fn log_fault_text(reason: &str) -> String {
    format!(
        "MISCONF Errors writing to the log: {reason}. Commands that change data are refused until it \
         can be written again."
    )
}

/// Whether a session's writes wait for a majority that does not exist.
fn has_no_majority(shut: u16, session: &Session) -> bool {
    shut & NO_MAJORITY_FOR_ALL != 0 || (shut & NO_MAJORITY != 0 && session.waits_for_majority)
}

/// The error for writes on a replica.
pub const NO_WRITES: &str = "READONLY You can't write against a read only replica.";
/// The error for writes that wait for a majority if there is none.
pub const TOO_FEW_TO_COMMIT: &str = "NOREPLICAS Not enough replicas to commit";
/// The error that replaces a reply that waited for a majority in vain.
pub const NOT_COMMITTED: &str =
    "NOREPLICAS The reply waited for a majority in vain: whether a write is kept is not known";
/// The error on a replica for a read at level quorum if the primary does not report what is
/// committed.
pub const NOT_READABLE: &str =
    "MASTERDOWN The primary did not say in time what is committed: nothing is read at quorum here";
/// The error for writes if there are too few replicas.
pub const TOO_FEW: &str = "NOREPLICAS Not enough good replicas to write.";
/// The error if data may be out of date and is not shown.
pub const MASTER_DOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
/// The same for a command in a running script.
pub const STALE_IN_SCRIPT: &str = "ERR Can not execute the command on a stale replica";

/// Clients recognize it by its wording.
pub const NOT_SAVED: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently \
    unable to persist to disk. Commands that may modify the data set are disabled, because this \
    instance is configured to report errors during writes if RDB snapshotting fails \
    (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
    error.";
