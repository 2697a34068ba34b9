//! Reused buffers for kept input.
//!
//! A pipeline leaves tens of kilobytes behind whenever its connection was served. If a buffer for
//! them were allocated from the heap and freed in each turn, it would leave holes between what the
//! service allocates meanwhile and keeps: a list of blocks of 8 KiB took an eighth more memory
//! because of that.

/// Shorter buffers are freed, because the heap can reuse holes of their size.
const SPARE_BYTES_MIN: usize = 8 * 1024;
/// Longer buffers belong to one client, and are not kept for others.
const SPARE_BYTES_MAX: usize = super::READ_BUFFER_BYTES;
/// Number of buffers that a thread keeps: one with the rest of input, and one to copy a shorter
/// rest to.
const SPARES_MAX: usize = 2;

/// Unused buffers.
#[derive(Debug, Default)]
pub(super) struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
}

impl SpareBuffers {
    /// Returns a buffer with a copy of `bytes`: a spare one that is long enough, or a new one of
    /// exactly their length.
    pub(super) fn copy_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let long_enough = |buffer: &Vec<u8>| buffer.capacity() >= bytes.len();
        let spare = match bytes.len() {
            SPARE_BYTES_MIN.. => self.buffers.iter().position(long_enough),
            _ => None,
        };
        match spare {
            Some(at) => {
                let mut buffer = self.buffers.swap_remove(at);
                buffer.extend_from_slice(bytes);
                buffer
            }
            None => bytes.to_vec(),
        }
    }

    /// Takes a buffer back. Frees the shortest if there are too many.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        if !(SPARE_BYTES_MIN..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        self.buffers.push(buffer);
        if self.buffers.len() > SPARES_MAX {
            self.buffers
                .sort_unstable_by_key(|buffer| std::cmp::Reverse(buffer.capacity()));
            self.buffers.truncate(SPARES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_used_again_and_short_ones_never() {
        let mut spares = SpareBuffers::default();
        for bytes in [100, 20_000, 60_000, 30_000, 1 << 20] {
            spares.give(vec![1; bytes]);
        }
        let short = spares.copy_of(&[2; 100]);
        assert_eq!((short.len(), short.capacity()), (100, 100));
        let long = spares.copy_of(&[3; 50_000]);
        assert_eq!((long.len(), long.capacity()), (50_000, 60_000));
        assert!(long.iter().all(|byte| *byte == 3));
        let next = spares.copy_of(&[4; 8192]);
        assert_eq!((next.len(), next.capacity()), (8192, 30_000));
        let none_left = spares.copy_of(&[5; 8192]);
        assert_eq!(none_left.capacity(), 8192);
    }
}
