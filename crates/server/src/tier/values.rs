//! Cold values for the store: read from the tier, or from the values that readers have loaded.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::Shared;
use persistence::cold_bodies;
use persistence::places::place_of;
use store::{ColdKind, ColdValue, ColdValues, Locator, Victim};
use structures::Object;
use tier::{EntryRead, OwnedEntry, Tier};

use super::Around;
use super::readers::{Readers, WantedValue};
use super::tuning::Tuning;
use crate::log::Log;

/// Cost of a loaded value besides its bytes.
const LOADED_COST: usize = 128;

/// Maximum number of failures that are logged.
const FAILURES_TOLD: u64 = 100;

/// Counters.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) demoted: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) blocking_reads: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) refused: AtomicU64,
}

/// See the module documentation.
pub(super) struct Values {
    tier: Arc<Tier>,
    shared: Arc<Shared>,
    log: Arc<Log>,
    readers: Arc<Readers>,
    tuning: Arc<Tuning>,
    loaded: Mutex<Loaded>,
    loaded_bytes_max: usize,
    pub(super) figures: Figures,
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

/// Identity of an entry, independent of the slot of its segment: the segment's ordinal, and the
/// offset in it.
pub(super) type Name = (u64, u32);

/// Values that were read for requests that are about to run, oldest first; `None` for a value that
/// cannot be read.
#[derive(Default)]
struct Loaded {
    values: HashMap<Name, Option<Arc<ColdValue>>>,
    order: VecDeque<(Name, usize)>,
    bytes: usize,
}

impl Values {
    pub(super) fn new(
        tier: &Arc<Tier>,
        around: &Around,
        (readers, tuning): (&Arc<Readers>, &Arc<Tuning>),
        loaded_bytes_max: usize,
    ) -> Self {
        Self {
            tier: Arc::clone(tier),
            shared: Arc::clone(&around.shared),
            log: Arc::clone(&around.log),
            readers: Arc::clone(readers),
            tuning: Arc::clone(tuning),
            loaded: Mutex::default(),
            loaded_bytes_max,
            figures: Figures::default(),
        }
    }

    /// Returns the name of an entry, while its segment exists.
    pub(super) fn name(&self, locator: Locator) -> Option<Name> {
        let ordinal = self.tier.ordinal(locator.slot())?;
        Some((ordinal, locator.offset_units()))
    }

    /// Returns the name of an entry, unless its value is loaded or is known to be unreadable.
    pub(super) fn unloaded(&self, locator: Locator) -> Option<Name> {
        let name = self.name(locator)?;
        (!self.lock().values.contains_key(&name)).then_some(name)
    }

    /// Reads a value for requests that wait for it. Returns `None` if its slot has another segment
    /// by now: the requests look the value up again.
    pub(super) fn preload(
        &self,
        key: &[u8],
        locator: Locator,
        name: Name,
    ) -> Option<Arc<ColdValue>> {
        let is_there = || self.name(locator) == Some(name);
        if !is_there() {
            return None;
        }
        let value = self.read(key, locator);
        if !is_there() {
            return None;
        }
        self.keep(name, value.clone(), loaded_bytes(locator));
        value
    }

    /// Records, for requests that wait for it, that a value cannot be read because there was no
    /// answer within `time`.
    pub(super) fn give_up(&self, name: Name, time: Duration) {
        self.tell_late(name, time);
        self.keep(name, None, LOADED_COST);
    }

    fn keep(&self, name: Name, value: Option<Arc<ColdValue>>, bytes: usize) {
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

    fn tell_late(&self, (ordinal, _): Name, time: Duration) {
        if self.figures.refused.fetch_add(1, Ordering::Relaxed) < FAILURES_TOLD {
            let ms = time.as_millis();
            self.log.warning(format_args!(
                "A value cannot be read from the tier: segment {ordinal:016x}, no answer within {ms} ms"
            ));
        }
    }

    /// Returns the result of a read for a request: the value, or that it could not be read.
    fn known(&self, name: Name) -> Option<Option<Arc<ColdValue>>> {
        let mut loaded = self.lock();
        let known = loaded.values.get(&name)?.clone();
        if known.is_none() {
            // A failure is reported only once: the next request reads the value again.
            loaded.values.remove(&name);
            if let Some(at) = loaded.order.iter().position(|(one, _)| *one == name)
                && let Some((_, bytes)) = loaded.order.remove(at)
            {
                loaded.bytes -= bytes;
            }
        }
        Some(known)
    }

    /// Makes the reader threads read a value, and waits for it.
    fn read_in_time(&self, key: &[u8], locator: Locator, name: Name) -> Option<Arc<ColdValue>> {
        let time = Duration::from_millis(self.tuning.now().read_timeout_ms);
        let wanted = WantedValue {
            key: key.to_vec(),
            locator,
            name,
        };
        match self.readers.read_now(wanted, time) {
            Some(Some(value)) => Some(value),
            Some(None) => {
                // This caller gets the failure, so it is removed.
                self.known(name);
                None
            }
            None if self.readers.is_over() => self.read(key, locator),
            None => {
                self.tell_late(name, time);
                None
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
        self.value_in(entry, locator)
    }

    fn value_in(&self, entry: OwnedEntry, locator: Locator) -> Option<Arc<ColdValue>> {
        if entry.kind != locator.kind().number() {
            return None;
        }
        if locator.kind().is_string() {
            return Some(Arc::new(ColdValue::Text(entry.body)));
        }
        let object = cold_bodies::decode(&entry.body, &self.shared.settings.value_limits())?;
        Some(Arc::new(ColdValue::Object(object)))
    }

    /// Returns the entry of a value, for a caller that reads through the kernel's ring.
    pub(super) fn entry_elsewhere(&self, wanted: &WantedValue) -> Option<EntryRead> {
        let place = place_of(wanted.locator);
        self.tier.entry_elsewhere(place, wanted.name.0)
    }

    /// Decodes a value from bytes that were read of its file from `from_bytes` on, and keeps it for
    /// the requests that wait for it. Returns `None`, and records nothing, if the bytes are not
    /// right.
    pub(super) fn arrived(
        &self,
        entry: &EntryRead,
        (read, from_bytes): (&[u8], u64),
        wanted: &WantedValue,
    ) -> Option<Arc<ColdValue>> {
        let found = entry.entry(read, from_bytes, &wanted.key).ok()?;
        let value = self.value_in(found, wanted.locator)?;
        self.figures.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = loaded_bytes(wanted.locator);
        self.keep(wanted.name, Some(Arc::clone(&value)), bytes);
        Some(value)
    }

    /// Logs that threads read for a worker from now on.
    pub(super) fn tell_broken_ring(&self, worker: usize, error: &std::io::Error) {
        self.log.warning(format_args!(
            "Worker {worker} reads from the tier by threads from now on, io_uring failed: {error}"
        ));
    }

    /// Whether a value keeps its form when it comes back: a table that shrank would come back as a
    /// short list.
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

/// Returns the cost of a loaded value.
fn loaded_bytes(locator: Locator) -> usize {
    LOADED_COST + usize::try_from(locator.units()).unwrap_or(0) * tier::UNIT_BYTES
}

impl ColdValues for Values {
    fn load(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        let Some(name) = self.name(locator) else {
            return self.read(key, locator);
        };
        if let Some(known) = self.known(name) {
            return known;
        }
        self.figures.blocking_reads.fetch_add(1, Ordering::Relaxed);
        self.read_in_time(key, locator, name)
    }

    fn load_in_background(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        let loaded = self.name(locator).and_then(|name| {
            let loaded = self.lock();
            loaded.values.get(&name).cloned().flatten()
        });
        loaded.or_else(|| self.read(key, locator))
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
mod tests;
