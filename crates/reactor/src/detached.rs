//! A connection that has left its loop: for who serves it on a thread of its own.
//!
//! It does not block by itself. [`Detached::wait`] waits until something can be done, or a [`Waker`] rings.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::transport::{Carrier, Readiness, Source};
use crate::waker::Waker;

/// How often a connection without descriptor is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// See the module.
pub struct Detached {
    carrier: Carrier,
    input: Vec<u8>,
}

impl Detached {
    pub(crate) fn new(carrier: Carrier, input: Vec<u8>) -> Self {
        Self { carrier, input }
    }

    /// Takes what its peer had sent and nobody consumed.
    #[must_use]
    pub fn take_input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input)
    }

    /// Moves bytes that came into `buffer`; how many, 0 at the end, and nothing where none are there.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        moved(self.carrier.recv(buffer))
    }

    /// Takes bytes from the front of `bytes`; how many.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        moved(self.carrier.send(bytes)).map(Option::unwrap_or_default)
    }

    /// Waits until there is something to receive, room to send where that is wanted, or a waker of this connection
    /// rings; at most so long.
    ///
    /// # Errors
    /// Those of the system.
    pub fn wait(
        &self,
        wants_room: bool,
        waker: Option<&Waker>,
        at_most: Duration,
    ) -> io::Result<Readiness> {
        let at_most = if self.carrier.holds_input() {
            Duration::ZERO
        } else {
            at_most
        };
        let fd = match self.carrier.source() {
            Source::Fd(fd) => fd,
            Source::Software(readiness) => {
                if !(readiness.readable || wants_room && readiness.writable) {
                    std::thread::sleep(at_most.min(LOOK));
                }
                take(waker);
                return Ok(readiness);
            }
        };
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, wants_room);
        let own = PollFd::from_borrowed_fd(fd, wanted);
        let bell = waker.map(|waker| PollFd::from_borrowed_fd(waker.as_fd(), PollFlags::IN));
        let timeout = Timespec::try_from(at_most).unwrap_or_default();
        let seen = match bell {
            Some(bell) => {
                let mut all = [own, bell];
                passing(poll(&mut all, Some(&timeout)))?;
                all[0].revents()
            }
            None => {
                let mut all = [own];
                passing(poll(&mut all, Some(&timeout)))?;
                all[0].revents()
            }
        };
        take(waker);
        let departed = seen.intersects(PollFlags::HUP | PollFlags::ERR);
        Ok(Readiness {
            readable: departed || seen.contains(PollFlags::IN) || self.carrier.holds_input(),
            writable: seen.contains(PollFlags::OUT),
            departed,
        })
    }

    /// What ends it from another thread.
    ///
    /// # Errors
    /// When the process may have no more descriptors; there is none of what has no descriptor.
    pub fn breaker(&self) -> io::Result<Option<Breaker>> {
        match self.carrier.source() {
            Source::Fd(fd) => Ok(Some(Breaker(fd.try_clone_to_owned()?))),
            Source::Software(_) => Ok(None),
        }
    }

    /// Says that nothing more is sent.
    pub fn shut_down(&mut self) {
        self.carrier.shutdown_send();
    }

    /// The descriptor, where there is one.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.carrier.source() {
            Source::Fd(fd) => Some(fd),
            Source::Software(_) => None,
        }
    }
}

/// Ends a connection of another thread.
#[derive(Debug)]
pub struct Breaker(OwnedFd);

impl Breaker {
    /// Neither side can send any more.
    pub fn break_off(&self) {
        // What is gone already needs not be ended.
        let _gone = rustix::net::shutdown(self.0.as_fd(), Shutdown::Both);
    }
}

fn take(waker: Option<&Waker>) {
    if let Some(waker) = waker {
        waker.take();
    }
}

fn passing(polled: Result<usize, Errno>) -> io::Result<()> {
    match polled {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether it can be tried again.
fn is_passing(error: io::ErrorKind) -> bool {
    matches!(
        error,
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn moved(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Ok(count) => Ok(Some(count)),
        Err(error) if is_passing(error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}
