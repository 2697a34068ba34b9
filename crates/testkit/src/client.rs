//! A blocking client: requests out, replies in, over any link that carries bytes.
//!
//! It decodes strictly ([`protocol::decode_value`]) and does nothing on its own: no HELLO, no
//! reconnection, no retry. Replies are matched to requests by the caller.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use protocol::{Value, decode_value, encode_request};

/// How long a reply may take before a test gives up: long, so that a busy machine fails nothing.
const REPLY_TIMEOUT: Duration = Duration::from_secs(180);
/// Bytes asked of the link at once.
const READ_BYTES: usize = 64 * 1024;

/// What carries bytes to a server and back; both directions block unless told otherwise.
pub trait Link: Read + Write + Send {
    /// Whether reading and writing wait, or answer `WouldBlock`.
    ///
    /// # Errors
    /// When the system refuses.
    fn set_blocking(&mut self, blocks: bool) -> io::Result<()>;

    /// Says that nothing more is sent; whether what still comes can be read, up to an end.
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

/// What a connection has to say right now.
#[derive(Debug, PartialEq)]
pub enum Received {
    /// The next reply or message.
    Value(Value),
    /// Nothing whole yet.
    Nothing,
    /// The server has closed the connection.
    End,
}

/// A connection to a server.
pub struct Client {
    link: Box<dyn Link>,
    /// Grows, and is never made shorter: to clear it at every reading takes longer than the reading.
    input: Vec<u8>,
    /// Where the first byte not yet decoded stands in `input`.
    at: usize,
    /// How many bytes of `input` were received.
    end: usize,
}

impl Client {
    /// A client over any link.
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
    /// When nobody listens there.
    pub fn connect_tcp(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self::over(Box::new(stream)))
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self::over(Box::new(stream)))
    }

    /// Switches to RESP3 with `HELLO 3`.
    ///
    /// # Errors
    /// When the server refuses, or cannot be reached.
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
    /// When the connection ends, or the reply is no RESP.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.send(args)?;
        self.receive()?
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends a request without waiting.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = Vec::new();
        push_request(&mut request, args);
        self.send_raw(&request)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.link.write_all(bytes)?;
        self.link.flush()
    }

    /// Sends all requests at once and waits for as many replies.
    ///
    /// # Errors
    /// When the connection ends, or a reply is no RESP.
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

    /// Ends the connection, and waits where it can until the server has done so too: it does not know the
    /// client any more then.
    ///
    /// # Errors
    /// When it takes minutes, or what comes meanwhile is no RESP.
    pub fn finish(mut self) -> io::Result<()> {
        if self.link.end()? {
            while self.receive()?.is_some() {}
        }
        Ok(())
    }

    /// The next reply, or `None` when the server has closed the connection.
    ///
    /// # Errors
    /// When it takes minutes, when the connection breaks inside a reply, or when the reply is no
    /// RESP.
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

    /// What has arrived already, without waiting for more.
    ///
    /// # Errors
    /// When the connection breaks inside a reply, or when the reply is no RESP.
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

    /// Reads once; 0 when the server has closed.
    fn fill(&mut self) -> io::Result<usize> {
        self.input.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        // A long reply is decoded again from its start after each reading, so reading grows with it.
        let wanted = self.end + READ_BYTES.max(self.end);
        if self.input.len() < wanted {
            self.input.resize(wanted, 0);
        }
        let count = loop {
            match self.link.read(&mut self.input[self.end..wanted]) {
                // A process that was stopped and goes on is told so where it waits with a timeout.
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

    /// Is interrupted once before it says anything.
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
