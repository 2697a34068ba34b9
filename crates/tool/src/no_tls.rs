//! The interface of `tls.rs` in a build without encrypted connections.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::options::TlsOptions;

/// Never created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsClient {}

/// Never created.
#[derive(Debug)]
pub(crate) enum TlsStream {}

impl TlsClient {
    pub(crate) fn load(_options: TlsOptions) -> Result<Self, String> {
        Err("This program was built without TLS".to_owned())
    }

    pub(crate) fn connect(
        &self,
        _socket: OwnedFd,
        _host: &str,
        _patience: Duration,
    ) -> io::Result<TlsStream> {
        match *self {}
    }
}

#[allow(
    clippy::needless_pass_by_ref_mut,
    reason = "the surface of the other form"
)]
impl TlsStream {
    pub(crate) fn recv(&mut self, _out: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn send(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn set_patience(&mut self, _patience: Duration) {
        match *self {}
    }

    pub(crate) fn read(&mut self, _out: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn write_all(&mut self, _bytes: &[u8]) -> io::Result<()> {
        match *self {}
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}
