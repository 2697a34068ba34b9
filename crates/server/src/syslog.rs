//! The machine's log, in the form of `syslog(3)`: one datagram per line, in the format of RFC 3164
//! without the time, which the receiver adds.
//!
//! The receiver may restart at any time, so the socket is not connected. The server's own log does
//! not wait for a slow receiver: a line that is not taken at once is lost, because a log never
//! stops the server.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// Path of the receiver's socket.
const SOCKET: &str = "/dev/log";

/// Name and class of the lines, by which the machine's log sorts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Prefix of each line.
    pub(crate) ident: String,
    /// The number of the facility: 1 for programs, 10 for security, 16 to 23 for local use.
    pub(crate) facility: u8,
}

/// Severity of a line, by its number in RFC 3164.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Severity {
    Warning = 4,
    Notice = 5,
    Informational = 6,
    Debug = 7,
}

/// A connection to the machine's log.
#[derive(Debug)]
pub(crate) struct Syslog {
    socket: UnixDatagram,
    to: PathBuf,
    tag: Tag,
}

impl Syslog {
    /// Makes a connection for a thread that may wait until a line is taken.
    ///
    /// # Errors
    /// Those of the system if there is no socket. A missing receiver is no error.
    pub(crate) fn new(tag: Tag) -> io::Result<Self> {
        Self::to(SOCKET.into(), tag)
    }

    /// Makes a connection for threads that must not wait.
    ///
    /// # Errors
    /// As [`Syslog::new`].
    pub(crate) fn without_waiting(tag: Tag) -> io::Result<Self> {
        let syslog = Self::new(tag)?;
        syslog.socket.set_nonblocking(true)?;
        Ok(syslog)
    }

    fn to(to: PathBuf, tag: Tag) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        Ok(Self { socket, to, tag })
    }

    /// Whether there is a receiver.
    pub(crate) fn is_heard(&self) -> bool {
        UnixDatagram::unbound().is_ok_and(|probe| probe.connect(&self.to).is_ok())
    }

    /// Sends a line.
    ///
    /// # Errors
    /// The line is not taken.
    pub(crate) fn send(&self, severity: Severity, message: &str) -> io::Result<()> {
        let Tag { ident, facility } = &self.tag;
        let priority = u16::from(*facility) * 8 + severity as u16;
        let pid = std::process::id();
        let line = format!("<{priority}>{ident}[{pid}]: {message}");
        self.socket.send_to(line.as_bytes(), &self.to).map(|_| ())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a machine's log, and a connection to it.
    pub(crate) fn listening(facility: u8) -> (UnixDatagram, Syslog, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let listens = UnixDatagram::bind(&path).unwrap();
        let tag = Tag {
            ident: "redis".to_owned(),
            facility,
        };
        (listens, Syslog::to(path, tag).unwrap(), directory)
    }

    pub(crate) fn line(listens: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let len = listens.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    #[test]
    fn a_line_says_who_sent_it_and_reaches_whoever_listens_later() {
        let (listens, syslog, directory) = listening(16);
        assert!(syslog.is_heard());
        drop(listens);
        std::fs::remove_file(directory.path().join("log")).unwrap();
        assert!(!syslog.is_heard() && syslog.send(Severity::Notice, "lost").is_err());
        let again = UnixDatagram::bind(directory.path().join("log")).unwrap();
        syslog.send(Severity::Notice, "ready").unwrap();
        let pid = std::process::id();
        assert_eq!(line(&again), format!("<133>redis[{pid}]: ready"));
    }
}
