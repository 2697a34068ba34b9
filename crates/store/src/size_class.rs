//! Sizes of slots: 16 bytes apart up to 512, then four per doubling up to 16 KiB.
//!
//! A small record wastes at most 15 bytes, and a large one at most a fifth of its slot. There are
//! few enough classes for every thread to keep a list for each.

use crate::arena::CHUNK_BYTES;

/// Number of classes up to 512 bytes, 16 bytes apart.
const FINE_CLASSES: usize = 32;
const FINE_STEP_BYTES: usize = 16;
const FINE_BYTES_MAX: usize = FINE_CLASSES * FINE_STEP_BYTES;

/// Number of classes per doubling above 512 bytes.
const CLASSES_PER_OCTAVE: usize = 4;

/// Number of size classes.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const CLASS_COUNT: usize = FINE_CLASSES + 5 * CLASSES_PER_OCTAVE;
/// Number of size classes under a model checker: 16 and 32 bytes.
#[cfg(any(loom, shuttle))]
pub(crate) const CLASS_COUNT: usize = 2;

/// Bytes of the largest slot; longer values are blobs.
pub(crate) const SLOT_BYTES_MAX: usize = 16 << 10;

/// A size class; by default the smallest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    /// Returns the class of a number, as a record's header has it.
    #[inline]
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < CLASS_COUNT {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns all classes, smallest first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..).map_while(Self::from_number)
    }

    /// Its number, below [`CLASS_COUNT`].
    #[inline]
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// The number as an index into a table of [`CLASS_COUNT`] items.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Returns the smallest class that fits `bytes`, or `None` above [`SLOT_BYTES_MAX`].
#[inline]
pub(crate) fn class_for(bytes: usize) -> Option<SizeClass> {
    let index = if bytes <= FINE_BYTES_MAX {
        bytes.max(1).div_ceil(FINE_STEP_BYTES) - 1
    } else if bytes <= SLOT_BYTES_MAX {
        let last = bytes - 1;
        let octave = last.ilog2() as usize;
        let quarter = (last >> (octave - 2)) - CLASSES_PER_OCTAVE;
        FINE_CLASSES + (octave - FINE_BYTES_MAX.ilog2() as usize) * CLASSES_PER_OCTAVE + quarter
    } else {
        return None;
    };
    u8::try_from(index).ok().and_then(SizeClass::from_number)
}

/// Bytes of a slot of `class`.
#[inline]
pub(crate) fn class_bytes(class: SizeClass) -> usize {
    CLASS_BYTES[class.index()]
}

/// Bytes of a slot of each class.
pub(crate) const CLASS_BYTES: [usize; CLASS_COUNT] = {
    let mut bytes = [0; CLASS_COUNT];
    let mut index = 0;
    while index < CLASS_COUNT {
        bytes[index] = if index < FINE_CLASSES {
            (index + 1) * FINE_STEP_BYTES
        } else {
            let octave = (index - FINE_CLASSES) / CLASSES_PER_OCTAVE;
            let quarter = (index - FINE_CLASSES) % CLASSES_PER_OCTAVE + 1;
            (FINE_BYTES_MAX << octave) + quarter * ((FINE_BYTES_MAX / CLASSES_PER_OCTAVE) << octave)
        };
        index += 1;
    }
    bytes
};

/// Number of slots in a chunk of `class`.
pub(crate) fn capacity(class: SizeClass) -> u32 {
    u32::try_from(CHUNK_BYTES / class_bytes(class)).unwrap_or(u32::MAX)
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_with_room_for_it() {
        let sizes: Vec<usize> = SizeClass::all().map(class_bytes).collect();
        assert!(sizes.is_sorted_by(|one, next| one < next));
        assert_eq!(sizes.len(), CLASS_COUNT);
        assert_eq!(sizes.last(), Some(&SLOT_BYTES_MAX));
        for bytes in 0..=SLOT_BYTES_MAX {
            let found = class_for(bytes).map(class_bytes);
            let first = sizes.iter().copied().find(|&size| size >= bytes);
            assert_eq!(found, first, "{bytes}");
        }
        assert_eq!(class_for(SLOT_BYTES_MAX + 1), None);
    }

    #[test]
    fn numbers_come_back() {
        assert!(
            SizeClass::all().all(|class| SizeClass::from_number(class.number()) == Some(class))
        );
        assert_eq!(SizeClass::from_number(52), None);
    }
}
