//! The scripts and functions that a server knows, shared by its threads: sources, flags and
//! histories.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::history::History;
use super::libraries::Libraries;
use super::running::Running;

/// Maximum number of scripts known only by EVAL. The oldest is dropped beyond that.
const EVALUATED_MAX: usize = 500;

/// A script's name: the SHA-1 of its source in hexadecimal digits.
pub type Digest = [u8; 40];

/// Returns the name of a script.
pub fn digest_of(source: &[u8]) -> Digest {
    let hex = sha1_smol::Sha1::from(source).digest().to_string();
    let mut digest = [b'0'; 40];
    for (place, digit) in digest.iter_mut().zip(hex.bytes()) {
        *place = digit;
    }
    digest
}

/// Returns the name of a script as a client wrote it, or `None` if it is not valid.
pub fn digest_named(name: &[u8]) -> Option<Digest> {
    let mut digest = Digest::try_from(name).ok()?;
    digest.make_ascii_lowercase();
    Some(digest)
}

/// What a server's threads share about scripts.
#[derive(Debug, Default)]
pub struct Scripts {
    cache: Mutex<Cache>,
    era: Era,
    /// Number of scripts dropped in favour of newer ones.
    evicted: AtomicU64,
    /// Running scripts that are visible to other threads.
    pub running: Running,
    /// The libraries of functions.
    pub libraries: Libraries,
    /// Whether scripts may run commands that are not for scripts.
    runs_all: AtomicBool,
    /// Memory of the machines of all threads, in bytes.
    machine_bytes: AtomicU64,
}

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Its name.
    pub digest: Digest,
    /// Its source.
    pub source: Box<[u8]>,
    /// Its run history.
    pub history: History,
}

/// A number for the period between two removals of scripts. It is unique, also among several
/// servers in one process.
#[derive(Debug)]
struct Era(AtomicU64);

impl Era {
    fn number() -> u64 {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        NUMBER.fetch_add(1, Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(Self::number(), Ordering::Release);
    }
}

impl Default for Era {
    fn default() -> Self {
        Self(AtomicU64::new(Self::number()))
    }
}

#[derive(Debug, Default)]
struct Cache {
    scripts: HashMap<Digest, Arc<Script>>,
    /// Scripts that came with EVAL, the oldest first.
    evaluated: VecDeque<Digest>,
    bytes: usize,
}

impl Scripts {
    /// Returns the script with this name, or `None` if unknown.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Arc<Script>> {
        self.cache().scripts.get(digest).cloned()
    }

    /// Sets whether scripts may run commands that are not for scripts (DEBUG
    /// SET-DISABLE-DENY-SCRIPTS).
    pub fn set_runs_all(&self, on: bool) {
        self.runs_all.store(on, Ordering::Relaxed);
    }

    /// Whether scripts may run commands that are not for scripts.
    pub(crate) fn runs_all(&self) -> bool {
        self.runs_all.load(Ordering::Relaxed)
    }

    /// Returns the script that a client names, or `None` if unknown.
    pub fn named(&self, name: &[u8]) -> Option<Arc<Script>> {
        digest_named(name).and_then(|digest| self.find(&digest))
    }

    /// Returns a number that changes whenever a script is dropped. A caller that keeps a script
    /// looks it up again then.
    pub(crate) fn era(&self) -> u64 {
        self.era.0.load(Ordering::Acquire)
    }

    /// Adds a script. If `stays` is set, it is not dropped in favour of newer ones (SCRIPT LOAD).
    pub(crate) fn add(&self, digest: Digest, source: &[u8], stays: bool) -> Arc<Script> {
        let mut cache = self.cache();
        let cache = &mut *cache;
        if let Some(known) = cache.scripts.get(&digest) {
            if stays {
                cache.evaluated.retain(|one| *one != digest);
            }
            return Arc::clone(known);
        }
        let script = Arc::new(Script {
            digest,
            source: source.into(),
            history: History::of(source),
        });
        cache.bytes += source.len();
        cache.scripts.insert(digest, Arc::clone(&script));
        if !stays {
            cache.evaluated.push_back(digest);
            if cache.evaluated.len() > EVALUATED_MAX
                && let Some(oldest) = cache.evaluated.pop_front()
                && let Some(gone) = cache.scripts.remove(&oldest)
            {
                cache.bytes -= gone.source.len();
                self.era.end();
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
        script
    }

    /// Removes all scripts.
    pub fn flush(&self) {
        *self.cache() = Cache::default();
        self.era.end();
    }

    /// Returns the number of known scripts, and the total size of their sources in bytes.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let cache = self.cache();
        (cache.scripts.len(), cache.bytes)
    }

    /// Returns the memory of the machines of all threads in bytes, as last reported.
    #[must_use]
    pub fn machine_bytes(&self) -> u64 {
        self.machine_bytes.load(Ordering::Relaxed)
    }

    /// Adds a change of a machine's size in bytes: the sum wraps, so it may be negative.
    pub(super) fn count_machine(&self, more: u64) {
        self.machine_bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the size of the sources of all libraries of functions, in bytes.
    #[must_use]
    pub fn libraries_bytes(&self) -> u64 {
        let state = self.libraries.now();
        state.libraries().map(|one| one.source.len() as u64).sum()
    }

    /// Returns the number of scripts dropped in favour of newer ones.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Returns the sources of the libraries of functions.
    #[must_use]
    pub fn sources(&self) -> Vec<Vec<u8>> {
        let state = self.libraries.now();
        state.libraries().map(|one| one.source.to_vec()).collect()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
