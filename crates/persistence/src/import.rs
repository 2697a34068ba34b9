//! Loads RDB files into the store.
//!
//! ```text
//!   file ──► this thread: items, batches of records ──► loaders: values, put under their keys
//!            sums up, finds where values end            one to a worker
//! ```
//!
//! Data that was read and not loaded yet is bounded: batches are short, few of them wait, and the
//! reading thread itself loads a long value. Nothing that was loaded counts before the file's end
//! was reached and its checksum was right; after an error the store holds some of it, and must be
//! discarded.
//!
//! As in Redis, expired keys are left out, and so are collections without elements, which old
//! servers sometimes wrote. A duplicate key is damage.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::scripts;
use rdb::file::{Checksum, Fault, FileError, FileReader, Item, LeftOut, Record, Usage, read_value};
use rdb::{Limits, Malformed, Reader, Value, value};
use store::{DatabaseId, Deadline, Handle, Owned, StoreError, Use};

use crate::environment::Environment;
use base::os_error::system_reason;

/// A batch is handed over at this many bytes …
const BATCH_BYTES: usize = 64 << 10;
/// … or records.
const BATCH_RECORDS: usize = 512;
/// The reading thread loads a longer record itself, from the buffer that it was read into.
const LONG_BYTES: usize = 1 << 20;
/// Maximum number of waiting batches per loader.
const BATCHES_WAITING: usize = 4;
/// Number of records by which the buckets of keys are prefetched.
const AHEAD: usize = 8;
/// Interval of progress lines in the log.
const LINE_EVERY_NS: u64 = 5_000_000_000;
/// Maximum length of a string, unless commands allow longer ones.
const STRING_BYTES_MAX: usize = 512 << 20;

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Version of the format.
    pub version: u16,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Number of keys that are in the store now.
    pub keys: u64,
    /// Number of keys that had expired.
    pub expired_keys: u64,
    /// Number of keys without elements.
    pub empty_keys: u64,
    /// Whether the bytes were checked against a checksum.
    pub is_summed: bool,
    /// Code of the libraries of functions, which are not loaded here.
    pub functions: Vec<Vec<u8>>,
    /// Database selected in the primary's stream at the position of its snapshot
    /// ([`stream_database`]).
    pub stream_database: Option<u32>,
    /// Duration in milliseconds.
    pub elapsed_ms: u64,
}

/// Returns the database of the commands after an RDB file, until the next SELECT, if this field
/// states it.
#[must_use]
pub fn stream_database(name: &[u8], value: &[u8]) -> Option<u32> {
    let number = base::number::parse_i64(value).filter(|_| name == b"repl-stream-db")?;
    u32::try_from(number).ok()
}

/// Why a file was not loaded.
#[derive(Debug)]
pub enum ImportError {
    /// It cannot be opened.
    Open(io::Error),
    /// It is damaged, or its format is unknown.
    File(FileError),
    /// It has a database that this server does not have.
    Database {
        /// Its number.
        number: u32,
        /// Number of databases.
        count: DatabaseId,
    },
    /// It has a key twice, or one that existed before.
    Twice {
        /// The database of the key.
        database: DatabaseId,
        /// The key.
        key: Vec<u8>,
        /// Offset of the value in the file.
        offset: u64,
    },
    /// The store refused a value.
    Store {
        /// The error.
        error: StoreError,
        /// Offset of the value in the file.
        offset: u64,
    },
    /// A thread could not be started.
    Thread(io::Error),
}

impl From<FileError> for ImportError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => write!(f, "cannot be opened: {}", system_reason(error)),
            Self::File(error) => error.fmt(f),
            Self::Database { number, count } => write!(
                f,
                "it has a database {number}, but this server has only {count}: raise 'databases'"
            ),
            Self::Twice {
                database,
                key,
                offset,
            } => write!(
                f,
                "at offset {offset}: the key '{}' of database {database} is there already",
                key.escape_ascii()
            ),
            Self::Store { error, offset } => write!(f, "at offset {offset}: {error}"),
            Self::Thread(error) => write!(f, "no thread to load with: {}", system_reason(error)),
        }
    }
}

impl std::error::Error for ImportError {}

/// How a stream of records is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Whether expired keys are loaded: at the beginning of a log, whose commands may still depend
    /// on them.
    pub keeps_expired: bool,
}

/// Loads the file at `path` into the store of `env`, which must not have any of its keys yet.
/// Reports its progress to the log and to [`Environment::loading`]. Loading lasts as long as this
/// call, unless the caller has already begun it.
///
/// # Errors
/// See [`ImportError`]. Then the store may hold a part of the file.
pub fn import_rdb(env: &Environment, path: &Path) -> Result<Loaded, ImportError> {
    let file = File::open(path).map_err(ImportError::Open)?;
    let total_bytes = file.metadata().map_err(ImportError::Open)?.len();
    let is_whole_loading = !env.loading.progress().goes_on;
    if is_whole_loading {
        env.begin_loading(total_bytes);
    } else {
        env.loading.add_total(total_bytes);
    }
    env.log.notice(format_args!(
        "Loading RDB file {}, {total_bytes} bytes",
        path.display()
    ));
    let options = ImportOptions {
        keeps_expired: false,
    };
    let loaded = import_stream(env, file, options).and_then(|(loaded, mut reader)| {
        reader.expect_nothing_behind()?;
        Ok(loaded)
    });
    if is_whole_loading {
        env.end_loading();
    }
    let loaded = loaded?;
    env.log.notice(format_args!(
        "Done loading RDB, keys loaded: {}, keys expired: {}, empty keys skipped: {}.",
        loaded.keys, loaded.expired_keys, loaded.empty_keys
    ));
    let (seconds, ms) = (loaded.elapsed_ms / 1000, loaded.elapsed_ms % 1000);
    env.log.notice(format_args!(
        "DB loaded from disk: {seconds}.{ms:03} seconds, {} bytes",
        loaded.bytes
    ));
    Ok(loaded)
}

/// Loads a stream up to the end of the RDB format; the reader is then positioned behind that.
///
/// # Errors
/// Those of [`import_rdb`].
pub fn import_stream<R: Read>(
    env: &Environment,
    source: R,
    options: ImportOptions,
) -> Result<(Loaded, FileReader<R>), ImportError> {
    let mut limits = env.shared.settings.value_limits();
    limits.string_bytes_max = limits.string_bytes_max.max(STRING_BYTES_MAX);
    let started_ns = env.clock.monotonic_ns();
    let mut reader = FileReader::open(source, limits)?;
    let context = Context {
        env,
        limits,
        version: reader.version(),
        now_unix_ms: match options.keeps_expired {
            true => 0,
            false => env.clock.now_unix_ms(),
        },
        failed: AtomicBool::new(false),
        first: Mutex::default(),
        stream_database: Mutex::default(),
        keys: AtomicU64::new(0),
        expired_keys: AtomicU64::new(0),
        empty_keys: AtomicU64::new(0),
    };
    let functions = context.load(&mut reader);
    // A loader's error is at an earlier position than what was read meanwhile.
    let first = lock(&context.first).take();
    let functions = match first {
        Some(error) => return Err(error),
        None => functions?,
    };
    let left_out = match scripts::install(&env.shared.scripts, &functions) {
        Ok(()) => Vec::new(),
        Err(_) => functions,
    };
    let elapsed_ns = env.clock.monotonic_ns().saturating_sub(started_ns);
    let loaded = Loaded {
        version: reader.version(),
        bytes: reader.offset(),
        keys: context.keys.load(Ordering::Relaxed),
        expired_keys: context.expired_keys.load(Ordering::Relaxed),
        empty_keys: context.empty_keys.load(Ordering::Relaxed),
        is_summed: matches!(reader.checksum(), Some(Checksum::Right(_))),
        functions: left_out,
        stream_database: *lock(&context.stream_database),
        elapsed_ms: elapsed_ns / 1_000_000,
    };
    Ok((loaded, reader))
}

/// State shared by all threads of one load.
struct Context<'n> {
    env: &'n Environment,
    limits: Limits,
    version: u16,
    /// Keys with a deadline up to this time have expired; 0 if none has.
    now_unix_ms: u64,
    failed: AtomicBool,
    /// The error to report.
    first: Mutex<Option<ImportError>>,
    stream_database: Mutex<Option<u32>>,
    keys: AtomicU64,
    expired_keys: AtomicU64,
    empty_keys: AtomicU64,
}

/// Records that were read, in a buffer of their own.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

/// A record: its key, body and deadlines of members follow each other in the batch's bytes.
struct Row {
    database: DatabaseId,
    type_code: u8,
    key_bytes: usize,
    body_bytes: usize,
    deadlines_bytes: usize,
    attributes: Attributes,
}

/// A value that is not decoded yet.
#[derive(Clone, Copy)]
struct Body<'b> {
    type_code: u8,
    bytes: &'b [u8],
    member_deadlines: &'b [u8],
}

/// The attributes of a record besides key and value.
#[derive(Clone, Copy)]
struct Attributes {
    deadline_unix_ms: Option<u64>,
    usage: Option<Usage>,
    offset: u64,
}

impl Batch {
    fn push(&mut self, database: DatabaseId, record: &Record<'_>) {
        let key = record.key.as_bytes();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(record.body);
        self.bytes.extend_from_slice(record.member_deadlines);
        self.rows.push(Row {
            database,
            type_code: record.type_code,
            key_bytes: key.len(),
            body_bytes: record.body.len(),
            deadlines_bytes: record.member_deadlines.len(),
            attributes: attributes(record),
        });
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.rows.len() >= BATCH_RECORDS
    }

    /// Returns the rows, each with its key and body.
    fn rows(&self) -> impl Iterator<Item = (&Row, &[u8], Body<'_>)> {
        let mut rest = self.bytes.as_slice();
        self.rows.iter().map(move |row| {
            let (key, behind) = rest.split_at(row.key_bytes);
            let (bytes, behind) = behind.split_at(row.body_bytes);
            let (member_deadlines, behind) = behind.split_at(row.deadlines_bytes);
            rest = behind;
            let body = Body {
                type_code: row.type_code,
                bytes,
                member_deadlines,
            };
            (row, key, body)
        })
    }
}

fn body<'b>(record: &Record<'b>) -> Body<'b> {
    Body {
        type_code: record.type_code,
        bytes: record.body,
        member_deadlines: record.member_deadlines,
    }
}

fn attributes(record: &Record<'_>) -> Attributes {
    Attributes {
        deadline_unix_ms: record.deadline_unix_ms,
        usage: record.usage,
        offset: record.offset,
    }
}

impl Context<'_> {
    /// Reads on this thread, and loads on as many threads as there are workers.
    fn load<R: Read>(&self, reader: &mut FileReader<R>) -> Result<Vec<Vec<u8>>, ImportError> {
        let loaders = self.env.threads.max(1);
        std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(BATCHES_WAITING * loaders);
            // The loaders end when the sender is dropped.
            let receiver = Arc::new(Mutex::new(receiver));
            for at in 0..loaders {
                let receiver = Arc::clone(&receiver);
                std::thread::Builder::new()
                    .name(format!("loader-{at}"))
                    .spawn_scoped(scope, move || self.load_batches(&receiver))
                    .map_err(ImportError::Thread)?;
            }
            drop(receiver);
            self.read(reader, sender)
        })
    }

    /// Reads all items; returns the libraries of functions among them.
    fn read<R: Read>(
        &self,
        reader: &mut FileReader<R>,
        sender: SyncSender<Batch>,
    ) -> Result<Vec<Vec<u8>>, ImportError> {
        let mut told = Told::new(self.env);
        let mut functions = Vec::new();
        let mut batch = Batch::default();
        let mut own = Loader::new(self);
        while let Some(item) = reader.next()? {
            let record = match item {
                Item::Record(record) => record,
                Item::Function(code) => {
                    functions.push(code.into_vec());
                    continue;
                }
                other => {
                    self.tell(&other)?;
                    continue;
                }
            };
            if self.has_expired(&record) {
                self.expired_keys.fetch_add(1, Ordering::Relaxed);
                self.env.loading.add_keys(0, 1);
                continue;
            }
            let database = self.database(record.database)?;
            if record.body.len() >= LONG_BYTES {
                let key = record.key.as_bytes();
                own.load(database, key, body(&record), attributes(&record))?;
                own.settle();
            } else {
                batch.push(database, &record);
            }
            if batch.is_full() {
                if self.failed.load(Ordering::Relaxed) || sender.send(batch).is_err() {
                    // The error of a loader is the one to report.
                    return Ok(functions);
                }
                batch = Batch::default();
                told.pass(reader.offset());
            }
        }
        // If no loader is left to receive it, there is an error to report.
        let _taken = sender.send(batch);
        told.pass(reader.offset());
        self.tell_left_out(reader.left_out());
        Ok(functions)
    }

    fn has_expired(&self, record: &Record<'_>) -> bool {
        record
            .deadline_unix_ms
            .is_some_and(|at| at < self.now_unix_ms)
    }

    fn database(&self, number: u32) -> Result<DatabaseId, ImportError> {
        let count = self.env.store.databases();
        DatabaseId::try_from(number)
            .ok()
            .filter(|number| *number < count)
            .ok_or(ImportError::Database { number, count })
    }

    /// Reports items between records to the operator, as far as they matter.
    fn tell(&self, item: &Item<'_>) -> Result<(), ImportError> {
        let log = &self.env.log;
        match item {
            Item::Database(number) => return self.database(*number).map(drop),
            Item::Aux { name, value } => {
                if let Some(number) = stream_database(name.as_bytes(), value.as_bytes()) {
                    *lock(&self.stream_database) = Some(number);
                }
                let value = value.as_bytes().escape_ascii();
                match name.as_bytes() {
                    b"redis-ver" | b"valkey-ver" => {
                        log.notice(format_args!("Loading RDB produced by version {value}"));
                    }
                    b"ctime" => log.notice(format_args!("RDB was written at {value} (Unix time)")),
                    b"used-mem" => {
                        log.notice(format_args!("RDB memory usage when created {value} bytes"));
                    }
                    name => log.debug(format_args!("RDB field {}={value}", name.escape_ascii())),
                }
            }
            Item::FunctionEarly(_) => log.warning(format_args!(
                "A library of functions in the format of a release candidate was left out"
            )),
            Item::ModuleAux(name) => log.warning(format_args!(
                "What the module type '{name}' keeps beside keys was left out"
            )),
            Item::SlotImport => log.warning(format_args!(
                "Slots of a cluster were about to move; what is there of them is loaded"
            )),
            Item::Sizes { .. } | Item::Slot | Item::Function(_) | Item::Record(_) => {}
        }
        Ok(())
    }

    /// Reports to the operator what was left out of the loaded keys besides their values.
    fn tell_left_out(&self, left_out: &LeftOut) {
        let log = &self.env.log;
        let LeftOut {
            metadata_keys,
            stream_producers,
            member_deadlines,
            first_member_key,
        } = left_out;
        if *metadata_keys > 0 {
            log.warning(format_args!(
                "What modules keep beside {metadata_keys} keys was left out"
            ));
        }
        if *stream_producers > 0 {
            log.warning(format_args!(
                "Streams were loaded without their {stream_producers} idempotent producers: a request that is sent \
                 again is added again"
            ));
        }
        if *member_deadlines > 0 {
            log.warning(format_args!(
                "{member_deadlines} deadlines of members of sets and sorted sets were left out, the first at the key '{}': \
                 only fields of hashes have deadlines here",
                first_member_key.escape_ascii()
            ));
        }
    }

    /// Loads batches until there are no more, or one fails.
    fn load_batches(&self, receiver: &Mutex<Receiver<Batch>>) {
        let mut loader = Loader::new(self);
        loop {
            let Ok(batch) = lock(receiver).recv() else {
                return;
            };
            if self.failed.load(Ordering::Relaxed) {
                // The reader sees the failure before it sends another batch.
                continue;
            }
            if let Err(error) = loader.load_batch(&batch) {
                self.failed.store(true, Ordering::Relaxed);
                lock(&self.first).get_or_insert(error);
            }
        }
    }
}

/// The progress reported so far.
struct Told<'n> {
    env: &'n Environment,
    bytes: u64,
    started_ns: u64,
    line_ns: u64,
}

impl<'n> Told<'n> {
    fn new(env: &'n Environment) -> Self {
        let now_ns = env.clock.monotonic_ns();
        Self {
            env,
            bytes: 0,
            started_ns: now_ns,
            line_ns: now_ns,
        }
    }

    /// Notes that `bytes` were read; sometimes writes a line to the log.
    fn pass(&mut self, bytes: u64) {
        let loading = &self.env.loading;
        loading.add_bytes(bytes - self.bytes);
        self.bytes = bytes;
        let now_ns = self.env.clock.monotonic_ns();
        if now_ns.saturating_sub(self.line_ns) < LINE_EVERY_NS {
            return;
        }
        self.line_ns = now_ns;
        let elapsed_ms = now_ns.saturating_sub(self.started_ns) / 1_000_000;
        let [keys, _] = loading.keys();
        let progress = loading.progress();
        self.env.log.notice(format_args!(
            "Loading RDB: {:.1} % of {} bytes, {keys} keys, {} keys per second, {} seconds left",
            progress.percent(),
            progress.total_bytes,
            keys.saturating_mul(1000) / elapsed_ms.max(1),
            progress.eta_seconds(self.env.clock.now_unix_ms()),
        ));
    }
}

/// Puts values under their keys, on one thread.
struct Loader<'c> {
    context: &'c Context<'c>,
    handle: Handle,
    hashes: Vec<u64>,
    keys: u64,
    empty_keys: u64,
}

impl<'c> Loader<'c> {
    fn new(context: &'c Context<'c>) -> Self {
        let mut handle = context.env.store.handle();
        handle.begin(context.now_unix_ms);
        Self {
            context,
            handle,
            hashes: Vec::new(),
            keys: 0,
            empty_keys: 0,
        }
    }

    fn load_batch(&mut self, batch: &Batch) -> Result<(), ImportError> {
        self.hashes.clear();
        let hashes = batch.rows().map(|(_, key, _)| self.handle.hash(key));
        self.hashes.extend(hashes);
        self.handle.enter();
        let mut outcome = Ok(());
        for (at, (row, key, body)) in batch.rows().enumerate() {
            if let Some(hash) = self.hashes.get(at + AHEAD) {
                self.handle.lookahead(row.database).bucket(*hash);
            }
            outcome = self.load(row.database, key, body, row.attributes);
            if outcome.is_err() {
                break;
            }
        }
        self.handle.leave();
        self.settle();
        outcome
    }

    fn load(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        body: Body<'_>,
        attributes: Attributes,
    ) -> Result<(), ImportError> {
        let reader = Reader::new(body.bytes, self.context.version, &self.context.limits);
        let put = if body.type_code == value::STRING {
            self.put_text(database, key, reader, attributes)
        } else {
            match read_value(body.type_code, reader, body.member_deadlines) {
                Ok(value) => self.put_value(database, key, value, attributes),
                Err((_, Malformed::Empty)) => {
                    self.empty_keys += 1;
                    return Ok(());
                }
                Err((position, malformed)) => Err(refused(attributes, position, malformed)),
            }
        };
        self.keys += u64::from(put.is_ok());
        put
    }

    /// Puts a string from the buffer that it was read into.
    fn put_text(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        mut reader: Reader<'_>,
        attributes: Attributes,
    ) -> Result<(), ImportError> {
        let text = reader.text();
        let text = text.map_err(|malformed| refused(attributes, 0, malformed))?;
        let deadline = attributes
            .deadline_unix_ms
            .map_or(Deadline::Never, Deadline::At);
        self.put(database, key, attributes, |entry| {
            entry.set(text.as_bytes(), deadline)
        })
    }

    fn put_value(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        value: Value,
        attributes: Attributes,
    ) -> Result<(), ImportError> {
        let deadline_unix_ms = attributes.deadline_unix_ms;
        self.put(database, key, attributes, |entry| match value {
            Value::String(text) => {
                let deadline = deadline_unix_ms.map_or(Deadline::Never, Deadline::At);
                entry.set(&text, deadline)
            }
            Value::Object(object) => entry.put(Owned::of_object(object, deadline_unix_ms)),
        })
    }

    fn put(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        attributes: Attributes,
        put: impl FnOnce(&mut store::Entry<'_>) -> Result<(), StoreError>,
    ) -> Result<(), ImportError> {
        let offset = attributes.offset;
        let place = self.handle.key(database, key);
        self.handle.modify(&place, |entry| {
            if entry.is_present() {
                return Err(ImportError::Twice {
                    database,
                    key: key.to_vec(),
                    offset,
                });
            }
            put(entry).map_err(|error| ImportError::Store { error, offset })?;
            if let Some(usage) = attributes.usage {
                entry.set_use(match usage {
                    Usage::IdleSeconds(seconds) => Use::IdleSeconds(seconds),
                    Usage::Frequency(count) => Use::Frequency(count),
                });
            }
            Ok(())
        })
    }

    /// Publishes what was loaded.
    fn settle(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let empty_keys = std::mem::take(&mut self.empty_keys);
        self.context.keys.fetch_add(keys, Ordering::Relaxed);
        self.context
            .empty_keys
            .fetch_add(empty_keys, Ordering::Relaxed);
        self.context.env.loading.add_keys(keys, 0);
    }
}

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        self.handle.tell_memory();
    }
}

fn refused(attributes: Attributes, position: usize, malformed: Malformed) -> ImportError {
    ImportError::File(FileError {
        offset: attributes.offset + position as u64,
        fault: Fault::Malformed(malformed),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
