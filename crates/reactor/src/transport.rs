//! Carriers of bytes: one interface for sockets, in-process pairs and wrappers.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::waker::Waker;

/// One end of a stream of bytes. Never blocks.
///
/// `recv` and `send` return [`io::ErrorKind::WouldBlock`] if nothing can be moved now. `recv`
/// returns 0 if the peer will send no more.
pub trait Transport: Send {
    /// Moves received bytes into `buffer` and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there are none; any other error ends the connection.
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends bytes from the front of `bytes` and returns their number, which may be less than all.
    ///
    /// # Errors
    /// `WouldBlock` if none can be sent; any other error ends the connection.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Does the same as [`send`](Self::send) for several pieces, which are sent in their order.
    ///
    /// # Errors
    /// As `send`.
    fn send_pieces(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = pieces.iter().find(|piece| !piece.is_empty());
        first.map_or(Ok(0), |piece| self.send(piece))
    }

    /// Returns how the loop learns that the transport is ready.
    fn source(&self) -> Source<'_>;

    /// Called once when a loop takes the transport. A transport without a descriptor keeps `waker`
    /// and rings it whenever it becomes readable or writable.
    fn attach(&mut self, waker: &Waker) {
        let _ = waker;
    }

    /// Signals to the peer that nothing more will be sent. The peer may still send.
    fn shutdown_send(&mut self);

    /// Whether `recv` would return something (bytes, the end, an error) that the descriptor of
    /// [`source`](Self::source) does not show, because it was already taken from there.
    fn holds_input(&self) -> bool {
        false
    }

    /// Returns the bytes of its own buffers.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// Source of a transport's readiness.
pub enum Source<'a> {
    /// A descriptor that epoll watches.
    Fd(BorrowedFd<'a>),
    /// No descriptor: the loop asks in every turn. While the loop sleeps, the transport rings the
    /// [`Waker`] that it was attached with when it becomes readable or writable.
    Software(Readiness),
}

/// Readiness of a transport without a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether `recv` would not return `WouldBlock`.
    pub readable: bool,
    /// Whether `send` would not return `WouldBlock`.
    pub writable: bool,
    /// Whether the peer will send no more.
    pub departed: bool,
}

/// The transport of a connection: sockets directly, anything else behind a pointer.
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

    /// Receives bytes into the front of `room`, by way of `buffer` if it is not a socket.
    pub(crate) fn recv_shared(
        &mut self,
        room: &[AtomicU8],
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        match self {
            Self::Socket(fd) => {
                let target = room.as_ptr().cast::<libc::c_void>().cast_mut();
                // SAFETY: atomics may be written through shared references, and `room` has this
                // many bytes. The call does not keep the pointer.
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

    /// Receives bytes into the free capacity of `bytes`, which must not be empty.
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

    /// The same as [`Transport::holds_input`]; always false for a socket.
    #[inline(always)]
    pub(crate) fn holds_input(&self) -> bool {
        match self {
            Self::Socket(_) => false,
            Self::Other(transport) => transport.holds_input(),
        }
    }

    /// The same as [`Transport::held_bytes`].
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
            // A failure means that the peer is already gone, and is ignored.
            Self::Socket(fd) => drop(rustix::net::shutdown(&*fd, Shutdown::Write)),
            Self::Other(transport) => transport.shutdown_send(),
        }
    }
}
