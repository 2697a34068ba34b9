//! Copies between ordinary bytes and memory that other threads may access at the same time.
//!
//! Rust has no atomic `memcpy`, and an ordinary one on memory that another thread writes is
//! undefined behaviour. This module has two ways, and both ends of every race use one of them:
//!
//! 1. Relaxed atomic words ([`load_bytes`], [`store_bytes`]), which every target and Miri have.
//! 2. On x86-64 three pieces of assembly ([`copy`]) for 16 bytes or more: 100 bytes take 3.5 ns
//!    instead of 8, 4 KiB 43 instead of 105. The compiler sees neither their loads nor their
//!    stores, and the processor makes them as a whole or in parts, down to a byte. So a racing
//!    reader may see a half-written word. That is no worse for it than two words of which one is
//!    old and one new: it checks the version and throws both away.
//!
//! A copy orders nothing by itself; the reader's fence and its check of the version do.

use base::sync::atomic::{AtomicU64, Ordering};

use crate::arena::WORD_BYTES;

/// Bytes that one register moves: the minimum for [`copy`].
const MOVE_BYTES: usize = 16;

/// Bytes that four registers move.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
const BLOCK_BYTES: usize = 64;

/// From this length on the processor's own loop is faster; it takes 13 ns to start.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
const LOOP_BYTES_MIN: usize = 2048;

/// Whether [`copy`] can be used for `len` bytes.
#[inline]
pub(crate) fn is_bulk(len: usize) -> bool {
    cfg!(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))) && len >= MOVE_BYTES
}

/// Copies `len` bytes. At most one of the two ranges may be accessed by other threads meanwhile,
/// and by these only in the two ways of the module's comment.
///
/// # Safety
/// [`is_bulk`] is true for `len`; `source` may be read and `target` written for `len` bytes, and
/// the two do not overlap.
#[inline]
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
    debug_assert!(is_bulk(len));
    if len >= LOOP_BYTES_MIN {
        // SAFETY: passed on to the caller.
        unsafe { move_long(source, target, len) };
        return;
    }
    let mut at = 0;
    // SAFETY: no move goes beyond the ends of the ranges, which the caller vouches for. The last
    // one may overlap the one before; it moves the same bytes again.
    unsafe {
        while len - at >= BLOCK_BYTES {
            move_64(source.add(at), target.add(at));
            at += BLOCK_BYTES;
        }
        while len - at >= MOVE_BYTES {
            move_16(source.add(at), target.add(at));
            at += MOVE_BYTES;
        }
        if at < len {
            move_16(source.add(len - MOVE_BYTES), target.add(len - MOVE_BYTES));
        }
    }
}

/// Moves `len` bytes.
///
/// # Safety
/// `source` may be read and `target` written for `len` bytes, and the two do not overlap.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
unsafe fn move_long(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: reads and writes the ranges that the caller vouches for, upwards, because the
    // direction flag is clear wherever Rust code runs. The three registers are declared as changed;
    // neither stack nor flags are; memory counts as clobbered.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rsi") source => _,
            inout("rdi") target => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Moves 64 bytes.
///
/// # Safety
/// `source` may be read and `target` written for 64 bytes.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
unsafe fn move_64(source: *const u8, target: *mut u8) {
    // SAFETY: as in `move_16`, four times.
    unsafe {
        std::arch::asm!(
            "movups {a}, xmmword ptr [{source}]",
            "movups {b}, xmmword ptr [{source} + 16]",
            "movups {c}, xmmword ptr [{source} + 32]",
            "movups {d}, xmmword ptr [{source} + 48]",
            "movups xmmword ptr [{target}], {a}",
            "movups xmmword ptr [{target} + 16], {b}",
            "movups xmmword ptr [{target} + 32], {c}",
            "movups xmmword ptr [{target} + 48], {d}",
            source = in(reg) source,
            target = in(reg) target,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Moves 16 bytes.
///
/// # Safety
/// `source` may be read and `target` written for 16 bytes.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
unsafe fn move_16(source: *const u8, target: *mut u8) {
    // SAFETY: reads 16 bytes and writes 16, which the caller vouches for, at any alignment. The
    // register is declared; neither stack nor flags are used; memory counts as clobbered.
    unsafe {
        std::arch::asm!(
            "movups {data}, xmmword ptr [{source}]",
            "movups xmmword ptr [{target}], {data}",
            source = in(reg) source,
            target = in(reg) target,
            data = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Never called on targets without the assembly, because [`is_bulk`] is false there.
///
/// # Safety
/// As on targets with the assembly.
#[inline]
#[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
pub(crate) unsafe fn copy(_source: *const u8, _target: *mut u8, len: usize) {
    debug_assert!(is_bulk(len));
}

/// Copies the bytes from `start` on to `out`; `word` returns the word of an index.
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

/// Copies `data` to the bytes from `start` on. The other bytes of the first and last word are kept,
/// so only one thread at a time may write.
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

/// Whether the bytes from `start` on equal `data`; stops at the first word that differs.
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
    let (whole, tail) = rest.as_chunks::<WORD_BYTES>();
    for data in whole {
        if to_bytes(word(index).load(Ordering::Relaxed)) != *data {
            return false;
        }
        index += 1;
    }
    tail.is_empty() || starts_with(word(index).load(Ordering::Relaxed), tail, data)
}

/// Whether the first bytes of a word equal `tail`, 1 to 7 bytes at the end of `data`. Avoids a call
/// for so few bytes.
#[inline]
fn starts_with(word: u64, tail: &[u8], data: &[u8]) -> bool {
    let bits = 8 * (tail.len() % WORD_BYTES);
    let wanted = match data.last_chunk() {
        // The last full word of `data` ends where `tail` ends.
        Some(last) => u64::from_le_bytes(*last) >> (64 - bits),
        None => tail
            .iter()
            .rev()
            .fold(0, |wanted, byte| wanted << 8 | u64::from(*byte)),
    };
    (u64::from_le_bytes(to_bytes(word)) ^ wanted) & ((1 << bits) - 1) == 0
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
