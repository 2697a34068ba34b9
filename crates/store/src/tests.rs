//! Tests of the whole store through its interface, and what they share.

mod collections;
mod demotion;
mod etags;
mod events;
mod eviction;
mod expiry;
mod following;
mod growing;
mod listening;
mod locking;
mod moving;
mod objects;
mod parking;
mod pieces;
mod snapshots;
mod stress;
mod twin;
mod walking;

use std::sync::{Arc, Mutex};

use base::hash::KeyHasher;

use crate::effect::EffectSink;
use crate::hasher::Hasher;
use crate::index::Shape;
use crate::key::DatabaseId;
use crate::store::{Options, Store};
use crate::value::Cause;

/// Parameters that force a store under test to its limits.
#[derive(Clone, Copy, Debug)]
struct Force {
    /// The table starts with `2^level` buckets.
    level: u32,
    /// Bits of a hash that are used.
    hash_mask: u64,
    /// Maximum number of buckets of the table.
    buckets_max: usize,
}

impl Force {
    /// One bucket at the start; otherwise as in production.
    const TINY: Self = Self {
        level: 0,
        hash_mask: u64::MAX,
        buckets_max: 1 << 20,
    };

    fn store(self, databases: DatabaseId) -> Arc<Store> {
        let shape = Shape {
            level: self.level,
            buckets_max: self.buckets_max,
            overflow_max: 1 << 16,
        };
        let hasher = Hasher::masked(KeyHasher::seeded(7), self.hash_mask);
        Store::with_shape(&Options { databases }, hasher, shape).unwrap()
    }
}

/// A call of a sink.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Command(DatabaseId, Vec<Vec<u8>>),
    Removed(DatabaseId, Vec<u8>, &'static str),
    Begin,
    End,
}

/// A sink that records its calls.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Told>>>);

impl Notes {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl EffectSink for Notes {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        let parts = parts.iter().map(|part| part.to_vec()).collect();
        self.0.lock().unwrap().push(Told::Command(database, parts));
    }

    fn removed(&mut self, database: DatabaseId, key: &[u8], cause: Cause) {
        let cause = match cause {
            Cause::Expired => "expired",
            Cause::Evicted => "evicted",
        };
        let told = Told::Removed(database, key.to_vec(), cause);
        self.0.lock().unwrap().push(told);
    }

    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]) {
        let name = [key, b"/", member].concat();
        let told = Told::Removed(database, name, "member expired");
        self.0.lock().unwrap().push(told);
    }

    fn group_begin(&mut self) {
        self.0.lock().unwrap().push(Told::Begin);
    }

    fn group_end(&mut self) {
        self.0.lock().unwrap().push(Told::End);
    }
}
