//! A line server on threads, and clients of every kind of transport.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base::clock::{Clock, SystemClock};

use reactor::{
    Balancer, CloseReason, EventLoop, InProcessPeer, Listener, Options, TcpOptions, UnixOptions,
    in_process_pair,
};

use crate::greedy::Greedy;
use crate::lines::{Arena, Bounds, Lines, Shared};

/// Longer than any step takes on a slow machine; only a failing test reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A way to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp4,
    Tcp6,
    Unix,
    InProcess,
    /// TCP behind a transport that moves more than it is asked for.
    Greedy,
}

pub(crate) const KINDS: [Kind; 5] = [
    Kind::Tcp4,
    Kind::Tcp6,
    Kind::Unix,
    Kind::InProcess,
    Kind::Greedy,
];

/// Capacity of an in-process pair per direction, in bytes.
const PAIR_BYTES: usize = 16 * 1024;

/// A running server. Dropping it stops the server.
pub(crate) struct Rig {
    pub(crate) shared: Arc<Shared>,
    pub(crate) balancer: Arc<Balancer>,
    tcp4: SocketAddr,
    /// `None` if the machine has no IPv6.
    tcp6: Option<SocketAddr>,
    unix: PathBuf,
    workers: Vec<JoinHandle<Lines>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(1, Bounds::default())
    }

    pub(crate) fn with(workers_count: usize, bounds: Bounds) -> Self {
        Self::with_options(workers_count, bounds, &Options::default())
    }

    pub(crate) fn with_options(workers_count: usize, bounds: Bounds, options: &Options) -> Self {
        let shared = Arc::new(Shared::default());
        let balancer = Balancer::new(workers_count).unwrap();
        let tcp4 = Listener::tcp((Ipv4Addr::LOCALHOST, 0).into(), TcpOptions::default()).unwrap();
        let tcp6 = Listener::tcp((Ipv6Addr::LOCALHOST, 0).into(), TcpOptions::default()).ok();
        let unix = socket_path();
        let permission_bits = Some(0o700);
        let options_unix = UnixOptions {
            permission_bits,
            ..UnixOptions::default()
        };
        let unix_listener = Listener::unix(&unix, options_unix).unwrap();
        let addresses = (
            tcp4.tcp_address().unwrap(),
            tcp6.as_ref().and_then(|listener| listener.tcp_address()),
        );
        let listeners: Arc<[Listener]> = [tcp4, unix_listener].into_iter().chain(tcp6).collect();
        let workers = (0..workers_count)
            .map(|worker| {
                let service = Lines::new(&shared, bounds, worker);
                let event_loop = EventLoop::new(
                    service,
                    Arena::default(),
                    &balancer,
                    worker,
                    &listeners,
                    options,
                )
                .unwrap();
                thread::spawn(move || event_loop.run().unwrap())
            })
            .collect();
        Self {
            shared,
            balancer,
            tcp4: addresses.0,
            tcp6: addresses.1,
            unix,
            workers,
        }
    }

    /// Returns the kinds that this machine supports.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let has_ipv6 = self.tcp6.is_some();
        KINDS
            .into_iter()
            .filter(move |&kind| kind != Kind::Tcp6 || has_ipv6)
    }

    pub(crate) fn connect(&self, kind: Kind) -> Client {
        let stream = match kind {
            Kind::Tcp4 => Stream::Tcp(TcpStream::connect(self.tcp4).unwrap()),
            Kind::Tcp6 => Stream::Tcp(TcpStream::connect(self.tcp6.unwrap()).unwrap()),
            Kind::Unix => Stream::Unix(UnixStream::connect(&self.unix).unwrap()),
            Kind::InProcess => {
                let (end, peer) = in_process_pair(PAIR_BYTES);
                self.balancer.connect(Box::new(end));
                Stream::InProcess(peer)
            }
            Kind::Greedy => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (end, _) = listener.accept().unwrap();
                self.balancer.connect(Box::new(Greedy::new(end)));
                Stream::Tcp(stream)
            }
        };
        Client::new(stream)
    }

    pub(crate) fn tcp_address(&self) -> SocketAddr {
        self.tcp4
    }

    pub(crate) fn unix_path(&self) -> &std::path::Path {
        &self.unix
    }

    pub(crate) fn wake_all(&self) {
        for worker in 0..self.balancer.workers_count() {
            self.balancer.waker(worker).wake();
        }
    }

    /// Stops all workers and returns their services.
    pub(crate) fn stop(mut self) -> Vec<Lines> {
        self.stop_workers()
    }

    pub(crate) fn opened_count(&self) -> usize {
        self.shared.opened_count.load(Ordering::SeqCst)
    }

    pub(crate) fn closed(&self) -> Vec<CloseReason> {
        self.shared.closed.lock().unwrap().clone()
    }

    fn stop_workers(&mut self) -> Vec<Lines> {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake_all();
        let workers = self.workers.drain(..);
        workers.map(|worker| worker.join().unwrap()).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop_workers();
        }
    }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !condition() {
        assert!(
            Duration::from_nanos(clock.monotonic_ns()) < PATIENCE,
            "never: {what}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

fn socket_path() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    std::env::temp_dir().join(format!("reactor-test-{}-{number}.sock", std::process::id()))
}

/// A blocking client.
pub(crate) struct Client {
    pub(crate) stream: Stream,
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    InProcess(InProcessPeer),
}

impl Client {
    fn new(stream: Stream) -> Self {
        match &stream {
            Stream::Tcp(stream) => {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
            }
            Stream::InProcess(_) => {}
        }
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.write_all(bytes.as_ref()).unwrap();
    }

    /// Expects exactly these bytes next.
    #[track_caller]
    pub(crate) fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let mut found = vec![0; bytes.as_ref().len()];
        self.read_exact(&mut found).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&found),
            String::from_utf8_lossy(bytes.as_ref())
        );
    }

    /// Expects that the other side sends no more.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.read(&mut [0; 16]).unwrap(), 0);
    }

    pub(crate) fn shutdown_write(&mut self) {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            Stream::InProcess(peer) => peer.shutdown_write(),
        }
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(buffer),
                Stream::Unix(stream) => stream.read(buffer),
                Stream::InProcess(peer) => patiently(|| peer.read(buffer)),
            };
            match count {
                // A wait with a timeout is interrupted when the process is stopped and continued.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
            Stream::InProcess(peer) => patiently(|| peer.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn patiently(mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let clock = SystemClock::new();
    loop {
        match attempt() {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && Duration::from_nanos(clock.monotonic_ns()) < PATIENCE =>
            {
                thread::sleep(Duration::from_micros(50));
            }
            result => return result,
        }
    }
}
