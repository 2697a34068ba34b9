//! The scripts and functions that a server knows, shared by its threads: sources, flags and how they behaved.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::history::History;
use super::libraries::Libraries;
use super::running::Running;

/// Scripts known by EVAL alone: so many at most, the oldest is forgotten then.
const EVALUATED_MAX: usize = 500;

/// What a script is known by: the SHA-1 of its source, in hexadecimal digits.
pub type Digest = [u8; 40];

/// The name of a script.
pub fn digest_of(source: &[u8]) -> Digest {
    let hex = sha1_smol::Sha1::from(source).digest().to_string();
    let mut digest = [b'0'; 40];
    for (place, digit) in digest.iter_mut().zip(hex.bytes()) {
        *place = digit;
    }
    digest
}

/// The name of a script as a client wrote it; nothing when it is none.
pub fn digest_named(name: &[u8]) -> Option<Digest> {
    let mut digest = Digest::try_from(name).ok()?;
    digest.make_ascii_lowercase();
    Some(digest)
}

/// All that is shared about scripts by the threads of a server.
#[derive(Debug, Default)]
pub struct Scripts {
    cache: Mutex<Cache>,
    era: Era,
    /// Scripts forgotten to make room for others.
    evicted: AtomicU64,
    /// Those that run, as far as others hear of them.
    pub running: Running,
    /// The libraries of functions.
    pub libraries: Libraries,
    /// Scripts may run what is not for scripts.
    runs_all: AtomicBool,
    /// Bytes that the machines of all threads have.
    machine_bytes: AtomicU64,
}

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Its name.
    pub digest: Digest,
    /// What it was compiled from.
    pub source: Box<[u8]>,
    /// How it behaved.
    pub history: History,
}

/// The time between two moments at which scripts were forgotten: a number that no other time has, also
/// of other servers in the same process.
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
    /// Those that came with EVAL, the oldest first.
    evaluated: VecDeque<Digest>,
    bytes: usize,
}

impl Scripts {
    /// The script with this name, if it is known.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Arc<Script>> {
        self.cache().scripts.get(digest).cloned()
    }

    /// Says whether scripts may run what is not for scripts (DEBUG SET-DISABLE-DENY-SCRIPTS).
    pub fn set_runs_all(&self, on: bool) {
        self.runs_all.store(on, Ordering::Relaxed);
    }

    /// Whether scripts may run what is not for scripts.
    pub(crate) fn runs_all(&self) -> bool {
        self.runs_all.load(Ordering::Relaxed)
    }

    /// The script that a client names, if it is known.
    pub fn named(&self, name: &[u8]) -> Option<Arc<Script>> {
        digest_named(name).and_then(|digest| self.find(&digest))
    }

    /// Changes whenever a script is forgotten: who remembers one asks again then.
    pub(crate) fn era(&self) -> u64 {
        self.era.0.load(Ordering::Acquire)
    }

    /// Remembers a script; `stays` if it is not to be forgotten for others (SCRIPT LOAD).
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

    /// Forgets all scripts.
    pub fn flush(&self) {
        *self.cache() = Cache::default();
        self.era.end();
    }

    /// How many scripts are known, and the bytes of their sources.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let cache = self.cache();
        (cache.scripts.len(), cache.bytes)
    }

    /// Bytes that the machines of all threads have in memory, as they were told last.
    #[must_use]
    pub fn machine_bytes(&self) -> u64 {
        self.machine_bytes.load(Ordering::Relaxed)
    }

    /// Counts more bytes of a machine, or fewer: the sum wraps.
    pub(super) fn count_machine(&self, more: u64) {
        self.machine_bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Bytes of the sources of all libraries of functions.
    #[must_use]
    pub fn libraries_bytes(&self) -> u64 {
        let state = self.libraries.now();
        state.libraries().map(|one| one.source.len() as u64).sum()
    }

    /// Scripts forgotten to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// What the libraries of functions were loaded from.
    #[must_use]
    pub fn sources(&self) -> Vec<Vec<u8>> {
        let state = self.libraries.now();
        state.libraries().map(|one| one.source.to_vec()).collect()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
