//! What keeps commands from running though nothing is wrong with them: the data set is being loaded,
//! or the last save failed and writes shall not go on as if they were kept.
//!
//! The server says so; engines look once a visit, as one load, and take the long way for every request
//! while there is something to refuse.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::CommandError;
use crate::session::Session;
use crate::spec::{CommandSpec, Flags};

/// Which commands are refused.
#[derive(Debug)]
pub struct Refusals(AtomicU8);

const LOADING: u8 = 1;
const SAVE_FAILED: u8 = 2;

impl Refusals {
    /// None.
    #[must_use]
    pub const fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Says whether the data set is being loaded: only commands that need none of it run then
    /// ([`Flags::LOADING`]).
    pub fn set_loading(&self, on: bool) {
        self.set(LOADING, on);
    }

    /// Whether the data set is being loaded.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.0.load(Ordering::Acquire) & LOADING != 0
    }

    /// Says whether writes are refused because the last save failed.
    pub fn set_save_failed(&self, on: bool) {
        self.set(SAVE_FAILED, on);
    }

    fn set(&self, bit: u8, on: bool) {
        if on {
            self.0.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.0.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Whether some commands are refused.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
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

    #[cold]
    fn judge(&self, spec: &CommandSpec, session: &Session) -> Result<(), CommandError> {
        let shut = self.0.load(Ordering::Acquire);
        let queue = match &session.transaction {
            Some(transaction) if spec.name == "EXEC" => transaction.queue(),
            _ => &[],
        };
        let queued = queue.iter().map(|queued| queued.spec);
        let mut specs = std::iter::once(spec).chain(queued);
        // PING, too: whoever watches over the server with it is to see that something is wrong.
        let is_write = |spec: &CommandSpec| spec.flags.has(Flags::WRITE) || spec.name == "PING";
        if shut & SAVE_FAILED != 0 && specs.clone().any(is_write) {
            return Err(CommandError::fixed(NOT_SAVED));
        }
        if shut & LOADING != 0 && specs.any(|spec| !spec.flags.has(Flags::LOADING)) {
            return Err(CommandError::fixed(
                "LOADING Redis is loading the dataset in memory",
            ));
        }
        Ok(())
    }
}

/// Clients know it by its words.
const NOT_SAVED: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently \
    unable to persist to disk. Commands that may modify the data set are disabled, because this \
    instance is configured to report errors during writes if RDB snapshotting fails \
    (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
    error.";

#[cfg(test)]
mod tests {
    use super::NOT_SAVED;
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
}
