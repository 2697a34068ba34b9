//! A snapshot and the effects from its generation on make up the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::random::Prng;

use super::super::Force;
use super::begin;
use crate::effect::EffectSink;
use crate::handle::Handle;
use crate::key::DatabaseId;
use crate::snapshot::{Collected, SnapshotStep};
use crate::store::Store;
use crate::value::{Cause, Deadline};

type Contents = BTreeMap<(DatabaseId, Vec<u8>), Vec<u8>>;

/// One effect: the value that a key has afterwards, or `None`.
struct Line {
    generation: u64,
    key: (DatabaseId, Vec<u8>),
    value: Option<Vec<u8>>,
}

/// The effects, in the order of the store for each key: they are written with the bucket held.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Applies the effects from `generation` on to `contents`.
    fn replay(&self, mut contents: Contents, generation: u64) -> Contents {
        let lines = self.0.lock().unwrap();
        for line in lines.iter().filter(|line| line.generation >= generation) {
            match &line.value {
                Some(value) => contents.insert(line.key.clone(), value.clone()),
                None => contents.remove(&line.key),
            };
        }
        contents
    }
}

/// One thread's access to the log.
struct Writer {
    log: Log,
    generation: u64,
}

impl Writer {
    fn write(&self, database: DatabaseId, key: &[u8], value: Option<&[u8]>) {
        self.log.0.lock().unwrap().push(Line {
            generation: self.generation,
            key: (database, key.to_vec()),
            value: value.map(<[u8]>::to_vec),
        });
    }
}

impl EffectSink for Writer {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        self.write(database, parts[0], parts.get(1).copied());
    }

    fn removed(&mut self, database: DatabaseId, key: &[u8], _: Cause) {
        self.write(database, key, None);
    }

    fn member_expired(&mut self, _: DatabaseId, _: &[u8], _: &[u8]) {}

    fn generation(&mut self, generation: u64) {
        self.generation = generation;
    }
}

fn handle(store: &Arc<Store>, log: &Log) -> Handle {
    let mut handle = store.handle();
    handle.begin(1_000);
    let log = log.clone();
    handle.set_sink(Some(Box::new(Writer { log, generation: 0 })));
    handle
}

/// Sets two keys as one step, or deletes one, again and again.
fn write(handle: &mut Handle, seed: u64, done: &AtomicBool) {
    let mut random = Prng::seeded(seed);
    let (mut now, mut round) = (1_000, 0_u64);
    while !done.load(Ordering::Relaxed) {
        round += 1;
        let names = [0; 2].map(|_: u8| format!("key:{}", random.below(3_000)));
        let database = DatabaseId::try_from(random.below(2)).unwrap();
        let keys = names
            .each_ref()
            .map(|name| handle.key(database, name.as_bytes()));
        let value = format!("{seed}:{round}").into_bytes();
        if random.below(4) == 0 {
            handle.delete(&keys[0], |entry| {
                entry.effect(|effect| effect.command(&[keys[0].bytes()]));
            });
        } else {
            let deadline = if round % 3 == 0 {
                Deadline::At(now + 20)
            } else {
                Deadline::Never
            };
            handle.locked(&keys, |handle| {
                for key in &keys {
                    let stated = handle.upsert(key, &value, deadline, |entry| {
                        entry.effect(|effect| effect.command(&[key.bytes(), &value]));
                    });
                    stated.unwrap();
                }
            });
        }
        if round % 64 == 0 {
            now += 1;
            handle.tick(now);
        }
    }
}

fn contents(sink: &Collected) -> Contents {
    let records = sink.complete().into_iter();
    records.map(|(key, (value, ..))| (key, value)).collect()
}

#[test]
fn a_snapshot_and_what_came_after_make_up_the_store() {
    let store = Force::TINY.store(2);
    let (log, done) = (Log::default(), AtomicBool::new(false));
    let mut snapshots = Vec::new();
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (store, log, done) = (&store, &log, &done);
            scope.spawn(move || write(&mut handle(store, log), seed, done));
        }
        let mut handle = store.handle();
        let (rounds, lines) = if cfg!(miri) { (2, 20) } else { (12, 2_000) };
        for round in 1..=rounds {
            while log.len() < round * lines {
                std::thread::yield_now();
            }
            let sink = begin(&mut handle);
            while handle.advance_snapshot(32) != SnapshotStep::Idle {
                std::thread::yield_now();
            }
            let (_, totals) = sink.state().ended.unwrap();
            snapshots.push((totals.generation, contents(&sink)));
        }
        done.store(true, Ordering::Relaxed);
    });
    let lines = log.len();
    let mut handle = store.handle();
    let last = begin(&mut handle);
    super::finish(&mut handle);
    let at_the_end = contents(&last);
    assert!(!at_the_end.is_empty() && lines == log.len());
    for (generation, then) in snapshots {
        let replayed = log.replay(then, generation);
        assert!(replayed == at_the_end, "from generation {generation} on");
    }
}
