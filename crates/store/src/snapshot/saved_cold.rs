//! A value that was cold when it was saved: its locator, and a pin that keeps it there.

use std::sync::{Arc, OnceLock};

use super::batch::SavedValue;
use crate::cold::{COLD_UNIT_BYTES, ColdValue, ColdValues, Locator};

/// A value that a snapshot saw as a stub; it is loaded on demand.
#[derive(Debug)]
pub struct SavedCold {
    values: Arc<dyn ColdValues>,
    locator: Locator,
    len: usize,
    value: OnceLock<Option<Arc<ColdValue>>>,
}

impl SavedCold {
    pub(super) fn new(values: &Arc<dyn ColdValues>, word: u64, len: usize) -> Self {
        let locator = Locator::from_word(word);
        values.pin(locator);
        Self {
            values: Arc::clone(values),
            locator,
            len,
            value: OnceLock::new(),
        }
    }

    /// The value's locator, valid as long as this lives.
    #[must_use]
    pub fn locator(&self) -> Locator {
        self.locator
    }

    /// Length of the string, or number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the value is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Length of the entry in bytes.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.locator.units()) * COLD_UNIT_BYTES as u64
    }

    /// Reads and returns the value, which stays in memory.
    #[must_use]
    pub fn value(&self, key: &[u8]) -> SavedValue<'_> {
        let value = self
            .value
            .get_or_init(|| self.values.load_in_background(key, self.locator));
        value
            .as_deref()
            .map_or(SavedValue::Unreadable, SavedValue::of_cold)
    }

    /// As [`SavedCold::value`], for a caller that keeps the value no longer than it needs it.
    #[must_use]
    pub fn load(&self, key: &[u8]) -> Option<Arc<ColdValue>> {
        self.values.load_in_background(key, self.locator)
    }
}

impl Drop for SavedCold {
    fn drop(&mut self) {
        self.values.unpin(self.locator);
    }
}
