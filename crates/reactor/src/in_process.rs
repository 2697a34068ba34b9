//! A connection without sockets: two queues of bytes between a loop and a peer in the same process.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::transport::{Readiness, Source, Transport};
use crate::waker::Waker;

/// The loop's end of an in-process connection.
#[derive(Debug)]
pub struct InProcess {
    pipes: Arc<Mutex<Pipes>>,
}

/// The peer's end, in place of a client's socket. Never blocks: reading and writing return
/// `WouldBlock`. Dropping it closes both directions.
#[derive(Debug)]
pub struct InProcessPeer {
    pipes: Arc<Mutex<Pipes>>,
}

/// Creates both ends of a connection. Each direction holds at most `capacity_bytes`.
#[must_use]
pub fn in_process_pair(capacity_bytes: usize) -> (InProcess, InProcessPeer) {
    let pipes = Arc::new(Mutex::new(Pipes {
        to_loop: Pipe::new(capacity_bytes),
        to_peer: Pipe::new(capacity_bytes),
        waker: None,
        notify: None,
    }));
    let end = InProcess {
        pipes: Arc::clone(&pipes),
    };
    (end, InProcessPeer { pipes })
}

#[derive(Debug)]
struct Pipes {
    to_loop: Pipe,
    to_peer: Pipe,
    waker: Option<Waker>,
    notify: Option<Notify>,
}

/// The callback that notifies the peer that the loop has sent bytes or has closed its end.
#[derive(Clone)]
struct Notify(Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Notify {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Notify")
    }
}

impl Pipes {
    fn notify(&self) {
        if let Some(Notify(notify)) = &self.notify {
            notify();
        }
    }
}

/// One direction of a connection.
#[derive(Debug)]
struct Pipe {
    bytes: VecDeque<u8>,
    capacity_bytes: usize,
    /// Whether no more bytes will be written.
    ended: bool,
    /// Whether no end will read any more.
    broken: bool,
}

impl Pipe {
    fn new(capacity_bytes: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            capacity_bytes: capacity_bytes.max(1),
            ended: false,
            broken: false,
        }
    }

    fn is_readable(&self) -> bool {
        !self.bytes.is_empty() || self.ended
    }

    fn is_writable(&self) -> bool {
        self.bytes.len() < self.capacity_bytes || self.broken
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.is_readable() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.bytes.read(buffer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.broken || self.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !self.is_writable() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(self.capacity_bytes - self.bytes.len());
        self.bytes.extend(&bytes[..count]);
        Ok(count)
    }
}

impl Transport for InProcess {
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        lock(&self.pipes).to_loop.read(buffer)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipes = lock(&self.pipes);
        let sent = pipes.to_peer.write(bytes);
        pipes.notify();
        sent
    }

    fn source(&self) -> Source<'_> {
        let pipes = lock(&self.pipes);
        Source::Software(Readiness {
            readable: pipes.to_loop.is_readable(),
            writable: pipes.to_peer.is_writable(),
            departed: pipes.to_loop.ended,
        })
    }

    fn attach(&mut self, waker: &Waker) {
        lock(&self.pipes).waker = Some(waker.clone());
    }

    fn shutdown_send(&mut self) {
        let mut pipes = lock(&self.pipes);
        pipes.to_peer.ended = true;
        pipes.notify();
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let mut pipes = lock(&self.pipes);
        pipes.to_peer.ended = true;
        pipes.to_loop.broken = true;
        pipes.notify();
    }
}

impl InProcessPeer {
    /// Sets the callback for when the loop has sent bytes or has closed its end. The callback must
    /// not block, and must use neither end.
    pub fn notify(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        lock(&self.pipes).notify = Some(Notify(notify));
    }

    /// Signals to the loop that nothing more will be written. Reading is still possible.
    pub fn shutdown_write(&mut self) {
        self.change(|pipes| pipes.to_loop.ended = true);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Pipes) -> T) -> T {
        let mut pipes = lock(&self.pipes);
        let result = change(&mut pipes);
        if let Some(waker) = &pipes.waker {
            waker.wake();
        }
        result
    }
}

impl Read for InProcessPeer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.change(|pipes| pipes.to_peer.read(buffer))
    }
}

impl Write for InProcessPeer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.change(|pipes| pipes.to_loop.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for InProcessPeer {
    fn drop(&mut self) {
        self.change(|pipes| {
            pipes.to_loop.ended = true;
            pipes.to_peer.broken = true;
        });
    }
}

fn lock(pipes: &Mutex<Pipes>) -> MutexGuard<'_, Pipes> {
    // A panic can only occur when every change of the queues is complete.
    pipes.lock().unwrap_or_else(PoisonError::into_inner)
}
