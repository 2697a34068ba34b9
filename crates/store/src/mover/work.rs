//! The work that moves records together, as far as it is known: which chunks are gone through, and how far.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard};

use crate::chunk::ChunkId;

/// When memory that lies idle is worth the work, and what was done about it.
#[derive(Debug)]
pub(crate) struct Mover {
    pub(super) is_moving: AtomicBool,
    /// Somebody moves pieces of objects.
    pub(super) is_moving_pieces: AtomicBool,
    pub(super) work: Mutex<Work>,
    /// Nothing is moved while less than this lies idle …
    ignore_bytes: AtomicU64,
    /// … or fewer per cent of what is in use.
    threshold_percent: AtomicU64,
    /// A writer in need found nothing to do while so much lay idle.
    pub(super) in_vain_bytes: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) left: AtomicU64,
}

/// The work at hand.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) pass: Option<Pass>,
    /// Retired chunks that were gone through and still hold something.
    pub(super) leftovers: Vec<Leftover>,
    pub(super) key: Vec<u8>,
}

/// A way through chunks.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) source: Source,
    /// The chunk being gone through, and its next slot.
    pub(super) chunk: ChunkId,
    pub(super) slot: u32,
    /// Passes to come after this one.
    pub(super) more_passes: u32,
    pub(super) percent: u32,
    /// Somebody asked for it, and for what is free to go back to the system.
    pub(super) is_asked: bool,
}

/// Which chunks a pass goes through.
#[derive(Debug)]
pub(super) enum Source {
    /// These, which are retired.
    Retired(Vec<ChunkId>),
    /// All, up to a number.
    All { next: u32, end: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leftover {
    pub(super) chunk: ChunkId,
    pub(super) tries: u8,
}

impl Source {
    pub(super) fn next(&mut self) -> Option<ChunkId> {
        match self {
            Self::Retired(chunks) => chunks.pop(),
            Self::All { next, end } => {
                let chunk = (*next < *end).then(|| ChunkId::from_number(*next));
                *next += 1;
                chunk
            }
        }
    }
}

impl Default for Mover {
    fn default() -> Self {
        Self {
            is_moving: AtomicBool::new(false),
            is_moving_pieces: AtomicBool::new(false),
            work: Mutex::new(Work::default()),
            ignore_bytes: AtomicU64::new(Self::IGNORE_BYTES),
            threshold_percent: AtomicU64::new(Self::THRESHOLD_PERCENT),
            in_vain_bytes: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }
}

impl Mover {
    /// Without being asked nothing is moved while less than this lies idle …
    pub(crate) const IGNORE_BYTES: u64 = 1 << 20;
    /// … or less than this part of what is in use.
    pub(crate) const THRESHOLD_PERCENT: u64 = 10;

    pub(super) fn lock(&self) -> MutexGuard<'_, Work> {
        self.work
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Says from when on memory that lies idle is worth the work.
    pub(crate) fn tune(&self, ignore_bytes: u64, threshold_percent: u64) {
        self.ignore_bytes.store(ignore_bytes, Ordering::Relaxed);
        self.threshold_percent
            .store(threshold_percent, Ordering::Relaxed);
    }

    /// Whether so much lies idle beside what is in use that it is worth the work.
    pub(super) fn is_worth(&self, idle_bytes: u64, used_bytes: u64) -> bool {
        let part = used_bytes / 100 * self.threshold_percent.load(Ordering::Relaxed);
        idle_bytes > self.ignore_bytes.load(Ordering::Relaxed).max(part)
    }

    /// Whether records or pieces of objects are being moved.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_moving() || self.is_moving_pieces.load(Ordering::Relaxed)
    }

    /// Whether there is work at hand: one load.
    #[inline]
    pub(crate) fn is_moving(&self) -> bool {
        self.is_moving.load(Ordering::Acquire)
    }
}
