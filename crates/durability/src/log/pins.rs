//! Files of the log that are kept for those who still read them.
//!
//! A checkpoint lets go of the log before it ([`Log::cut`]). A replica that has not read so far would need a full sync then, so
//! it pins the sequence that it needs next: files from there on stay, as long as what is kept for a pin alone is no more than
//! [`Log::set_keep_bytes`] says. Beyond that the pin is broken, for good, and its files go: a replica that is gone for long
//! does not fill the device.
//!
//! A pin that moves on or ends removes nothing by itself: what it kept goes with the next cut.

use std::fmt;
use std::sync::Arc;

use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Log, lock};

/// All pins of a log.
#[derive(Debug)]
pub(super) struct Pins {
    pins: Mutex<Vec<Arc<Pinned>>>,
    keep_bytes: AtomicU64,
}

#[derive(Debug)]
struct Pinned {
    name: String,
    sequence: AtomicU64,
    is_broken: AtomicBool,
}

/// Keeps the files of a log from a sequence on, until it is dropped. See the module.
pub struct Pin {
    log: Arc<Log>,
    pinned: Arc<Pinned>,
}

/// What there is to tell of a pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinState {
    /// Whose it is.
    pub name: String,
    /// What is kept from there on.
    pub sequence: u64,
    /// Nothing is kept any more.
    pub is_broken: bool,
}

impl Default for Pins {
    fn default() -> Self {
        Self {
            pins: Mutex::default(),
            keep_bytes: AtomicU64::new(u64::MAX),
        }
    }
}

impl Pins {
    /// Calls `cut` with the sequence up to which the log may go that is to go up to `sequence`. No pin is made meanwhile.
    pub(super) fn with_cut<R>(&self, sequence: u64, cut: impl FnOnce(u64) -> R) -> R {
        let pins = lock(&self.pins);
        let keep_bytes = self.keep_bytes.load(Ordering::Relaxed);
        let mut until = sequence;
        for pin in pins.iter().filter(|pin| !pin.is_broken()) {
            let pinned = pin.sequence.load(Ordering::Acquire);
            if sequence.saturating_sub(pinned) > keep_bytes {
                pin.is_broken.store(true, Ordering::Release);
            } else {
                until = until.min(pinned);
            }
        }
        cut(until)
    }
}

impl Pinned {
    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn state(&self) -> PinState {
        PinState {
            name: self.name.clone(),
            sequence: self.sequence.load(Ordering::Acquire),
            is_broken: self.is_broken(),
        }
    }
}

impl Log {
    /// Keeps the files that have anything from a sequence on. Where they are gone already the pin is broken at once. A log
    /// in memory alone keeps nothing for a pin.
    #[must_use]
    pub fn pin(self: &Arc<Self>, name: &str, sequence: u64) -> Pin {
        let mut pins = lock(&self.pins.pins);
        let pinned = Arc::new(Pinned {
            name: name.to_owned(),
            sequence: AtomicU64::new(sequence),
            is_broken: AtomicBool::new(self.oldest() > sequence),
        });
        pins.push(Arc::clone(&pinned));
        drop(pins);
        Pin {
            log: Arc::clone(self),
            pinned,
        }
    }

    /// How much is kept for a pin alone, at most: of the log that would have been cut off. Unlimited at first.
    pub fn set_keep_bytes(&self, bytes: u64) {
        self.pins.keep_bytes.store(bytes, Ordering::Relaxed);
    }

    /// All pins, the oldest first.
    #[must_use]
    pub fn pins(&self) -> Vec<PinState> {
        let pins = lock(&self.pins.pins);
        pins.iter().map(|pin| pin.state()).collect()
    }
}

impl Pin {
    /// Nothing below a sequence is needed any more. A pin never goes back.
    pub fn advance(&self, sequence: u64) {
        self.pinned.sequence.fetch_max(sequence, Ordering::AcqRel);
    }

    /// What is kept from there on, if the pin is not broken.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.pinned.sequence.load(Ordering::Acquire)
    }

    /// Nothing is kept any more: there was too much to keep.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.pinned.is_broken()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = lock(&self.log.pins.pins);
        pins.retain(|pin| !Arc::ptr_eq(pin, &self.pinned));
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pinned.fmt(f)
    }
}
