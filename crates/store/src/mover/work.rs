//! The compaction work: which chunks the mover goes through, and how far it is.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard};

use crate::chunk::ChunkId;

/// When idle memory is worth the work of compaction, and the work itself.
#[derive(Debug)]
pub(crate) struct Mover {
    pub(super) is_moving: AtomicBool,
    /// Whether a thread moves pieces of objects.
    pub(super) is_moving_pieces: AtomicBool,
    pub(super) work: Mutex<Work>,
    /// Nothing is moved while less than this is idle …
    ignore_bytes: AtomicU64,
    /// … or less than this percentage of the memory in use.
    threshold_percent: AtomicU64,
    /// The idle bytes when a writer in need last found nothing to move; 0 if it found something.
    pub(super) in_vain_bytes: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) left: AtomicU64,
}

/// The pending work.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) pass: Option<Pass>,
    /// Retired chunks that the mover went through and that still hold something.
    pub(super) leftovers: Vec<Leftover>,
    pub(super) key: Vec<u8>,
}

/// A pass over chunks.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) source: Source,
    /// The current chunk, and its next slot.
    pub(super) chunk: ChunkId,
    pub(super) slot: u32,
    /// Number of passes after this one.
    pub(super) more_passes: u32,
    pub(super) percent: u32,
    /// Whether it was requested; free memory then also goes back to the system.
    pub(super) is_asked: bool,
}

/// Which chunks a pass goes through.
#[derive(Debug)]
pub(super) enum Source {
    /// These retired chunks.
    Retired(Vec<ChunkId>),
    /// All chunks, up to a number.
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
    /// Without a request nothing is moved while less than this is idle …
    pub(crate) const IGNORE_BYTES: u64 = 1 << 20;
    /// … or less than this percentage of the memory in use.
    pub(crate) const THRESHOLD_PERCENT: u64 = 10;

    pub(super) fn lock(&self) -> MutexGuard<'_, Work> {
        self.work
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets the amount of idle memory from which compaction is worth the work.
    pub(crate) fn tune(&self, ignore_bytes: u64, threshold_percent: u64) {
        self.ignore_bytes.store(ignore_bytes, Ordering::Relaxed);
        self.threshold_percent
            .store(threshold_percent, Ordering::Relaxed);
    }

    /// Whether enough memory is idle, compared with the memory in use, to be worth the work.
    pub(super) fn is_worth(&self, idle_bytes: u64, used_bytes: u64) -> bool {
        let part = used_bytes / 100 * self.threshold_percent.load(Ordering::Relaxed);
        idle_bytes > self.ignore_bytes.load(Ordering::Relaxed).max(part)
    }

    /// Whether records or pieces of objects are being moved.
    pub(crate) fn is_at_work(&self) -> bool {
        self.is_moving() || self.is_moving_pieces.load(Ordering::Relaxed)
    }

    /// Whether there is pending work: one load.
    #[inline]
    pub(crate) fn is_moving(&self) -> bool {
        self.is_moving.load(Ordering::Acquire)
    }
}
