//! Encrypted connections to the measured server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use reactor::Transport as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tls::{Client, ClientOptions, ClientStream, Handshake};

use crate::options::TlsOptions;

/// Credentials and settings of encrypted connections.
#[derive(Clone, Debug)]
pub struct TlsClient {
    options: TlsOptions,
    client: Client,
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
    }
}

impl Eq for TlsClient {}

impl TlsClient {
    /// Reads all files that `options` names.
    ///
    /// # Errors
    /// A file or setting that cannot be used.
    pub(crate) fn load(options: TlsOptions) -> Result<Self, String> {
        let own = options.clone();
        let client = Client::load(&ClientOptions {
            authorities_file: own.authorities_file,
            authorities_directory: own.authorities_directory,
            is_insecure: own.is_insecure,
            certificate_file: own.certificate_file,
            key_file: own.key_file,
            server_name: own.server_name,
            ciphers: own.ciphers,
            cipher_suites: own.cipher_suites,
        });
        let client = client.map_err(|error| error.to_string())?;
        Ok(Self { options, client })
    }

    /// Makes the handshake with the server called `host`, within `patience`.
    pub(crate) fn connect(
        &self,
        socket: OwnedFd,
        host: &str,
        patience: Duration,
    ) -> io::Result<TlsStream> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let stream = self
            .client
            .connect(socket, host)
            .map_err(io::Error::other)?;
        let mut stream = TlsStream { stream, patience };
        loop {
            match stream.stream.handshake()? {
                Handshake::Done => return Ok(stream),
                Handshake::Reads => stream.wait(PollFlags::IN)?,
                Handshake::Writes => stream.wait(PollFlags::OUT)?,
            }
        }
    }
}

/// An encrypted, non-blocking connection.
#[derive(Debug)]
pub(crate) struct TlsStream {
    stream: ClientStream,
    patience: Duration,
}

impl TlsStream {
    pub(crate) fn recv(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.recv(out)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.send(bytes)
    }

    /// Sets how long reads and writes wait.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Like `recv`, but waits.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.recv(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN)?;
                }
                other => return other,
            }
        }
    }

    /// Sends all of `bytes`, waiting if necessary.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.send(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        let timeout = Timespec::try_from(self.patience).unwrap_or_default();
        match poll(&mut [PollFd::new(&self.stream, flags)], Some(&timeout))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
