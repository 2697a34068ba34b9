//! Waking a loop from another thread: an eventfd that is written only when no ring is waiting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one loop; clones wake the same one.
///
/// Whatever was made visible before [`wake`](Self::wake) is seen by the call of
/// [`Service::woken`](crate::Service::woken) that follows it.
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
    /// A waker with a descriptor of its own.
    ///
    /// # Errors
    /// When the process may open no more descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let rung = AtomicBool::new(false);
        Ok(Self {
            bell: Arc::new(Bell { fd, rung }),
        })
    }

    /// Makes the loop call [`Service::woken`](crate::Service::woken) soon; one atomic operation
    /// when it was woken already and did not look yet.
    #[expect(clippy::host_endian_bytes, reason = "the kernel takes a native number")]
    pub fn wake(&self) {
        if !self.bell.rung.swap(true, Ordering::AcqRel) {
            // Fails only when the counter is full, and then the descriptor is readable anyway.
            let _ = rustix::io::write(&self.bell.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Whether it rang since the last call. The descriptor is read before the flag falls: a ring
    /// in between finds the flag up and is seen by this very call.
    pub(crate) fn take(&self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell.fd, &mut count);
        self.bell.rung.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.fd.as_fd()
    }
}
