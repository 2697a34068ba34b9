//! The allocator of the process: its name, its numbers, and the return of free memory.
//!
//! Only the binary chooses the allocator (`main.rs`), and [installs](install) its description here
//! before anything else runs. Without a description, as in tests and benchmarks, the C library's
//! allocator is assumed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub use engine::AllocatorMemory;

/// An allocator with an interface for the server.
pub trait Allocator: Sync {
    /// Returns its name and version, as INFO shows them.
    fn name(&self) -> &'static str;

    /// Returns its numbers, or `None` if it has none.
    fn memory(&self) -> Option<AllocatorMemory>;

    /// Starts the thread that returns free pages, so that memory returns while the server is idle.
    /// Called only in the process that serves, because a process that becomes a daemon must have a
    /// single thread.
    fn begin(&self) {}

    /// Returns the totals of small allocations, or `None` if they are not known or if none of the
    /// methods below would help.
    fn small(&self) -> Option<SmallAllocations> {
        None
    }

    /// Prepares the calling thread for moving small allocations: it allocates where other
    /// allocations lie already, and what it frees is not cached for it.
    fn begin_moving(&self) {}

    /// Whether the small allocation at an address lies in a slab with more free slots than most
    /// slabs of its size.
    fn lies_sparsely(&self, _address: *const u8) -> bool {
        false
    }

    /// Returns the freed memory that the allocator caches for the calling thread: a few cached
    /// pieces may be all that keeps their pages.
    fn settle(&self) {}

    /// Returns all free memory to the system. Takes time in proportion to its size.
    fn purge(&self);

    /// Returns all statistics as text, for MEMORY MALLOC-STATS; empty if there are none.
    fn statistics(&self) -> String;
}

/// Totals of small allocations. Allocations of one size share pages, which are free only when all
/// of them are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmallAllocations {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes of their pages that are not in use.
    pub idle_bytes: u64,
}

/// Number of times that threads were asked to return their cached memory.
static RECALLS: AtomicU64 = AtomicU64::new(0);

/// Asks all threads that [look](Settled::look) to return their cached memory.
pub(crate) fn recall() {
    RECALLS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the calling thread's cached memory without being asked, for a thread that rests now.
pub(crate) fn settle() {
    installed().settle();
}

/// Number of the last recall that a thread has followed.
#[derive(Debug, Default)]
pub(crate) struct Settled(u64);

impl Settled {
    /// Returns the calling thread's cached memory if there was a recall since the last look.
    /// Otherwise costs one load.
    pub(crate) fn look(&mut self) {
        let recalls = RECALLS.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.0, recalls) != recalls {
            settle();
        }
    }
}

static INSTALLED: OnceLock<&'static dyn Allocator> = OnceLock::new();

/// Sets the description of the binary's allocator. The first call counts.
pub fn install(allocator: &'static dyn Allocator) {
    let _first_counts = INSTALLED.set(allocator);
}

/// Returns the allocator of this process.
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
        // SAFETY: malloc_trim takes a number and the allocator's own locks, may run on any thread
        // at any time, and touches only pages inside free blocks.
        unsafe {
            libc::malloc_trim(0);
        }
    }

    fn statistics(&self) -> String {
        String::new()
    }
}
