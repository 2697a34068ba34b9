//! A connection that has left its loop, to be served on a separate thread.
//!
//! Receiving and sending do not block. [`Detached::wait`] waits until the connection is ready, or a
//! [`Waker`] rings.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::transport::{Carrier, Readiness, Source};
use crate::waker::Waker;

/// Interval at which a connection without a descriptor is checked.
const LOOK: Duration = Duration::from_millis(1);

/// A connection that has left its loop. See the module documentation.
pub struct Detached {
    carrier: Carrier,
    input: Vec<u8>,
}

impl Detached {
    pub(crate) fn new(carrier: Carrier, input: Vec<u8>) -> Self {
        Self { carrier, input }
    }

    /// Takes the input that was received but not consumed.
    #[must_use]
    pub fn take_input(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input)
    }

    /// Receives bytes into `buffer`. Returns their number, 0 at the end, or `None` if there are
    /// none yet.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        moved(self.carrier.recv(buffer))
    }

    /// Sends bytes from the front of `bytes`. Returns their number.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        moved(self.carrier.send(bytes)).map(Option::unwrap_or_default)
    }

    /// Waits until there is input, space to send if `wants_room`, or `waker` rings, for at most
    /// `at_most`.
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

    /// Returns a handle that ends the connection from another thread, or `None` if it has no
    /// descriptor.
    ///
    /// # Errors
    /// If the process may not open more descriptors.
    pub fn breaker(&self) -> io::Result<Option<Breaker>> {
        match self.carrier.source() {
            Source::Fd(fd) => Ok(Some(Breaker(fd.try_clone_to_owned()?))),
            Source::Software(_) => Ok(None),
        }
    }

    /// Signals to the peer that nothing more is sent.
    pub fn shut_down(&mut self) {
        self.carrier.shutdown_send();
    }

    /// Returns the descriptor, or `None` if there is none.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.carrier.source() {
            Source::Fd(fd) => Some(fd),
            Source::Software(_) => None,
        }
    }
}

/// A handle that ends a connection that another thread serves.
#[derive(Debug)]
pub struct Breaker(OwnedFd);

impl Breaker {
    /// Ends the connection: neither side can send any more.
    pub fn break_off(&self) {
        // A connection that is already closed needs no end.
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

/// Whether the operation can be retried.
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
