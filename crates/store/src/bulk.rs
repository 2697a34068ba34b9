//! Copies between ordinary bytes and memory that other threads may access at the same time.
//!
//! Rust has no atomic `memcpy`, and an ordinary one on memory that another thread writes is
//! undefined. There are two ways here, and both ends of every race use one of them:
//!
//! 1. Relaxed atomic words ([`load_bytes`], [`store_bytes`]), which every target and Miri have.
//!    They are also faster up to about a hundred bytes.
//! 2. One block of assembly on x86-64 ([`copy`]) for the longer ones. The compiler sees through
//!    neither its loads nor its stores, the processor makes each of them as a whole or in parts that
//!    are (a torn 16 bytes are as good as two torn words to a reader that validates), so it can do
//!    nothing that a loop of atomic words could not have done.
//!
//! A copy orders nothing by itself: the reader's fence and its look at the version do.

use base::sync::atomic::{AtomicU64, Ordering};

use crate::arena::WORD_BYTES;

/// Bytes that the assembly moves in one round.
const BLOCK_BYTES: usize = 64;

/// Copies shorter than this are left to the word loop: 2 ns either way at 128 bytes.
const BULK_BYTES_MIN: usize = 128;

/// How many of `len` bytes [`copy`] should move; the word loop does the rest.
#[inline]
pub(crate) fn len_for(len: usize) -> usize {
    if cfg!(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))) && len >= BULK_BYTES_MIN {
        len - len % BLOCK_BYTES
    } else {
        0
    }
}

/// Copies `len` bytes, a multiple of 64 that [`len_for`] gave. At most one of the two ranges may be
/// accessed by other threads meanwhile, and by these only in the two ways of the module head.
///
/// # Safety
/// `source` may be read and `target` written for `len` bytes, and the two do not overlap.
#[inline]
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
    debug_assert!(len.is_multiple_of(BLOCK_BYTES));
    if len == 0 {
        return;
    }
    // SAFETY: reads `source..source + len` and writes `target..target + len`, which the caller
    // vouches for; `len` is a positive multiple of 64, so that the counter meets zero. The moves
    // need no alignment, the four registers are declared, and the stack is not used. Flags are
    // clobbered by default, and so is memory in the compiler's eyes.
    unsafe {
        std::arch::asm!(
            "2:",
            "movups {a}, xmmword ptr [{source}]",
            "movups {b}, xmmword ptr [{source} + 16]",
            "movups {c}, xmmword ptr [{source} + 32]",
            "movups {d}, xmmword ptr [{source} + 48]",
            "movups xmmword ptr [{target}], {a}",
            "movups xmmword ptr [{target} + 16], {b}",
            "movups xmmword ptr [{target} + 32], {c}",
            "movups xmmword ptr [{target} + 48], {d}",
            "add {source}, 64",
            "add {target}, 64",
            "sub {len}, 64",
            "jnz 2b",
            source = inout(reg) source => _,
            target = inout(reg) target => _,
            len = inout(reg) len => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Nothing to do where there is no assembly: [`len_for`] gave 0.
///
/// # Safety
/// None needed; the signature is that of the real one.
#[inline]
#[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
pub(crate) unsafe fn copy(_source: *const u8, _target: *mut u8, len: usize) {
    debug_assert_eq!(len, 0);
}

/// Copies the bytes from `start` on to `out`; `word` gives the word of an index.
#[inline]
pub(crate) fn load_bytes<'a>(word: impl Fn(usize) -> &'a AtomicU64, start: usize, out: &mut [u8]) {
    let (mut index, head) = (start / WORD_BYTES, start % WORD_BYTES);
    let mut rest = out;
    if head != 0 {
        let (first, others) = rest.split_at_mut(rest.len().min(WORD_BYTES - head));
        let bytes = to_bytes(word(index).load(Ordering::Relaxed));
        first.copy_from_slice(&bytes[head..head + first.len()]);
        rest = others;
        index += 1;
    }
    let mut whole = rest.chunks_exact_mut(WORD_BYTES);
    for out in &mut whole {
        out.copy_from_slice(&to_bytes(word(index).load(Ordering::Relaxed)));
        index += 1;
    }
    let tail = whole.into_remainder();
    if !tail.is_empty() {
        let bytes = to_bytes(word(index).load(Ordering::Relaxed));
        tail.copy_from_slice(&bytes[..tail.len()]);
    }
}

/// Copies `data` to the bytes from `start` on. The other bytes of the first and last word keep
/// what they hold, so only one thread at a time may write.
#[inline]
pub(crate) fn store_bytes<'a>(word: impl Fn(usize) -> &'a AtomicU64, start: usize, data: &[u8]) {
    let (mut index, head) = (start / WORD_BYTES, start % WORD_BYTES);
    let mut rest = data;
    if head != 0 {
        let (first, others) = rest.split_at(rest.len().min(WORD_BYTES - head));
        store_part(word(index), head, first);
        rest = others;
        index += 1;
    }
    let mut whole = rest.chunks_exact(WORD_BYTES);
    for data in &mut whole {
        word(index).store(to_word(data), Ordering::Relaxed);
        index += 1;
    }
    let tail = whole.remainder();
    if !tail.is_empty() {
        store_part(word(index), 0, tail);
    }
}

/// Whether the bytes from `start` on are `data`; stops at the first word that differs.
#[inline]
pub(crate) fn matches<'a>(
    word: impl Fn(usize) -> &'a AtomicU64,
    start: usize,
    data: &[u8],
) -> bool {
    let (mut index, head) = (start / WORD_BYTES, start % WORD_BYTES);
    let mut rest = data;
    if head != 0 {
        let (first, others) = rest.split_at(rest.len().min(WORD_BYTES - head));
        let bytes = to_bytes(word(index).load(Ordering::Relaxed));
        if bytes[head..head + first.len()] != *first {
            return false;
        }
        rest = others;
        index += 1;
    }
    let whole = rest.chunks_exact(WORD_BYTES);
    let tail = whole.remainder();
    for data in whole {
        if word(index).load(Ordering::Relaxed) != to_word(data) {
            return false;
        }
        index += 1;
    }
    tail.is_empty() || to_bytes(word(index).load(Ordering::Relaxed))[..tail.len()] == *tail
}

fn store_part(word: &AtomicU64, at: usize, data: &[u8]) {
    let mut bytes = to_bytes(word.load(Ordering::Relaxed));
    bytes[at..at + data.len()].copy_from_slice(data);
    word.store(to_word(&bytes), Ordering::Relaxed);
}

#[inline]
#[expect(
    clippy::host_endian_bytes,
    reason = "words here are pieces of memory: byte order must be that of the byte slices"
)]
fn to_bytes(word: u64) -> [u8; WORD_BYTES] {
    word.to_ne_bytes()
}

#[inline]
#[expect(clippy::host_endian_bytes, reason = "as for `to_bytes`")]
fn to_word(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    word.copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}
