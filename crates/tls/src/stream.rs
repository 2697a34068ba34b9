//! A connection over TLS, as a transport.
//!
//! ```text
//!   recv:  | kept: part of a record | from the socket |   in the thread's scratch
//!          '-----> decrypted --> the caller's buffer; what does not fit there --> `received`
//!   send:  bytes --encrypted--> the thread's scratch --> socket; what it does not take --> `unsent`
//! ```
//!
//! Invariants
//!  1. `kept` never holds a complete record: input from the socket is decrypted at once. Decrypted
//!     bytes that the caller has not asked for yet are in `received`, and
//!     [`Transport::holds_input`] reports them.
//!  2. Encrypted bytes cannot be taken back. While some wait in `unsent` for the socket, the last
//!     encrypted byte is reported as not taken (`withheld`). The loop keeps that byte, waits until
//!     the socket is writable, and offers the byte again; then the rest is sent.
//!  3. A stream that waits for nothing owns no buffer.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use reactor::{Security, Source, Transport};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedConnectionCommon, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use crate::certificate;

/// Maximum size of a record: content, and what a version may add.
const RECORD_BYTES_MAX: usize = 5 + 16 * 1024 + 2048;
/// Number of bytes decrypted at once: a loop's buffer, and the begun record before it.
const INCOMING_BYTES: usize = 64 * 1024 + RECORD_BYTES_MAX;
/// Maximum number of bytes encrypted at once.
const PLAIN_BYTES_MAX: usize = 64 * 1024;
/// Overhead of a record: its head, a nonce and a tag.
const RECORD_OVERHEAD_BYTES: usize = 64;
/// Buffer size for the bytes that are encrypted at once, in as many pieces as are sent at once, and
/// for alerts.
const OUTGOING_BYTES: usize = PLAIN_BYTES_MAX + 80 * RECORD_OVERHEAD_BYTES;
/// Maximum size of the protocol's own answers that wait for the socket. A peer that causes more of
/// them and reads none is disconnected.
const ANSWERS_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of receives in a row during a handshake.
const ROUNDS_MAX: usize = 8;

/// Buffers of a thread.
#[derive(Default)]
struct Scratch {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The protocol state of one side: the server's or the client's.
pub trait Side: Send {
    /// The library's data for this side.
    type Data;

    /// Processes the bytes in `incoming`.
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Returns the state that both sides have in common.
    fn common(&self) -> &CommonState;
}

impl Side for UnbufferedServerConnection {
    type Data = rustls::server::ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        let common: &mut UnbufferedConnectionCommon<_> = self;
        common.process_tls_records(incoming)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

impl Side for UnbufferedClientConnection {
    type Data = rustls::client::ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        let common: &mut UnbufferedConnectionCommon<_> = self;
        common.process_tls_records(incoming)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

/// The progress of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// It waits for input from the peer.
    Reads,
    /// It waits until the socket is writable.
    Writes,
    /// It is complete.
    Done,
}

/// See the module.
pub struct Stream<S> {
    socket: OwnedFd,
    side: S,
    /// The beginning of an incomplete record.
    kept: Vec<u8>,
    received: Received,
    unsent: Unsent,
    /// Whether the last encrypted byte was reported as not taken.
    withheld: bool,
    /// Whether the peer announced that it will send no more.
    is_ended: bool,
    /// The reason why nothing more can be received after the bytes already received.
    failure: Option<rustls::Error>,
}

/// Decrypted bytes that the caller has not asked for yet.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    taken: usize,
}

impl Received {
    fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Moves bytes to the front of `buffer` and returns their number.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let rest = &self.bytes[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        if self.is_empty() {
            *self = Self::default();
        }
        count
    }
}

/// Encrypted bytes that the socket did not take.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Sends what the socket takes. Returns whether everything was sent.
    fn flush(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while !self.is_empty() {
            match send(socket, &self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        *self = Self::default();
        Ok(true)
    }

    /// Appends what `encode` writes. Calls `encode` once more if it needs more space.
    fn push(
        &mut self,
        mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
    ) -> Result<(), rustls::Error> {
        let before = self.bytes.len();
        let mut room = 0;
        for _ in 0..2 {
            self.bytes.resize(before + room, 0);
            match encode(&mut self.bytes[before..]) {
                Ok(count) => {
                    self.bytes.truncate(before + count);
                    return Ok(());
                }
                Err(EncodeError::InsufficientSize(short)) => room = short.required_size,
                Err(EncodeError::AlreadyEncoded) => break,
            }
        }
        self.bytes.truncate(before);
        Err(rustls::Error::General("nothing to encode".to_owned()))
    }
}

/// The result of processing encrypted bytes.
struct Processed {
    /// Number of decrypted bytes in the buffer.
    placed: usize,
    /// Number of encrypted bytes that were consumed.
    consumed: usize,
}

impl<S: Side> Stream<S> {
    /// Returns a stream whose handshake has not begun.
    pub(crate) fn new(socket: OwnedFd, side: S) -> Self {
        Self {
            socket,
            side,
            kept: Vec::new(),
            received: Received::default(),
            unsent: Unsent::default(),
            withheld: false,
            is_ended: false,
            failure: None,
        }
    }

    /// Continues the handshake as far as the socket allows.
    ///
    /// # Errors
    /// The socket failed, or the two sides do not agree; the peer was sent the protocol's alert.
    pub fn handshake(&mut self) -> io::Result<Handshake> {
        for _ in 0..ROUNDS_MAX {
            self.process_nothing()?;
            if !self.unsent.flush(&self.socket)? {
                return Ok(Handshake::Writes);
            }
            if !self.side.common().is_handshaking() {
                return Ok(Handshake::Done);
            }
            match self.take_in(&mut []) {
                Ok(_) if self.is_ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Handshake::Reads);
                }
                Err(error) => return Err(error),
            }
            if let Some(failure) = self.failure.take() {
                // The peer may no longer read.
                drop(self.unsent.flush(&self.socket));
                return Err(io::Error::new(io::ErrorKind::InvalidData, failure));
            }
        }
        Ok(Handshake::Reads)
    }

    /// Returns the security parameters of the connection after the handshake.
    #[must_use]
    pub fn security(&self) -> Security {
        let common = self.side.common();
        let protocol = match common.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let chain = common.peer_certificates().unwrap_or_default();
        let names = chain.first().and_then(|one| certificate::names(one));
        Security {
            protocol,
            names: names.unwrap_or_default(),
        }
    }

    /// Returns whether an earlier session was resumed, which saves most of a handshake.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.side.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Lets the protocol send what it has to send without input.
    fn process_nothing(&mut self) -> io::Result<()> {
        let mut kept = std::mem::take(&mut self.kept);
        let processed = self.process(&mut kept, &mut []);
        kept.drain(..processed.consumed);
        self.kept = kept;
        self.check_failure()
    }

    fn check_failure(&self) -> io::Result<()> {
        match &self.failure {
            Some(failure) => Err(io::Error::new(io::ErrorKind::InvalidData, failure.clone())),
            None => Ok(()),
        }
    }

    /// Receives from the socket once, and returns the number of bytes placed in `buffer`. Bytes
    /// that do not fit there are kept in `received`.
    fn take_in(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        SCRATCH.with_borrow_mut(|scratch| {
            let incoming = &mut scratch.incoming;
            if incoming.len() < INCOMING_BYTES {
                incoming.resize(INCOMING_BYTES, 0);
            }
            let kept = self.kept.len();
            // Plain bytes are no more than their records, so at most these are left over.
            let wanted = buffer.len().max(RECORD_BYTES_MAX).max(kept + 1);
            let wanted = wanted.min(incoming.len());
            if wanted <= kept {
                return Err(io::ErrorKind::InvalidData.into());
            }
            incoming[..kept].copy_from_slice(&self.kept);
            let (count, _) = rustix::net::recv(
                &self.socket,
                &mut incoming[kept..wanted],
                RecvFlags::empty(),
            )?;
            if count == 0 {
                self.is_ended = true;
                return Ok(0);
            }
            let filled = kept + count;
            let processed = self.process(&mut incoming[..filled], buffer);
            self.keep(&incoming[processed.consumed..filled]);
            Ok(processed.placed)
        })
    }

    fn keep(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            self.kept = Vec::new();
        } else {
            self.kept.clear();
            self.kept.extend_from_slice(rest);
        }
    }

    /// Lets the protocol process the bytes in `incoming`.
    fn process(&mut self, incoming: &mut [u8], buffer: &mut [u8]) -> Processed {
        let mut done = Processed {
            placed: 0,
            consumed: 0,
        };
        let mut failure = None;
        // After a failure only an alert remains to be sent. The rest of the input must not be
        // processed.
        while failure.is_none() || self.side.common().wants_write() {
            let UnbufferedStatus { mut discard, state } =
                self.side.process(&mut incoming[done.consumed..]);
            let mut is_over = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        let room = &mut buffer[done.placed..];
                        let (fits, rest) = record
                            .payload
                            .split_at(record.payload.len().min(room.len()));
                        room[..fits.len()].copy_from_slice(fits);
                        done.placed += fits.len();
                        self.received.bytes.extend_from_slice(rest);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let pushed = self.unsent.push(|out| data.encode(out));
                    if self.unsent.bytes.len() > ANSWERS_BYTES_MAX + PLAIN_BYTES_MAX {
                        let what = "the peer does not read".to_owned();
                        failure = Some(rustls::Error::General(what));
                        is_over = true;
                    }
                    is_over |= pushed.is_err();
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.is_ended = true,
                Ok(_) => is_over = true,
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
            done.consumed += discard;
            if is_over {
                break;
            }
        }
        if failure.is_some() {
            self.failure = failure;
        }
        done
    }

    /// Encrypts as many bytes from the front of `pieces` as are sent at once, except the first
    /// `skipped` bytes, which are encrypted already. Returns the number of bytes, including those
    /// skipped.
    fn encrypt(
        &mut self,
        pieces: &[IoSlice<'_>],
        mut skipped: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<(usize, usize)> {
        if out.len() < OUTGOING_BYTES {
            out.resize(OUTGOING_BYTES, 0);
        }
        let mut filled = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.side.process(&mut self.kept);
            debug_assert_eq!(discard, 0, "what was received is processed already");
            match state {
                // The protocol's own records were numbered before those that follow.
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    filled += data.encode(&mut out[filled..]).map_err(broken)?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let (taken, count) =
                        encrypt_pieces(&mut traffic, pieces, &mut skipped, &mut out[filled..])?;
                    return Ok((taken, filled + count));
                }
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }
}

/// Encrypts as many bytes from the front of `pieces` as the output has space for. Returns the
/// numbers of plain and of encrypted bytes.
fn encrypt_pieces<D>(
    traffic: &mut WriteTraffic<'_, D>,
    pieces: &[IoSlice<'_>],
    skipped: &mut usize,
    out: &mut [u8],
) -> io::Result<(usize, usize)> {
    let (mut taken, mut plain, mut filled) = (0, 0, 0);
    for piece in pieces {
        let passed = (*skipped).min(piece.len());
        (*skipped, taken) = (*skipped - passed, taken + passed);
        let rest = &piece[passed..];
        let part = &rest[..rest.len().min(PLAIN_BYTES_MAX - plain)];
        if !part.is_empty() {
            match traffic.encrypt(part, &mut out[filled..]) {
                Ok(count) => filled += count,
                // Some pieces fit. The others follow with the next call.
                Err(EncryptError::InsufficientSize(_)) if filled > 0 => break,
                Err(error) => return Err(broken(error)),
            }
            (plain, taken) = (plain + part.len(), taken + part.len());
        }
        if part.len() < rest.len() {
            break;
        }
    }
    Ok((taken, filled))
}

/// Wraps the reason why nothing more can be sent.
fn broken<E: std::error::Error + Send + Sync + 'static>(error: E) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error)
}

impl<S: Side> Transport for Stream<S> {
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.received.is_empty() {
            return Ok(self.received.read(buffer));
        }
        self.check_failure()?;
        if self.is_ended {
            return Ok(0);
        }
        let placed = self.take_in(buffer)?;
        if !self.unsent.is_empty() && !self.withheld {
            // The rest is sent before anything new.
            self.unsent.flush(&self.socket)?;
        }
        if placed > 0 {
            return Ok(placed);
        }
        self.check_failure()?;
        if self.is_ended {
            return Ok(0);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_pieces(&[IoSlice::new(bytes)])
    }

    fn send_pieces(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.unsent.is_empty() && !self.unsent.flush(&self.socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.check_failure()?;
        let skipped = usize::from(std::mem::take(&mut self.withheld));
        SCRATCH.with_borrow_mut(|scratch| {
            let out = &mut scratch.outgoing;
            let (taken, filled) = self.encrypt(pieces, skipped, out)?;
            if filled == 0 {
                return Ok(taken);
            }
            let sent = match send(&self.socket, &out[..filled]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            if sent == filled {
                return Ok(taken);
            }
            self.unsent.bytes.extend_from_slice(&out[sent..filled]);
            self.withheld = taken > 0;
            Ok(taken.saturating_sub(1))
        })
    }

    fn source(&self) -> Source<'_> {
        Source::Fd(self.socket.as_fd())
    }

    fn shutdown_send(&mut self) {
        self.say_farewell();
        // If the peer is gone already, the error does not matter.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }

    fn holds_input(&self) -> bool {
        !self.received.is_empty() || self.is_ended || self.failure.is_some()
    }

    fn held_bytes(&self) -> usize {
        self.kept.capacity() + self.received.bytes.capacity() + self.unsent.bytes.capacity()
    }
}

impl<S: Side> Stream<S> {
    /// Sends the peer the closing alert, if the socket takes it at once.
    fn say_farewell(&mut self) {
        let is_able = self.unsent.is_empty() && self.failure.is_none();
        let common = self.side.common();
        if !is_able || common.is_handshaking() {
            return;
        }
        let UnbufferedStatus { state, .. } = self.side.process(&mut self.kept);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            let mut alert = [0; 2 * RECORD_OVERHEAD_BYTES];
            if let Ok(count) = traffic.queue_close_notify(&mut alert) {
                drop(send(&self.socket, &alert[..count]));
            }
        }
    }
}

impl<S> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S> std::fmt::Debug for Stream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
mod tests;
