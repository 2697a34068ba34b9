//! Buffers for kept input, used again.
//!
//! Pipelines leave tens of kilobytes behind whenever a connection has had its turn. A buffer for them that came from
//! the heap and went back for each turn would leave holes between what the service allocates meanwhile and keeps:
//! a list of blocks of 8 KiB took an eighth more memory for that.

/// Shorter buffers are left to the heap, which has uses for such holes.
const SPARE_BYTES_MIN: usize = 8 * 1024;
/// Longer ones are one client's own, and not held for others.
const SPARE_BYTES_MAX: usize = super::READ_BUFFER_BYTES;
/// How many a thread keeps: one with what is left, one to copy less of it into.
const SPARES_MAX: usize = 2;

/// Buffers that nobody uses.
#[derive(Debug, Default)]
pub(super) struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
}

impl SpareBuffers {
    /// A buffer with a copy of `bytes`: one that is long enough, or one of exactly their length.
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

    /// Takes a buffer back. The shortest goes where there are too many.
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
