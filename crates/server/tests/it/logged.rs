//! Tests that acknowledged writes are in the log at each level, with the real log on a device that
//! loses power, fills up and fails.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base::clock::SystemClock;
use durability::disk::Disk;
use durability::log::{Level, Log, Options, Reader};
use durability::simulated::{Fault, SimulatedDisk};
use persistence::log_tail::LogTail;
use protocol::encode_arguments;
use reactor::InProcessPeer;

use crate::limits::eventually;
use crate::recovery::Directory;
use crate::time::{Rig, is_closed, line, reply, send};

const DIRECTORY: &str = "log";

/// A server with a log on a simulated device.
struct Logged {
    rig: Rig,
    disk: SimulatedDisk,
    log: Arc<Log>,
    stop: Arc<AtomicBool>,
    syncer: Option<JoinHandle<()>>,
}

impl Logged {
    fn new(threads: &str, level: Level) -> Self {
        Self::with(&["--threads", threads], level)
    }

    fn with(args: &[&str], level: Level) -> Self {
        let rig = Rig::new(args);
        let disk = SimulatedDisk::new(7);
        let clock = Arc::new(SystemClock::new());
        let device: Arc<dyn Disk> = Arc::new(disk.clone());
        let options = Options {
            segment_bytes: 64 * 1024,
            ..Options::default()
        };
        let log = Log::open(device, clock, Path::new(DIRECTORY), 0, options).unwrap();
        // Making the name of the log's directory durable is up to its creator.
        disk.settle();
        log.set_level(level);
        let stop = Arc::new(AtomicBool::new(false));
        let syncer = {
            let (log, stop) = (Arc::clone(&log), Arc::clone(&stop));
            thread::spawn(move || log.run_syncer(&stop))
        };
        let told = Arc::downgrade(rig.node());
        log.on_durable(Box::new(move |_| {
            if let Some(node) = told.upgrade() {
                node.log_moved();
            }
        }));
        let tail = LogTail::new(Arc::clone(&log), Arc::new(AtomicBool::new(true)));
        rig.node().use_log(Some(Arc::new(tail)));
        eventually("taken up", || rig.node().keeping.log_in_use.is_taken_up());
        Self {
            rig,
            disk,
            log,
            stop,
            syncer: Some(syncer),
        }
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.log.wake_syncer();
        if let Some(syncer) = self.syncer.take() {
            syncer.join().unwrap();
        }
    }
}

/// Returns the canonical commands in the log of a device, as requests.
fn commands_on(disk: &SimulatedDisk) -> HashSet<Vec<u8>> {
    let device: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut reader = Reader::open(device, Path::new(DIRECTORY), 0).unwrap();
    let mut commands = HashSet::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        commands.extend(frame.effects().map(|effect| {
            let mut request = Vec::new();
            encode_arguments(&mut request, effect.parts);
            request
        }));
    }
    commands
}

/// Returns a request that is its own effect.
fn set(key: &str, value: usize) -> Vec<u8> {
    let value = value.to_string();
    let (key_bytes, value_bytes) = (key.len(), value.len());
    format!("*3\r\n$3\r\nSET\r\n${key_bytes}\r\n{key}\r\n${value_bytes}\r\n{value}\r\n")
        .into_bytes()
}

fn ask(peer: &mut InProcessPeer, request: &str) -> String {
    send(peer, format!("{request}\r\n").as_bytes());
    line(peer)
}

/// Writes until `is_over` is set, and records the acknowledged writes.
fn write_on(
    mut peer: InProcessPeer,
    name: &str,
    acknowledged: &Mutex<Vec<Vec<u8>>>,
    is_over: &AtomicBool,
) {
    const DEPTH: usize = 4;
    for number in (0..).step_by(DEPTH) {
        let requests: Vec<_> = (number..number + DEPTH)
            .map(|number| set(&format!("{name}:{number}"), number))
            .collect();
        let sent = requests.concat();
        if peer.write(&sent).is_ok_and(|count| count < sent.len()) {
            return;
        }
        let (mut received, expected) = (Vec::new(), b"+OK\r\n".len() * DEPTH);
        let mut buffer = [0; 64];
        while received.len() < expected {
            match peer.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(_) if is_over.load(Ordering::SeqCst) => return,
                Err(_) => thread::sleep(Duration::from_micros(20)),
            }
        }
        if received != b"+OK\r\n".repeat(DEPTH) {
            return;
        }
        acknowledged.lock().unwrap().extend(requests);
    }
}

/// Writes from several clients to two workers, with a power cut meanwhile. Returns how many writes
/// were acknowledged before it, and how many of these are lost.
fn power_cut(level: Level, seed: u64) -> (usize, usize) {
    let logged = Logged::new("2", level);
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let peer = logged.rig.connect();
            let (acknowledged, is_over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
            thread::spawn(move || {
                write_on(peer, &format!("client{client}"), &acknowledged, &is_over);
            })
        })
        .collect();
    let wanted = 200 + 100 * usize::try_from(seed).unwrap();
    eventually("enough is acknowledged", || {
        acknowledged.lock().unwrap().len() >= wanted
    });
    // Under this lock, no client can record an acknowledgement of anything that happens after the
    // crash.
    let (kept, found) = {
        let acknowledged = acknowledged.lock().unwrap();
        (acknowledged.clone(), logged.disk.crash(seed))
    };
    is_over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    let commands = commands_on(&found);
    let lost = kept.iter().filter(|request| !commands.contains(*request));
    (kept.len(), lost.count())
}

#[test]
fn what_is_acknowledged_at_always_survives_a_power_cut() {
    for seed in 0..4 {
        let (acknowledged, lost) = power_cut(Level::Always, seed);
        assert_eq!(lost, 0, "of {acknowledged} with seed {seed}");
    }
}

/// The test above can fail: it does if no reply waits for the disk.
#[test]
fn what_is_acknowledged_without_the_disk_does_not() {
    let lost = (0..20).map(|seed| power_cut(Level::Os, seed % 4).1);
    assert!(lost.into_iter().any(|lost| lost > 0));
}

#[test]
fn without_waiting_for_the_disk_what_is_acknowledged_is_in_the_kernel() {
    for level in [Level::Os, Level::EverySecond] {
        let logged = Logged::new("2", level);
        let mut peers = [logged.rig.connect(), logged.rig.connect()];
        let mut requests = Vec::new();
        for number in 0..50 {
            for (name, peer) in ["a", "b"].iter().zip(&mut peers) {
                let request = set(&format!("{name}{number}"), number);
                send(peer, &request);
                assert_eq!(line(peer), "+OK");
                requests.push(request);
            }
        }
        // As after the end of this process: everything that was written to the device is there.
        let commands = commands_on(&logged.disk);
        assert!(requests.iter().all(|request| commands.contains(request)));
    }
}

#[test]
fn a_full_disk_refuses_writes_and_heals() {
    for level in [Level::EverySecond, Level::Always] {
        let logged = Logged::new("1", level);
        let (mut writes, mut reads) = (logged.rig.connect(), logged.rig.connect());
        assert_eq!(ask(&mut writes, "SET k v"), "+OK");
        logged
            .disk
            .fail(logged.disk.operations()..u64::MAX, Fault::Full);
        send(&mut writes, &set("lost", 1));
        eventually("there is a fault", || {
            // The write itself may not have reached the device yet.
            logged.log.request_sync(logged.log.tail());
            logged.log.fault().is_some()
        });
        eventually("writes are refused", || {
            ask(&mut reads, "DEL other").starts_with("-MISCONF Errors writing to the log: ")
        });
        send(&mut reads, b"GET k\r\n");
        assert_eq!(reply(&mut reads), "v\r\n");
        // The command was refused, or it ran. If it ran, its reply is OK if the write was in the
        // kernel, and an error otherwise.
        let mut first = [0];
        eventually("answered", || {
            logged.rig.clock().advance_ms(150);
            writes.read(&mut first).is_ok_and(|count| count > 0)
        });
        let answer = format!("{}{}", char::from(first[0]), line(&mut writes));
        let has_run = ask(&mut reads, "EXISTS lost") == ":1";
        if answer == "+OK" {
            assert!(has_run && level == Level::EverySecond);
        } else {
            assert!(answer.starts_with("-MISCONF"), "{answer}");
        }
        if answer != "+OK" && has_run {
            eventually("closed", || is_closed(&mut writes));
        }
        logged.disk.heal();
        eventually("writes are taken again", || {
            ask(&mut reads, "SET k w") == "+OK"
        });
        logged.log.close().unwrap();
        let commands = commands_on(&logged.disk.crash(1));
        // What was executed is in memory, and so it is in the log.
        assert_eq!(commands.contains(&set("lost", 1)), has_run);
        let last = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nw\r\n";
        assert!(commands.contains(&last[..]));
    }
}

#[test]
fn the_operator_is_told_of_a_full_disk_and_of_its_end() {
    let directory = Directory::new();
    let file = directory.0.join("told");
    let logged = Logged::with(&["--logfile", file.to_str().unwrap()], Level::EverySecond);
    let mut client = logged.rig.connect();
    let told = |part: &str| {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter(|line| line.contains(part)).count()
    };
    let full = logged.disk.operations()..u64::MAX;
    logged.disk.fail(full, Fault::Full);
    send(&mut client, &set("k", 1));
    eventually("it is told", || {
        // The write itself may not have reached the device yet.
        logged.log.request_sync(logged.log.tail());
        told("The log cannot be written: log/") == 1
    });
    logged.disk.heal();
    eventually("its end as well", || {
        told("The log can be written again") == 1
    });
    assert_eq!(told("The log cannot be written"), 1, "once");
}

#[test]
fn waitaof_and_durability_wait_for_the_disk_only_when_asked() {
    let logged = Logged::new("1", Level::Os);
    let mut peer = logged.rig.connect();
    assert_eq!(ask(&mut peer, "SET k 1"), "+OK");
    assert_eq!(ask(&mut peer, "WAITAOF 1 0 0"), "*2");
    assert_eq!([line(&mut peer), line(&mut peer)], [":1", ":0"]);
    assert_eq!(logged.log.durable(), logged.log.tail());
    assert_eq!(ask(&mut peer, "CLIENT DURABILITY ALWAYS"), "+OK");
    for number in 0..20 {
        assert_eq!(ask(&mut peer, &format!("SET k {number}")), "+OK");
        assert_eq!(logged.log.durable(), logged.log.tail());
    }
}
