//! Delays for tests: a time for each key that is saved or loaded (`rdb-key-save-delay`,
//! `key-load-delay`).
//!
//! As in Redis, a positive number is microseconds per key, and a negative one is the number of keys
//! per microsecond. Threads that share a delay wait one after the other, so all keys take as long
//! as with one thread.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Interval at which the wait checks whether the work was given up.
const SLICE_US: u64 = 10_000;

/// See the module. Off until it is set; while off it costs one load per batch.
#[derive(Debug, Default)]
pub struct KeyDelay {
    setting: AtomicI64,
    turn: Mutex<()>,
}

impl KeyDelay {
    /// Returns a delay with this setting.
    #[must_use]
    pub fn of(setting: i64) -> Self {
        let delay = Self::default();
        delay.set(setting);
        delay
    }

    /// Sets the delay, with the meaning of the directive.
    pub fn set(&self, setting: i64) {
        self.setting.store(setting, Ordering::Relaxed);
    }

    /// Returns the setting.
    #[must_use]
    pub fn setting(&self) -> i64 {
        self.setting.load(Ordering::Relaxed)
    }

    /// Returns the delay of `keys` keys, in microseconds.
    fn us(&self, keys: u64) -> u64 {
        let setting = self.setting();
        if setting >= 0 {
            keys.saturating_mul(setting.unsigned_abs())
        } else {
            keys / setting.unsigned_abs()
        }
    }

    /// Waits for `keys` keys, unless the work is given up or the delay is set to 0 meanwhile.
    pub fn wait(&self, keys: u64, is_given_up: &dyn Fn() -> bool) {
        let mut left_us = self.us(keys);
        if left_us == 0 {
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while left_us > 0 && self.setting() != 0 && !is_given_up() {
            let slice_us = left_us.min(SLICE_US);
            std::thread::sleep(Duration::from_micros(slice_us));
            left_us -= slice_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_time_a_key_or_keys_a_time() {
        let us = |setting, keys| KeyDelay::of(setting).us(keys);
        assert_eq!((us(0, 7), us(3, 7), us(-3, 7), us(-8, 7)), (0, 21, 2, 0));
        assert_eq!(us(i64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn nobody_waits_for_what_is_given_up() {
        KeyDelay::of(i64::MAX).wait(u64::MAX, &|| true);
    }
}
