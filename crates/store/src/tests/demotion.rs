//! Cold values, and their promotion when they are needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use structures::{Object, Set};

use super::{Force, Notes};
use crate::cold::{ColdKind, ColdValue, ColdValues, Locator};
use crate::demote::{DemotionHand, DemotionLimits};
use crate::handle::Handle;
use crate::value::{Deadline, Encoding, Kind, StoreError};

const ANY: DemotionLimits = DemotionLimits {
    value_bytes_min: 1,
    value_bytes_max: usize::MAX,
    object_bytes_max: 1 << 20,
    takes_used: true,
};

const LIMITS: structures::SetLimits = structures::SetLimits {
    intset_entries: 512,
    listpack_entries: 128,
    listpack_value_bytes: 64,
};

/// A key, and its value as bytes.
type Kept = (Vec<u8>, Vec<u8>);

/// Cold values in memory; for objects the members of a set.
#[derive(Debug, Default)]
struct Elsewhere {
    bodies: Mutex<HashMap<u32, Kept>>,
    loads: AtomicU64,
}

impl Elsewhere {
    fn keep(&self, key: &[u8], body: &[u8], kind: ColdKind) -> Locator {
        let mut bodies = self.bodies.lock().unwrap();
        let at = u32::try_from(bodies.len()).unwrap();
        bodies.insert(at, (key.to_vec(), body.to_vec()));
        Locator::new(1, kind, 0, at).unwrap()
    }

    fn lose_all(&self) {
        for (_, body) in self.bodies.lock().unwrap().values_mut() {
            body.clear();
        }
    }

    fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }
}

impl ColdValues for Elsewhere {
    fn load(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let bodies = self.bodies.lock().unwrap();
        let (own, body) = bodies.get(&locator.offset_units())?;
        assert_eq!(own, key, "another key's value");
        if body.is_empty() {
            return None;
        }
        if locator.kind().is_string() {
            return Some(Arc::new(ColdValue::Text(body.clone())));
        }
        let mut set = Set::default();
        for member in body.split(|byte| *byte == b',') {
            set.insert(member, &LIMITS).unwrap();
        }
        Some(Arc::new(ColdValue::Object(Object::Set(set))))
    }

    fn encode(&self, object: &Object) -> Option<Vec<u8>> {
        let Object::Set(set) = object else {
            return None;
        };
        let members: Vec<Vec<u8>> = set
            .iter()
            .map(|member| member.as_bytes().to_vec())
            .collect();
        Some(members.join(&b','))
    }

    fn forget(&self, locator: Locator) {
        let gone = self
            .bodies
            .lock()
            .unwrap()
            .insert(locator.offset_units(), (b"forgotten".to_vec(), Vec::new()));
        assert_ne!(gone.unwrap().0, b"forgotten", "forgotten twice");
    }

    fn pin(&self, _: Locator) {}

    fn unpin(&self, _: Locator) {}
}

fn store() -> (Handle, Arc<Elsewhere>) {
    let store = Force::TINY.store(2);
    let elsewhere = Arc::new(Elsewhere::default());
    assert!(store.set_cold_values(Arc::clone(&elsewhere) as _));
    (store.handle(), elsewhere)
}

fn demote(handle: &mut Handle, elsewhere: &Elsewhere, name: &str) -> bool {
    let key = handle.key(0, name.as_bytes());
    let Some(victim) = handle.victim_of(&key, &ANY) else {
        return false;
    };
    let locator = elsewhere.keep(&victim.key, &victim.body, victim.kind);
    handle.swap_cold(&victim, locator)
}

fn set(handle: &mut Handle, name: &str, value: &[u8], deadline: Deadline) {
    let key = handle.key(0, name.as_bytes());
    handle.upsert(&key, value, deadline, |_| ()).unwrap();
}

fn text(handle: &mut Handle, name: &str) -> Option<Vec<u8>> {
    let key = handle.key(0, name.as_bytes());
    handle.read(&key, |record| record.map(|record| record.to_vec()))
}

#[test]
fn a_cold_string_is_read_where_it_lies_and_changed_in_memory() {
    let (mut handle, elsewhere) = store();
    let value = vec![7; 300];
    set(&mut handle, "key", &value, Deadline::At(u64::MAX));
    let sink = Notes::default();
    handle.set_sink(Some(Box::new(sink.clone())));
    assert!(demote(&mut handle, &elsewhere, "key"));
    assert_eq!(handle.stubs(), 1);
    let key = handle.key(0, b"key");
    let told = handle.read(&key, |record| {
        let record = record.unwrap();
        (
            record.kind(),
            record.encoding(),
            record.len(),
            record.deadline_unix_ms(),
        )
    });
    assert_eq!(told, (Kind::String, Encoding::Raw, 300, Some(u64::MAX)));
    assert_eq!(elsewhere.loads(), 0, "asked for what the stub tells");
    assert_eq!(text(&mut handle, "key"), Some(value.clone()));
    assert_eq!(handle.stubs(), 1, "a look leaves it where it is");
    let len = handle.modify(&key, |entry| entry.append(b"tail"));
    assert_eq!((len, handle.stubs()), (Ok(304), 0));
    assert_eq!(
        text(&mut handle, "key"),
        Some([&value[..], b"tail"].concat())
    );
    let deadline = handle.read(&key, |record| record.unwrap().deadline_unix_ms());
    assert_eq!(deadline, Some(u64::MAX));
    assert!(sink.take().is_empty(), "nobody hears of it");
}

#[test]
fn what_needs_no_value_reads_none() {
    let (mut handle, elsewhere) = store();
    for name in ["set", "delete", "expire", "move"] {
        set(&mut handle, name, &[1; 200], Deadline::Never);
        assert!(demote(&mut handle, &elsewhere, name));
    }
    assert_eq!(handle.stubs(), 4);
    set(&mut handle, "set", b"other", Deadline::Never);
    let key = handle.key(0, b"delete");
    assert!(handle.modify(&key, |entry| entry.remove()));
    let key = handle.key(0, b"expire");
    handle
        .modify(&key, |entry| entry.set_deadline(Some(1_000)))
        .unwrap();
    assert_eq!((elsewhere.loads(), handle.stubs()), (0, 2));
    handle.begin(2_000);
    assert_eq!(text(&mut handle, "expire"), None);
    assert_eq!((elsewhere.loads(), handle.stubs()), (0, 1));
    handle.flush(Some(0));
    assert_eq!((elsewhere.loads(), handle.stubs()), (0, 0));
}

#[test]
fn a_record_that_was_changed_or_used_meanwhile_stays() {
    let (mut handle, elsewhere) = store();
    set(&mut handle, "key", &[1; 200], Deadline::Never);
    let key = handle.key(0, b"key");
    let victim = handle.victim_of(&key, &ANY).unwrap();
    set(&mut handle, "key", &[2; 200], Deadline::Never);
    let locator = elsewhere.keep(b"key", &victim.body, victim.kind);
    assert!(!handle.swap_cold(&victim, locator), "changed");
    let mut hand = DemotionHand::default();
    let mut victims = Vec::new();
    let limits = DemotionLimits {
        takes_used: false,
        ..ANY
    };
    while victims.is_empty() && handle.collect_victims(&mut hand, &limits, 1, &mut victims) {}
    while victims.is_empty() {
        handle.collect_victims(&mut hand, &limits, 1, &mut victims);
    }
    assert_eq!(text(&mut handle, "key"), Some(vec![2; 200]), "used");
    let locator = elsewhere.keep(b"key", &victims[0].body, victims[0].kind);
    assert!(!handle.swap_cold(&victims[0], locator), "used");
    assert_eq!(handle.stubs(), 0);
}

#[test]
fn all_values_of_a_bucket_go_that_were_copied_together() {
    let (mut handle, elsewhere) = store();
    for number in 0..200 {
        set(
            &mut handle,
            &format!("key {number}"),
            &[7; 200],
            Deadline::Never,
        );
    }
    let (mut hand, mut victims) = (DemotionHand::default(), Vec::new());
    while handle.collect_victims(&mut hand, &ANY, usize::MAX, &mut victims) {}
    assert_eq!(victims.len(), 200);
    for victim in &victims {
        let locator = elsewhere.keep(&victim.key, &victim.body, victim.kind);
        assert!(handle.swap_cold(victim, locator));
    }
    assert_eq!(handle.stubs(), 200);
    for number in 0..200 {
        let value = text(&mut handle, &format!("key {number}"));
        assert_eq!(value, Some(vec![7; 200]));
    }
}

#[test]
fn a_set_goes_and_comes_back_as_it_was() {
    let (mut handle, elsewhere) = store();
    let key = handle.key(0, b"set");
    handle
        .modify(&key, |entry| {
            entry.change_or_create(|set: &mut Set| {
                for number in 0..50 {
                    set.insert(format!("member {number}").as_bytes(), &LIMITS)
                        .unwrap();
                }
            })
        })
        .unwrap();
    let before = handle.read(&key, |record| record.unwrap().encoding());
    assert!(demote(&mut handle, &elsewhere, "set"));
    let told = handle.read(&key, |record| {
        let record = record.unwrap();
        (record.is_string(), record.encoding())
    });
    assert_eq!((told, elsewhere.loads()), ((false, before), 0));
    let len = handle.read(&key, |record| {
        record.unwrap().structure::<Set>().map(|set| set.len())
    });
    assert_eq!(len, Ok(50));
    let removed = handle.modify(&key, |entry| {
        entry.change(|set: &mut Set| set.remove(b"member 7"))
    });
    assert_eq!((removed, handle.stubs()), (Ok(Some(true)), 0));
}

#[test]
fn what_cannot_be_read_is_told_and_left_alone() {
    let (mut handle, elsewhere) = store();
    set(&mut handle, "key", &[1; 200], Deadline::Never);
    assert!(demote(&mut handle, &elsewhere, "key"));
    elsewhere.lose_all();
    let key = handle.key(0, b"key");
    let written = handle.modify(&key, |entry| entry.append(b"tail"));
    assert_eq!(written, Err(StoreError::Unreadable));
    assert!(crate::take_unreadable() && !crate::take_unreadable());
    assert_eq!(handle.stubs(), 1);
    set(&mut handle, "key", b"new", Deadline::Never);
    assert_eq!(text(&mut handle, "key"), Some(b"new".to_vec()));
}

#[test]
fn a_look_ahead_tells_which_values_are_in_memory() {
    let (mut handle, elsewhere) = store();
    // Enough keys that some are not in their home buckets.
    let names: Vec<String> = (0..500).map(|number| format!("key {number}")).collect();
    for name in &names {
        set(&mut handle, name, &[1; 200], Deadline::Never);
    }
    for name in names.iter().step_by(2) {
        assert!(demote(&mut handle, &elsewhere, name));
    }
    handle.enter();
    let ahead = handle.lookahead(0);
    let is_in_memory = |name: &str| ahead.is_in_memory(ahead.hash(name.as_bytes()));
    for (number, name) in names.iter().enumerate() {
        assert_eq!(is_in_memory(name), number % 2 == 1, "{name}");
    }
    assert!(is_in_memory("another"));
    assert!(handle.lookahead(1).is_in_memory(ahead.hash(b"key 0")));
    handle.leave();
}

#[test]
fn a_stub_that_is_put_in_is_found_and_a_place_is_named_in_whatever_database() {
    let (mut handle, elsewhere) = store();
    let kind = ColdKind::BYTES;
    let place = elsewhere.keep(b"key", &[3; 500], kind);
    let key = handle.key(1, b"key");
    let put = handle.modify(&key, |entry| entry.set_cold(place, 500, Some(u64::MAX), 7));
    assert_eq!((put, handle.stubs()), (Ok(()), 1));
    let told = handle.read(&key, |record| {
        let record = record.unwrap();
        (record.len(), record.deadline_unix_ms(), record.etag())
    });
    assert_eq!(told, (500, Some(u64::MAX), 7));
    assert_eq!(elsewhere.loads(), 0);
    let other = elsewhere.keep(b"key", &[3; 500], kind);
    assert!(handle.names(b"key", place) && !handle.names(b"key", other));
    assert!(!handle.relocate(b"other", place, other));
    assert!(handle.relocate(b"key", place, other));
    assert!(handle.names(b"key", other) && !handle.names(b"key", place));
    let value = handle.read(&key, |record| record.unwrap().to_vec());
    assert_eq!(value, vec![3; 500]);
    assert!(handle.modify(&key, |entry| entry.remove()));
    assert_eq!(handle.stubs(), 0);
}

#[test]
fn a_stub_tells_how_many_elements_there_are() {
    let (mut handle, elsewhere) = store();
    let key = handle.key(0, b"set");
    handle
        .modify(&key, |entry| {
            entry.change_or_create(|set: &mut Set| {
                for number in 0..200 {
                    set.insert(format!("member {number}").as_bytes(), &LIMITS)
                        .unwrap();
                }
            })
        })
        .unwrap();
    let len = |handle: &mut Handle, kind| {
        let key = handle.key(0, b"set");
        handle.read(&key, |record| record.unwrap().cold_len(kind))
    };
    assert_eq!(len(&mut handle, structures::Kind::Set), Ok(None));
    assert!(demote(&mut handle, &elsewhere, "set"));
    assert_eq!(len(&mut handle, structures::Kind::Set), Ok(Some(200)));
    let wrong = len(&mut handle, structures::Kind::Hash);
    assert_eq!(wrong, Err(StoreError::WrongKind));
    let bytes = handle.read(&key, |record| record.unwrap().len());
    assert_eq!((bytes, elsewhere.loads()), (0, 0), "a string's length");
    handle
        .modify(&key, |entry| entry.set_deadline(Some(u64::MAX)))
        .unwrap();
    assert_eq!(len(&mut handle, structures::Kind::Set), Ok(Some(200)));
}
