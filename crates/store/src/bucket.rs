//! One bucket of the index: a cache line of seven links and a control word.
//!
//! ```text
//!   link     63 ──── 48 47 ─────────────────── 4  3  2  1  0
//!           │   tag    │ offset of the record    │LR│SA│TT│VI│      0 offset: free
//!
//!   word     63 ────────── 34 33 ── 28 27  26  25  24 23 ───── 0
//!           │    version     │ depth  │LO│LI │SN │LK│ overflow  │
//! ```
//!
//! Link: the tag is the top of the key's hash. VI: visited since the eviction hand passed. TT: has
//! a deadline. SA: saved for the snapshot in progress while its bucket is not. LR: readers must
//! lock. A link is free if its offset is 0. Never test the tag or the flags for that: a late
//! visitor may set VI on a link that was just cleared.
//!
//! Word: LK: locked. SN: side of the last snapshot cut. LI: a listener observes a key in this
//! bucket. LO: the holder may take long. The depth is the number of hash bits that lead here. The
//! version counts changes of content. The overflow field names the next bucket of the chain. The
//! word of the home bucket guards its whole chain; of an overflow bucket's word only the overflow
//! field is used.
//!
//! Rules
//!  1. Only the holder of LK changes the word or a link, except VI.
//!  2. The version changes with every change of content, and not on a visit that changed nothing.
//!  3. A reader without the lock believes what it saw only if the word has the same version and
//!     depth afterwards, and no LK in either.
//!  4. A bucket whose depth is not what the finder expected was split: look for the key again.

use base::sync::atomic::{AtomicU64, Ordering, fence};

use crate::arena::Offset;

/// Links of a bucket; few under a model checker, because it tries all orders of looking at them.
pub(crate) const LINKS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 7 };

/// Bytes of a bucket: one cache line.
pub(crate) const BUCKET_BYTES: usize = 64;

/// Where a record is, and what the index knows about it. All zero means no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    const OFFSET_MASK: u64 = (1 << 48) - Offset::ALIGNMENT_BYTES;
    const TAG_SHIFT: u32 = 48;

    /// Used since the eviction hand passed.
    pub(crate) const VISITED: u64 = 1;
    /// The record has a deadline.
    pub(crate) const DEADLINE: u64 = 1 << 1;
    /// The record was saved for the snapshot in progress, though its bucket is still behind: see
    /// [`crate::snapshot`]. Never set in other buckets.
    pub(crate) const SAVED: u64 = 1 << 2;
    /// Readers must hold the lock, because the record is more than its own words.
    pub(crate) const LOCKED_READ: u64 = 1 << 3;

    /// No record.
    pub(crate) const NONE: Self = Self(0);

    /// Returns a link to the record at `offset`, whose key has `hash`.
    #[inline]
    pub(crate) fn new(hash: u64, offset: Offset, flags: u64) -> Self {
        debug_assert!(offset.bytes() & !Self::OFFSET_MASK == 0 && flags < 16);
        Self((hash >> Self::TAG_SHIFT << Self::TAG_SHIFT) | offset.bytes() | flags)
    }

    /// Offset of the record, or `None` if the link is free.
    #[inline]
    pub(crate) fn offset(self) -> Option<Offset> {
        Offset::new(self.0 & Self::OFFSET_MASK)
    }

    /// Whether the record's key may have `hash`.
    #[cfg(test)]
    pub(crate) fn may_be(self, hash: u64) -> bool {
        (self.0 ^ hash) >> Self::TAG_SHIFT == 0
    }

    /// Whether a flag is set.
    #[inline]
    pub(crate) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Returns the link after its record has moved to `offset`.
    #[inline]
    pub(crate) fn with_offset(self, offset: Offset) -> Self {
        Self((self.0 & !Self::OFFSET_MASK) | offset.bytes())
    }

    /// Returns the link with other flags.
    #[inline]
    pub(crate) fn with_flags(self, flags: u64) -> Self {
        Self((self.0 & !0xf) | flags)
    }

    /// The flags.
    #[inline]
    pub(crate) fn flags(self) -> u64 {
        self.0 & 0xf
    }
}

/// The control word of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    const OVERFLOW_MASK: u64 = (1 << 24) - 1;
    const LOCK: u64 = 1 << 24;
    const SNAPSHOT_SHIFT: u32 = 25;
    const SNAPSHOT: u64 = 1 << Self::SNAPSHOT_SHIFT;
    const LISTEN: u64 = 1 << 26;
    const LONG: u64 = 1 << 27;
    const DEPTH_SHIFT: u32 = 28;
    const DEPTH_MASK: u64 = 63 << Self::DEPTH_SHIFT;
    const VERSION_ONE: u64 = 1 << 34;
    const VERSION_MASK: u64 = !(Self::VERSION_ONE - 1);

    /// The bits that a split passes on: the side of the cut, and whether a listener observes the
    /// bucket.
    const INHERITED: u64 = Self::SNAPSHOT | Self::LISTEN;

    /// Whether a thread holds the bucket.
    #[inline]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    /// Whether the bucket is not yet saved for the snapshot that began with `generation`.
    #[inline]
    pub(crate) fn is_behind(self, generation: u64) -> bool {
        (self.0 >> Self::SNAPSHOT_SHIFT ^ generation) & 1 != 0
    }

    /// Whether the holder has declared that it may take long.
    #[inline]
    pub(crate) fn is_long(self) -> bool {
        self.0 & Self::LONG != 0
    }

    /// Version and depth: the part of the word that changes with the content.
    pub(crate) fn version(self) -> u64 {
        self.0 & (Self::VERSION_MASK | Self::DEPTH_MASK)
    }

    /// [`Word::version`] after one more change.
    pub(crate) fn next_version(self) -> u64 {
        Self(self.0.wrapping_add(Self::VERSION_ONE)).version()
    }

    /// Whether the bucket is not locked and has this depth.
    #[inline]
    pub(crate) fn is_free_at(self, depth: u32) -> bool {
        self.0 & (Self::LOCK | Self::DEPTH_MASK) == u64::from(depth) << Self::DEPTH_SHIFT
    }

    /// Number of hash bits that lead to this bucket.
    #[inline]
    pub(crate) fn depth(self) -> u32 {
        u32::from((self.0 >> Self::DEPTH_SHIFT).to_le_bytes()[0] & 63)
    }

    /// Number of the next bucket of the chain; 0 is none.
    #[inline]
    pub(crate) fn overflow(self) -> u32 {
        let [a, b, c, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Whether a reader may believe what it read between this word and the later one. This word is
    /// that of an unlocked bucket.
    #[inline]
    pub(crate) fn validates(self, later: Self) -> bool {
        debug_assert!(
            !self.is_locked(),
            "what is read beside a writer is never whole"
        );
        let watched = Self::VERSION_MASK | Self::DEPTH_MASK | Self::LOCK;
        (self.0 ^ later.0) & watched == 0
    }

    #[inline]
    fn with_overflow(self, number: u32) -> Self {
        debug_assert!(u64::from(number) <= Self::OVERFLOW_MASK);
        Self((self.0 & !Self::OVERFLOW_MASK) | u64::from(number))
    }

    #[inline]
    fn with_depth(self, depth: u32) -> Self {
        debug_assert!(depth < 64);
        Self((self.0 & !Self::DEPTH_MASK) | u64::from(depth) << Self::DEPTH_SHIFT)
    }

    #[inline]
    fn unlocked(self, changed: bool) -> Self {
        let word = self.0 & !(Self::LOCK | Self::LONG);
        Self(if changed {
            word.wrapping_add(Self::VERSION_ONE)
        } else {
            word
        })
    }
}

/// The links to look at, as indexes in the bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates {
    bits: u32,
}

impl Candidates {
    /// Whether no link of the bucket can be the key's.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.bits == 0
    }
}

impl Iterator for Candidates {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.bits == 0 {
            return None;
        }
        let at = self.bits.trailing_zeros();
        self.bits &= self.bits - 1;
        usize::try_from(at).ok()
    }
}

/// A bucket.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    links: [AtomicU64; LINKS],
    word: AtomicU64,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);

impl Bucket {
    /// Loads the word, ordered before all later reads.
    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Loads the word again, ordered after all optimistic reads.
    #[inline]
    pub(crate) fn word_after(&self) -> Word {
        fence(Ordering::Acquire);
        Word(self.word.load(Ordering::Relaxed))
    }

    /// One of the links.
    #[inline]
    pub(crate) fn link(&self, at: usize) -> Link {
        Link(self.links[at].load(Ordering::Relaxed))
    }

    /// Returns which links may be of a key with `hash`, one bit each. Free of branches, because the
    /// processor cannot predict which link it will be. Only advice until the link itself is loaded.
    #[inline]
    pub(crate) fn candidates(&self, hash: u64) -> Candidates {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
        let bits = self.tags_equal(hash);
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
        let bits = self.tags_equal_by_words(hash);
        Candidates { bits }
    }

    /// Returns the links whose tag is that of `hash`, tested word by word.
    #[inline]
    #[cfg(any(test, not(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))))]
    fn tags_equal_by_words(&self, hash: u64) -> u32 {
        const TAG_ONE: u64 = 1 << Link::TAG_SHIFT;
        self.links.iter().rev().fold(0, |bits, link| {
            let differs = link.load(Ordering::Relaxed) ^ hash;
            bits << 1 | u32::from(differs < TAG_ONE)
        })
    }

    /// Returns the same for all words at once: 13 instructions instead of 46.
    ///
    /// Assembly, because other threads may write a link meanwhile: the compiler sees no load here.
    /// The processor loads each half of a vector, which is a link, as a whole or (just as good
    /// here, see [`crate::bulk`]) in parts.
    #[inline]
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    fn tags_equal(&self, hash: u64) -> u32 {
        const ALL: u32 = (1 << LINKS) - 1;
        let bits: u32;
        // SAFETY: reads the 64 bytes of the bucket, which is aligned to them, and writes no memory;
        // the three registers are declared, the stack is not used, and none of the instructions
        // touches the flags. The upper halves of all words are put side by side, shifted down to
        // tags, narrowed to 16 bits each, compared, narrowed to bytes, and their signs taken.
        unsafe {
            std::arch::asm!(
                "movaps {low}, xmmword ptr [{bucket}]",
                "shufps {low}, xmmword ptr [{bucket} + 16], 0xdd",
                "movaps {high}, xmmword ptr [{bucket} + 32]",
                "shufps {high}, xmmword ptr [{bucket} + 48], 0xdd",
                "psrad {low}, 16",
                "psrad {high}, 16",
                "packssdw {low}, {high}",
                "movd {tag}, {hash_tag:e}",
                "pshuflw {tag}, {tag}, 0",
                "punpcklqdq {tag}, {tag}",
                "pcmpeqw {low}, {tag}",
                "packsswb {low}, {low}",
                "pmovmskb {bits:e}, {low}",
                bucket = in(reg) std::ptr::from_ref(self),
                hash_tag = in(reg) hash >> Link::TAG_SHIFT,
                bits = lateout(reg) bits,
                low = out(xmm_reg) _,
                high = out(xmm_reg) _,
                tag = out(xmm_reg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
        bits & ALL
    }

    /// Replaces a link. The caller holds the bucket.
    #[inline]
    pub(crate) fn set_link(&self, at: usize, link: Link) {
        self.links[at].store(link.0, Ordering::Relaxed);
    }

    /// Notes that a record was used. Any thread may do this, even late and in vain.
    #[inline]
    pub(crate) fn set_visited(&self, at: usize) {
        self.links[at].fetch_or(Link::VISITED, Ordering::Relaxed);
    }

    /// Takes the lock if the word is still `seen`, which must be unlocked.
    #[inline]
    pub(crate) fn try_lock(&self, seen: Word) -> bool {
        debug_assert!(!seen.is_locked());
        let taken = self
            .word
            .compare_exchange(
                seen.0,
                seen.0 | Word::LOCK,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok();
        if taken {
            // A reader that sees one of the holder's relaxed stores also sees LK when it looks at
            // the word again.
            fence(Ordering::Release);
        }
        taken
    }

    /// Declares that the holder may take long. The caller holds the bucket.
    pub(crate) fn set_long(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word | Word::LONG, Ordering::Relaxed);
    }

    /// Releases the lock. A plain store is enough, because no other thread writes a locked word.
    /// `changed` says whether content changed.
    #[inline]
    pub(crate) fn unlock(&self, changed: bool) {
        let word = Word(self.word.load(Ordering::Relaxed));
        debug_assert!(word.is_locked());
        self.word.store(word.unlocked(changed).0, Ordering::Release);
    }

    /// Releases the lock of a bucket that was split or merged: its hashes now share a different
    /// number of low bits.
    pub(crate) fn unlock_split(&self, depth: u32) {
        let word = Word(self.word.load(Ordering::Relaxed));
        debug_assert!(word.is_locked());
        self.word
            .store(word.with_depth(depth).unlocked(true).0, Ordering::Release);
    }

    /// Depth of a bucket that is no longer part of the table: no hash leads there.
    pub(crate) const DEAD_DEPTH: u32 = 63;

    /// Whether both buckets are on the same side of the last snapshot cut.
    pub(crate) fn is_on_side_of(&self, other: &Self) -> bool {
        let sides = self.word.load(Ordering::Relaxed) ^ other.word.load(Ordering::Relaxed);
        sides & Word::SNAPSHOT == 0
    }

    /// Inherits the listener bit of a bucket whose records come here. The caller holds both.
    pub(crate) fn inherit_listeners(&self, from: &Self) {
        let listen = from.word.load(Ordering::Relaxed) & Word::LISTEN;
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word | listen, Ordering::Relaxed);
    }

    /// Gives a bucket whose memory went back to the system a version that it probably never had,
    /// because a reader may remember an earlier one. `era` differs each time that memory
    /// went back. No thread can find the bucket yet.
    pub(crate) fn renew(&self, era: u64) {
        const CHANGES_PER_ERA: u64 = 1 << 12;
        if self.word.load(Ordering::Relaxed) == 0 {
            let version = era.wrapping_mul(CHANGES_PER_ERA * Word::VERSION_ONE);
            self.word.store(version, Ordering::Relaxed);
        }
    }

    /// Initialises a bucket that no thread can find yet. Its version continues from the old one,
    /// because a reader may remember that.
    pub(crate) fn begin(&self, depth: u32, inherit_from: Word) {
        let old = Word(self.word.load(Ordering::Relaxed));
        let inherited = inherit_from.0 & Word::INHERITED;
        let kept = old.0 & Word::VERSION_MASK;
        let word = Word(kept | inherited).with_depth(depth).unlocked(true);
        self.word.store(word.0, Ordering::Relaxed);
    }

    /// Whether the records in this bucket are not yet saved, as its holder knows it.
    #[inline]
    pub(crate) fn is_behind(&self, generation: u64) -> bool {
        Word(self.word.load(Ordering::Relaxed)).is_behind(generation)
    }

    /// Puts the bucket on the side of `generation`. The caller holds it. A release store, so that a
    /// thread that sees the bucket on that side also sees where its records were saved.
    pub(crate) fn set_side(&self, generation: u64) {
        let word = self.word.load(Ordering::Relaxed);
        let side = (generation & 1) << Word::SNAPSHOT_SHIFT;
        self.word
            .store(word & !Word::SNAPSHOT | side, Ordering::Release);
    }

    /// Number of the next bucket of the chain, as the holder knows it.
    #[inline]
    pub(crate) fn overflow(&self) -> u32 {
        Word(self.word.load(Ordering::Relaxed)).overflow()
    }

    /// Makes `number` the next bucket of the chain. The caller holds the bucket.
    #[inline]
    pub(crate) fn set_overflow(&self, number: u32) {
        let word = Word(self.word.load(Ordering::Relaxed));
        self.word
            .store(word.with_overflow(number).0, Ordering::Relaxed);
    }

    /// Whether a listener observes a key in this bucket, as its holder knows it.
    #[inline]
    pub(crate) fn is_listened(&self) -> bool {
        self.word.load(Ordering::Relaxed) & Word::LISTEN != 0
    }

    /// Notes whether a listener observes a key in this bucket. The caller holds it.
    pub(crate) fn set_listened(&self, on: bool) {
        let word = self.word.load(Ordering::Relaxed) & !Word::LISTEN;
        let bit = if on { Word::LISTEN } else { 0 };
        self.word.store(word | bit, Ordering::Relaxed);
    }

    /// The bits that a split passes on.
    #[cfg(test)]
    pub(crate) fn inherited_bits(&self) -> u64 {
        self.word.load(Ordering::Relaxed) & Word::INHERITED
    }

    /// Sets the bits that a split passes on. The caller holds the bucket.
    #[cfg(test)]
    pub(crate) fn set_inherited_bits(&self) {
        let word = self.word.load(Ordering::Relaxed) | Word::INHERITED;
        self.word.store(word, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_tag_offset_and_flags_apart() {
        let offset = Offset::new((1 << 48) - 16).unwrap();
        let link = Link::new(u64::MAX, offset, Link::DEADLINE);
        assert_eq!(link.offset(), Some(offset));
        assert!(link.may_be(0xffff << 48) && !link.may_be(0x7fff << 48));
        assert!(link.has(Link::DEADLINE) && !link.has(Link::VISITED));
        let moved = link.with_flags(Link::VISITED);
        assert_eq!(
            (moved.offset(), moved.flags()),
            (Some(offset), Link::VISITED)
        );
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn tags_are_found_all_at_once_as_one_by_one() {
        let bucket = Bucket::default();
        let mut random = base::random::Prng::seeded(3);
        for _ in 0..10_000 {
            let hash = random.next_u64();
            for at in 0..LINKS {
                let near = hash ^ 1 << (random.next_u64() % 64);
                let other = if random.next_u64() & 1 == 0 {
                    near
                } else {
                    hash
                };
                bucket.links[at].store(other, Ordering::Relaxed);
            }
            bucket.word.store(hash, Ordering::Relaxed);
            assert_eq!(bucket.tags_equal(hash), bucket.tags_equal_by_words(hash));
        }
    }

    #[test]
    fn a_visited_mark_on_a_free_link_leaves_it_free() {
        let bucket = Bucket::default();
        bucket.set_visited(0);
        assert_eq!(bucket.link(0).offset(), None);
    }

    #[test]
    fn the_version_counts_changes_and_not_visits() {
        let bucket = Bucket::default();
        let before = bucket.word();
        assert!(bucket.try_lock(before));
        assert!(!before.validates(bucket.word()), "locked");
        bucket.unlock(false);
        assert!(before.validates(bucket.word()));
        assert!(bucket.try_lock(bucket.word()));
        bucket.unlock(true);
        assert!(!before.validates(bucket.word()));
    }

    #[test]
    fn a_version_that_wraps_spoils_no_other_field() {
        let bucket = Bucket::default();
        bucket.word.store(Word::VERSION_MASK, Ordering::Relaxed);
        bucket.set_overflow(0xff_ffff);
        assert!(bucket.try_lock(bucket.word()));
        bucket.unlock(true);
        let word = bucket.word();
        assert_eq!((word.overflow(), word.depth()), (0xff_ffff, 0));
        assert!(!word.is_locked() && !word.is_long());
    }

    #[test]
    fn a_new_bucket_inherits_what_concerns_its_records() {
        let (parent, child) = (Bucket::default(), Bucket::default());
        assert!(parent.try_lock(parent.word()));
        parent.set_inherited_bits();
        parent.set_overflow(9);
        child.begin(63, parent.word());
        assert_eq!(child.inherited_bits(), parent.inherited_bits());
        assert_eq!((child.word().depth(), child.overflow()), (63, 0));
        assert!(!child.word().is_locked());
        parent.unlock_split(7);
        assert_eq!(parent.word().depth(), 7);
        assert_eq!(parent.overflow(), 9);
    }
}
