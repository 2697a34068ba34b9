//! Cold values as the store asks for them: read from the tier, or from what readers have loaded.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::Shared;
use persistence::cold_bodies;
use persistence::places::place_of;
use store::{ColdKind, ColdValue, ColdValues, Locator, Victim};
use structures::Object;
use tier::Tier;

use super::Around;
use crate::log::Log;

/// What a value that was loaded costs besides its bytes.
const LOADED_COST: usize = 128;

/// Only so many failures are told in the log.
const FAILURES_TOLD: u64 = 100;

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) demoted: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) blocking_reads: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// See the module.
pub(super) struct Values {
    tier: Arc<Tier>,
    shared: Arc<Shared>,
    log: Arc<Log>,
    loaded: Mutex<Loaded>,
    loaded_bytes_max: usize,
    pub(super) figures: Figures,
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

/// Which entry, whatever slot its segment is in: name of the segment, and where in it.
pub(super) type Name = (u64, u32);

/// Values that were read for requests that are about to run, oldest first; none of what cannot be read.
#[derive(Default)]
struct Loaded {
    values: HashMap<Name, Option<Arc<ColdValue>>>,
    order: VecDeque<(Name, usize)>,
    bytes: usize,
}

impl Values {
    pub(super) fn new(tier: &Arc<Tier>, around: &Around, loaded_bytes_max: usize) -> Self {
        Self {
            tier: Arc::clone(tier),
            shared: Arc::clone(&around.shared),
            log: Arc::clone(&around.log),
            loaded: Mutex::default(),
            loaded_bytes_max,
            figures: Figures::default(),
        }
    }

    /// The name of an entry, while its segment is there.
    pub(super) fn name(&self, locator: Locator) -> Option<Name> {
        let ordinal = self.tier.ordinal(locator.slot())?;
        Some((ordinal, locator.offset_units()))
    }

    /// The name of an entry of which it is not known what its value is, or that it cannot be read.
    pub(super) fn unloaded(&self, locator: Locator) -> Option<Name> {
        let name = self.name(locator)?;
        (!self.lock().values.contains_key(&name)).then_some(name)
    }

    /// Reads a value for requests that wait for it. Nothing is read where its slot has another segment by now: the
    /// requests look for the value again.
    pub(super) fn preload(&self, key: &[u8], locator: Locator, name: Name) {
        let is_there = || self.name(locator) == Some(name);
        if !is_there() {
            return;
        }
        let value = self.read(key, locator);
        if !is_there() {
            return;
        }
        let bytes = LOADED_COST + usize::try_from(locator.units()).unwrap_or(0) * tier::UNIT_BYTES;
        let mut loaded = self.lock();
        if loaded.values.insert(name, value).is_none() {
            loaded.order.push_back((name, bytes));
            loaded.bytes += bytes;
        }
        while loaded.bytes > self.loaded_bytes_max && loaded.order.len() > 1 {
            if let Some((oldest, bytes)) = loaded.order.pop_front() {
                loaded.values.remove(&oldest);
                loaded.bytes -= bytes;
            }
        }
    }

    fn read(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        self.figures.reads.fetch_add(1, Ordering::Relaxed);
        let entry = match self.tier.read(place_of(locator), key) {
            Ok(entry) => entry,
            Err(fault) => {
                let counter = if fault.is_damage() {
                    &self.figures.damaged
                } else {
                    &self.figures.refused
                };
                if counter.fetch_add(1, Ordering::Relaxed) < FAILURES_TOLD {
                    self.log.warning(format_args!(
                        "A value cannot be read from the tier: {fault}"
                    ));
                }
                return None;
            }
        };
        if entry.kind != locator.kind().number() {
            return None;
        }
        if locator.kind().is_string() {
            return Some(Arc::new(ColdValue::Text(entry.body)));
        }
        let object = cold_bodies::decode(&entry.body, &self.shared.settings.value_limits())?;
        Some(Arc::new(ColdValue::Object(object)))
    }

    /// Whether a value is, when it comes back, kept as it was: a table that shrank would be a list of a few.
    pub(super) fn comes_back_as_it_is(&self, victim: &Victim) -> bool {
        victim.kind.is_string()
            || cold_bodies::decode(&victim.body, &self.shared.settings.value_limits())
                .and_then(|object| ColdKind::of_object(&object))
                == Some(victim.kind)
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ColdValues for Values {
    fn load(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        if let Some(name) = self.name(locator) {
            let mut loaded = self.lock();
            match loaded.values.get(&name) {
                Some(Some(value)) => return Some(Arc::clone(value)),
                Some(None) => {
                    // Told once; who asks again has it read again.
                    loaded.values.remove(&name);
                    if let Some(at) = loaded.order.iter().position(|(one, _)| *one == name)
                        && let Some((_, bytes)) = loaded.order.remove(at)
                    {
                        loaded.bytes -= bytes;
                    }
                    return None;
                }
                None => {}
            }
        }
        self.figures.blocking_reads.fetch_add(1, Ordering::Relaxed);
        self.read(key, locator)
    }

    fn encode(&self, object: &Object) -> Option<Vec<u8>> {
        Some(cold_bodies::encode(object))
    }

    fn forget(&self, locator: Locator) {
        self.tier.forget(place_of(locator));
    }

    fn pin(&self, locator: Locator) {
        self.tier.pin(locator.slot());
    }

    fn unpin(&self, locator: Locator) {
        self.tier.unpin(locator.slot());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use base::clock::ManualClock;
    use durability::disk::SystemDisk;
    use persistence::places::locator_of;
    use store::{Options, Store};
    use tier::{Entry, Place, TierOptions};

    use super::super::Wakes;
    use super::*;
    use crate::log::Level;

    struct Nobody;

    impl Wakes for Nobody {
        fn wake(&self, _: usize) {}

        fn wake_all(&self) {}
    }

    #[test]
    fn a_slot_that_has_another_segment_by_now_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let options = TierOptions {
            directory: directory.path().to_owned(),
            bytes_max: 1 << 30,
            segment_bytes: 64 << 10,
        };
        let tier = Arc::new(Tier::open(Arc::new(SystemDisk), &options).unwrap());
        tier.set_compresses(false);
        let around = Around {
            store: Store::new(&Options::default()).unwrap(),
            shared: Arc::default(),
            log: Arc::new(Log::new(Level::Warning, None)),
            clock: Arc::new(ManualClock::at_unix_ms(1)),
            requests: Arc::new(Nobody),
        };
        let values = Values::new(&tier, &around, 1 << 20);
        let append = |key: &[u8]| {
            let entry = Entry {
                kind: ColdKind::BYTES.number(),
                keyspace: 0,
                key,
                body: &[7; 50_000],
            };
            tier.append(&entry).unwrap()
        };
        let locator = |place: Place| locator_of(place, ColdKind::BYTES).unwrap();
        let old = append(b"old");
        let name = values.unloaded(locator(old)).unwrap();
        append(b"other");
        tier.forget(old);
        assert_eq!(tier.remove_dead(), 1);
        let new = append(b"new");
        assert_eq!(locator(new), locator(old), "told apart by its name alone");
        values.preload(b"old", locator(old), name);
        assert_eq!(values.figures.damaged.load(Ordering::Relaxed), 0);
        let value = values.load(b"new", locator(new));
        assert!(matches!(&*value.unwrap(), ColdValue::Text(text) if text.len() == 50_000));
    }
}
