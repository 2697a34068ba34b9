//! A relay between two servers that fails on request: connections end, stall, or end after a number
//! of bytes.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Pause between two checks whether held bytes may pass.
const LOOK: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub struct Relay {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    target: AtomicU16,
    /// Number of bytes from the target that may still pass.
    left: AtomicU64,
    /// Number of bytes from the target that have passed.
    passed: AtomicU64,
    is_still: AtomicBool,
    /// The same for one direction: from clients, and from the target.
    still_ways: [AtomicBool; 2],
    /// Delay of each piece in milliseconds.
    delay_ms: AtomicU32,
    /// Whether new connections are refused.
    is_shut: AtomicBool,
    /// Number of bytes from the target that may pass before the relay stalls.
    left_before_stillness: AtomicU64,
    is_over: AtomicBool,
    rewrites: Option<(String, String)>,
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Starts a relay that forwards everything to a port of this machine.
    ///
    /// # Errors
    /// Those of the system.
    pub fn to(target: u16) -> io::Result<Self> {
        Self::start(target, None)
    }

    /// Starts a relay that also replaces the port `from` by `to` in what the target sends. Both
    /// must have the same number of digits.
    ///
    /// # Errors
    /// Those of the system.
    pub fn rewriting(target: u16, from: u16, to: u16) -> io::Result<Self> {
        Self::start(target, Some((from.to_string(), to.to_string())))
    }

    fn start(target: u16, rewrites: Option<(String, String)>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            target: AtomicU16::new(target),
            left: AtomicU64::new(u64::MAX),
            passed: AtomicU64::new(0),
            is_still: AtomicBool::new(false),
            still_ways: Default::default(),
            delay_ms: AtomicU32::new(0),
            is_shut: AtomicBool::new(false),
            left_before_stillness: AtomicU64::new(u64::MAX),
            is_over: AtomicBool::new(false),
            rewrites,
            open: Mutex::default(),
        });
        let own = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if own.is_over.load(Ordering::Acquire) {
                    return;
                }
                if own.is_shut.load(Ordering::Acquire) {
                    continue;
                }
                // A client that cannot be forwarded is disconnected.
                let _refused = State::relay(&own, client);
            }
        });
        Ok(Self { port, state })
    }

    /// Returns the port to connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Forwards this many more bytes from the target, then ends all connections.
    pub fn cut_after(&self, bytes: u64) {
        self.state.left.store(bytes, Ordering::Release);
    }

    /// Ends all connections. New ones are accepted.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Sets whether the relay forwards nothing, without ending any connection.
    pub fn hold(&self, on: bool) {
        self.state.is_still.store(on, Ordering::Release);
    }

    /// Sets whether the relay forwards nothing from one side, the target or its clients. The other
    /// direction is not affected.
    pub fn hold_way(&self, is_of_target: bool, on: bool) {
        self.state.still_ways[usize::from(is_of_target)].store(on, Ordering::Release);
    }

    /// Delays each piece of at most 64 KiB by this many milliseconds.
    pub fn slow(&self, delay_ms: u32) {
        self.state.delay_ms.store(delay_ms, Ordering::Release);
    }

    /// Ends all connections, and refuses new ones until the relay is opened again.
    pub fn shut(&self, on: bool) {
        self.state.is_shut.store(on, Ordering::Release);
        if on {
            self.state.cut();
        }
    }

    /// Forwards this many more bytes from the target, then stalls without ending any connection.
    pub fn hold_after(&self, bytes: u64) {
        let left = &self.state.left_before_stillness;
        left.store(bytes, Ordering::Release);
    }

    /// Whether the relay forwards nothing.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.state.is_still.load(Ordering::Acquire)
    }

    /// Returns the number of bytes from the target that were forwarded so far.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::Acquire)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
        self.state.cut();
        // The accepting thread wakes up and ends.
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Takes `count` bytes from those that may pass. If fewer were left, returns `true` and removes the
/// limit.
fn is_used_up(left: &AtomicU64, count: u64) -> bool {
    let take = |left: u64| match left {
        u64::MAX => None,
        left => Some(left.checked_sub(count).unwrap_or(u64::MAX)),
    };
    let before = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
    before.is_ok_and(|before| before < count)
}

impl State {
    fn relay(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let target = self.target.load(Ordering::Acquire);
        let server = TcpStream::connect(("127.0.0.1", target))?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.extend([client.try_clone()?, server.try_clone()?]);
        }
        if self.is_shut.load(Ordering::Acquire) {
            // The relay was shut while this connection was accepted.
            self.cut();
        }
        let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
        let own = Arc::clone(self);
        thread::spawn(move || own.pass(from_client, to_server, false));
        let own = Arc::clone(self);
        thread::spawn(move || own.pass(server, client, true));
        Ok(())
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, is_of_target: bool) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if is_of_target && is_used_up(&self.left_before_stillness, count as u64) {
                self.is_still.store(true, Ordering::Release);
            }
            while self.is_held(is_of_target) && !self.is_over.load(Ordering::Acquire) {
                thread::sleep(LOOK);
            }
            thread::sleep(Duration::from_millis(
                self.delay_ms.load(Ordering::Acquire).into(),
            ));
            let mut piece = bytes[..count].to_vec();
            if is_of_target {
                self.rewrite(&mut piece);
                if is_used_up(&self.left, count as u64) {
                    self.cut();
                    break;
                }
                self.passed.fetch_add(count as u64, Ordering::AcqRel);
            }
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        for stream in [from, to] {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }

    fn is_held(&self, is_of_target: bool) -> bool {
        let way = &self.still_ways[usize::from(is_of_target)];
        self.is_still.load(Ordering::Acquire) || way.load(Ordering::Acquire)
    }

    fn rewrite(&self, piece: &mut [u8]) {
        let Some((from, to)) = &self.rewrites else {
            return;
        };
        let found = piece
            .windows(from.len())
            .position(|it| it == from.as_bytes());
        if let Some(at) = found.filter(|_| from.len() == to.len()) {
            piece[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }

    fn cut(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in open.drain(..) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }
}
