//! The allocator of the process: its name, its numbers, and how it gives free memory back.
//!
//! Only the binary chooses the allocator (`main.rs`) and [installs](install) its description here before
//! anything else runs. Without one, as in tests and benchmarks, the C library's allocator is described.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub use engine::AllocatorMemory;

/// An allocator that the server can ask.
pub trait Allocator: Sync {
    /// Its name and version, as INFO shows them.
    fn name(&self) -> &'static str;

    /// Its numbers; none where it has none.
    fn memory(&self) -> Option<AllocatorMemory>;

    /// Begins the thread that gives free pages back, so that memory returns while the server is idle. Not before the
    /// process is the one that serves: who becomes a daemon may have one thread alone.
    fn begin(&self) {}

    /// What small allocations amount to; none where that is not known, or where none of the following would help.
    fn small(&self) -> Option<SmallAllocations> {
        None
    }

    /// The calling thread is one that moves small allocations together: what it takes is to come from where others lie
    /// already, and what it frees is not to be kept for it.
    fn begin_moving(&self) {}

    /// Whether the small allocation at an address lies where more is free than in most places of its size.
    fn lies_sparsely(&self, _address: *const u8) -> bool {
        false
    }

    /// Hands back what the calling thread has freed and keeps to be given again: a few pieces may be all that keeps their
    /// pages.
    fn settle(&self) {}

    /// Gives all free memory back to the system. Takes time in proportion to it.
    fn purge(&self);

    /// All that it can tell, for MEMORY MALLOC-STATS; empty where it tells nothing.
    fn statistics(&self) -> String;
}

/// What small allocations amount to. Many of one size share some pages, which are free only when all of them are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallAllocations {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes of their pages that are not.
    pub idle_bytes: u64,
}

/// How often threads were asked to hand back what they keep.
static RECALLS: AtomicU64 = AtomicU64::new(0);

/// Asks all threads that [look](Settled::look) to hand back what they keep of what they freed.
pub(crate) fn recall() {
    RECALLS.fetch_add(1, Ordering::Relaxed);
}

/// Hands back what the calling thread keeps, without being asked: for one that rests now.
pub(crate) fn settle() {
    installed().settle();
}

/// Up to which recall a thread has handed back what it keeps.
#[derive(Debug, Default)]
pub(crate) struct Settled(u64);

impl Settled {
    /// Hands back what the calling thread keeps, if that was asked for since the last look: a load if not.
    pub(crate) fn look(&mut self) {
        let recalls = RECALLS.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.0, recalls) != recalls {
            settle();
        }
    }
}

static INSTALLED: OnceLock<&'static dyn Allocator> = OnceLock::new();

/// Says which allocator the binary has. The first call counts.
pub fn install(allocator: &'static dyn Allocator) {
    let _first_counts = INSTALLED.set(allocator);
}

/// The allocator of this process.
#[must_use]
pub fn installed() -> &'static dyn Allocator {
    INSTALLED.get().copied().unwrap_or(&CLibrary)
}

/// The C library's allocator.
struct CLibrary;

impl Allocator for CLibrary {
    fn name(&self) -> &'static str {
        "libc"
    }

    fn memory(&self) -> Option<AllocatorMemory> {
        None
    }

    fn purge(&self) {
        #[cfg(target_env = "gnu")]
        // SAFETY: malloc_trim takes a number and the allocator's own locks, may run on any thread at any
        // time, and touches nothing but pages inside of blocks that are free.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    fn statistics(&self) -> String {
        String::new()
    }
}
