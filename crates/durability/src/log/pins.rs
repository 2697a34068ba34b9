//! Log files that are kept for readers that still need them.
//!
//! A checkpoint removes the log before it ([`Log::cut`]). A replica that has not read so far would
//! then need a full sync. So it pins the next sequence that it needs: files from there on stay,
//! while the bytes kept only for a pin are no more than [`Log::set_keep_bytes`] allows. Beyond that
//! the pin is broken for good, and its files are removed: a replica that is gone for long does not
//! fill the device.
//!
//! A pin that advances or ends removes nothing by itself: the next cut removes what it kept.

use std::fmt;
use std::sync::Arc;

use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::locks::lock;
use super::open_log::Log;

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

/// The state of a pin, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinState {
    /// Name of the pin's owner.
    pub name: String,
    /// Sequence from which on the log is kept.
    pub sequence: u64,
    /// Whether the pin no longer keeps anything.
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
    /// Calls `cut` with `sequence`, lowered to the lowest pin that is not broken. No pin can be
    /// made meanwhile.
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
    /// Keeps the files that hold anything from `sequence` on. If they are gone already, the pin is
    /// broken at once. A log that is only in memory keeps nothing for a pin.
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

    /// Sets how many bytes that would have been cut off are kept for a pin at most. Unlimited at
    /// first.
    pub fn set_keep_bytes(&self, bytes: u64) {
        self.pins.keep_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns all pins, the oldest first.
    #[must_use]
    pub fn pins(&self) -> Vec<PinState> {
        let pins = lock(&self.pins.pins);
        pins.iter().map(|pin| pin.state()).collect()
    }
}

impl Pin {
    /// Declares that nothing below `sequence` is needed any more. A pin never goes back.
    pub fn advance(&self, sequence: u64) {
        self.pinned.sequence.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Returns the sequence from which on the log is kept, if the pin is not broken.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.pinned.sequence.load(Ordering::Acquire)
    }

    /// Whether the pin no longer keeps anything, because there was too much to keep.
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
