//! Asynchronous reads of files by the kernel: one io_uring for one thread.
//!
//! ```text
//!   push ──► queue ── enter ──► kernel ──► completed ── reap ──► who asked
//!                                  └── the loop's waker rings
//! ```
//!
//! The reads that are pushed in a turn go to the kernel with one system call, which also returns
//! completions. If the ring is [armed](Ring::arm), a completion rings the loop's [`Waker`], so only
//! the loop's own thread handles a read.
//!
//! What must stay true: from [`Ring::push`] until its completion is reaped, a read's file stays
//! open, and no code accesses its buffer. A ring that is dropped waits for reads in flight; the
//! buffers of reads that do not complete in time are never freed.

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

/// Reads of up to this many bytes use buffers that are registered with the kernel: an entry of a
/// few KiB with the rest of its blocks.
const BUFFER_BYTES: usize = 16 << 10;

/// Maximum depth of a ring.
pub const RING_DEPTH_MAX: usize = 1024;

/// A ring that is dropped waits this long, this often, for reads in flight.
const LAST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAITS: u32 = 10;

/// Slots of rings that were dropped before the kernel was done with them.
static KEPT_FOR_GOOD: Mutex<Vec<Vec<Slot>>> = Mutex::new(Vec::new());

/// A read request.
#[derive(Debug)]
pub struct RingRead {
    /// The file. If it accepts only reads of whole blocks, the caller requests whole blocks: the
    /// buffer is page-aligned.
    pub file: Arc<File>,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes, at least one.
    pub bytes: usize,
}

/// One read, or space for one.
struct Slot {
    /// The file, kept open while the kernel may read from it.
    file: Option<Arc<File>>,
    buffer: PageBuffer,
    /// The buffer of a longer read, used instead of `buffer`.
    long: Option<PageBuffer>,
}

/// A ring of reads. See the module documentation. Only the thread that created it may use it.
pub struct Ring {
    uring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Whether the buffers of all slots are registered with the kernel.
    knows_buffers: bool,
    /// Number of reads that are pushed but not yet submitted to the kernel.
    queued: usize,
    /// Number of reads that the kernel has.
    under_way: usize,
    /// Reused memory for completions, in the order of their completion.
    completed: Vec<cqueue::Entry>,
}

impl Ring {
    /// Creates a ring of at most `depth` reads at once, which rings `waker` when one is completed.
    /// Only the calling thread may use it.
    ///
    /// # Errors
    /// If the kernel has no io_uring, or none for this process, or there is no memory for it.
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
        // SAFETY: the buffers are mapped while their slots live. The slots outlive the ring, or all
        // reads in flight in it (`drop`). The kernel writes to a buffer only between `push` and
        // completion, when no code accesses it. If locked memory is short, each read passes its
        // buffer instead.
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

    /// Whether no more reads can be pushed until one is reaped.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns how many more reads can be pushed.
    #[must_use]
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Returns how many reads were pushed and not reaped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no read is pushed or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queues a read. Returns the place that identifies its completion, which is below the ring's
    /// depth, or `None` if the ring is full or there is no memory.
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
        // SAFETY: until the read is completed, the file stays open, and the buffer, which has space
        // for this many bytes, stays mapped and untouched. Both belong to the slot, which is reused
        // only after completion.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        if pushed.is_err() {
            // There are as many entries as slots, so this does not happen.
            slot.file = None;
            slot.long = None;
            return None;
        }
        self.free.pop();
        self.queued += 1;
        Some(place.into())
    }

    /// Submits the pushed reads to the kernel, and fetches completions. Makes no system call if
    /// there are neither.
    ///
    /// # Errors
    /// Those of the system. The pushed reads stay in the queue, and the next call tries again.
    pub fn enter(&mut self) -> io::Result<()> {
        // The caller checks for completions now, so the waker need not ring for them.
        self.uring.completion().disable_eventfd();
        if self.queued == 0 && !self.has_work() {
            return Ok(());
        }
        match self.uring.submit() {
            Ok(count) => self.went(count),
            // The missing resource becomes available with completions.
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

    /// Passes at most `most` completions to `done`: the place of each with its bytes, or the
    /// system's error. There are fewer bytes than requested at the end of the file, and possibly
    /// elsewhere. Returns the number of completions.
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

    /// Makes the waker ring on completions from now on, until [`Ring::enter`]. Returns whether
    /// there already are completions that are not reaped: the waker does not ring for those.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.uring.completion().enable_eventfd();
        // The kernel first stores its completions and then reads this flag. So the flag must be
        // written before the completions are checked here.
        fence(Ordering::SeqCst);
        self.has_work() || !self.uring.completion().is_empty()
    }

    /// Whether the kernel would deliver completions if it is entered.
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

    /// Waits for a while until the kernel has no reads. Returns whether that is so.
    fn settle(&mut self) -> bool {
        // Cancels the reads that can be cancelled, and waits for the others.
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
        // Reads that are not submitted by now will never be submitted.
        if self.under_way > 0 && !self.settle() {
            // The kernel may write to these buffers at any time.
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

/// Checks whether this process can create a ring.
///
/// # Errors
/// The same as those of [`Ring::new`].
pub fn try_ring() -> io::Result<()> {
    Ring::new(1, &Waker::new()?).map(drop)
}

/// Creates a ring of the kernel. If possible (Linux 6.1), completions are processed only when they
/// are requested, so that nothing interrupts the thread.
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

/// Whether the same call may succeed a little later.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)
    )
}

#[cfg(test)]
mod tests;
