//! What keeps commands from running though nothing is wrong with them: the data set is being loaded,
//! the last save failed and writes shall not go on as if they were kept, the log cannot be written, the server
//! is a replica, or has too few.
//!
//! The server says so; engines look once a visit, as one load, and take the long way for every request
//! while there is something to refuse.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{CommandError, CommandResult};
use crate::session::Session;
use crate::spec::{CommandSpec, Flags};

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
const READ_ONLY: u8 = 16;
const STALE: u8 = 32;
const FEW_REPLICAS: u8 = 64;

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

    /// Whether some commands are refused that change nothing.
    #[inline]
    pub(crate) fn concern_reads(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) & !(READ_ONLY | FEW_REPLICAS) != 0
    }

    /// Whether some commands are refused.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != 0
    }

    /// Lets a command of a client pass, or not.
    #[inline]
    pub(crate) fn pass(&self, spec: &CommandSpec, session: &Session) -> Result<(), CommandError> {
        if self.are_any() {
            self.judge(spec, session)
        } else {
            Ok(())
        }
    }

    /// Lets a command pass that was queued before something was refused.
    #[inline]
    pub(crate) fn pass_queued(&self, spec: &CommandSpec, session: &Session) -> CommandResult {
        // A transaction may make the server a replica.
        let is_refused = self.are_any() && self.is_read_only() && !session.is_of_primary;
        if is_refused && spec.flags.has(Flags::WRITE) {
            Err(CommandError::fixed(NO_WRITES))
        } else {
            Ok(())
        }
    }

    /// Lets a script or a function pass that says of itself what it does.
    pub(crate) fn pass_flagged(
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
            return Err(CommandError::fixed(NO_WRITING_SCRIPTS));
        }
        if shut & FEW_REPLICAS != 0 {
            return Err(CommandError::fixed(TOO_FEW));
        }
        Ok(())
    }

    #[cold]
    fn judge(&self, spec: &CommandSpec, session: &Session) -> Result<(), CommandError> {
        // Who says what goes is refused nothing: otherwise the server would not be what it follows.
        if session.is_of_primary {
            return Ok(());
        }
        let shut = self.kinds.load(Ordering::Acquire);
        let queue = match &session.transaction {
            Some(transaction) if spec.name == "EXEC" => transaction.queue(),
            _ => &[],
        };
        let queued = queue.iter().map(|queued| queued.spec);
        let mut specs = std::iter::once(spec).chain(queued);
        // PING, too: whoever watches over the server with it is to see that something is wrong.
        let is_write = |spec: &CommandSpec| spec.flags.has(Flags::WRITE) || spec.name == "PING";
        let runs_when_busy = spec.flags.has(Flags::ALLOW_BUSY) || session.in_script;
        if shut & BUSY != 0 && !runs_when_busy {
            let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(CommandError::fixed(*busy));
        }
        if shut & SAVE_FAILED != 0 && specs.clone().any(is_write) {
            return Err(CommandError::fixed(NOT_SAVED));
        }
        let changes_data = |spec: &CommandSpec| spec.flags.has(Flags::WRITE);
        if shut & FEW_REPLICAS != 0 && specs.clone().any(changes_data) {
            return Err(CommandError::fixed(TOO_FEW));
        }
        if shut & READ_ONLY != 0 && specs.clone().any(changes_data) {
            return Err(CommandError::fixed(NO_WRITES));
        }
        if shut & STALE != 0 && specs.clone().any(|spec| !spec.flags.has(Flags::STALE)) {
            return Err(CommandError::fixed(if session.in_script {
                STALE_IN_SCRIPT
            } else {
                MASTER_DOWN
            }));
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

const NO_WRITES: &str = "READONLY You can't write against a read only replica.";
const NO_WRITING_SCRIPTS: &str = "READONLY Can not run script with write flag on readonly replica.";
const TOO_FEW: &str = "NOREPLICAS Not enough good replicas to write.";
const MASTER_DOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
const STALE_IN_SCRIPT: &str = "ERR Can not execute the command on a stale replica";

/// Clients know it by its words.
const NOT_SAVED: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently \
    unable to persist to disk. Commands that may modify the data set are disabled, because this \
    instance is configured to report errors during writes if RDB snapshotting fails \
    (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
    error.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    const LOADS: &str = "LOADING Redis is loading the dataset in memory";

    #[test]
    fn while_data_is_loaded_only_what_needs_none_runs() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.settings.refusals.set_loading(true);
        for line in [
            "GET a",
            "SET a 2",
            "PING",
            "FLUSHALL",
            "DBSIZE",
            "BLPOP a 0",
        ] {
            assert_eq!(server.error(line), LOADS, "{line}");
        }
        assert_eq!(server.text("INFO server"), "server");
        assert_eq!(server.integer("LASTSAVE"), 7);
        assert!(server.error("GET").contains("wrong number of arguments"));
        server.settings.refusals.set_loading(false);
        assert_eq!(server.text("GET a"), "1");
        // What was refused does not count as called.
        assert_eq!(server.counts("GET"), (1, 0));
    }

    /// A log may be begun with a fault, when all is loaded but nobody served yet.
    #[test]
    fn who_waits_for_the_data_hears_of_a_log_that_cannot_be_written_afterwards() {
        let mut server = TestServer::new();
        server.settings.refusals.set_loading(true);
        server.settings.refusals.set_log_fault(Some("full"));
        for line in ["PING", "SET a 1", "GET a"] {
            assert_eq!(server.error(line), LOADS, "{line}");
        }
        server.settings.refusals.set_loading(false);
        assert_eq!(server.error("PING"), log_fault_text("full"));
    }

    #[test]
    fn a_series_of_plain_requests_is_refused_one_by_one() {
        let mut server = TestServer::new();
        server.settings.refusals.set_loading(true);
        let (output, _) = server.pipeline(&["SET a 1", "SET a 2", "GET a", "TIME"]);
        let refusals = format!("-{LOADS}\r\n").repeat(3);
        assert!(output.starts_with(refusals.as_bytes()));
        assert!(output.ends_with(b"*2\r\n$10\r\n1700000000\r\n$1\r\n5\r\n"));
    }

    #[test]
    fn a_transaction_that_would_touch_data_is_refused_as_a_whole() {
        let mut server = TestServer::new();
        server.run("MULTI");
        server.run("GET a");
        server.settings.refusals.set_loading(true);
        let aborted = format!("EXECABORT Transaction discarded because of: {LOADS}");
        assert_eq!(server.error("EXEC"), aborted);
        server.run("MULTI");
        assert_eq!(server.error("GET a"), LOADS);
        let spoilt = "EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(server.error("EXEC"), spoilt);
    }

    #[test]
    fn a_replica_writes_nothing_of_its_own() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.run("MULTI");
        server.run("INCR a");
        server.settings.refusals.set_read_only(true);
        let aborted = format!("EXECABORT Transaction discarded because of: {NO_WRITES}");
        assert_eq!(server.error("EXEC"), aborted);
        for line in ["SET a 2", "DEL a", "FLUSHALL", "BLPOP l 0", "FUNCTION FLUSH"] {
            assert_eq!(server.error(line), NO_WRITES, "{line}");
        }
        server.run("MULTI");
        assert_eq!(server.error("INCR a"), NO_WRITES);
        assert!(server.error("EXEC").starts_with("EXECABORT"));
        let error = server.error("EVAL \"return redis.call('set','a','2')\" 1 a");
        assert!(error.starts_with(NO_WRITES), "{error}");
        assert_eq!(server.text("EVAL \"return redis.call('get','a')\" 1 a"), "1");
        let (output, _) = server.pipeline(&["GET a", "SET a 2", "GET a"]);
        let expected = format!("$1\r\n1\r\n-{NO_WRITES}\r\n$1\r\n1\r\n");
        assert_eq!(output, expected.as_bytes());
        server.run("PING");
        // What the primary says is done.
        server.set_primary(true);
        assert_eq!(server.integer("INCR a"), 2);
    }

    #[test]
    fn a_script_that_says_it_writes_does_not_begin_on_a_replica() {
        let mut server = TestServer::new();
        let eval = |flags: &str| format!("EVAL \"#!lua flags={flags}\\nreturn 1\" 0");
        server.settings.refusals.set_read_only(true);
        assert_eq!(server.error(&eval("")), NO_WRITING_SCRIPTS);
        assert_eq!(server.integer(&eval("no-writes")), 1);
        server.settings.refusals.set_stale(true);
        assert_eq!(server.error(&eval("no-writes")), MASTER_DOWN);
        assert_eq!(server.integer(&eval("no-writes,allow-stale")), 1);
        let error = server.error("EVAL \"return redis.call('get','a')\" 1 a");
        assert!(error.starts_with(STALE_IN_SCRIPT), "{error}");
        assert_eq!(server.error("GET a"), MASTER_DOWN);
        assert_eq!(server.text("INFO server"), "server");
    }

    #[test]
    fn with_too_few_replicas_nothing_is_written() {
        let mut server = TestServer::new();
        server.settings.refusals.set_few_replicas(true);
        assert_eq!(server.error("SET a 1"), TOO_FEW);
        assert_eq!(server.error("EVAL \"#!lua\\nreturn 1\" 0"), TOO_FEW);
        server.run("PING");
        server.settings.refusals.set_few_replicas(false);
        server.run("SET a 1");
    }

    /// PFCOUNT keeps what it counted, which is a write.
    #[test]
    fn what_is_counted_on_a_replica_is_not_kept() {
        let mut server = TestServer::new();
        server.run("PFADD k a b c");
        let before = server.dump();
        server.settings.refusals.set_read_only(true);
        assert_eq!(server.integer("PFCOUNT k"), 3);
        assert_eq!(server.dump(), before);
    }

    #[test]
    fn when_nothing_can_be_saved_nothing_is_written() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.run("MULTI");
        server.run("INCR a");
        server.settings.refusals.set_save_failed(true);
        assert!(server.error("EXEC").starts_with("EXECABORT"));
        assert_eq!(server.text("GET a"), "1");
        for line in ["SET a 2", "DEL a", "PING"] {
            assert_eq!(server.error(line), NOT_SAVED, "{line}");
        }
        server.settings.refusals.set_save_failed(false);
        assert_eq!(server.integer("INCR a"), 2);
    }

    #[test]
    fn while_the_log_cannot_be_written_nothing_is_written() {
        let mut server = TestServer::new();
        server.run("SET k v");
        server.run("MULTI");
        server.run("SET k w");
        let before = server.dump();
        server
            .settings
            .refusals
            .set_log_fault(Some("No space left"));
        let text = log_fault_text("No space left");
        let aborted = format!("EXECABORT Transaction discarded because of: {text}");
        assert_eq!(server.error("EXEC"), aborted);
        for line in ["SET k w", "DEL k", "INCR n", "FLUSHALL", "GETDEL k", "PING"] {
            assert_eq!(server.error(line), text, "{line}");
        }
        let (output, _) = server.pipeline(&["SET k w", "SET k x", "GET k"]);
        let expected = format!("-{text}\r\n-{text}\r\n$1\r\nv\r\n");
        assert_eq!(output, expected.as_bytes());
        assert_eq!(server.dump(), before);
        server.settings.refusals.set_log_fault(None);
        server.run("SET k w");
        assert_eq!(server.text("GET k"), "w");
    }
}
