//! A socket behind a transport that behaves like one with its own wire format: it reads more from
//! the socket than it is asked for, and cannot return what it has accepted to send.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;

use reactor::{Source, Transport};

/// Maximum bytes that it reads or sends at once.
const TAKEN_BYTES: usize = 20_000;

pub(crate) struct Greedy {
    socket: TcpStream,
    received: VecDeque<u8>,
    is_ended: bool,
    unsent: VecDeque<u8>,
    withheld: bool,
}

impl Greedy {
    pub(crate) fn new(socket: TcpStream) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            received: VecDeque::new(),
            is_ended: false,
            unsent: VecDeque::new(),
            withheld: false,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            let sent = self.socket.write(self.unsent.as_slices().0)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }
}

impl Transport for Greedy {
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.received.is_empty() && !self.is_ended {
            let mut taken = [0; TAKEN_BYTES];
            let count = self.socket.read(&mut taken)?;
            self.is_ended = count == 0;
            self.received.extend(&taken[..count]);
        }
        self.received.read(buffer)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let skipped = usize::from(std::mem::take(&mut self.withheld));
        let taken = bytes.len().min(TAKEN_BYTES);
        self.unsent.extend(&bytes[skipped..taken]);
        match self.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.withheld = true;
                Ok(taken - 1)
            }
            other => other.map(|()| taken),
        }
    }

    fn source(&self) -> Source<'_> {
        Source::Fd(self.socket.as_fd())
    }

    fn shutdown_send(&mut self) {
        let _may_be_gone = self.socket.shutdown(Shutdown::Write);
    }

    fn holds_input(&self) -> bool {
        !self.received.is_empty() || self.is_ended
    }

    fn held_bytes(&self) -> usize {
        self.received.len() + self.unsent.len()
    }
}
