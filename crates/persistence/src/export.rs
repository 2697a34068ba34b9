//! Writes the store as an RDB file, while it is read and written.
//!
//! A snapshot of the store passes its records to a sink that writes them at once. Only what clients
//! change meanwhile is held, and the snapshot bounds that. The file gets its name when it is whole
//! and on disk; until then the previous file keeps the name.
//!
//! The format cannot hold etags and the usage of records, which a snapshot does not contain.

use std::fmt;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::number::IntegerText;
use durability::disk::{Disk, DiskFile};
use rdb::file::{Content, Entry, FileWriter, Sizes};
use rdb::{Style, VERSION_MAX, VERSION_MIN, value};
use store::{
    Batch, DatabaseId, Ending, Handle, Saved, SavedValue, SnapshotLimits, SnapshotSink,
    SnapshotStep, Totals,
};

use crate::environment::Environment;
use base::os_error::system_reason;

/// Default version if it loses nothing: as for DUMP, the oldest that all servers with these
/// commands read.
pub const VERSION: u16 = rdb::dump::VERSION;

/// Buckets that are walked at a time.
const BUCKETS_PER_STEP: usize = 256;
/// Number of bytes that may not be durable at which the writer waits for the device: in one go they
/// would block all other users of it, the log first.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;
/// Time to wait if the snapshot cannot continue.
const PAUSE: Duration = Duration::from_micros(500);

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Version of the format; `None` for [`VERSION`], or the first later one that loses nothing.
    pub version: Option<u16>,
    /// Whether long texts are compressed (`rdbcompression`).
    pub compresses: bool,
    /// Whether the file has a checksum (`rdbchecksum`).
    pub sums_up: bool,
}

/// The result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The version of the format.
    pub version: u16,
    /// Number of records.
    pub keys: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Maximum memory that was held for it at any time.
    pub held_bytes_max: u64,
}

/// Why no file was written.
#[derive(Debug)]
pub enum ExportError {
    /// The disk reported an error.
    Disk(io::Error),
    /// The snapshot was cancelled.
    Cancelled,
    /// Clients changed more than the memory limit allows.
    OverLimit,
    /// Some saved records are missing in the file: a bug of this program.
    Incomplete {
        /// Number of records in the file.
        written: u64,
        /// Number of saved records.
        saved: u64,
    },
    /// This version cannot be written.
    Unknown(u16),
    /// The version cannot hold this key: its fields have deadlines.
    Version {
        /// The first version that can.
        needed: u16,
        /// The key.
        key: Vec<u8>,
    },
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => f.write_str(&system_reason(error)),
            Self::Cancelled => f.write_str("cancelled"),
            Self::OverLimit => f.write_str("clients changed more than memory had room for"),
            Self::Incomplete { written, saved } => {
                write!(
                    f,
                    "{written} records were written of {saved} that were saved"
                )
            }
            Self::Unknown(version) => write!(
                f,
                "RDB version {version} is not written: {VERSION_MIN} to {VERSION_MAX} are"
            ),
            Self::Version { needed, key } => write!(
                f,
                "the key '{}' has fields with deadlines, for which RDB version {needed} is needed",
                key.escape_ascii()
            ),
        }
    }
}

impl std::error::Error for ExportError {}

/// Writes all databases of `env`, as they are now, into the file at `path`. For a thread with no
/// other work: it takes as long as the store is large.
///
/// # Errors
/// See [`ExportError`]. Then the file at `path` is unchanged.
pub fn export_rdb(
    env: &Environment,
    disk: &dyn Disk,
    path: &Path,
    options: ExportOptions,
) -> Result<Exported, ExportError> {
    let export = Export {
        env,
        disk,
        draft: draft_path(path),
        options,
        limits: SnapshotLimits::default(),
        is_given_up: &|| false,
    };
    export.write_to(path)
}

/// Returns the name of an incomplete file, beside the final one. Two that are written at the same
/// time have different names.
fn draft_path(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!("temp-{}-{number}.rdb", std::process::id()))
}

/// One file, and how it is written.
pub(super) struct Export<'e> {
    pub(super) env: &'e Environment,
    pub(super) disk: &'e dyn Disk,
    /// Path of the file until it is whole. Any file there may be overwritten.
    pub(super) draft: PathBuf,
    pub(super) options: ExportOptions,
    /// Memory limits of the snapshot.
    pub(super) limits: SnapshotLimits,
    /// Whether the export was given up.
    pub(super) is_given_up: &'e dyn Fn() -> bool,
}

impl Export<'_> {
    /// Writes the file, and gives it its name.
    pub(super) fn write_to(&self, path: &Path) -> Result<Exported, ExportError> {
        let written = self.write().and_then(|exported| {
            self.disk.rename(&self.draft, path)?;
            Ok(exported)
        });
        match written {
            Ok(exported) => {
                let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
                let directory = directory.unwrap_or_else(|| Path::new("."));
                self.disk.sync_directory(directory)?;
                Ok(exported)
            }
            Err(error) => {
                let _already_gone = self.disk.remove(&self.draft);
                Err(error)
            }
        }
    }

    fn write(&self) -> Result<Exported, ExportError> {
        let Some(version) = self.options.version else {
            return match self.write_as(VERSION) {
                // This is known only after all keys were seen.
                Err(ExportError::Version { needed, .. }) => self.write_as(needed),
                other => other,
            };
        };
        if (VERSION_MIN..=VERSION_MAX).contains(&version) {
            self.write_as(version)
        } else {
            Err(ExportError::Unknown(version))
        }
    }

    fn write_as(&self, version: u16) -> Result<Exported, ExportError> {
        let file = self.create()?;
        let style = Style {
            version,
            compresses: self.options.compresses,
        };
        let growing = Growing::new(&file);
        let mut writer = FileWriter::new(growing, style, self.options.sums_up);
        write_origin(self.env, &mut writer)?;
        for library in self.env.shared.scripts.sources() {
            writer.function(&library)?;
        }
        let mut handle = self.env.store.handle();
        let sizes = (0..self.env.store.databases()).map(|database| Sizes {
            keys: handle.len(database) as u64,
            expiring: handle.expiring_len(database) as u64,
        });
        let sizes = sizes.collect();
        let state = Arc::new(Mutex::new(State {
            writer,
            version,
            sizes,
            keys: 0,
            failed: None,
            ending: None,
        }));
        self.begin(&mut handle, &state)?;
        self.drive(&mut handle);
        let exported = lock(&state).finish()?;
        file.sync()?;
        Ok(exported)
    }

    fn create(&self) -> io::Result<Arc<dyn DiskFile>> {
        // A file that was left behind, or one of another version.
        if let Err(error) = self.disk.remove(&self.draft)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        self.disk.create(&self.draft).map(Arc::from)
    }

    /// Makes the cut, as soon as no other snapshot is in progress.
    fn begin(&self, handle: &mut Handle, state: &Arc<Mutex<State>>) -> Result<(), ExportError> {
        loop {
            let sink = Box::new(Sink(Arc::clone(state)));
            if handle.begin_snapshot(sink, self.limits).is_ok() {
                return Ok(());
            }
            if (self.is_given_up)() {
                return Err(ExportError::Cancelled);
            }
            handle.advance_snapshot(BUCKETS_PER_STEP);
            std::thread::sleep(PAUSE);
        }
    }

    /// Continues until no snapshot is in progress: neither this one, nor one that began on another
    /// thread meanwhile.
    fn drive(&self, handle: &mut Handle) {
        loop {
            if (self.is_given_up)() {
                self.env.store.cancel_snapshot();
            }
            match handle.advance_snapshot(BUCKETS_PER_STEP) {
                // A worker on this core waits no longer than for one step.
                SnapshotStep::More => std::thread::yield_now(),
                SnapshotStep::Later => std::thread::sleep(PAUSE),
                SnapshotStep::Idle => return,
            }
        }
    }
}

/// Writes what Redis states about itself, in its order.
fn write_origin<W: Write>(env: &Environment, writer: &mut FileWriter<W>) -> io::Result<()> {
    let number = |number: u64| IntegerText::new_u64(number);
    let seconds = env.clock.now_unix_ms() / 1000;
    let used = env.used_bytes();
    writer.aux("redis-ver", env.redis_version.as_bytes())?;
    writer.aux("redis-bits", number(usize::BITS.into()).as_bytes())?;
    writer.aux("ctime", number(seconds).as_bytes())?;
    writer.aux("used-mem", number(used).as_bytes())?;
    writer.aux("aof-base", b"0")
}

/// State shared by the sink and the thread that waits for it.
struct State {
    writer: FileWriter<Growing>,
    version: u16,
    sizes: Vec<Sizes>,
    keys: u64,
    failed: Option<ExportError>,
    ending: Option<(Ending, Totals)>,
}

struct Sink(Arc<Mutex<State>>);

impl SnapshotSink for Sink {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let mut state = lock(&self.0);
        for saved in batch.records() {
            if let Err(error) = state.put(&saved) {
                state.failed = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, totals: &Totals) {
        lock(&self.0).ending = Some((ending, *totals));
    }
}

impl State {
    /// Ends the file, if everything is in it.
    fn finish(&mut self) -> Result<Exported, ExportError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let totals = match self.ending {
            Some((Ending::Complete, totals)) => totals,
            Some((Ending::OverLimit, _)) => return Err(ExportError::OverLimit),
            Some((Ending::Cancelled, _)) | None => return Err(ExportError::Cancelled),
        };
        if self.keys != totals.records {
            let (written, saved) = (self.keys, totals.records);
            return Err(ExportError::Incomplete { written, saved });
        }
        Ok(Exported {
            version: self.version,
            keys: self.keys,
            bytes: self.writer.finish()?,
            held_bytes_max: totals.held_bytes_max,
        })
    }

    fn put(&mut self, saved: &Saved<'_>) -> Result<(), ExportError> {
        let number;
        let long;
        let content = match saved.value {
            SavedValue::Integer(integer) => {
                number = IntegerText::new(integer);
                Content::Text(number.as_bytes())
            }
            SavedValue::Bytes(bytes) => Content::Text(bytes),
            SavedValue::Blob(blob) => {
                long = blob.to_vec();
                Content::Text(&long)
            }
            SavedValue::Object(object) => {
                let needed = value::version_needed_of(object);
                if needed > self.version {
                    let key = saved.key.to_vec();
                    return Err(ExportError::Version { needed, key });
                }
                Content::Object(object)
            }
            SavedValue::Unreadable => {
                let cause = "a value that lies out of memory cannot be read";
                return Err(io::Error::other(cause).into());
            }
        };
        let sizes = self.sizes_of(saved.database);
        self.writer.database(saved.database.into(), || sizes)?;
        self.writer.record(&Entry {
            key: saved.key,
            deadline_unix_ms: saved.deadline_unix_ms,
            usage: None,
            content,
        })?;
        self.keys += 1;
        Ok(())
    }

    /// Returns the size of a database, only the first time.
    fn sizes_of(&mut self, database: DatabaseId) -> Option<Sizes> {
        let sizes = self.sizes.get_mut(usize::from(database))?;
        let none = Sizes {
            keys: 0,
            expiring: 0,
        };
        let sizes = std::mem::replace(sizes, none);
        (sizes != none).then_some(sizes)
    }
}

/// A file that is written from its front.
#[derive(Debug)]
struct Growing {
    file: Arc<dyn DiskFile>,
    len: u64,
    unsynced_bytes: u64,
}

impl Growing {
    fn new(file: &Arc<dyn DiskFile>) -> Self {
        Self {
            file: Arc::clone(file),
            len: 0,
            unsynced_bytes: 0,
        }
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.len)?;
        let written = bytes.len() as u64;
        self.len += written;
        self.unsynced_bytes += written;
        if self.unsynced_bytes >= UNSYNCED_BYTES_MAX {
            self.file.sync()?;
            self.unsynced_bytes = 0;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
