//! Deadlines of keys in the order in which they come: a hierarchical timing wheel.
//!
//! ```text
//!   deadline  = d7 d6 d5 d4 d3 d2 d1 d0     digits of 8 bits, milliseconds since 1970
//!   time now  = n7 n6 n5 n4 n3 n2 n1 n0
//!   level k   = the highest digit in which they differ; slot = that digit of the deadline
//!
//!   level 0: 256 slots of 1 ms      level 2: 256 of 65 s      level 4: 256 of 50 days
//!   level 1: 256 slots of 256 ms    level 3: 256 of 4.7 h     … to the end of 64 bits
//! ```
//!
//! When time reaches the start of a slot of level 0, its entries are visited. At a slot of a higher
//! level they are spread over the levels below, which takes 13 ns an entry and may be done in
//! parts. Until that is done, later entries wait: with ten million keys that live for an hour, for
//! 2 ms once in 65 s. Empty slots are skipped by a bitmap, so time may jump.
//!
//! An entry is one word: 40 bits of the key's hash, which find its bucket in a table of any size,
//! and 24 bits of the deadline that its slot does not determine. Below level 4 these are all bits
//! of the deadline. If a deadline differs from now in a higher digit (50 days ahead, or across one
//! of the boundaries 50 days apart), it is met early, by up to a part in 2^24. The visitor, which
//! looks at the record anyway because it may have changed, then gives the entry back with its time.
//!
//! Invariants
//!  1. An entry of level k agrees with the time in all digits above k, and is ahead in digit k. So
//!     every entry of a level is due before every entry of the levels above.
//!  2. Time never passes the start of a slot with entries.

use crate::blocks::{Blocks, List};

/// Number of low bits of a hash that a wheel keeps.
pub(crate) const POSITION_BITS: u32 = 40;

/// Number of bits of the deadline that an entry keeps.
const REST_BITS: u32 = u64::BITS - POSITION_BITS;

const DIGIT_BITS: u32 = 8;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 8;

/// When to look at which keys. One per thread and database, not shared.
#[derive(Debug)]
pub(crate) struct Wheel {
    now_unix_ms: u64,
    blocks: Blocks,
    levels: [Option<Box<Level>>; LEVELS],
    /// Entries to visit now.
    due: List,
    /// Entries to spread now: those of the slot that starts now, with the slot's level.
    spreading: (u32, List),
    len: usize,
}

impl Wheel {
    /// Creates an empty wheel; time starts at `now_unix_ms`.
    pub(crate) fn new(now_unix_ms: u64) -> Self {
        Self {
            now_unix_ms,
            blocks: Blocks::default(),
            levels: [const { None }; LEVELS],
            due: List::EMPTY,
            spreading: (0, List::EMPTY),
            len: 0,
        }
    }

    /// Arms a visit at `deadline_unix_ms` of the keys whose hash ends in the low [`POSITION_BITS`]
    /// bits of `hash`. Constant time.
    pub(crate) fn arm(&mut self, hash: u64, deadline_unix_ms: u64) {
        self.len += 1;
        self.file(position(hash), deadline_unix_ms);
    }

    /// Advances time to `now_unix_ms` and visits due entries, in order. Returns whether there is
    /// more to do because `work_max` entries were visited or spread.
    ///
    /// `visit` gets the low [`POSITION_BITS`] bits of a hash. It looks at the records there, frees
    /// the expired ones, and returns the time for the next visit for this entry, if one is needed:
    /// because the visit came early (see the module's comment), because the deadline was moved, or
    /// because the bucket was busy. A time that has passed means the millisecond after
    /// `now_unix_ms`.
    pub(crate) fn advance(
        &mut self,
        now_unix_ms: u64,
        work_max: usize,
        visit: &mut impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        let mut work_left = work_max;
        loop {
            if !self.spread(&mut work_left) || !self.visit(now_unix_ms, &mut work_left, visit) {
                return true;
            }
            let Some((level, slot, start)) = self.next_slot().filter(|next| next.2 <= now_unix_ms)
            else {
                self.now_unix_ms = self.now_unix_ms.max(now_unix_ms);
                return false;
            };
            self.now_unix_ms = start;
            let entries = self.take_slot(level, slot);
            if level == 0 {
                self.due = entries;
            } else {
                self.spreading = (level, entries);
            }
        }
    }

    /// Returns when there is something to do next, or `None`; not later than the earliest deadline.
    pub(crate) fn next_unix_ms(&self) -> Option<u64> {
        if self.due.is_empty() && self.spreading.1.is_empty() {
            self.next_slot().map(|(_, _, start)| start)
        } else {
            Some(self.now_unix_ms)
        }
    }

    /// Number of entries, including those whose key is gone or now lives longer.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that hold entries, or held them.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.bytes()
    }

    /// Takes the memory of entries that are gone, if it is much and nothing else is in it.
    pub(crate) fn take_empty(&mut self) -> Option<Blocks> {
        self.blocks.take_empty()
    }

    /// Removes all entries and frees their memory; time stays. To get rid of obsolete entries,
    /// clear the wheel and then arm again what a walk over the records finds.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "wheels are ticked and replaced, not asked")
    )]
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.now_unix_ms);
    }

    /// Puts an entry into its slot at the present time.
    fn file(&mut self, position: u64, deadline_unix_ms: u64) {
        if deadline_unix_ms <= self.now_unix_ms {
            self.due.push(&mut self.blocks, position);
            return;
        }
        let level = (deadline_unix_ms ^ self.now_unix_ms).ilog2() / DIGIT_BITS;
        let rest = rest_of(level, deadline_unix_ms) << POSITION_BITS;
        let slot = digit(level, deadline_unix_ms);
        self.levels[level as usize]
            .get_or_insert_with(Level::boxed)
            .push(&mut self.blocks, slot, position | rest);
    }

    /// Spreads the entries that are to be spread. Returns whether all of them were.
    fn spread(&mut self, work_left: &mut usize) -> bool {
        let level = self.spreading.0;
        while *work_left > 0 {
            let Some(entry) = self.spreading.1.pop(&mut self.blocks) else {
                return true;
            };
            *work_left -= 1;
            // Time is at the start of the slot, so all its digits below `level` are zero.
            let deadline_unix_ms = self.now_unix_ms | deadline_rest(level, entry >> POSITION_BITS);
            self.file(position(entry), deadline_unix_ms);
        }
        self.spreading.1.is_empty()
    }

    /// Visits the due entries. Returns whether all of them were visited.
    fn visit(
        &mut self,
        now_unix_ms: u64,
        work_left: &mut usize,
        visit: &mut impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        while *work_left > 0 {
            let Some(position) = self.due.pop(&mut self.blocks) else {
                return true;
            };
            *work_left -= 1;
            match visit(position) {
                None => self.len -= 1,
                Some(again) if again > self.now_unix_ms => self.file(position, again),
                // Not into `due`, because this loop would meet it again.
                Some(_) => {
                    let after = self.now_unix_ms.max(now_unix_ms).saturating_add(1);
                    self.file(position, after);
                }
            }
        }
        self.due.is_empty()
    }

    /// Returns the first slot with entries: its level, number and start.
    fn next_slot(&self) -> Option<(u32, usize, u64)> {
        let (level, found) = (0..)
            .zip(&self.levels)
            .find_map(|(level, slots)| Some((level, slots.as_ref()?.first()?)))?;
        let shift = level * DIGIT_BITS;
        let above = self.now_unix_ms & u64::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        Some((level, found, above | (found as u64) << shift))
    }

    fn take_slot(&mut self, level: u32, slot: usize) -> List {
        self.levels[level as usize]
            .as_mut()
            .map(|level| level.take(slot))
            .unwrap_or_default()
    }
}

/// Returns the part of a hash, or of an entry, that names the bucket.
fn position(word: u64) -> u64 {
    word & ((1 << POSITION_BITS) - 1)
}

/// Returns digit `level` of a time.
fn digit(level: u32, unix_ms: u64) -> usize {
    usize::from(unix_ms.to_le_bytes()[level as usize])
}

/// Returns the highest [`REST_BITS`] bits of the digits below `level`.
fn rest_of(level: u32, deadline_unix_ms: u64) -> u64 {
    let below_bits = level * DIGIT_BITS;
    let below = deadline_unix_ms & ((1 << below_bits) - 1);
    below >> below_bits.saturating_sub(REST_BITS)
}

/// Puts the bits that [`rest_of`] kept back in their place.
fn deadline_rest(level: u32, rest: u64) -> u64 {
    rest << (level * DIGIT_BITS).saturating_sub(REST_BITS)
}

/// 256 slots, and a bitmap of those with entries.
#[derive(Debug)]
struct Level {
    occupied: [u64; SLOTS / 64],
    slots: [List; SLOTS],
}

impl Level {
    fn boxed() -> Box<Self> {
        Box::new(Self {
            occupied: [0; SLOTS / 64],
            slots: [const { List::EMPTY }; SLOTS],
        })
    }

    fn push(&mut self, blocks: &mut Blocks, slot: usize, entry: u64) {
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.slots[slot].push(blocks, entry);
    }

    fn take(&mut self, slot: usize) -> List {
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        std::mem::take(&mut self.slots[slot])
    }

    /// Returns the first slot with entries.
    fn first(&self) -> Option<usize> {
        let word = self.occupied.iter().position(|&word| word != 0)?;
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests;
