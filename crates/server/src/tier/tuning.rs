//! Settings of a tier that can change while it is in use.

use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::Promotion;
use store::DemotionLimits;

use super::OBJECT_BYTES_MAX;
use crate::config::TierConfig;

/// The present settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuned {
    pub(super) limits: DemotionLimits,
    /// Used memory, in percent of `maxmemory`, above which values are demoted.
    pub(super) at_percent: u64,
    pub(super) compact_below_percent: u64,
    pub(super) scrub_bytes_per_second: u64,
    pub(super) promotion: Promotion,
    pub(super) read_timeout_ms: u64,
}

/// See the module documentation. Requests that meet no cold key never lock this.
#[derive(Debug)]
pub(super) struct Tuning(Mutex<Tuned>);

impl Tuning {
    pub(super) fn new(config: &TierConfig) -> Self {
        Self(Mutex::new(tuned(config)))
    }

    pub(super) fn set(&self, config: &TierConfig) {
        *self.lock() = tuned(config);
    }

    pub(super) fn now(&self) -> Tuned {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Tuned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tuned(config: &TierConfig) -> Tuned {
    Tuned {
        limits: DemotionLimits {
            value_bytes_min: config.value_bytes_min,
            value_bytes_max: config.value_bytes_max,
            object_bytes_max: OBJECT_BYTES_MAX,
            takes_used: false,
        },
        at_percent: match config.demote_at_percent {
            0 => 100,
            percent => percent,
        },
        compact_below_percent: config.compact_below_percent,
        scrub_bytes_per_second: config.scrub_bytes_per_second,
        promotion: config.promotion,
        read_timeout_ms: config.read_timeout_ms,
    }
}
