//! What of the log is kept for replicas that a primary knows: each one's place, also while it is away.
//!
//! A replica that comes back soon goes on where it was, whatever was saved meanwhile. How much is kept for that alone is
//! bounded (`repl-log-keep`): beyond it the pin is broken, and the replica is given everything when it comes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use durability::log::{Log, Pin};

/// So many replicas are remembered.
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
    /// A replica has the log on its disk up to a sequence.
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

    /// The log is another one from now on.
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
