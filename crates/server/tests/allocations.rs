//! Counts heap allocations of plain commands. A binary of its own, because it replaces the
//! allocator.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use base::clock::{Clock, ManualClock};
use base::random::Prng;
use durability::disk::Disk as _;
use durability::log::Log;
use durability::simulated::SimulatedDisk;
use engine::{ClientRecord, Engine, Session, Share};
use persistence::sink::LogSink;
use persistence::tail::Appended;
use protocol::{ReplyBuffer, encode_request};
use server::config::{Origin, Settings, SharedConfig};
use server::job::in_pieces;
use server::node::Node;
use server::port::Port;
use store::Store;

/// The system's allocator, with a count per thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn count(bytes: usize) {
    // A thread that is ending has no count any more, which does not matter.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = BYTES.try_with(|count| count.set(count.get() + bytes));
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps its guarantees.
// Counting touches a thread-local number and never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's guarantees are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One worker's engine with one session, without sockets.
struct Bench {
    node: Node,
    engine: Engine,
    session: Session,
    output: ReplyBuffer,
}

impl Bench {
    fn new() -> Self {
        // Time stands still. If the machine delayed a command, the command would be slow, and the
        // slow log allocates.
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
        let store = Store::new(&store::Options::default()).unwrap();
        let config = Arc::new(SharedConfig::new(Settings::default(), Origin::default()));
        let node = Node::new(testkit::table(), store, config, Arc::clone(&clock));
        let engine = Engine::new(
            node.core.env.table,
            node.core.store.handle(),
            Arc::clone(&node.core.shared),
            clock,
            Prng::seeded(1),
        );
        let client = ClientRecord::new(1, String::new(), String::new(), 0, -1, 0);
        let session = Session::new(Arc::new(client), true);
        Self {
            node,
            engine,
            session,
            output: ReplyBuffer::with_capacity(1 << 16),
        }
    }

    /// Runs a pipeline of requests `rounds` times. Returns the number of allocations meanwhile.
    fn run(&mut self, requests: &[u8], rounds: usize) -> u64 {
        let share = Share {
            requests_max: usize::MAX,
            reply_bytes_max: usize::MAX,
        };
        let before = allocations();
        for _ in 0..rounds {
            self.output.clear();
            let mut port = Port::new(&self.node, true);
            let (session, output) = (&mut self.session, &mut self.output);
            let outcome = self.engine.run(session, &mut port, requests, output, share);
            assert_eq!(outcome.consumed, requests.len());
        }
        allocations() - before
    }
}

/// Returns a pipeline for sixteen keys, each with one request of the given words; `$` stands for
/// the key.
fn pipeline(words: &[&str]) -> Vec<u8> {
    let mut requests = Vec::new();
    for number in 0..16 {
        let key = format!("key:{number:012}");
        let words: Vec<&[u8]> = words
            .iter()
            .map(|word| {
                if *word == "$" {
                    key.as_bytes()
                } else {
                    word.as_bytes()
                }
            })
            .collect();
        encode_request(&mut requests, &words);
    }
    requests
}

/// Heap memory returns to the system only if its neighbours are free, too. So all of it would
/// return in the turn that sends the last piece.
#[test]
fn the_pieces_of_a_long_reply_are_not_on_the_heap() {
    let reply = vec![b'x'; 64 << 20];
    let before = BYTES.with(Cell::get);
    let pieces = in_pieces(&reply);
    assert!(pieces.len() > 200);
    drop(pieces);
    let bytes = BYTES.with(Cell::get) - before;
    assert!(bytes < reply.len() / 1000, "{bytes} bytes on the heap");
}

/// The log takes effects without an allocation: frames are copied into memory that it keeps.
#[test]
fn plain_writes_with_a_log_do_not_allocate() {
    let mut bench = Bench::new();
    let disk = SimulatedDisk::new(1);
    disk.create_directory(Path::new("data")).unwrap();
    let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
    let options = durability::log::Options {
        segment_bytes: 1 << 20,
        chunk_bytes: 1 << 16,
        ..durability::log::Options::default()
    };
    let log = Log::open(Arc::new(disk), clock, Path::new("data/log"), 0, options).unwrap();
    let sink = LogSink::new(log.appender(), Appended::default());
    bench.engine.store().set_sink(Some(Box::new(sink)));
    let value = "x".repeat(100);
    for (name, words) in [("SET", &["SET", "$", &value][..]), ("INCR", &["INCR", "$"])] {
        // The value becomes a number for INCR.
        bench.run(&pipeline(&["SET", "$", "1"]), 1);
        let requests = pipeline(words);
        let mut allocated = 0;
        for round in 0..200 {
            let made = bench.run(&requests, 10);
            // The first rounds allocate memory that is then kept.
            allocated += if round < 20 { 0 } else { made };
            // Acts as the sync thread, which allocates memory ahead.
            log.request_sync(u64::MAX);
            log.sync_step();
            let tail = log.tail();
            assert_eq!((log.durable(), log.held_bytes()), (tail, 0));
            log.cut(tail).unwrap();
        }
        assert_eq!(allocated, 0, "{name} allocates");
        assert!(log.tail() > 1 << 20, "chunks and files were turned");
    }
}

#[test]
fn steady_plain_commands_do_not_allocate() {
    const ROUNDS: usize = 100_000 / 16;
    let mut bench = Bench::new();
    let value = "x".repeat(100);
    let cases: [(&str, &[&str]); 6] = [
        ("SET of the same size", &["SET", "$", &value]),
        ("GET", &["GET", "$"]),
        ("SET of a number", &["SET", "$", "1000"]),
        ("INCR", &["INCR", "$"]),
        ("GET of a number", &["GET", "$"]),
        ("a miss", &["GET", "missing"]),
    ];
    for (name, words) in cases {
        let requests = pipeline(words);
        bench.run(&requests, 10);
        assert_eq!(bench.run(&requests, ROUNDS), 0, "{name} allocates");
    }
}
