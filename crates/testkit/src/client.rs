//! A blocking client that sends requests and receives replies over any link that carries bytes.
//!
//! It decodes strictly ([`protocol::decode_value`]). It sends no HELLO of its own, does not
//! reconnect and does not retry. The caller matches replies to requests.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use protocol::{Value, decode_value, encode_request};

/// Time after which a test gives up on a reply. It is long, so that no test fails on a busy
/// machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(180);
/// Minimum number of bytes requested from the link in one read.
const READ_BYTES: usize = 64 * 1024;

/// A two-way byte stream to a server. Both directions block unless set otherwise.
pub trait Link: Read + Write + Send {
    /// Sets whether reads and writes block, or return `WouldBlock`.
    ///
    /// # Errors
    /// When the system refuses.
    fn set_blocking(&mut self, blocks: bool) -> io::Result<()>;

    /// Ends the sending direction. Returns whether the remaining input can be read until its end.
    ///
    /// # Errors
    /// When the system refuses.
    fn end(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}

impl Link for TcpStream {
    fn end(&mut self) -> io::Result<bool> {
        self.shutdown(Shutdown::Write)?;
        Ok(true)
    }

    fn set_blocking(&mut self, blocks: bool) -> io::Result<()> {
        self.set_nonblocking(!blocks)
    }
}

impl Link for UnixStream {
    fn end(&mut self) -> io::Result<bool> {
        self.shutdown(Shutdown::Write)?;
        Ok(true)
    }

    fn set_blocking(&mut self, blocks: bool) -> io::Result<()> {
        self.set_nonblocking(!blocks)
    }
}

/// Result of a look for input that does not wait.
#[derive(Debug, PartialEq)]
pub enum Received {
    /// The next reply or message.
    Value(Value),
    /// No complete value yet.
    Nothing,
    /// The server has closed the connection.
    End,
}

/// A connection to a server.
pub struct Client {
    link: Box<dyn Link>,
    /// Received bytes. The buffer grows and never shrinks, because clearing it before each read
    /// takes longer than the read.
    input: Vec<u8>,
    /// Index in `input` of the first byte that is not yet decoded.
    at: usize,
    /// Number of bytes of `input` that were received.
    end: usize,
}

impl Client {
    /// Returns a client over any link.
    #[must_use]
    pub fn over(link: Box<dyn Link>) -> Self {
        Self {
            link,
            input: Vec::new(),
            at: 0,
            end: 0,
        }
    }

    /// Connects over TCP.
    ///
    /// # Errors
    /// If no server listens there.
    pub fn connect_tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self::over(Box::new(stream)))
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// If no server listens there.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self::over(Box::new(stream)))
    }

    /// Switches to RESP3 with `HELLO 3`.
    ///
    /// # Errors
    /// If the server refuses or cannot be reached.
    pub fn hello3(&mut self) -> io::Result<()> {
        match self.command(&["HELLO", "3"])? {
            Value::Map(_) => Ok(()),
            other => {
                let shown = crate::transcript::show(&other);
                Err(io::Error::other(format!("HELLO 3 was answered {shown}")))
            }
        }
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// If the connection ends, or the reply is not valid RESP.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.send(args)?;
        self.receive()?
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends a request without waiting for its reply.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = Vec::new();
        push_request(&mut request, args);
        self.send_raw(&request)
    }

    /// Sends bytes unchanged.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.link.write_all(bytes)?;
        self.link.flush()
    }

    /// Sends all requests at once and waits for one reply to each.
    ///
    /// # Errors
    /// If the connection ends, or a reply is not valid RESP.
    pub fn pipeline<R, A>(&mut self, requests: &[R]) -> io::Result<Vec<Value>>
    where
        R: AsRef<[A]>,
        A: AsRef<[u8]>,
    {
        let mut bytes = Vec::new();
        for request in requests {
            push_request(&mut bytes, request.as_ref());
        }
        self.send_raw(&bytes)?;
        let replies = requests.iter().map(|_| {
            let reply = self.receive()?;
            reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        });
        replies.collect()
    }

    /// Ends the connection. Where the link allows, waits until the server has closed its end too;
    /// the server then no longer knows the client.
    ///
    /// # Errors
    /// If that takes minutes, or if the input in the meantime is not valid RESP.
    pub fn finish(mut self) -> io::Result<()> {
        if self.link.end()? {
            while self.receive()?.is_some() {}
        }
        Ok(())
    }

    /// Waits for the next reply, and returns `None` if the server has closed the connection.
    ///
    /// # Errors
    /// If the reply takes minutes, if the connection breaks inside a reply, or if the reply is not
    /// valid RESP.
    pub fn receive(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(value) = self.decode()? {
                return Ok(Some(value));
            }
            if self.fill()? == 0 {
                return match self.end - self.at {
                    0 => Ok(None),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Returns a value that has already been received, without waiting for more input.
    ///
    /// # Errors
    /// If the connection breaks inside a reply, or if the reply is not valid RESP.
    pub fn arrived(&mut self) -> io::Result<Received> {
        if let Some(value) = self.decode()? {
            return Ok(Received::Value(value));
        }
        self.link.set_blocking(false)?;
        let count = self.fill();
        self.link.set_blocking(true)?;
        match count {
            Ok(0) if self.end == self.at => Ok(Received::End),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(self.decode()?.map_or(Received::Nothing, Received::Value)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    fn decode(&mut self) -> io::Result<Option<Value>> {
        let decoded = decode_value(&self.input[self.at..self.end])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(decoded.map(|(value, taken)| {
            self.at += taken;
            value
        }))
    }

    /// Reads once, and returns 0 if the server has closed the connection.
    fn fill(&mut self) -> io::Result<usize> {
        self.input.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        // After each read, a long reply is decoded again from its start. The read size therefore
        // grows with the reply.
        let wanted = self.end + READ_BYTES.max(self.end);
        if self.input.len() < wanted {
            self.input.resize(wanted, 0);
        }
        let count = loop {
            match self.link.read(&mut self.input[self.end..wanted]) {
                // A read with a timeout returns this error after the process was stopped and
                // continued.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break Ok(0),
                other => break other,
            }
        };
        self.end += *count.as_ref().unwrap_or(&0);
        count
    }
}

fn push_request<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
    encode_request(out, &args);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    impl Link for Cursor<Vec<u8>> {
        fn set_blocking(&mut self, _blocks: bool) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn replies_come_one_by_one() {
        let mut client = Client::over(Box::new(Cursor::new(b"+OK\r\n$-1\r\n:5\r\n".to_vec())));
        assert_eq!(
            client.receive().unwrap(),
            Some(Value::Simple(b"OK".to_vec()))
        );
        assert_eq!(client.receive().unwrap(), Some(Value::Null));
        assert_eq!(client.receive().unwrap(), Some(Value::Integer(5)));
        assert_eq!(client.receive().unwrap(), None);
    }

    /// A reader that is interrupted once before it returns its bytes.
    struct Interrupted(Option<&'static [u8]>, bool);

    impl Read for Interrupted {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if std::mem::take(&mut self.1) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.0.take().map_or(Ok(0), |mut bytes| bytes.read(out))
        }
    }

    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Link for Interrupted {
        fn set_blocking(&mut self, _blocks: bool) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_wait_that_is_interrupted_goes_on() {
        let mut client = Client::over(Box::new(Interrupted(Some(b":5\r\n"), true)));
        assert_eq!(client.receive().unwrap(), Some(Value::Integer(5)));
        assert_eq!(client.receive().unwrap(), None);
    }

    #[test]
    fn half_a_reply_is_an_error() {
        let mut client = Client::over(Box::new(Cursor::new(b"$5\r\nhal".to_vec())));
        let error = client.receive().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_has_arrived_is_taken_without_waiting() {
        let (mut server, link) = UnixStream::pair().unwrap();
        let mut client = Client::over(Box::new(link));
        assert_eq!(client.arrived().unwrap(), Received::Nothing);
        server.write_all(b"+OK\r\n:5").unwrap();
        let ok = Value::Simple(b"OK".to_vec());
        assert_eq!(client.arrived().unwrap(), Received::Value(ok));
        assert_eq!(client.arrived().unwrap(), Received::Nothing);
        server.write_all(b"\r\n").unwrap();
        assert_eq!(client.receive().unwrap(), Some(Value::Integer(5)));
        drop(server);
        assert_eq!(client.arrived().unwrap(), Received::End);
    }
}
