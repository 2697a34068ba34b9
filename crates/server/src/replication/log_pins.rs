//! Keeps the part of the log that known replicas still need, also while they are disconnected.
//!
//! A replica that reconnects soon continues where it was, regardless of checkpoints made meanwhile.
//! The amount of log kept only for that is bounded (`repl-log-keep`): beyond it the pin is broken,
//! and the replica gets a full sync when it reconnects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use durability::log::{Log, Pin};

/// Maximum number of replicas with a pin.
const REPLICAS_MAX: usize = 256;

/// See the module.
#[derive(Default)]
pub(crate) struct LogPins {
    pins: Mutex<BTreeMap<String, Kept>>,
}

struct Kept {
    log: Arc<Log>,
    pin: Pin,
}

impl LogPins {
    /// Notes that a replica has the log on its disk up to a sequence.
    pub(crate) fn note(&self, replica: &str, log: &Arc<Log>, sequence: u64) {
        let mut pins = self.lock();
        if let Some(kept) = pins.get(replica)
            && Arc::ptr_eq(&kept.log, log)
            && !kept.pin.is_broken()
            && kept.pin.sequence() <= sequence
        {
            return kept.pin.advance(sequence);
        }
        pins.retain(|_, kept| Arc::ptr_eq(&kept.log, log) && !kept.pin.is_broken());
        if pins.len() < REPLICAS_MAX || pins.contains_key(replica) {
            let kept = Kept {
                log: Arc::clone(log),
                pin: log.pin(replica, sequence),
            };
            pins.insert(replica.to_owned(), kept);
        }
    }

    /// Drops all pins, because another log is in use from now on.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LogPins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.lock()
                    .iter()
                    .map(|(name, kept)| (name, kept.pin.sequence())),
            )
            .finish()
    }
}
