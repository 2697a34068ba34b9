//! How a record lies in its slot.
//!
//! ```text
//!   word 0   63 ───────────── 32 31 30 29 28 27 ─ 24 23 ── 16 15 ────── 0
//!             │  value length   │LK│CK│ET│DL│  form  │  class │ key length│
//!   then      deadline, if DL: milliseconds since 1970 UTC, 0 for none
//!             etag, if ET; 0 for none
//!             clock, if CK: use of the record, for policies that ask for it
//!             key, filled up to a word; or, if LK, one word that names a blob with it
//!             value: its bytes, a number, a word that names a blob with it, or two words that lead
//!             to an object (`heap` says how)
//! ```
//!
//! The holder of the record's bucket writes the words, and any thread that came through a link
//! reads them, so all access is through the arena. A reader without the lock may find words of
//! other records, or torn ones: [`View::load`] rejects everything that leads out of the slot.

use base::sync::atomic::Ordering;

use crate::arena::{Arena, Offset, WORD_BYTES};
use crate::blob::Blob;
use crate::slab::{SizeClass, class_bytes};

/// Longest key that is kept in the slot. Longer keys are kept in a blob, so that a slot always has
/// space for a value of some kilobytes.
pub(crate) const INLINE_KEY_BYTES_MAX: usize = if cfg!(any(loom, shuttle)) { 8 } else { 4 << 10 };

/// Maximum number of bytes that a reader without the lock copies. Longer values are read under the
/// lock, which is cheaper than copying them word by word.
pub(crate) const OPTIMISTIC_BYTES_MAX: usize = 1 << 10;

/// Bytes of an object's record that are its value: a pointer, and a word that describes the object.
pub(crate) const OBJECT_BYTES: usize = 2 * WORD_BYTES;

/// How the value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Bytes in the slot, as they were set.
    Bytes,
    /// Bytes in the slot that were later changed in place (OBJECT ENCODING shows this).
    ChangedBytes,
    /// An integer.
    Integer,
    /// Bytes in a blob.
    Blob,
    /// An object on the heap. Only the holder of the bucket follows its pointer.
    Object,
    /// An object that is one buffer on the heap; the value's length says of which kind. Only the
    /// holder of the bucket follows its pointer.
    Compact,
    /// A value on a device; one word is its locator ([`crate::cold`]). The value's length is that
    /// of the string.
    Cold,
}

impl Form {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Bytes,
            1 => Self::ChangedBytes,
            2 => Self::Integer,
            3 => Self::Blob,
            4 => Self::Object,
            5 => Self::Compact,
            6 => Self::Cold,
            _ => return None,
        })
    }

    fn to_bits(self) -> u8 {
        match self {
            Self::Bytes => 0,
            Self::ChangedBytes => 1,
            Self::Integer => 2,
            Self::Blob => 3,
            Self::Object => 4,
            Self::Compact => 5,
            Self::Cold => 6,
        }
    }

    /// Returns how many bytes of the slot the value takes, given `value_len` of its header.
    #[inline]
    fn value_bytes(self, value_len: usize) -> usize {
        match self {
            Self::Bytes | Self::ChangedBytes => value_len,
            Self::Integer | Self::Blob | Self::Cold => WORD_BYTES,
            Self::Object | Self::Compact => OBJECT_BYTES,
        }
    }

    /// Whether the value is an object in memory.
    #[inline]
    pub(crate) fn is_object(self) -> bool {
        matches!(self, Self::Object | Self::Compact)
    }

    /// Whether the value is bytes in the slot.
    #[inline]
    pub(crate) fn is_inline_bytes(self) -> bool {
        matches!(self, Self::Bytes | Self::ChangedBytes)
    }
}

/// The first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(u64);

/// Fields that a record has besides its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Length of the key in bytes, or `None` if the key is not in the slot.
    pub(crate) inline_key: Option<u16>,
    pub(crate) has_deadline: bool,
    pub(crate) has_etag: bool,
    pub(crate) has_clock: bool,
}

impl Fields {
    /// Bytes of a slot in front of the value.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        let key = self
            .inline_key
            .map_or(WORD_BYTES, |len| pad(usize::from(len)));
        let words = [self.has_deadline, self.has_etag, self.has_clock];
        let words: usize = words.into_iter().map(usize::from).sum();
        (1 + words) * WORD_BYTES + key
    }
}

impl Header {
    const DEADLINE: u64 = 1 << 28;
    const ETAG: u64 = 1 << 29;
    const CLOCK: u64 = 1 << 30;
    const LONG_KEY: u64 = 1 << 31;

    /// Returns the header of a record in a slot of `class`.
    #[inline]
    pub(crate) fn new(fields: Fields, class: SizeClass, form: Form, value_len: u32) -> Self {
        let mut word = u64::from(class.number()) << 16
            | u64::from(form.to_bits()) << 24
            | u64::from(value_len) << 32;
        word |= match fields.inline_key {
            Some(len) => u64::from(len),
            None => Self::LONG_KEY,
        };
        if fields.has_deadline {
            word |= Self::DEADLINE;
        }
        if fields.has_etag {
            word |= Self::ETAG;
        }
        if fields.has_clock {
            word |= Self::CLOCK;
        }
        Self(word)
    }

    #[inline]
    fn byte(self, at: usize) -> u8 {
        self.0.to_le_bytes()[at]
    }

    /// Looks up the flags in [`FRONTS`].
    #[inline]
    fn front(self) -> Front {
        FRONTS[usize::from(self.byte(3) >> 4)]
    }

    /// Length of the key, if it is in the slot.
    #[inline]
    fn key_field(self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(0), self.byte(1)]))
    }

    /// The fields that the record has besides its value.
    #[inline]
    pub(crate) fn fields(self) -> Fields {
        let key_len = u16::from_le_bytes([self.byte(0), self.byte(1)]);
        Fields {
            inline_key: (self.0 & Self::LONG_KEY == 0).then_some(key_len),
            has_deadline: self.has_deadline(),
            has_etag: self.has_etag(),
            has_clock: self.0 & Self::CLOCK != 0,
        }
    }

    /// Size class of the slot, or `None` for garbage.
    #[inline]
    pub(crate) fn class(self) -> Option<SizeClass> {
        SizeClass::from_number(self.byte(2))
    }

    /// How the value is kept, or `None` for garbage.
    #[inline]
    pub(crate) fn form(self) -> Option<Form> {
        Form::from_bits(self.byte(3) & 0xf)
    }

    /// How the value is kept, if [`View::load_short`] accepts that form.
    #[inline(always)]
    fn short_form(self) -> Option<Form> {
        match self.byte(3) & 0xf {
            0 => Some(Form::Bytes),
            1 => Some(Form::ChangedBytes),
            2 => Some(Form::Integer),
            _ => None,
        }
    }

    /// Length of the value in bytes (not of an integer, which is always a word).
    #[inline]
    pub(crate) fn value_len(self) -> usize {
        let [.., a, b, c, d] = self.0.to_le_bytes();
        usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX)
    }

    /// Whether the record has a word for a deadline.
    #[inline]
    pub(crate) fn has_deadline(self) -> bool {
        self.0 & Self::DEADLINE != 0
    }

    /// Whether the record has a word for an etag.
    #[inline]
    pub(crate) fn has_etag(self) -> bool {
        self.0 & Self::ETAG != 0
    }

    /// Index of the etag's word.
    #[inline]
    fn etag_at(self) -> usize {
        1 + usize::from(self.has_deadline())
    }

    /// Index of the clock's word.
    #[inline]
    pub(crate) fn clock_at(self) -> Option<usize> {
        (self.0 & Self::CLOCK != 0).then_some(self.etag_at() + usize::from(self.has_etag()))
    }

    /// Bytes from the record's start to its key.
    #[inline]
    pub(crate) fn key_at(self) -> usize {
        usize::from(self.front().key_words) * WORD_BYTES
    }

    /// Bytes from the record's start to its value.
    #[inline]
    pub(crate) fn value_at(self) -> usize {
        let key_len = self.key_field();
        usize::from(self.front().value_words) * WORD_BYTES + pad(key_len)
    }

    /// Returns the header of the same record in a slot of another class.
    pub(crate) fn with_class(self, class: SizeClass) -> Self {
        Self(self.0 & !(0xff << 16) | u64::from(class.number()) << 16)
    }

    /// Returns the header of the same record with another value.
    #[inline]
    pub(crate) fn with_value(self, form: Form, value_len: u32) -> Self {
        let kept = self.0 & 0xffff_ffff & !(0xf << 24);
        Self(kept | u64::from(form.to_bits()) << 24 | u64::from(value_len) << 32)
    }
}

/// What the flags of a header say about places in the record. Counted in words, so that the
/// compiler sees that keys and values begin at a word.
#[derive(Clone, Copy)]
struct Front {
    /// Words in front of the key.
    key_words: u8,
    /// Words in front of the value, without an inline key.
    value_words: u8,
}

/// Indexed by the four flags. A table, because every access to a record needs it.
const FRONTS: [Front; 16] = {
    let mut fronts = [Front {
        key_words: 0,
        value_words: 0,
    }; 16];
    let mut flags = 0_u8;
    while flags < 16 {
        let key_words = 1 + (flags & 1) + (flags >> 1 & 1) + (flags >> 2 & 1);
        fronts[flags as usize] = Front {
            key_words,
            value_words: key_words + (flags >> 3),
        };
        flags += 1;
    }
    fronts
};

/// Rounds `bytes` up to whole words.
#[inline]
pub(crate) fn pad(bytes: usize) -> usize {
    (bytes + WORD_BYTES - 1) & !(WORD_BYTES - 1)
}

/// A record in its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    arena: &'a Arena,
    offset: Offset,
    header: Header,
    form: Form,
    /// [`Header::value_at`], kept because it is needed often.
    value_at: usize,
}

impl<'a> View<'a> {
    /// Loads what is at `offset`, if that is a whole record. The holder of the bucket always gets
    /// one. Other threads may get a mixture of several records, but never one that leads out of the
    /// arena.
    #[inline]
    pub(crate) fn load(arena: &'a Arena, offset: Offset) -> Option<Self> {
        let header = Header(arena.first_word(offset).load(Ordering::Relaxed));
        let (class, form) = (header.class()?, header.form()?);
        let value_bytes = form.value_bytes(header.value_len());
        let slot_bytes = class_bytes(class);
        let value_at = header.value_at();
        let fits = value_at + value_bytes <= slot_bytes;
        let inside = offset.bytes() + slot_bytes as u64 <= arena.bytes() as u64;
        (fits && inside).then_some(Self {
            arena,
            offset,
            header,
            form,
            value_at,
        })
    }

    /// As [`View::load`], for a record that is [short](View::is_short) and has its key in the slot,
    /// as nearly all do. The record must end inside the arena; then nothing torn in it leads out of
    /// the arena. Returns `None` for other records.
    #[inline(always)]
    pub(crate) fn load_short(arena: &'a Arena, offset: Offset) -> Option<Self> {
        let header = Header(arena.first_word(offset).load(Ordering::Relaxed));
        let form = header.short_form()?;
        let value_len = header.value_len();
        if header.0 & Header::LONG_KEY != 0 || value_len > OPTIMISTIC_BYTES_MAX {
            return None;
        }
        let value_at = header.key_at() + pad(header.key_field());
        // One word more, for an integer, whose length is not in the header.
        let bytes = value_at + value_len + WORD_BYTES;
        let inside = offset.bytes() + bytes as u64 <= arena.bytes() as u64;
        inside.then_some(Self {
            arena,
            offset,
            header,
            form,
            value_at,
        })
    }

    /// As [`View::load_short`], if the record's key is `key`.
    #[inline(always)]
    pub(crate) fn find_short(arena: &'a Arena, offset: Offset, key: &[u8]) -> Option<Self> {
        let view = Self::load_short(arena, offset)?;
        let (len, at) = (view.header.key_field(), view.header.key_at());
        // SAFETY: the key ends at or before the start of the value, and that is inside the arena.
        let is_it = len == key.len() && unsafe { arena.matches_inside(offset, at, key) };
        is_it.then_some(view)
    }

    /// Loads the record at `offset`. The caller holds the bucket, so there is a whole record.
    #[inline]
    pub(crate) fn held(arena: &'a Arena, offset: Offset) -> Option<Self> {
        let header = Header(arena.first_word(offset).load(Ordering::Relaxed));
        let view = Self {
            arena,
            offset,
            header,
            form: header.form()?,
            value_at: header.value_at(),
        };
        debug_assert!(Self::load(arena, offset).is_some(), "a whole record");
        Some(view)
    }

    /// Returns the word that leads to the object of the record at `offset`, or any number; `None`
    /// if the record has no object. For a caller that does not hold the bucket and only wants
    /// advice.
    #[inline]
    pub(crate) fn object_at(arena: &Arena, offset: Offset) -> Option<u64> {
        let header = Header(arena.first_word(offset).load(Ordering::Relaxed));
        if !header.form().is_some_and(Form::is_object) {
            return None;
        }
        let at = header.value_at();
        let inside = offset.bytes() + (at + OBJECT_BYTES) as u64 <= arena.bytes() as u64;
        inside.then(|| arena.word(offset, at / WORD_BYTES).load(Ordering::Relaxed))
    }

    /// Whether the record at `offset` names a cold value. For a caller that does not hold the
    /// bucket and only wants advice.
    #[inline]
    pub(crate) fn is_stub_at(arena: &Arena, offset: Offset) -> bool {
        let header = Header(arena.first_word(offset).load(Ordering::Relaxed));
        header.form() == Some(Form::Cold)
    }

    /// Writes the first word of a record into a newly allocated slot.
    #[inline]
    pub(crate) fn create(arena: &'a Arena, offset: Offset, header: Header) -> Option<Self> {
        arena.word(offset, 0).store(header.0, Ordering::Relaxed);
        Self::load(arena, offset)
    }

    /// Offset of the record.
    #[inline]
    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    /// Bytes from the record's start to its value.
    #[inline]
    pub(crate) fn value_at(&self) -> usize {
        self.value_at
    }

    /// Bytes of the slot that the record uses.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        self.value_at + self.form.value_bytes(self.header.value_len())
    }

    /// The record's first word.
    #[inline]
    pub(crate) fn header(&self) -> Header {
        self.header
    }

    /// Appends the record's key to `out` and returns whether the key is in the slot. Without the
    /// lock the copy may be torn.
    pub(crate) fn copy_inline_key(&self, out: &mut Vec<u8>) -> bool {
        let Some(len) = self.header.fields().inline_key else {
            return false;
        };
        out.clear();
        out.resize(usize::from(len), 0);
        self.arena.copy_out(self.offset, self.header.key_at(), out);
        true
    }

    /// How the record's value is kept.
    #[inline]
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Whether the whole record is words in the slot that can be copied without the lock.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        match self.form {
            Form::Bytes | Form::ChangedBytes => self.header.value_len() <= OPTIMISTIC_BYTES_MAX,
            Form::Integer => true,
            Form::Blob | Form::Object | Form::Compact | Form::Cold => false,
        }
    }

    /// Size class of the record's slot.
    #[inline]
    pub(crate) fn class(&self) -> SizeClass {
        // Every record that is not garbage has a class.
        self.header.class().unwrap_or_default()
    }

    /// The arena that the record is in.
    #[inline]
    pub(crate) fn arena(&self) -> &'a Arena {
        self.arena
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.arena.word(self.offset, at).load(Ordering::Relaxed)
    }

    #[inline]
    fn set_word(&self, at: usize, word: u64) {
        self.arena
            .word(self.offset, at)
            .store(word, Ordering::Relaxed);
    }

    /// Whether the record's key is `key`. Returns `None` for a long key, which must not be read
    /// without the lock.
    #[inline(always)]
    pub(crate) fn inline_key_is(&self, key: &[u8]) -> Option<bool> {
        let len = usize::from(self.header.fields().inline_key?);
        Some(len == key.len() && self.arena.matches(self.offset, self.header.key_at(), key))
    }

    /// Whether the record has nothing but a key and a value.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        const MORE: u64 = Header::DEADLINE | Header::ETAG | Header::CLOCK | Header::LONG_KEY;
        self.header.0 & MORE == 0
    }

    /// Whether the record has a word for a deadline or a clock.
    #[inline]
    pub(crate) fn has_times(&self) -> bool {
        self.header.0 & (Header::DEADLINE | Header::CLOCK) != 0
    }

    /// The record's deadline.
    #[inline]
    pub(crate) fn deadline_unix_ms(&self) -> Option<u64> {
        if self.header.has_deadline() {
            Some(self.word(1)).filter(|&deadline| deadline != 0)
        } else {
            None
        }
    }

    /// Whether the record has expired.
    #[inline]
    pub(crate) fn is_expired(&self, now_unix_ms: u64) -> bool {
        self.deadline_unix_ms().is_some_and(|at| at <= now_unix_ms)
    }

    /// Changes the deadline. The caller holds the bucket, and the record has a word for a deadline.
    pub(crate) fn set_deadline(&self, deadline_unix_ms: Option<u64>) {
        debug_assert!(self.header.has_deadline());
        self.set_word(1, deadline_unix_ms.unwrap_or(0));
    }

    /// The etag; 0 for none.
    #[inline]
    pub(crate) fn etag(&self) -> u64 {
        if self.header.has_etag() {
            self.word(self.header.etag_at())
        } else {
            0
        }
    }

    /// Changes the etag. The caller holds the bucket, and the record has a word for an etag.
    pub(crate) fn set_etag(&self, etag: u64) {
        debug_assert!(self.header.has_etag());
        self.set_word(self.header.etag_at(), etag);
    }

    /// The clock's word.
    #[inline]
    pub(crate) fn clock(&self) -> Option<u64> {
        self.header.clock_at().map(|at| self.word(at))
    }

    /// Changes the clock's word, if there is one. The caller holds the bucket.
    #[inline]
    pub(crate) fn set_clock(&self, clock: u64) {
        if let Some(at) = self.header.clock_at() {
            self.set_word(at, clock);
        }
    }

    /// The word that stands in place of bytes: an integer, or the name of a blob.
    #[inline]
    pub(crate) fn value_word(&self) -> u64 {
        self.word(self.value_at / WORD_BYTES)
    }

    /// Changes the word that stands in place of bytes. The caller holds the bucket.
    #[inline]
    pub(crate) fn set_value_word(&self, word: u64) {
        self.set_word(self.value_at / WORD_BYTES, word);
    }

    /// The second of the words that lead to an object: it describes the object.
    #[inline]
    pub(crate) fn second_word(&self) -> u64 {
        self.word(self.value_at / WORD_BYTES + 1)
    }

    /// Changes the second of the words that lead to an object. The caller holds the bucket.
    #[inline]
    pub(crate) fn set_second_word(&self, word: u64) {
        self.set_word(self.value_at / WORD_BYTES + 1, word);
    }

    /// The integer, if the record is one.
    #[inline]
    pub(crate) fn integer(&self) -> i64 {
        self.value_word().cast_signed()
    }

    /// The word that names the blob with a long key.
    #[inline]
    pub(crate) fn long_key_word(&self) -> Option<u64> {
        let is_long = self.header.fields().inline_key.is_none();
        is_long.then(|| self.word(self.header.key_at() / WORD_BYTES))
    }

    /// Changes the word that names the blob with a long key. The caller holds the bucket.
    pub(crate) fn set_long_key_word(&self, word: u64) {
        self.set_word(self.header.key_at() / WORD_BYTES, word);
    }

    /// Writes an inline key into the slot. The caller holds the bucket.
    #[inline]
    pub(crate) fn write_key(&self, key: &[u8]) {
        self.arena.copy_in(self.offset, self.header.key_at(), key);
    }

    /// Writes bytes of an inline value, from `at` on. The caller holds the bucket.
    #[inline]
    pub(crate) fn write_value(&self, at: usize, bytes: &[u8]) {
        let at = self.value_at + at;
        self.arena.copy_in(self.offset, at, bytes);
    }

    /// Sets bytes of an inline value to zero. The caller holds the bucket.
    pub(crate) fn zero_value(&self, at: usize, len: usize) {
        let at = self.value_at + at;
        self.arena.zero(self.offset, at, len);
    }

    /// Maximum number of bytes of a value in this slot.
    #[inline]
    pub(crate) fn value_room(&self) -> usize {
        class_bytes(self.class()) - self.value_at
    }

    /// Replaces the first word. The caller holds the bucket.
    #[inline]
    pub(crate) fn set_header(&mut self, header: Header) {
        self.header = header;
        self.form = header.form().unwrap_or(self.form);
        self.set_word(0, header.0);
    }

    /// Runs `look` with the key's bytes.
    ///
    /// # Safety
    /// The caller holds the record's bucket.
    pub(crate) unsafe fn with_key<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.long_key_word() {
            Some(word) => {
                // SAFETY: the word of a record's long key names a blob, and the bucket is held.
                let blob = unsafe { Blob::look(word) };
                let mut key = vec![0; blob.len()];
                blob.copy_to(0, &mut key);
                look(&key)
            }
            None => {
                let len = usize::from(self.header.fields().inline_key.unwrap_or(0));
                // SAFETY: passed on to the caller.
                unsafe { self.with_bytes(self.header.key_at(), len, look) }
            }
        }
    }

    /// Whether the record's key is `key`, long or not.
    ///
    /// # Safety
    /// The caller holds the record's bucket.
    #[inline]
    pub(crate) unsafe fn key_is(&self, key: &[u8]) -> bool {
        self.inline_key_is(key).unwrap_or_else(|| {
            // SAFETY: passed on to the caller.
            unsafe { self.with_key(|own| own == key) }
        })
    }

    /// Runs `look` with the bytes of an inline value.
    ///
    /// # Safety
    /// The caller holds the record's bucket.
    #[inline]
    pub(crate) unsafe fn with_inline_value<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        debug_assert!(self.form.is_inline_bytes());
        // SAFETY: passed on to the caller.
        unsafe { self.with_bytes(self.value_at, self.header.value_len(), look) }
    }

    /// Runs `look` with the first `bytes` of the slot. The slot must have that many.
    ///
    /// # Safety
    /// The caller holds the record's bucket.
    pub(crate) unsafe fn with_slot<R>(&self, bytes: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: passed on to the caller.
        unsafe { self.with_bytes(0, bytes, look) }
    }

    /// # Safety
    /// The caller holds the record's bucket.
    #[inline]
    unsafe fn with_bytes<R>(&self, at: usize, len: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        #[cfg(not(any(loom, shuttle)))]
        {
            // SAFETY: only the holder of the bucket may write to the slots that its links name, and
            // the caller does not do so while `look` runs.
            look(unsafe { self.arena.bytes_under_lock(self.offset, at..at + len) })
        }
        #[cfg(any(loom, shuttle))]
        {
            let mut bytes = vec![0; len];
            self.arena.copy_out(self.offset, at, &mut bytes);
            look(&bytes)
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::slab::class_for;

    #[test]
    fn a_header_says_what_it_was_told() {
        let class = class_for(640).unwrap();
        for bits in 0..8 {
            let [has_deadline, has_etag, has_clock] = [1, 2, 4].map(|bit| bits & bit != 0);
            for inline_key in [None, Some(0), Some(7), Some(u16::MAX)] {
                let fields = Fields {
                    inline_key,
                    has_deadline,
                    has_etag,
                    has_clock,
                };
                let header = Header::new(fields, class, Form::Integer, 0);
                assert_eq!(header.fields(), fields);
                assert_eq!(
                    (header.class(), header.form()),
                    (Some(class), Some(Form::Integer))
                );
                assert_eq!(header.value_at(), fields.bytes());
                let changed = header.with_value(Form::ChangedBytes, u32::MAX);
                assert_eq!(changed.fields(), fields);
                assert_eq!(changed.class(), Some(class));
                assert_eq!(changed.form(), Some(Form::ChangedBytes));
                assert_eq!(changed.value_len(), 0xffff_ffff);
            }
        }
    }

    #[test]
    fn fields_do_not_overlap() {
        let fields = Fields {
            inline_key: Some(9),
            has_deadline: true,
            has_etag: true,
            has_clock: true,
        };
        let header = Header::new(fields, class_for(64).unwrap(), Form::Bytes, 0);
        assert_eq!((header.etag_at(), header.clock_at()), (2, Some(3)));
        assert_eq!((header.key_at(), header.value_at()), (32, 32 + 16));
        let plain = Fields {
            has_deadline: false,
            has_etag: false,
            ..fields
        };
        let header = Header::new(plain, class_for(64).unwrap(), Form::Bytes, 0);
        assert_eq!((header.clock_at(), header.key_at()), (Some(1), 16));
    }

    #[test]
    fn an_object_uses_both_of_its_words() {
        use crate::arena::HugePages;
        let arena = Arena::with_reserve(2 << 20, 2 << 20, HugePages::Never).unwrap();
        let fields = Fields {
            inline_key: Some(16),
            has_deadline: false,
            has_etag: false,
            has_clock: false,
        };
        let class = class_for(fields.bytes() + OBJECT_BYTES).unwrap();
        let header = Header::new(fields, class, Form::Object, 0);
        let view = View::create(&arena, Offset::new(64).unwrap(), header).unwrap();
        assert_eq!(view.used_bytes(), 8 + 16 + OBJECT_BYTES);
    }

    #[test]
    fn garbage_never_leads_out_of_the_slot() {
        use crate::arena::HugePages;
        let arena = Arena::with_reserve(2 << 20, 2 << 20, HugePages::Never).unwrap();
        let mut random = base::random::Prng::seeded(3);
        let last = Offset::new(arena.bytes() as u64 - 16).unwrap();
        let middle = Offset::new(1 << 20).unwrap();
        let rounds = if cfg!(miri) { 200 } else { 100_000 };
        for offset in [middle, last] {
            for _ in 0..rounds {
                let word = random.next_u64() & random.next_u64() & random.next_u64();
                arena.word(offset, 0).store(word, Ordering::Relaxed);
                let Some(view) = View::load(&arena, offset) else {
                    continue;
                };
                // None of these calls may panic.
                let _deadline = view.deadline_unix_ms();
                let _clock = view.clock();
                let _is = view.inline_key_is(b"12345678901234567890");
                if view.form().is_inline_bytes() {
                    let mut out = vec![0; view.header().value_len()];
                    arena.copy_out(offset, view.header().value_at(), &mut out);
                } else {
                    let _word = view.value_word();
                }
            }
        }
    }
}
