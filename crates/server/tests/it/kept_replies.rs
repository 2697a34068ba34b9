//! Tests of replies that leave only when the log has the writes that they show, with a log that the
//! test advances.

use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use persistence::tail::{Appended, BEFORE_LOG, Tail};
use reactor::InProcessPeer;
use store::{Cause, DatabaseId, EffectSink};

use crate::limits::eventually;
use crate::time::{Rig, is_closed, line, reply, send};

/// Size of each effect.
const EFFECT_BYTES: u64 = 10;

/// A log without a file.
#[derive(Default)]
struct Double {
    tail: AtomicU64,
    written: AtomicU64,
    durable: AtomicU64,
    /// The position up to which a sync was requested.
    requested: AtomicU64,
    /// Number of refused writes to the kernel.
    failures_count: AtomicU64,
    always: AtomicBool,
    is_full: AtomicBool,
    fault: Mutex<Option<String>>,
    /// Whether a fault ends as soon as it has been read.
    heals_at_once: AtomicBool,
    /// The code to run while the fault is read.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Tail for Double {
    fn tail(&self) -> u64 {
        self.tail.load(Ordering::SeqCst)
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst).max(BEFORE_LOG)
    }

    fn holds_replies(&self) -> bool {
        self.always.load(Ordering::SeqCst)
    }

    fn write_out(&self, up_to: u64) -> Result<(), String> {
        if let Some(reason) = self.fault() {
            self.failures_count.fetch_add(1, Ordering::SeqCst);
            return Err(reason);
        }
        self.written.fetch_max(up_to, Ordering::SeqCst);
        Ok(())
    }

    fn request_sync(&self, up_to: u64) {
        self.requested.fetch_max(up_to, Ordering::SeqCst);
    }

    fn fault(&self) -> Option<String> {
        if let Some(happens) = self.meanwhile.lock().unwrap().take() {
            happens();
        }
        let mut fault = self.fault.lock().unwrap();
        match self.heals_at_once.load(Ordering::SeqCst) {
            true => fault.take(),
            false => fault.clone(),
        }
    }

    fn has_room(&self, _: u64) -> bool {
        !self.is_full.load(Ordering::SeqCst)
    }

    fn sink(self: Arc<Self>, appended: &Appended) -> Box<dyn EffectSink> {
        Box::new(Sink(self, appended.clone()))
    }
}

struct Sink(Arc<Double>, Appended);

impl Sink {
    fn append(&self) {
        let before = self.0.tail.fetch_add(EFFECT_BYTES, Ordering::SeqCst);
        self.1.note(before + EFFECT_BYTES);
    }
}

impl EffectSink for Sink {
    fn command(&mut self, _: DatabaseId, _: &[&[u8]]) {
        self.append();
    }

    fn removed(&mut self, _: DatabaseId, _: &[u8], _: Cause) {
        self.append();
    }

    fn member_expired(&mut self, _: DatabaseId, _: &[u8], _: &[u8]) {
        self.append();
    }
}

/// A server with a log, on a clock that stands still.
struct Kept {
    rig: Rig,
    log: Arc<Double>,
}

impl Kept {
    fn new() -> Self {
        let kept = Self {
            rig: Rig::new(&[]),
            log: Arc::default(),
        };
        kept.use_log(true);
        kept
    }

    /// As `new`, with replies that wait for the disk.
    fn always() -> Self {
        let kept = Self::new();
        kept.log.always.store(true, Ordering::SeqCst);
        kept
    }

    fn use_log(&self, on: bool) {
        let log = Arc::clone(&self.log);
        self.rig.node().use_log(on.then_some(log as Arc<dyn Tail>));
        let node = self.rig.node();
        eventually("taken up", || node.keeping.log_in_use.is_taken_up());
    }

    /// Makes everything durable, and notifies the node.
    fn sync(&self) {
        let tail = self.log.tail();
        self.log.written.store(tail, Ordering::SeqCst);
        self.log.durable.store(tail, Ordering::SeqCst);
        self.rig.node().log_moved();
    }

    /// Makes the log fail, and notifies the node.
    fn fail(&self) {
        self.break_log();
        self.rig.node().log_moved();
    }

    /// Makes the log fail before the node knows.
    fn break_log(&self) {
        *self.log.fault.lock().unwrap() = Some("No space left on device".to_owned());
    }

    fn heal(&self) {
        *self.log.fault.lock().unwrap() = None;
        self.sync();
    }

    /// Sends a request, and waits until a sync of its effect is requested.
    fn send_and_wait(&self, peer: &mut InProcessPeer, request: &str) {
        self.log.requested.store(0, Ordering::SeqCst);
        tell(peer, request);
        eventually("a sync is asked for", || {
            let requested = self.log.requested.load(Ordering::SeqCst);
            requested > 0 && requested == self.log.tail()
        });
    }
}

fn tell(peer: &mut InProcessPeer, request: &str) {
    send(peer, format!("{request}\r\n").as_bytes());
}

/// Sends a request, and returns the first line of the reply.
fn ask(peer: &mut InProcessPeer, request: &str) -> String {
    tell(peer, request);
    line(peer)
}

#[track_caller]
fn expect_nothing(peer: &mut InProcessPeer) {
    let error = peer.read(&mut [0; 16]).expect_err("something left early");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

/// The log has ended meanwhile: nothing could end such a refusal.
#[test]
fn writes_are_not_refused_for_a_fault_of_a_log_that_has_ended() {
    let kept = Kept::new();
    let node = Arc::clone(kept.rig.node());
    let end = move || node.use_log(None);
    *kept.log.meanwhile.lock().unwrap() = Some(Box::new(end));
    kept.fail();
    assert!(!kept.rig.node().core.shared.refusals.is_log_faulty());
}

/// A thread that reads a fault may report it after the fault is over, behind the report of its end.
#[test]
fn writes_are_not_refused_for_a_fault_that_is_over() {
    let kept = Kept::new();
    kept.log.heals_at_once.store(true, Ordering::SeqCst);
    kept.fail();
    assert!(!kept.rig.node().core.shared.refusals.is_log_faulty());
}

const MISCONF: &str = "-MISCONF Errors writing to the log: No space left on device.";

#[test]
fn what_is_answered_is_in_the_kernel() {
    let kept = Kept::new();
    let mut peer = kept.rig.connect();
    for number in 1..20 {
        assert_eq!(ask(&mut peer, &format!("SET k {number}")), "+OK");
        assert_eq!(kept.log.written(), number * EFFECT_BYTES);
    }
    assert_eq!(kept.log.requested.load(Ordering::SeqCst), 0);
    assert_eq!(reply_of(&mut peer, "GET k"), "19");
    // Writes without a reply get to the kernel, too.
    tell(&mut peer, "CLIENT REPLY OFF");
    tell(&mut peer, "SET k last");
    eventually("written", || kept.log.written() == 20 * EFFECT_BYTES);
}

#[test]
fn a_served_client_hears_of_it_when_it_is_in_the_kernel() {
    let kept = Kept::new();
    let (mut waits, mut pushes) = (kept.rig.connect(), kept.rig.connect());
    tell(&mut waits, "BLPOP list 0");
    assert_eq!(ask(&mut pushes, "RPUSH list x"), ":1");
    assert_eq!(line(&mut waits), "*2");
    assert!(kept.log.tail() > 0);
    assert_eq!(kept.log.written(), kept.log.tail());
}

#[test]
fn replies_wait_for_the_disk_reads_too() {
    let kept = Kept::always();
    let (mut writes, mut reads) = (kept.rig.connect(), kept.rig.connect());
    assert_eq!(ask(&mut reads, "GET k"), "$-1");
    kept.send_and_wait(&mut writes, "SET k v");
    kept.send_and_wait(&mut reads, "GET k");
    // The pipeline continues after the held reply.
    kept.send_and_wait(&mut writes, "SET k w");
    for peer in [&mut writes, &mut reads] {
        expect_nothing(peer);
    }
    kept.log.durable.store(EFFECT_BYTES, Ordering::SeqCst);
    kept.rig.node().log_moved();
    assert_eq!(string(&mut reads), "v");
    assert_eq!(line(&mut writes), "+OK");
    expect_nothing(&mut writes);
    kept.sync();
    assert_eq!(line(&mut writes), "+OK");
    assert_eq!(ask(&mut reads, "PING"), "+PONG");
}

#[test]
fn only_who_asks_for_it_waits_for_the_disk() {
    let kept = Kept::new();
    let (mut asks, mut other) = (kept.rig.connect(), kept.rig.connect());
    assert_eq!(ask(&mut asks, "CLIENT DURABILITY ALWAYS"), "+OK");
    kept.send_and_wait(&mut asks, "SET k v");
    assert_eq!(ask(&mut other, "SET k w"), "+OK");
    expect_nothing(&mut asks);
    kept.sync();
    assert_eq!(line(&mut asks), "+OK");
    assert_eq!(ask(&mut asks, "CLIENT DURABILITY DEFAULT"), "+OK");
    assert_eq!(ask(&mut asks, "SET k v"), "+OK");
    assert!(kept.log.durable() < kept.log.tail());
}

#[test]
fn a_write_that_cannot_be_kept_is_not_acknowledged() {
    let kept = Kept::new();
    let (mut writes, mut reads) = (kept.rig.connect(), kept.rig.connect());
    assert_eq!(ask(&mut reads, "SET own v"), "+OK");
    kept.break_log();
    let before = kept.log.failures_count.load(Ordering::SeqCst);
    tell(&mut writes, "SET k v");
    eventually("refused by the log", || {
        kept.log.failures_count.load(Ordering::SeqCst) > before
    });
    assert_eq!(reply_of(&mut reads, "GET k"), "v");
    expect_nothing(&mut writes);
    kept.fail();
    assert!(ask(&mut reads, "SET k w").starts_with(MISCONF));
    assert_eq!(reply_of(&mut reads, "GET own"), "v");
    expect_nothing(&mut writes);
    kept.rig.clock().advance_ms(150);
    assert!(line(&mut writes).starts_with(MISCONF));
    eventually("closed", || is_closed(&mut writes));
    assert_eq!(reply_of(&mut reads, "GET k"), "v");
    kept.heal();
    assert_eq!(ask(&mut reads, "SET k w"), "+OK");
}

#[test]
fn a_fault_that_heals_in_time_costs_nothing_but_time() {
    let kept = Kept::always();
    let (mut writes, mut reads) = (kept.rig.connect(), kept.rig.connect());
    kept.send_and_wait(&mut writes, "SET k v");
    kept.send_and_wait(&mut reads, "GET k");
    kept.fail();
    // A reply that only read need not wait for what cannot happen.
    assert_eq!(string(&mut reads), "v");
    expect_nothing(&mut writes);
    kept.rig.clock().advance_ms(50);
    assert_eq!(reply_of(&mut reads, "GET k"), "v");
    expect_nothing(&mut writes);
    kept.heal();
    assert_eq!(line(&mut writes), "+OK");
    assert_eq!(ask(&mut reads, "PING"), "+PONG");
    kept.rig.clock().advance_ms(500);
    assert_eq!(ask(&mut writes, "PING"), "+PONG");
}

#[test]
fn writes_wait_for_room_and_reads_do_not() {
    let kept = Kept::new();
    let (mut writes, mut reads) = (kept.rig.connect(), kept.rig.connect());
    kept.log.is_full.store(true, Ordering::SeqCst);
    tell(&mut writes, "SET k v");
    eventually("blocked", || {
        tell(&mut reads, "INFO clients");
        reply(&mut reads).contains("blocked_clients:1\r")
    });
    assert_eq!(ask(&mut reads, "GET k"), "$-1");
    kept.log.is_full.store(false, Ordering::SeqCst);
    kept.sync();
    assert_eq!(line(&mut writes), "+OK");
    assert_eq!(reply_of(&mut reads, "GET k"), "v");
    // Without the log there is nothing to wait for.
    kept.log.is_full.store(true, Ordering::SeqCst);
    tell(&mut writes, "SET k w");
    eventually("blocked", || {
        tell(&mut reads, "INFO clients");
        reply(&mut reads).contains("blocked_clients:1\r")
    });
    kept.fail();
    assert!(line(&mut writes).starts_with(MISCONF));
}

#[test]
fn waitaof_tells_the_truth() {
    let kept = Kept::new();
    let (mut peer, mut other) = (kept.rig.connect(), kept.rig.connect());
    assert_eq!(ask(&mut other, "SET k v"), "+OK");
    // A client that wrote nothing waits for nothing.
    assert_eq!(array(&mut peer, "WAITAOF 1 0 0"), [":1", ":0"]);
    assert_eq!(ask(&mut peer, "SET k v"), "+OK");
    assert_eq!(array(&mut peer, "WAITAOF 0 0 0"), [":0", ":0"]);
    kept.send_and_wait(&mut peer, "WAITAOF 1 0 0");
    expect_nothing(&mut peer);
    kept.sync();
    assert_eq!(["*2", ":1", ":0"], [(); 3].map(|()| line(&mut peer)));
    // The write and WAITAOF are sent together, and then the time expires.
    kept.send_and_wait(&mut peer, "SET k w\r\nWAITAOF 1 0 70");
    assert_eq!(line(&mut peer), "+OK");
    kept.rig.clock().advance_ms(100);
    assert_eq!(["*2", ":0", ":0"], [(); 3].map(|()| line(&mut peer)));
    // There are no replicas. The sync is requested all the same, and the write may be durable by
    // then.
    kept.send_and_wait(&mut peer, "SET k w\r\nWAITAOF 1 1 70");
    assert_eq!(line(&mut peer), "+OK");
    assert_eq!(kept.log.requested.load(Ordering::SeqCst), kept.log.tail());
    kept.sync();
    expect_nothing(&mut peer);
    kept.rig.clock().advance_ms(100);
    assert_eq!(["*2", ":1", ":0"], [(); 3].map(|()| line(&mut peer)));
    kept.send_and_wait(&mut peer, "SET k w\r\nWAITAOF 1 0 0");
    assert_eq!(line(&mut peer), "+OK");
    kept.use_log(false);
    assert!(line(&mut peer).starts_with("-ERR WAITAOF cannot be used"));
    assert!(ask(&mut peer, "WAITAOF 1 0 0").starts_with("-ERR WAITAOF cannot be used"));
}

#[test]
fn what_a_log_kept_back_leaves_when_it_is_durable_though_the_log_is_not_in_use() {
    let kept = Kept::always();
    let (mut peer, mut other) = (kept.rig.connect(), kept.rig.connect());
    kept.send_and_wait(&mut peer, "SET k v");
    kept.use_log(false);
    tell(&mut other, "SET own v");
    for peer in [&mut peer, &mut other] {
        expect_nothing(peer);
    }
    kept.sync();
    assert_eq!(line(&mut peer), "+OK");
    assert_eq!(line(&mut other), "+OK");
    // Nothing is appended, and no client waits.
    let tail = kept.log.tail();
    assert_eq!(ask(&mut peer, "SET k w"), "+OK");
    assert_eq!(kept.log.tail(), tail);
    kept.use_log(true);
    kept.send_and_wait(&mut peer, "SET k x");
    expect_nothing(&mut peer);
    kept.sync();
    assert_eq!(line(&mut peer), "+OK");
}

/// Sends a request, and returns its reply, which is a string.
fn reply_of(peer: &mut InProcessPeer, request: &str) -> String {
    tell(peer, request);
    string(peer)
}

fn string(peer: &mut InProcessPeer) -> String {
    reply(peer).trim_end().to_owned()
}

fn array(peer: &mut InProcessPeer, request: &str) -> Vec<String> {
    let head = ask(peer, request);
    let count = head[1..].parse().unwrap();
    (0..count).map(|_| line(peer)).collect()
}
