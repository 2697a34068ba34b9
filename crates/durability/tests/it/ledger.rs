//! What was asked to be kept, and what was promised of it: held outside of the device.

use std::collections::BTreeMap;

/// A value's bytes, which follow from it.
pub(crate) fn body(value: u64) -> Vec<u8> {
    /// Lengths from a few bytes to several sectors.
    const LENGTHS: [usize; 5] = [1, 7, 120, 700, 5000];
    let text = value.to_string();
    text.repeat(LENGTHS[usize::try_from(value % 5).unwrap()])
        .into_bytes()
}

/// What all keys hold.
pub(crate) type State = BTreeMap<u8, u64>;
