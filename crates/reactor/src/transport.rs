//! What carries bytes: the one surface behind which sockets, in-process pairs and wrappers stand.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::waker::Waker;

/// One end of a stream of bytes, never blocking.
///
/// `recv` and `send` answer [`io::ErrorKind::WouldBlock`] when nothing can be moved now, and
/// `recv` answers 0 once the peer will send no more.
pub trait Transport: Send {
    /// Moves bytes that came into `buffer` and gives their number.
    ///
    /// # Errors
    /// `WouldBlock` when none are there; any other error ends the connection.
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Takes bytes from the front of `bytes` and gives their number, which may be less than all.
    ///
    /// # Errors
    /// `WouldBlock` when none can be taken; any other error ends the connection.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// As [`send`](Self::send), from several pieces, which go out in their order.
    ///
    /// # Errors
    /// As `send`.
    fn send_pieces(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = pieces.iter().find(|piece| !piece.is_empty());
        first.map_or(Ok(0), |piece| self.send(piece))
    }

    /// How the loop learns that the transport is ready.
    fn source(&self) -> Source<'_>;

    /// Called once when a loop takes the transport: what has no descriptor keeps `waker` and rings
    /// it whenever readiness grows.
    fn attach(&mut self, waker: &Waker) {
        let _ = waker;
    }

    /// Tells the peer that nothing more will be sent; it may still send.
    fn shutdown_send(&mut self);

    /// Whether `recv` has something to tell (bytes, the end, an error) that the descriptor of
    /// [`source`](Self::source) does not show: it was taken from there already.
    fn holds_input(&self) -> bool {
        false
    }

    /// Bytes of memory that its own buffers hold.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// Where readiness of a transport is seen.
pub enum Source<'a> {
    /// A descriptor that epoll watches.
    Fd(BorrowedFd<'a>),
    /// No descriptor: the loop asks in every turn, and the transport rings the [`Waker`] that it
    /// was attached with when readiness grows while the loop sleeps.
    Software(Readiness),
}

/// What can be done without waiting, as far as a transport without descriptor knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// `recv` would not answer `WouldBlock`.
    pub readable: bool,
    /// `send` would not answer `WouldBlock`.
    pub writable: bool,
    /// The peer will send no more.
    pub departed: bool,
}

/// The transport of a connection: sockets without a detour, anything else behind a pointer.
pub(crate) enum Carrier {
    /// A TCP or Unix socket.
    Socket(OwnedFd),
    /// Anything else.
    Other(Box<dyn Transport>),
}

impl Carrier {
    #[inline(always)]
    pub(crate) fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(fd) => Ok(rustix::net::recv(&*fd, buffer, RecvFlags::empty())?.0),
            Self::Other(transport) => transport.recv(buffer),
        }
    }

    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(fd) => Ok(rustix::net::send(&*fd, bytes, SendFlags::NOSIGNAL)?),
            Self::Other(transport) => transport.send(bytes),
        }
    }

    pub(crate) fn send_pieces(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Socket(fd) => {
                let mut nothing_else = SendAncillaryBuffer::default();
                let flags = SendFlags::NOSIGNAL;
                Ok(rustix::net::sendmsg(
                    &*fd,
                    pieces,
                    &mut nothing_else,
                    flags,
                )?)
            }
            Self::Other(transport) => transport.send_pieces(pieces),
        }
    }

    /// Moves bytes to the front of `room`, by way of `buffer` where there is no socket.
    pub(crate) fn recv_shared(
        &mut self,
        room: &[AtomicU8],
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        match self {
            Self::Socket(fd) => {
                let target = room.as_ptr().cast::<libc::c_void>().cast_mut();
                // SAFETY: atomics may be written through shared references, and `room` has so many
                // bytes; the call keeps nothing.
                let count = unsafe { libc::recv(fd.as_raw_fd(), target, room.len(), 0) };
                usize::try_from(count).map_err(|_negative| io::Error::last_os_error())
            }
            Self::Other(transport) => {
                let most = room.len().min(buffer.len());
                let count = transport.recv(&mut buffer[..most])?;
                for (place, &byte) in room.iter().zip(&buffer[..count]) {
                    place.store(byte, Ordering::Relaxed);
                }
                Ok(count)
            }
        }
    }

    /// Moves bytes into the free capacity of `bytes`, of which there must be some.
    pub(crate) fn recv_spare(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Socket(fd) => {
                let spare = rustix::buffer::spare_capacity(bytes);
                Ok(rustix::net::recv(&*fd, spare, RecvFlags::empty())?.0)
            }
            Self::Other(transport) => {
                let len = bytes.len();
                bytes.resize(bytes.capacity(), 0);
                let received = transport.recv(&mut bytes[len..]);
                bytes.truncate(len + received.as_ref().map_or(0, |&count| count));
                received
            }
        }
    }

    /// As [`Transport::holds_input`]; never of a socket.
    #[inline(always)]
    pub(crate) fn holds_input(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Other(transport) => transport.holds_input(),
        }
    }

    /// As [`Transport::held_bytes`].
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Socket(_) => 0,
            Self::Other(transport) => transport.held_bytes(),
        }
    }

    pub(crate) fn attach(&mut self, waker: &Waker) {
        if let Self::Other(transport) = self {
            transport.attach(waker);
        }
    }

    pub(crate) fn source(&self) -> Source<'_> {
        match self {
            Self::Socket(fd) => Source::Fd(fd.as_fd()),
            Self::Other(transport) => transport.source(),
        }
    }

    pub(crate) fn shutdown_send(&mut self) {
        match self {
            // A peer that is gone already needs no farewell.
            Self::Socket(fd) => drop(rustix::net::shutdown(&*fd, Shutdown::Write)),
            Self::Other(transport) => transport.shutdown_send(),
        }
    }
}
