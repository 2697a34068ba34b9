//! Waiting for connections at sockets with an accepting thread of their own and few connections.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until one of the listeners has a connection, for at most `time`.
pub(crate) fn await_connection(listeners: &[TcpListener], time: Duration) {
    let wanted = |listener| PollFd::new(listener, PollFlags::IN);
    let mut sockets: Vec<PollFd<'_>> = listeners.iter().map(wanted).collect();
    // A time that is too long to express means no timeout.
    let time = Timespec::try_from(time).ok();
    // A signal ends the wait early, and the caller checks again.
    let _interrupted = poll(&mut sockets, time.as_ref());
}

/// Whether an error of `accept` means that there is no connection. After any other error the
/// sockets stay readable: a caller that does not pause would retry endlessly.
pub(crate) fn is_nobody(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn who_connects_ends_the_wait() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        await_connection(&listeners, Duration::from_millis(1));
        assert!(is_nobody(&listeners[1].accept().unwrap_err()));
        let _stream = TcpStream::connect(listeners[1].local_addr().unwrap()).unwrap();
        await_connection(&listeners, Duration::from_hours(1));
        assert!(listeners[1].accept().is_ok());
    }
}
