//! Received data of slots that are not this node's yet. It is applied to the store and appended to
//! the log like any write, so that replicas and a restart have it. Clients cannot see it before the
//! slots are this node's (`store`'s `hidden`).
//!
//! Invariants
//!  1. The clock stands still, at 0: until the slots are handed over, only the source decides that
//!     a key has expired. The log gets the real time.
//!  2. None of the commands fails. Otherwise the data here differs from the source's, so the first
//!     failure ends the move.

use std::sync::Arc;
use std::time::Duration;

use base::background::BackgroundThread;
use base::clock::Clock;
use durability::log::Log;
use engine::NoServer;
use persistence::log_in_use::{LogUser, TakenUp};
use persistence::tail::{Majority as _, Tail};
use store::{Cause, DatabaseId, EffectSink, Source};

use super::SHARE;
use super::wire::{self, Entry};
use crate::node::Node;
use crate::replication::Applier;

/// Error if nothing can be written.
pub(super) const NO_LOG: &str = "this node has no log to write to";
/// Interval between two checks whether the log is on disk or has space.
const LOOK: Duration = Duration::from_millis(1);
/// Number of entries, and length of one entry, after which a background thread checks the time.
const LOOK_ENTRIES: u32 = 16;
const LOOK_BYTES: usize = 4 << 10;
/// Maximum capacity kept, after applying, for bytes that wait for the rest of a command.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// See the module documentation.
pub(super) struct Staging {
    node: Arc<Node>,
    applier: Applier,
    log_user: LogUser,
    bytes: Vec<u8>,
    group: Group,
}

/// Position of the stream relative to a group of commands that apply together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Outside,
    Begun,
    /// Inside a group of commands on this database.
    Within(DatabaseId),
}

impl Staging {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        let log_user = node.keeping.log_in_use.join();
        log_user.set_idle(true);
        let applier = Applier::new(
            node.core.env.table,
            node.core.store.handle(),
            &node.sessions.waiters,
            &node.core.shared,
        );
        Self {
            node: Arc::clone(node),
            applier,
            log_user,
            bytes: Vec::new(),
            group: Group::Outside,
        }
    }

    /// Applies a piece of the stream. A background thread yields to workers meanwhile.
    ///
    /// # Errors
    /// Why that is not possible: the data here has become useless.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        mut background: Option<&mut BackgroundThread<'_>>,
    ) -> Result<(), String> {
        await_room(&self.node)?;
        self.bytes.extend_from_slice(piece);
        let bytes = std::mem::take(&mut self.bytes);
        let mut used = 0;
        loop {
            self.log_user.set_idle(false);
            let applied = self.apply(&bytes[used..], background.as_deref());
            self.log_user.set_idle(true);
            used += applied?;
            match &mut background {
                Some(thread) if thread.is_due() => {
                    self.node.work.background.set_share(SHARE);
                    thread.pause();
                }
                _ => break,
            }
        }
        self.bytes = bytes;
        self.bytes.drain(..used);
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.write_out()
    }

    /// Applies the complete entries, or as many as a slice of a background thread permits. Returns
    /// the number of applied bytes.
    fn apply(
        &mut self,
        bytes: &[u8],
        background: Option<&BackgroundThread<'_>>,
    ) -> Result<usize, String> {
        let clock = Arc::clone(&self.node.core.clock);
        let timed = |inner| Box::new(Timed { inner, clock }) as Box<dyn EffectSink>;
        let taken = self.log_user.take_up_through(self.applier.store(), timed);
        if matches!(taken, TakenUp::Nothing) {
            return Err(NO_LOG.to_owned());
        }
        let mut port = NoServer::default();
        let mut used = 0;
        for count in 1.. {
            let Some((entry, length)) = wire::entry(&bytes[used..])? else {
                break;
            };
            self.entry(&entry, &mut port)?;
            used += length;
            let is_look = count % LOOK_ENTRIES == 0 || length >= LOOK_BYTES;
            if is_look && background.is_some_and(BackgroundThread::is_due) {
                break;
            }
        }
        self.applier.flush(&mut port)?;
        Ok(used)
    }

    fn entry(&mut self, entry: &Entry<'_>, port: &mut NoServer) -> Result<(), String> {
        match (entry, self.group) {
            (Entry::GroupBegin, Group::Outside) => self.group = Group::Begun,
            (Entry::GroupEnd, Group::Within(_)) => {
                self.group = Group::Outside;
                self.applier.command(&[b"EXEC"], port)?;
                self.applier.flush(port)?;
            }
            (Entry::Command(database, parts), Group::Outside) => {
                self.applier.select(*database, port)?;
                self.applier.command(parts, port)?;
            }
            (Entry::Command(database, parts), Group::Begun) => {
                self.applier.select(*database, port)?;
                self.group = Group::Within(*database);
                self.applier.command(&[b"MULTI"], port)?;
                self.applier.command(parts, port)?;
            }
            (Entry::Command(database, parts), Group::Within(before)) => {
                if before != *database {
                    self.applier.check(*database)?;
                    self.group = Group::Within(*database);
                    let text = database.to_string();
                    self.applier.command(&[b"SELECT", text.as_bytes()], port)?;
                }
                self.applier.command(parts, port)?;
            }
            _ => return Err("commands that apply together are cut off".to_owned()),
        }
        Ok(())
    }

    fn write_out(&self) -> Result<(), String> {
        log_of(&self.node)?.write_out(self.log_user.appended().end())?;
        if self.node.replication.fence.is_quorum() {
            self.node.wake_workers();
        }
        Ok(())
    }

    /// Waits until everything applied is on disk, and on a majority of the copies if replies wait
    /// for one.
    ///
    /// # Errors
    /// Why that cannot happen.
    pub(super) fn make_durable(&self) -> Result<(), String> {
        if !self.bytes.is_empty() || self.group != Group::Outside {
            return Err("a command is cut off".to_owned());
        }
        self.write_out()?;
        let (log, end) = (log_of(&self.node)?, self.log_user.appended().end());
        log.request_sync(end);
        let fence = &self.node.replication.fence;
        let waits_for_others = fence.is_quorum();
        while log.durable() < end || (waits_for_others && fence.released(&*log) < end) {
            go_on(&self.node)?;
            if let Some(fault) = log.fault() {
                return Err(fault);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.log_user.let_go(self.applier.store());
        self.applier.store().tell_memory();
    }
}

/// Passes effects on with the real time, for an applier whose clock stands still.
struct Timed {
    inner: Box<dyn EffectSink>,
    clock: Arc<dyn Clock>,
}

impl EffectSink for Timed {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        self.inner.command(database, parts);
    }

    fn removed(&mut self, database: DatabaseId, key: &[u8], cause: Cause) {
        self.inner.removed(database, key, cause);
    }

    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]) {
        self.inner.member_expired(database, key, member);
    }

    fn etag(&mut self, database: DatabaseId, key: &[u8], etag: u64) {
        self.inner.etag(database, key, etag);
    }

    fn generation(&mut self, generation: u64) {
        self.inner.generation(generation);
    }

    fn stands(&mut self, generation: u64, _now_unix_ms: u64) {
        self.inner.stands(generation, self.clock.now_unix_ms());
    }

    fn group_begin(&mut self) {
        self.inner.group_begin();
    }

    fn group_end(&mut self) {
        self.inner.group_end();
    }

    fn source(&mut self, source: &Source) {
        self.inner.source(source);
    }
}

/// Returns the log in use.
pub(super) fn log_of(node: &Node) -> Result<Arc<dyn Tail>, String> {
    let log = node.keeping.log_in_use.get();
    log.ok_or_else(|| NO_LOG.to_owned())
}

/// Waits until the log has space.
///
/// # Errors
/// Why it gets none.
pub(super) fn await_room(node: &Node) -> Result<(), String> {
    let log = log_of(node)?;
    while !log.has_room(node.core.clock.monotonic_ns()) {
        go_on(node)?;
        log.request_sync(log.tail());
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn go_on(node: &Node) -> Result<(), String> {
    match node.is_stopping() {
        true => Err("the server stops".to_owned()),
        false => Ok(()),
    }
}

/// Returns the log on disk, which a move is read from.
pub(super) fn own_log(node: &Node) -> Result<Arc<Log>, String> {
    let log = node.persistence().and_then(|kept| kept.log().log());
    log.ok_or_else(|| "there is no log on disk (durability os, everysec or always)".to_owned())
}
