//! Checkpoints while workers want the cores. Durations are not checked, because they depend on the
//! machine.

use base::background::WorkerTurns;
use base::clock::SystemClock;
use durability::checkpoint::{PartHead, PartReader, PartWriter};
use rdb::{Reader, Style, Value, value, writer};
use store::Saved;
use structures::{EntryId, Stream};

use super::*;
use crate::bodies;

#[test]
fn a_checkpoint_ends_beside_workers_who_are_always_busy() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    let expected = contents(&store).len() as u64;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let background = Arc::new(Scheduler::of_machine(Arc::clone(&clock)));
    let checkpointer = Arc::new(Checkpointer::new(Setup {
        clock,
        background: Arc::clone(&background),
        ..setup(&store, disk.clone())
    }));
    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (mut handle, mut turns) =
                    (store.handle(), WorkerTurns::new(Arc::clone(&background)));
                while !is_over.load(Ordering::Relaxed) {
                    for number in 0..300 {
                        let name = format!("text:{number}");
                        let key = handle.key(number % 4, name.as_bytes());
                        let set = handle.upsert(&key, b"value:999", Deadline::Never, |_| ());
                        set.unwrap();
                    }
                    turns.ended();
                }
            });
        }
        for _ in 0..3 {
            let ticket = checkpointer.request(Why::LongLog).unwrap();
            let outcome = loop {
                match checkpointer.outcome(ticket) {
                    Some(outcome) => break outcome,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(outcome.result.unwrap().records(), expected);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    thread.stop();
    assert_eq!(load(&disk, 2).unwrap().1.records(), expected);
    assert!(!background.is_contended(), "nobody is left to give way to");
}

/// Notes whether a checkpoint begins urgently, or waits until it is urgent.
struct Noted {
    background: Arc<Scheduler>,
    waits: AtomicBool,
    was_urgent: AtomicBool,
}

impl Surroundings for Noted {
    fn prepare(&self) -> Result<(), String> {
        while self.waits.load(Ordering::Relaxed) && !self.background.is_urgent() {
            std::thread::yield_now();
        }
        let urgent = self.background.is_urgent();
        self.was_urgent.store(urgent, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn who_waits_for_a_checkpoint_has_it_made_in_a_hurry() {
    let store = store();
    let mut setup = setup(&store, device(1));
    let noted = Arc::new(Noted {
        background: Arc::clone(&setup.background),
        waits: AtomicBool::new(false),
        was_urgent: AtomicBool::new(false),
    });
    setup.surroundings = Arc::<Noted>::clone(&noted);
    let checkpointer = Arc::new(Checkpointer::new(setup));
    let was_urgent = || noted.was_urgent.load(Ordering::Relaxed);
    make(&checkpointer).unwrap();
    assert!(was_urgent() && !noted.background.is_urgent());

    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let ticket = checkpointer.request(Why::SavePoint).unwrap();
    while checkpointer.outcome(ticket).is_none() {
        std::thread::yield_now();
    }
    assert!(!was_urgent());

    noted.waits.store(true, Ordering::Relaxed);
    let ticket = checkpointer.request(Why::SavePoint).unwrap();
    checkpointer.wait(ticket).result.unwrap();
    assert!(was_urgent() && !noted.background.is_urgent());
    thread.stop();
}

/// Returns one object of each type, with so many elements of a hundred bytes and more.
fn objects(elements: usize) -> Vec<Object> {
    const TYPES: [(u8, usize, usize); 4] = [(1, 1, 0), (2, 1, 0), (4, 2, 0), (5, 1, 8)];
    let style = Style {
        version: 9,
        compresses: false,
    };
    let plain = TYPES.map(|(type_code, texts, score_bytes)| {
        let mut body = Vec::new();
        writer::write_length(elements, &mut body);
        for number in 0..elements * texts {
            writer::write_text(format!("{number:0100}").as_bytes(), style, &mut body);
            body.resize(body.len() + score_bytes, 0);
        }
        let limits = limits();
        let read = value::read(type_code, &mut Reader::new(&body, 9, &limits));
        let Ok(Value::Object(object)) = read else {
            panic!("type {type_code}: {read:?}");
        };
        object
    });
    let mut stream = Stream::new();
    for number in 0..elements as u64 {
        let text = format!("{number:0100}");
        let fields = [(&b"name"[..], text.as_bytes())];
        let id = EntryId::new(1, number + 1);
        let appended = stream
            .log_mut()
            .append(id, fields.into_iter(), limits().stream);
        appended.unwrap();
    }
    plain.into_iter().chain([Object::Stream(stream)]).collect()
}

/// Returns how often the writer paused while it wrote an object.
fn pauses_in(object: &Object) -> usize {
    let (disk, path) = (device(1), Path::new("/data/part"));
    let head = PartHead {
        value_version: bodies::STYLE.version,
        part: 0,
        generation: 1,
        created_unix_ms: NOW_UNIX_MS,
        lineage: Lineage([7; 20]),
    };
    let saved = Saved {
        database: 0,
        key: b"key",
        deadline_unix_ms: None,
        etag: 0,
        value: SavedValue::Object(object),
    };
    let mut part = PartWriter::create(&disk, path, head).unwrap();
    let mut pauses = 0;
    bodies::write(&saved, &mut part, &mut Vec::new(), || pauses += 1).unwrap();
    let (entry, _) = part.finish("part").unwrap();
    let mut reader = PartReader::open(&disk, path)
        .unwrap()
        .expect(&entry)
        .unwrap();
    while reader.next_block().unwrap().is_some() {}
    pauses
}

#[test]
fn others_are_let_in_while_a_long_object_is_written() {
    for (long, short) in objects(10_000).iter().zip(objects(2)) {
        // A megabyte, which takes some milliseconds.
        let pauses = pauses_in(long);
        assert!(pauses > 150, "{pauses} in {:?}", long.kind());
        assert_eq!(pauses_in(&short), 0);
    }
}
