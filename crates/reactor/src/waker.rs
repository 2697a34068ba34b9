//! Wakes a loop from another thread, by an eventfd that is written only if no wake-up is pending.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one loop. Clones wake the same loop.
///
/// The call of [`Service::woken`](crate::Service::woken) that follows [`wake`](Self::wake) sees
/// everything that was made visible before it.
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Waker {
    /// Creates a waker with its own descriptor.
    ///
    /// # Errors
    /// If the process may not open more descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let rung = AtomicBool::new(false);
        Ok(Self {
            bell: Arc::new(Bell { fd, rung }),
        })
    }

    /// Makes the loop call [`Service::woken`](crate::Service::woken) soon. Costs one atomic
    /// operation if a wake-up is already pending.
    #[expect(clippy::host_endian_bytes, reason = "the kernel takes a native number")]
    pub fn wake(&self) {
        if !self.bell.rung.swap(true, Ordering::AcqRel) {
            // Fails only if the counter is full, and then the descriptor is readable anyway.
            let _ = rustix::io::write(&self.bell.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Returns whether it rang since the last call. The descriptor is read before the flag is
    /// cleared: a ring in between finds the flag set, and this very call sees it.
    pub(crate) fn take(&self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell.fd, &mut count);
        self.bell.rung.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.fd.as_fd()
    }
}
