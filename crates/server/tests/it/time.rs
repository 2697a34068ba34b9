//! Tests of limits in time, on a clock that the test advances: nothing here waits for real seconds.
//!
//! The event loops read the clock ten times per second of real time. Tests poll for connections
//! that are to be closed.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use base::clock::ManualClock;
use reactor::InProcessPeer;
use server::cli::{self, Invocation};
use server::in_process::InProcessServer;
use server::node::Node;
use store::{Options, Store};

use crate::limits::eventually;

/// More than both directions of a connection inside the process hold.
const BIG_BYTES: usize = 1 << 20;

pub(crate) struct Rig {
    server: Option<InProcessServer>,
    clock: Arc<ManualClock>,
}

impl Rig {
    pub(crate) fn new(args: &[&str]) -> Self {
        let words = ["iolite", "--threads", "1", "--save", ""]
            .iter()
            .chain(args);
        let words = words.map(OsString::from).collect();
        let Ok(Invocation::Serve(startup)) = cli::read(words, std::iter::empty(), &mut io::empty())
        else {
            panic!("the command line is valid");
        };
        let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
        let store = Store::new(&Options::default()).unwrap();
        let shared = Arc::<ManualClock>::clone(&clock);
        let server = InProcessServer::start(store, startup.settings, shared).unwrap();
        Self {
            server: Some(server),
            clock,
        }
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.clock
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        self.server.as_ref().unwrap().node()
    }

    pub(crate) fn connect(&self) -> InProcessPeer {
        self.server.as_ref().unwrap().connect()
    }

    /// Returns a client that requested more than it can be sent, and reads nothing.
    fn deaf(&self) -> InProcessPeer {
        let mut peer = self.connect();
        let value = "x".repeat(BIG_BYTES);
        let request = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${BIG_BYTES}\r\n{value}\r\n");
        send(&mut peer, request.as_bytes());
        assert_eq!(line(&mut peer), "+OK");
        send(&mut peer, b"GET big\r\n");
        self.wait_for_output();
        peer
    }

    /// Waits until some client has output that it does not read.
    fn wait_for_output(&self) {
        let mut operator = self.connect();
        eventually("output waits", || {
            send(&mut operator, b"INFO clients\r\n");
            let waiting = "client_recent_max_output_buffer:";
            let text = reply(&mut operator);
            let after = text.split_once(waiting).unwrap().1;
            !after.starts_with("0\r")
        });
    }

    /// Lets time pass in steps that are shorter than any limit here.
    pub(crate) fn pass(&self, ms: u64) {
        for _ in 0..ms / 500 {
            self.clock.advance_ms(500);
            self.settle();
        }
    }

    /// Returns when the loop has read the clock.
    fn settle(&self) {
        let mut peer = self.connect();
        for _ in 0..2 {
            send(&mut peer, b"PING\r\n");
            let answer = line(&mut peer);
            assert!(
                answer == "+PONG" || answer.starts_with("-NOAUTH"),
                "{answer}"
            );
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let Some(server) = self.server.take() else {
            return;
        };
        // The server waits for clients that still have a connection, for a time that has to pass.
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    self.clock.advance_ms(100);
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let stopped = server.stop();
            is_over.store(true, Ordering::Relaxed);
            stopped.unwrap();
        });
    }
}

pub(crate) fn send(peer: &mut InProcessPeer, mut bytes: &[u8]) {
    eventually("the request is taken", || {
        match peer.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        bytes.is_empty()
    });
}

/// Returns the next line of a reply.
pub(crate) fn line(peer: &mut InProcessPeer) -> String {
    let mut line = String::new();
    eventually("a line comes", || {
        let mut byte = [0];
        while peer.read(&mut byte).is_ok_and(|count| count > 0) {
            line.push(char::from(byte[0]));
            if line.ends_with("\r\n") {
                return true;
            }
        }
        false
    });
    line.trim_end().to_owned()
}

/// Returns the next reply, which is one string.
pub(crate) fn reply(peer: &mut InProcessPeer) -> String {
    let head = line(peer);
    let mut text = vec![0; head[1..].parse::<usize>().unwrap() + 2];
    let mut filled = 0;
    eventually("the string comes", || {
        if let Ok(count) = peer.read(&mut text[filled..]) {
            filled += count;
        }
        filled == text.len()
    });
    String::from_utf8(text).unwrap()
}

/// Returns whether the server has closed the connection. Discards received bytes.
pub(crate) fn is_closed(peer: &mut InProcessPeer) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match peer.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Returns whether the connection takes no more bytes because it was closed, without reading.
fn is_gone(peer: &mut InProcessPeer) -> bool {
    peer.write(b"\r\n")
        .is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[test]
fn output_above_the_soft_limit_is_suffered_for_its_time() {
    let rig = Rig::new(&["--client-output-buffer-limit", "normal 0 256kb 5"]);
    let mut deaf = rig.deaf();
    rig.pass(4_000);
    assert!(!is_gone(&mut deaf));
    rig.pass(3_000);
    eventually("its time is over", || {
        rig.clock.advance_ms(100);
        is_gone(&mut deaf)
    });
}

/// Returns a figure of INFO.
fn figure(peer: &mut InProcessPeer, name: &str) -> u64 {
    send(peer, b"INFO stats\r\n");
    let text = reply(peer);
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(field, _)| *field == name).unwrap().1;
    found.parse().unwrap()
}

/// If the time has come, the turn that finds a client above its limit also checks all clients that
/// hold memory.
#[test]
fn who_is_closed_at_a_limit_is_counted_once() {
    let rig = Rig::new(&["--client-query-buffer-limit", "1mb"]);
    let mut operator = rig.connect();
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 8 * BIG_BYTES);
    let part = vec![b'x'; BIG_BYTES / 16];
    for closed in 1..=20 {
        let mut greedy = rig.connect();
        send(&mut greedy, head.as_bytes());
        eventually("it is closed", || {
            rig.clock.advance_ms(200);
            let written = greedy.write(&part);
            written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
        });
        let count = figure(&mut operator, "client_query_buffer_limit_disconnections");
        assert_eq!(count, closed);
    }
}

#[test]
fn whoever_leaves_without_reading_is_given_up() {
    let rig = Rig::new(&[]);
    let mut deaf = rig.deaf();
    let mut operator = rig.connect();
    send(&mut operator, b"CLIENT KILL TYPE normal\r\n");
    assert!(line(&mut operator).starts_with(':'), "it is killed");
    rig.pass(8_000);
    assert!(!is_gone(&mut deaf), "it may still read");
    eventually("nobody waits for ever", || {
        rig.clock.advance_ms(500);
        is_gone(&mut deaf)
    });
}

#[test]
fn whoever_never_authenticates_is_closed() {
    let rig = Rig::new(&["--requirepass", "secret"]);
    let mut stranger = rig.connect();
    let mut friend = rig.connect();
    send(&mut friend, b"AUTH secret\r\n");
    assert_eq!(line(&mut friend), "+OK");
    send(&mut stranger, b"PING\r\n");
    assert!(line(&mut stranger).starts_with("-NOAUTH"));
    rig.pass(59_000);
    assert!(!is_closed(&mut stranger));
    // The client authenticated long ago and then resets its login: a new time limit begins.
    send(&mut friend, b"PING\r\nRESET\r\n");
    assert_eq!(line(&mut friend), "+PONG");
    assert_eq!(line(&mut friend), "+RESET");
    // No longer, because that limit would be over as well.
    rig.pass(5_000);
    eventually("its minute is over", || is_closed(&mut stranger));
    send(&mut friend, b"AUTH secret\r\n");
    assert_eq!(line(&mut friend), "+OK");
}

#[test]
fn only_silent_clients_time_out() {
    let rig = Rig::new(&["--timeout", "10"]);
    let mut silent = rig.connect();
    let mut talking = rig.connect();
    send(&mut silent, b"PING\r\n");
    assert_eq!(line(&mut silent), "+PONG");
    for _ in 0..4 {
        rig.pass(4_000);
        send(&mut talking, b"PING\r\n");
        assert_eq!(line(&mut talking), "+PONG");
    }
    eventually("it said nothing for too long", || is_closed(&mut silent));
    assert!(!is_closed(&mut talking));
}

#[test]
fn a_pause_is_as_long_as_was_asked() {
    let rig = Rig::new(&[]);
    let mut operator = rig.connect();
    send(&mut operator, b"CLIENT PAUSE 5000 WRITE\r\n");
    assert_eq!(line(&mut operator), "+OK");
    let mut writer = rig.connect();
    send(&mut writer, b"SET key value\r\n");
    rig.pass(4_500);
    send(&mut operator, b"EXISTS key\r\n");
    assert_eq!(line(&mut operator), ":0");
    rig.pass(1_000);
    assert_eq!(line(&mut writer), "+OK");
}

#[test]
fn setting_the_clock_back_or_forth_closes_nobody() {
    let rig = Rig::new(&["--requirepass", "secret"]);
    let mut stranger = rig.connect();
    for unix_ms in [1_600_000_000_000, 1_800_000_000_000] {
        rig.clock.set_unix_ms(unix_ms);
        rig.settle();
        send(&mut stranger, b"PING\r\n");
        assert!(line(&mut stranger).starts_with("-NOAUTH"));
    }
}
