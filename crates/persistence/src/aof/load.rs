//! Loads append-only files into the store.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use store::DatabaseId;

use super::course::{self, Taker};
use super::source::Source;
use super::{AofFault, Flaw};
use crate::environment::Environment;
use crate::import::{ImportOptions, import_stream};
use crate::replay::{Feed, Origin, ReplayFault, Replayed, replay_in_parallel};

/// First bytes of a file that begins with records, as in RDB files.
const RDB_MAGIC: &[u8; 5] = b"REDIS";

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// What was applied behind the base.
    pub replayed: Replayed,
    /// Number of records at the beginning of the files.
    pub base_keys: u64,
    /// Code of the libraries of functions among these, which are not loaded.
    pub functions: Vec<Vec<u8>>,
    /// The part left out: the last file from an offset on.
    pub left_out: Option<(PathBuf, u64)>,
}

/// Loads files into the store of `env`, which is empty. Reports its progress to the log and to
/// [`Environment::loading`]. Loading lasts as long as this call, unless the caller has already
/// begun it and counted these files. `accepts_short` is `aof-load-truncated`.
///
/// # Errors
/// [`AofFault`]; then the store holds some of what was read before, and is unusable.
pub fn load(env: &Environment, source: &Source, accepts_short: bool) -> Result<Loaded, AofFault> {
    let is_whole_loading = !env.loading.progress().goes_on;
    if is_whole_loading {
        env.begin_loading(source.bytes()?);
    }
    let started_ns = env.clock.monotonic_ns();
    let loaded = load_files(env, source, accepts_short);
    if is_whole_loading {
        env.end_loading();
    }
    let loaded = loaded?;
    let elapsed_ms = env.clock.monotonic_ns().saturating_sub(started_ns) / 1_000_000;
    tell(env, &loaded, elapsed_ms);
    Ok(loaded)
}

fn load_files(env: &Environment, source: &Source, accepts_short: bool) -> Result<Loaded, AofFault> {
    let mut loaded = Loaded::default();
    let last = source.files.len().saturating_sub(1);
    for (number, path) in source.files.iter().enumerate() {
        let fault = |flaw| AofFault {
            file: path.clone(),
            flaw,
        };
        let is_last = number == last;
        let cut = load_file(env, path, &mut loaded).map_err(fault)?;
        match cut {
            Some(offset) if is_last && accepts_short => {
                env.log.warning(format_args!(
                    "AOF {} ends within a request or transaction, which begins at offset {offset} and is \
                     left out (aof-load-truncated)",
                    path.display()
                ));
                loaded.left_out = Some((path.clone(), offset));
            }
            Some(offset) => return Err(fault(Flaw::Short { offset, is_last })),
            None => {}
        }
    }
    Ok(loaded)
}

fn tell(env: &Environment, loaded: &Loaded, elapsed_ms: u64) {
    let replayed = &loaded.replayed;
    for failure in &replayed.failures {
        env.log
            .warning(format_args!("A command of the AOF failed: {failure}"));
    }
    if !loaded.functions.is_empty() {
        env.log.warning(format_args!(
            "Functions in the AOF are not loaded: {} libraries",
            loaded.functions.len()
        ));
    }
    let (keys, commands) = (loaded.base_keys, replayed.commands);
    env.log.notice(format_args!(
        "DB loaded from append only file: {}.{:03} seconds, {keys} keys, then {commands} commands, {} of \
         which failed",
        elapsed_ms / 1000,
        elapsed_ms % 1000,
        replayed.failed
    ));
}

/// Loads a file. Returns the offset at which it is cut short, if it is.
fn load_file(env: &Environment, path: &Path, loaded: &mut Loaded) -> Result<Option<u64>, Flaw> {
    let mut file = File::open(path).map_err(Flaw::Io)?;
    let mut offset = 0;
    if begins_with_records(&mut file)? {
        let options = ImportOptions {
            keeps_expired: true,
        };
        let (base, reader) = import_stream(env, &file, options).map_err(Flaw::Base)?;
        offset = reader.offset();
        loaded.base_keys += base.keys;
        loaded.functions.extend(base.functions);
    }
    file.seek(SeekFrom::Start(offset)).map_err(Flaw::Io)?;
    let threads = env.threads.max(1);
    let like = &*env.shared;
    let databases = env.store.databases();
    let (cut, replayed) = replay_in_parallel(
        env.table,
        &env.store,
        like,
        Origin::Foreign,
        threads,
        |feed| {
            let mut taker = Feeder { feed, env };
            course::read(env.table, &file, offset, databases, &mut taker)
        },
    )?;
    loaded.replayed = std::mem::take(&mut loaded.replayed).and(replayed);
    Ok(cut)
}

/// Whether a file begins like an RDB file; the file is then read from its front again.
pub(super) fn begins_with_records(file: &mut File) -> Result<bool, Flaw> {
    let mut magic = Vec::new();
    let most = RDB_MAGIC.len() as u64;
    file.by_ref()
        .take(most)
        .read_to_end(&mut magic)
        .and_then(|_| file.rewind())
        .map_err(Flaw::Io)?;
    Ok(magic == RDB_MAGIC)
}

/// Passes commands to the lanes.
struct Feeder<'a, 'f> {
    feed: &'f mut Feed,
    env: &'a Environment,
}

impl Taker for Feeder<'_, '_> {
    fn take(
        &mut self,
        offset: u64,
        database: DatabaseId,
        request: &[u8],
    ) -> Result<(), ReplayFault> {
        self.feed.command(offset, database, request)
    }

    fn passed(&mut self, bytes: u64) {
        self.env.loading.add_bytes(bytes);
    }
}
