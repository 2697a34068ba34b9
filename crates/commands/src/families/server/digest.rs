//! DEBUG DIGEST and DEBUG DIGEST-VALUE: one number for the contents of the data set, however they
//! were written.
//!
//! It is the number that Redis and Valkey compute since 7.2, so that a copy on another server can
//! be compared:
//!
//! ```text
//!   add(sum, x)   sum ^= SHA1(x)                   what has no order: keys, members, fields
//!   mix(sum, x)   sum ^= SHA1(x), sum = SHA1(sum)  what has one: elements, a field and its value
//!
//!   value   mix type, then: string    mix it                list    mix each element
//!                           set       add each member       zset    add (mix member, mix score)
//!                           hash      add (mix field, mix value)   stream  mix id, fields, values
//!           and add "!!expire!!" if the key has a deadline
//!   all     for each database with keys: mix its number, add (mix key, value) of each
//! ```
//!
//! Neither deadlines themselves nor consumer groups are part of it. Expired keys are excluded,
//! whether they were removed yet or not.
//!
//! # One moment
//! DIGEST is of one moment: that of a snapshot, which is read concurrently with other work, or, in
//! a transaction with exclusive access to the store, that of the transaction. The keys of
//! DIGEST-VALUE are locked together.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::float::FloatText;
use base::hex;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use protocol::Reply;
use sha1_smol::Sha1;
use store::{
    Batch, DatabaseId, Ending, Key, Record, SavedValue, SnapshotLimits, SnapshotSink, SnapshotStep,
    Totals,
};
use structures::Object;

use super::debug::pass_as;

/// Size of a SHA-1 sum.
const SUM_BYTES: usize = 20;

/// Number of records visited in one step of a walk.
const STEP_RECORDS: usize = 1024;
/// Number of buckets visited in one step of a snapshot.
const STEP_BUCKETS: usize = 256;
/// Number of attempts to take a snapshot, in case other threads end it early.
const SNAPSHOTS_MAX: usize = 3;

/// Number of bytes that SHA-1 processes in the time of one look-up of an element.
const BYTES_PER_LOOKUP: usize = 128;

/// DEBUG DIGEST.
pub(super) fn of_everything(context: &mut Context<'_>, reply: &mut Reply<'_>) -> CommandResult {
    pass_as(context, b"DBSIZE")?;
    context.pace.admit_waiting()?;
    let now_unix_ms = context.now_unix_ms;
    let sum = if context.store.is_alone() {
        walked(context, now_unix_ms)
    } else {
        context.store.leave();
        let sum = snapshot(context, now_unix_ms);
        context.store.enter();
        sum?
    };
    reply.simple(&hex::text(&sum.0));
    Ok(())
}

/// DEBUG DIGEST-VALUE: the digest of each key by itself, zeros for an absent key.
pub(super) fn of_values(
    context: &mut Context<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    pass_as(context, b"MGET")?;
    let keys: Vec<Key<'_>> = args.rest().map(|name| context.key(name)).collect();
    // A string of zeros may take no memory.
    let bytes_of = |record: Option<&Record<'_>>| {
        record.map_or(0, |record| record.memory_bytes().max(record.len()))
    };
    let bytes: usize = keys
        .iter()
        .map(|key| context.store.inspect(key, bytes_of))
        .sum();
    context.pace.admit(keys.len() + bytes / BYTES_PER_LOOKUP)?;
    let body = |context: &mut Context<'_>| -> Vec<Sum> {
        let now_unix_ms = context.now_unix_ms;
        let sum_of = |record: Option<&Record<'_>>| {
            let mut sum = Sum::default();
            if let Some(record) = record.filter(|it| is_there(it.object().as_deref(), now_unix_ms))
            {
                sum.mix_record(record, now_unix_ms);
            }
            sum
        };
        keys.iter()
            .map(|key| context.store.inspect(key, sum_of))
            .collect()
    };
    let sums = if context.pace.is_aside {
        context.locked_long(&keys, body)
    } else {
        context.locked(&keys, body)
    };
    reply.array(sums.len());
    for sum in sums {
        reply.simple(&hex::text(&sum.0));
    }
    Ok(())
}

/// Walks all records. The caller has the store exclusively.
fn walked(context: &mut Context<'_>, now_unix_ms: u64) -> Sum {
    let mut sums = Sums::at(now_unix_ms);
    for database in 0..context.store.store().databases() {
        let mut cursor = 0;
        loop {
            let visit = |record: &Record<'_>| {
                if !is_there(record.object().as_deref(), now_unix_ms) {
                    return;
                }
                let mix = |sum: &mut Sum| sum.mix_record(record, now_unix_ms);
                sums.add_key(database, record.key(), mix);
            };
            cursor = context.store.scan(database, cursor, STEP_RECORDS, visit);
            if cursor == 0 {
                break;
            }
        }
    }
    sums.together()
}

/// Takes a snapshot and adds up its contents. The caller is outside of the store.
fn snapshot(context: &mut Context<'_>, now_unix_ms: u64) -> Result<Sum, CommandError> {
    for _ in 0..SNAPSHOTS_MAX {
        let taken = Arc::new(Mutex::new(Taken {
            sums: Sums::at(now_unix_ms),
            ending: None,
        }));
        // A snapshot in progress is completed first.
        while context
            .store
            .begin_snapshot(
                Box::new(Sink(Arc::clone(&taken))),
                SnapshotLimits::default(),
            )
            .is_err()
        {
            context.store.advance_snapshot(STEP_BUCKETS);
            context.server.rest();
        }
        while lock(&taken).ending.is_none() {
            match context.store.advance_snapshot(STEP_BUCKETS) {
                SnapshotStep::More => {}
                SnapshotStep::Idle | SnapshotStep::Later => context.server.rest(),
            }
        }
        let taken = lock(&taken);
        if taken.ending == Some(Ending::Complete) {
            return Ok(taken.sums.together());
        }
    }
    Err(CommandError::fixed(
        "ERR the data set changed more meanwhile than a snapshot may hold",
    ))
}

/// The result of a snapshot so far.
struct Taken {
    sums: Sums,
    ending: Option<Ending>,
}

struct Sink(Arc<Mutex<Taken>>);

impl SnapshotSink for Sink {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let sums = &mut lock(&self.0).sums;
        let now_unix_ms = sums.now_unix_ms;
        for saved in batch.records() {
            let object = match saved.value {
                SavedValue::Object(object) => Some(object),
                _ => None,
            };
            let is_expired = saved.deadline_unix_ms.is_some_and(|at| at <= now_unix_ms);
            if is_expired || !is_there(object, now_unix_ms) {
                continue;
            }
            let has_deadline = saved.deadline_unix_ms.is_some();
            sums.add_key(saved.database, saved.key, |sum| {
                sum.mix_saved(saved.value, has_deadline, now_unix_ms);
            });
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, _totals: &Totals) {
        lock(&self.0).ending = Some(ending);
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a value still exists. A hash is gone if all its fields have expired.
fn is_there(object: Option<&Object>, now_unix_ms: u64) -> bool {
    match object {
        Some(Object::Hash(hash)) => hash.iter(now_unix_ms).next().is_some(),
        _ => true,
    }
}

/// The sums of all databases, of keys in any order.
struct Sums {
    now_unix_ms: u64,
    /// Sums of the databases that have keys.
    databases: BTreeMap<DatabaseId, Sum>,
}

impl Sums {
    fn at(now_unix_ms: u64) -> Self {
        Self {
            now_unix_ms,
            databases: BTreeMap::new(),
        }
    }

    fn add_key(&mut self, database: DatabaseId, key: &[u8], mix_value: impl FnOnce(&mut Sum)) {
        let mut sum = Sum::of(key);
        mix_value(&mut sum);
        self.databases.entry(database).or_default().add(&sum.0);
    }

    /// Returns the sum of the whole data set.
    fn together(&self) -> Sum {
        let mut all = Sum::default();
        for (database, keys) in &self.databases {
            all.mix(&u32::from(*database).to_be_bytes());
            all.join(keys.0);
        }
        all
    }
}

/// A digest so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum([u8; SUM_BYTES]);

impl Sum {
    /// Returns the digest of a single ordered item.
    fn of(bytes: &[u8]) -> Self {
        let mut sum = Self::default();
        sum.mix(bytes);
        sum
    }

    fn join(&mut self, other: [u8; SUM_BYTES]) {
        let bytes = self.0.iter_mut().zip(other);
        bytes.for_each(|(byte, other)| *byte ^= other);
    }

    /// Adds an unordered item.
    fn add(&mut self, bytes: &[u8]) {
        self.join(Sha1::from(bytes).digest().bytes());
    }

    /// Adds an ordered item after the previous ones.
    fn mix(&mut self, bytes: &[u8]) {
        self.mix_hashed(&Sha1::from(bytes));
    }

    fn mix_hashed(&mut self, hashed: &Sha1) {
        self.join(hashed.digest().bytes());
        self.0 = Sha1::from(self.0).digest().bytes();
    }

    /// Adds a pair as one unordered item.
    fn add_pair(&mut self, first: &[u8], second: &[u8]) {
        self.add_pair_with(first, second, |_| ());
    }

    fn add_pair_with(&mut self, first: &[u8], second: &[u8], rest: impl FnOnce(&mut Self)) {
        let mut pair = Self::of(first);
        pair.mix(second);
        rest(&mut pair);
        self.add(&pair.0);
    }

    fn mix_record(&mut self, record: &Record<'_>, now_unix_ms: u64) {
        match record.object() {
            Some(object) => self.mix_object(&object, now_unix_ms),
            None => self.mix_text(|visit| record.for_each_chunk(0..record.len(), visit)),
        }
        self.add_deadline(record.deadline_unix_ms().is_some());
    }

    fn mix_saved(&mut self, value: SavedValue<'_>, has_deadline: bool, now_unix_ms: u64) {
        match value {
            SavedValue::Integer(number) => {
                let text = base::number::IntegerText::new(number);
                self.mix_text(|visit| visit(text.as_bytes()));
            }
            SavedValue::Bytes(bytes) => self.mix_text(|visit| visit(bytes)),
            SavedValue::Blob(blob) => self.mix_text(|visit| blob.chunks().for_each(visit)),
            SavedValue::Object(object) => self.mix_object(object, now_unix_ms),
            SavedValue::Unreadable => self.add(b"!!unreadable!!"),
        }
        self.add_deadline(has_deadline);
    }

    fn add_deadline(&mut self, is_there: bool) {
        if is_there {
            self.add(b"!!expire!!");
        }
    }

    /// Adds a string, in pieces.
    fn mix_text(&mut self, pieces: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        self.mix_type(0);
        let mut hashed = Sha1::new();
        pieces(&mut |piece| hashed.update(piece));
        self.mix_hashed(&hashed);
    }

    fn mix_type(&mut self, number: u32) {
        self.mix(&number.to_be_bytes());
    }

    fn mix_object(&mut self, object: &Object, now_unix_ms: u64) {
        match object {
            Object::List(list) => {
                self.mix_type(1);
                list.for_each(0..list.len(), |element| {
                    self.mix(element.text().as_bytes());
                });
            }
            Object::Set(set) => {
                self.mix_type(2);
                set.iter().for_each(|member| self.add(member.as_bytes()));
            }
            Object::SortedSet(set) => {
                self.mix_type(3);
                for scored in set.iter() {
                    let score = FloatText::digits(scored.score);
                    self.add_pair(scored.member.as_bytes(), score.as_bytes());
                }
            }
            Object::Hash(hash) => {
                self.mix_type(4);
                for field in hash.iter(now_unix_ms) {
                    self.add_pair_with(field.name.as_bytes(), field.value.as_bytes(), |pair| {
                        if field.deadline_unix_ms.is_some() {
                            pair.add(b"!!hexpire!!");
                        }
                    });
                }
            }
            Object::Stream(stream) => {
                self.mix_type(6);
                for entry in stream.log().iter() {
                    let id = format!("{}.{}", entry.id.ms, entry.id.seq);
                    self.mix(id.as_bytes());
                    for (field, value) in entry.fields() {
                        self.mix(field.text().as_bytes());
                        self.mix(value.text().as_bytes());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::Next;
    use testkit::engine_server::TestServer;

    #[test]
    fn the_way_to_the_data_does_not_matter() {
        let (mut one, mut other) = (TestServer::with_debug(), TestServer::with_debug());
        for line in [
            "SADD s a b 1 2",
            "ZADD z 1 a 2 b",
            "HSET h f 1 g 2",
            "SET k 12",
        ] {
            one.run(line);
        }
        for line in [
            "SET x 1",
            "SET k 1",
            "APPEND k 2",
            "HSET h g 2",
            "HSET h f 1",
            "ZADD z 5 b 1 a",
            "ZINCRBY z -3 b",
            "SADD s 2 1",
            "SADD s b a c",
            "SREM s c",
            "DEL x",
            "CONFIG SET set-max-listpack-entries 0",
        ] {
            other.run(line);
        }
        assert_eq!(one.run("DEBUG DIGEST"), other.run("DEBUG DIGEST"));
        other.run("SELECT 1");
        other.run("SET k 12");
        assert_ne!(one.run("DEBUG DIGEST"), other.run("DEBUG DIGEST"));
    }

    #[test]
    fn what_has_expired_is_not_there() {
        let mut server = TestServer::with_debug();
        server.run("SET k v");
        server.run("HSET h f v");
        let before = server.run("DEBUG DIGEST");
        let h = server.run("DEBUG DIGEST-VALUE h");
        server.run("SET gone v PX 5");
        server.run("HSET left f v");
        server.run("HPEXPIRE left 5 FIELDS 1 f");
        server.run("HSET h g v");
        server.run("HPEXPIRE h 5 FIELDS 1 g");
        assert_ne!(server.run("DEBUG DIGEST"), before);
        assert_ne!(server.run("DEBUG DIGEST-VALUE h"), h);
        server.advance_ms(5);
        for line in ["PING", "MULTI"] {
            server.run(line);
        }
        server.run("DEBUG DIGEST");
        server.run("DEBUG DIGEST-VALUE h gone left");
        let zeros = Value::Simple(vec![b'0'; 40]);
        let Value::Array(of_h) = h else {
            panic!("no array");
        };
        let values = Value::Array([of_h, vec![zeros.clone(), zeros]].concat());
        assert_eq!(
            server.run("EXEC"),
            Value::Array(vec![before.clone(), values])
        );
        assert_eq!(server.run("DEBUG DIGEST"), before);
    }

    #[test]
    fn a_field_with_a_deadline_counts_as_redis_7_4_counts_it() {
        let mut server = TestServer::with_debug();
        server.run("HSET h f v");
        let plain = server.run("DEBUG DIGEST");
        server.run("HEXPIRE h 100 FIELDS 1 f");
        let expiring = server.run("DEBUG DIGEST");
        assert_ne!(plain, expiring);
        server.run("HPERSIST h FIELDS 1 f");
        assert_eq!(server.run("DEBUG DIGEST"), plain);
    }

    #[test]
    fn a_worker_leaves_all_keys_and_long_values_aside() {
        let mut server = TestServer::of_worker();
        server.port.allows_debug = true;
        server.run("SET long x");
        assert_eq!(server.pipeline(&["DEBUG DIGEST-VALUE long"]).1, Next::Read);
        server.run("SETRANGE long 2000000 x");
        assert_eq!(server.pipeline(&["DEBUG DIGEST-VALUE long"]).1, Next::Aside);
        assert_eq!(server.pipeline(&["DEBUG DIGEST"]).1, Next::Aside);
        assert_eq!(server.pipeline(&["DEBUG POPULATE 100 a"]).1, Next::Read);
        assert_eq!(server.pipeline(&["DEBUG POPULATE 100000"]).1, Next::Aside);
    }

    #[test]
    fn not_while_data_is_loaded() {
        let mut server = TestServer::with_debug();
        server.shared.refusals.set_loading(true);
        for line in ["DEBUG DIGEST", "DEBUG DIGEST-VALUE a", "DEBUG POPULATE 1"] {
            assert!(server.error(line).starts_with("LOADING"), "{line}");
        }
    }
}
