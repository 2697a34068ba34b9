//! Applies frames of a primary's log to the store of a server that serves readers meanwhile.
//!
//! It does what `persistence`'s `Replayer` does at a start, but on a store in use: observers are
//! notified (WATCH, tracking, keyspace events, clients that wait for keys), and the effects of one
//! frame become visible together.
//!
//! Invariants
//!  1. Time stands still, at 0: nothing expires while frames are applied. Only the primary decides
//!     that a key has expired.
//!  2. Memory is not limited, and no effect is logged, because the log has the frame already.
//!  3. Frames are applied in order. A group is run as a transaction, so readers see all of it or
//!     nothing.
//!  4. No command of the log may fail, because the store would then differ from the
//!     primary's. The first error is returned, and nothing is applied after it.

use std::sync::Arc;

use base::clock::ManualClock;
use base::random::Prng;
use durability::checkpoint::Overlap;
use durability::log::{Effect, Frame};
use engine::{
    BATCH_MAX, ClientRecord, Engine, EngineCounters, Next, ServerPort, Session, Shared, Table,
    Waiters,
};
use persistence::replay;
use protocol::{Batch, ReplyBuffer};
use store::{DatabaseId, Handle};

/// Commands are applied together in batches of about this many bytes.
const BATCH_BYTES: usize = 32 << 10;
/// Positions in a batch have 32 bits.
const PLACES_MAX: usize = u32::MAX as usize - 2;
/// Maximum number of bytes that are reported of an error's text.
const TOLD_BYTES_MAX: usize = 200;

/// See the module.
pub(crate) struct Applier {
    engine: Engine,
    counters: Arc<EngineCounters>,
    session: Session,
    databases: DatabaseId,
    /// Commands that wait to be applied, in the session's database.
    bytes: Vec<u8>,
    batch: Batch,
    output: ReplyBuffer,
    errors_seen: u64,
}

impl Applier {
    /// Creates an applier that applies through `handle`, as a server with this state would.
    pub(crate) fn new(
        table: &'static Table,
        mut handle: Handle,
        waiters: &Arc<Waiters>,
        like: &Shared,
    ) -> Self {
        handle.set_unlimited(true);
        let databases = handle.store().databases();
        let clock = Arc::new(ManualClock::at_unix_ms(0));
        let shared = Arc::new(replay::shared(like));
        let engine = Engine::new(table, handle, shared, clock, Prng::from_os())
            .among(Arc::clone(waiters))
            .of_log();
        let address = || String::from("primary");
        let client = ClientRecord::new(0, address(), address(), 0, -1, 0);
        Self {
            counters: engine.counters(),
            engine,
            session: Session::new(Arc::new(client), true),
            databases,
            bytes: Vec::with_capacity(2 * BATCH_BYTES),
            batch: Batch::new(),
            output: ReplyBuffer::new(),
            errors_seen: 0,
        }
    }

    /// Queues a frame; it is applied at [`Applier::flush`] at the latest. Effects of the overlap
    /// are in the store already.
    pub(crate) fn frame(
        &mut self,
        frame: &Frame<'_>,
        overlap: Overlap,
        server: &mut dyn ServerPort,
    ) -> Result<(), String> {
        let mut effects = frame
            .effects()
            .filter(|effect| !overlap.has(frame.sequence, effect.generation));
        let Some(first) = effects.next() else {
            return Ok(());
        };
        let Some(second) = effects.next() else {
            self.select(first.database, server)?;
            return self.effect(&first, server);
        };
        self.select(first.database, server)?;
        self.command(&[b"MULTI"], server)?;
        let mut database = first.database;
        for effect in [first, second].into_iter().chain(effects) {
            if effect.database != database {
                self.check(effect.database)?;
                database = effect.database;
                self.command(&[b"SELECT", database.to_string().as_bytes()], server)?;
            }
            self.effect(&effect, server)?;
        }
        self.command(&[b"EXEC"], server)?;
        self.flush(server)
    }

    /// Applies the queued commands.
    pub(crate) fn flush(&mut self, server: &mut dyn ServerPort) -> Result<(), String> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let count = self.batch.len();
        let (executed, next) = self.engine.run_batch(
            &mut self.session,
            server,
            (&self.batch, &self.bytes),
            &mut self.output,
        );
        self.batch.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * BATCH_BYTES);
        let failed = self.counters.errors_count() != self.errors_seen;
        let told = failed.then(|| first_error(&self.output.to_vec()));
        self.output.clear();
        if let Some(reason) = told {
            self.errors_seen = self.counters.errors_count();
            return Err(format!("a command of the primary fails: {reason}"));
        }
        if executed != count || next != Next::Read {
            return Err("what the primary sent is no command".to_owned());
        }
        self.engine.serve(server);
        Ok(())
    }

    /// The handle through which changes are made.
    pub(crate) fn store(&mut self) -> &mut Handle {
        self.engine.store()
    }

    /// Checks that this database exists.
    pub(crate) fn check(&self, database: DatabaseId) -> Result<(), String> {
        let databases = self.databases;
        if database < databases {
            return Ok(());
        }
        Err(format!(
            "a command is about database {database}, and there are {databases} (directive databases)"
        ))
    }

    /// Selects the database of the next commands.
    pub(crate) fn select(
        &mut self,
        database: DatabaseId,
        server: &mut dyn ServerPort,
    ) -> Result<(), String> {
        // A transaction may have left the session in another database.
        if database != self.session.database {
            self.flush(server)?;
            self.check(database)?;
            self.session.select(database);
        }
        Ok(())
    }

    fn effect(&mut self, effect: &Effect<'_>, server: &mut dyn ServerPort) -> Result<(), String> {
        let (batch, mut told) = (&mut self.batch, 0);
        effect.parts.copy_to(&mut self.bytes, |start, len| {
            batch.add_argument(start, len);
            told += 1;
        });
        if told != effect.parts.len() || told == 0 {
            return Err("a command of the log is cut off".to_owned());
        }
        self.end(told, server)
    }

    /// Queues a command; it is applied at [`Applier::flush`] at the latest.
    pub(crate) fn command(
        &mut self,
        parts: &[&[u8]],
        server: &mut dyn ServerPort,
    ) -> Result<(), String> {
        for part in parts {
            self.batch.add_argument(self.bytes.len(), part.len());
            self.bytes.extend_from_slice(part);
        }
        self.end(parts.len(), server)
    }

    fn end(&mut self, count: usize, server: &mut dyn ServerPort) -> Result<(), String> {
        if self.bytes.len() > PLACES_MAX {
            return Err("a command is too long".to_owned());
        }
        self.batch.end_added(count, &self.bytes);
        if self.batch.len() == BATCH_MAX || self.bytes.len() >= BATCH_BYTES {
            return self.flush(server);
        }
        Ok(())
    }
}

/// Returns the first error among replies.
fn first_error(replies: &[u8]) -> String {
    let lines = replies.split(|&byte| byte == b'\n');
    let error = lines.into_iter().find_map(|line| line.strip_prefix(b"-"));
    let error = error.unwrap_or(b"unknown");
    let shown = &error[..error.len().min(TOLD_BYTES_MAX)];
    shown.trim_ascii_end().escape_ascii().to_string()
}
