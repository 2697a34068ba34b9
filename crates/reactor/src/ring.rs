//! Reads of files that the kernel does beside the loop: one io_uring for one thread.
//!
//! ```text
//!   push ──► queue ── enter ──► kernel ──► completed ── reap ──► who asked
//!                                  └── the loop's waker rings
//! ```
//!
//! What is pushed in a turn goes to the kernel with one system call, and what was completed comes with the same. A
//! completion rings the loop's [`Waker`] where the ring is [armed](Ring::arm), so that nobody but the loop's own thread has
//! anything to do with a read.
//!
//! What must stay true: from [`Ring::push`] until its completion is reaped a read's file stays open, and nobody looks at
//! its buffer. A ring that is dropped waits for what is under way; what is not done by then keeps its buffer for good.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::page_buffer::PageBuffer;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};

use crate::waker::Waker;

/// Reads of up to so many bytes use buffers that the kernel knows already: an entry of some KiB with what of a block is
/// around it.
const BUFFER_BYTES: usize = 16 << 10;

/// No ring is deeper.
pub const RING_DEPTH_MAX: usize = 1024;

/// A ring that is dropped waits so long, so often, for what is under way.
const LAST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAITS: u32 = 10;

/// Places of rings that ended before the kernel was done with them.
static KEPT_FOR_GOOD: Mutex<Vec<Vec<Slot>>> = Mutex::new(Vec::new());

/// What is to be read.
#[derive(Debug)]
pub struct RingRead {
    /// Of which file. One that takes only whole blocks is asked for whole blocks: the buffer begins a page.
    pub file: Arc<File>,
    /// From where on.
    pub offset: u64,
    /// How many bytes; at least one.
    pub bytes: usize,
}

/// One read, or room for one.
struct Slot {
    /// Open while the kernel may read from it.
    file: Option<Arc<File>>,
    buffer: PageBuffer,
    /// In place of that, for a read that is longer.
    long: Option<PageBuffer>,
}

/// See the module. For the thread that made it alone.
pub struct Ring {
    uring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// The kernel knows the buffers of all slots.
    knows_buffers: bool,
    /// Pushed, and not yet with the kernel.
    queued: usize,
    /// With the kernel.
    under_way: usize,
    /// Completions in the order they came; memory for them.
    completed: Vec<cqueue::Entry>,
}

impl Ring {
    /// A ring of so many reads at once, which rings `waker` when one is completed. Used by the calling thread only.
    ///
    /// # Errors
    /// When the kernel has none, or none for this process, or there is no memory for it.
    pub fn new(depth: usize, waker: &Waker) -> io::Result<Self> {
        let depth = depth.clamp(1, RING_DEPTH_MAX);
        let uring = set_up(u32::try_from(depth).unwrap_or(1))?;
        let submitter = uring.submitter();
        let mut probe = Probe::new();
        submitter.register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !uring.params().is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        submitter.register_eventfd(waker.as_fd().as_raw_fd())?;
        let slots = (0..depth).map(|_| {
            Ok(Slot {
                file: None,
                buffer: PageBuffer::new(BUFFER_BYTES)?,
                long: None,
            })
        });
        let mut slots = slots.collect::<io::Result<Vec<_>>>()?;
        let pieces: Vec<_> = slots.iter_mut().map(piece).collect();
        // SAFETY: the pieces are mapped for as long as their slots live, which outlive the ring or all that is under way
        // in it (`drop`); the kernel writes to one only between `push` and completion, when nobody looks at it.
        // Where locked memory is short they are told with each read.
        let knows_buffers = unsafe { submitter.register_buffers(&pieces) }.is_ok();
        Ok(Self {
            uring,
            slots,
            free: (0..u16::try_from(depth).unwrap_or(1)).rev().collect(),
            knows_buffers,
            queued: 0,
            under_way: 0,
            completed: Vec::with_capacity(depth),
        })
    }

    /// Whether no more reads can be pushed before one is reaped.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// How many more reads can be pushed.
    #[must_use]
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// How many reads were pushed and not reaped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a read into the queue; the place by which its completion is known, which is below the ring's depth. None where it
    /// is full, or there is no memory.
    pub fn push(&mut self, read: RingRead) -> Option<usize> {
        let place = *self.free.last()?;
        let slot = self.slots.get_mut(usize::from(place))?;
        let bytes = u32::try_from(read.bytes).ok()?;
        let file = Fd(read.file.as_raw_fd());
        let entry = if read.bytes <= slot.buffer.len() {
            let start = slot.buffer.as_mut_ptr();
            match self.knows_buffers {
                true => opcode::ReadFixed::new(file, start, bytes, place)
                    .offset(read.offset)
                    .build(),
                false => opcode::Read::new(file, start, bytes)
                    .offset(read.offset)
                    .build(),
            }
        } else {
            let long = slot.long.insert(PageBuffer::new(read.bytes).ok()?);
            opcode::Read::new(file, long.as_mut_ptr(), bytes)
                .offset(read.offset)
                .build()
        };
        slot.file = Some(read.file);
        let entry = entry.user_data(place.into());
        // SAFETY: the file stays open and the buffer, which has room for so many bytes, mapped and untouched until the
        // read is completed: both are the slot's, which is used again only then.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        if pushed.is_err() {
            // There are as many entries as slots, so there is one.
            slot.file = None;
            slot.long = None;
            return None;
        }
        self.free.pop();
        self.queued += 1;
        Some(place.into())
    }

    /// Gives the kernel what was pushed, and has it say what is completed. No system call where there is neither.
    ///
    /// # Errors
    /// Those of the system. What was pushed stays in the queue, and is tried again.
    pub fn enter(&mut self) -> io::Result<()> {
        // Who looks needs not be woken for what it is about to see.
        self.uring.completion().disable_eventfd();
        if self.queued == 0 && !self.has_work() {
            return Ok(());
        }
        match self.uring.submit() {
            Ok(count) => self.went(count),
            // Whatever it is short of comes back with completions.
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn went(&mut self, count: usize) {
        let count = count.min(self.queued);
        self.queued -= count;
        self.under_way += count;
    }

    /// Shows what was completed, up to so many reads: the place of each and its bytes, or what the system says. Fewer bytes
    /// than asked for where the file ends, and maybe elsewhere. How many were.
    pub fn reap(&mut self, most: usize, mut done: impl FnMut(usize, io::Result<&[u8]>)) -> usize {
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.uring.completion().take(most));
        let count = completed.len();
        for entry in completed.drain(..) {
            self.complete(&entry, &mut done);
        }
        self.completed = completed;
        count
    }

    /// Has the waker ring from now on, until [`Ring::enter`], when something is completed. Whether something was, and is not
    /// reaped: the waker does not ring for that.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.uring.completion().enable_eventfd();
        // The kernel notes what it has and looks at this afterwards; so this is told before it is looked at that.
        fence(Ordering::SeqCst);
        self.has_work() || !self.uring.completion().is_empty()
    }

    /// Whether the kernel has something to say when it is asked.
    fn has_work(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn complete(&mut self, entry: &cqueue::Entry, done: &mut impl FnMut(usize, io::Result<&[u8]>)) {
        let place = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(place) else {
            return;
        };
        if slot.file.take().is_none() {
            return;
        }
        let long = slot.long.take();
        let buffer = long.as_ref().unwrap_or(&slot.buffer);
        match usize::try_from(entry.result()) {
            Ok(count) => done(place, Ok(&buffer[..count.min(buffer.len())])),
            Err(_) => {
                let error = io::Error::from_raw_os_error(-entry.result());
                done(place, Err(error));
            }
        }
        self.under_way = self.under_way.saturating_sub(1);
        self.free.extend(u16::try_from(place));
    }

    /// Waits a while until nothing is with the kernel; whether that is so.
    fn settle(&mut self) -> bool {
        // What can be broken off need not be done, and what cannot be is waited for.
        let (all, time) = (CancelBuilder::any(), Timespec::from(LAST_WAIT));
        let _is_done_anyway = self.uring.submitter().register_sync_cancel(Some(time), all);
        for _ in 0..LAST_WAITS {
            self.reap(usize::MAX, |_, _| {});
            if self.under_way == 0 {
                return true;
            }
            let wait = SubmitArgs::new().timespec(&time);
            match self.uring.submitter().submit_with_args(1, &wait) {
                Ok(count) => self.went(count),
                Err(error) if is_passing(&error) => {}
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
                Err(_) => return false,
            }
        }
        self.reap(usize::MAX, |_, _| {});
        self.under_way == 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // What is not with the kernel by now has nobody give it.
        if self.under_way > 0 && !self.settle() {
            // The kernel may write to them any time.
            let mut kept = KEPT_FOR_GOOD.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(std::mem::take(&mut self.slots));
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("queued", &self.queued)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

/// What a ring of this process would be refused with, if it would.
///
/// # Errors
/// As [`Ring::new`].
pub fn try_ring() -> io::Result<()> {
    Ring::new(1, &Waker::new()?).map(drop)
}

/// A ring of the kernel, with completions told when they are asked for where that can be had (Linux 6.1): nothing
/// interrupts the thread then.
fn set_up(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::<squeue::Entry, cqueue::Entry>::builder();
    let deferred = builder
        .dontfork()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match deferred {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        made => made,
    }
}

fn piece(slot: &mut Slot) -> libc::iovec {
    libc::iovec {
        iov_base: slot.buffer.as_mut_ptr().cast(),
        iov_len: slot.buffer.len(),
    }
}

/// Whether the same call may do better a little later.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
    )
}

#[cfg(test)]
mod tests;
