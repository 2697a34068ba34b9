//! Views of one record while an operation holds it: [`Record`] to read, [`Entry`] to change.

use std::ops::Range;

use crate::effect::{Effect, EffectSink};
use crate::key::Key;
use crate::naive::{Cell, Data, Map};
use crate::value::{Cause, Deadline, Encoding, Kind, StoreError};

/// A live record, as a reader sees it.
///
/// A reader may look while a writer writes: what it was given counts only once the store has
/// validated it, so a visitor may be run again and has to undo what it did before. That is why this
/// type hands out copies and short-lived chunks, never a reference that outlives the visit.
pub struct Record<'a> {
    key: &'a [u8],
    cell: &'a Cell,
}

impl<'a> Record<'a> {
    fn new(key: &'a [u8], cell: &'a Cell) -> Self {
        Self { key, cell }
    }

    pub(crate) fn naive(key: &'a [u8], cell: &'a Cell) -> Self {
        Self::new(key, cell)
    }

    /// The key's bytes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// What TYPE answers.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::String
    }

    /// What OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.cell.data.encoding()
    }

    /// Length of the string in bytes (of its text, when it is kept as a number).
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.cell.data {
            Data::Integer(number) => number.to_string().len(),
            Data::Bytes { bytes, .. } => bytes.len(),
        }
    }

    /// Whether the string has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number, when the value is kept as one.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self.cell.data {
            Data::Integer(number) => Some(number),
            Data::Bytes { .. } => None,
        }
    }

    /// When the key stops existing, in milliseconds since 1970 UTC.
    #[must_use]
    pub fn deadline_unix_ms(&self) -> Option<u64> {
        self.cell.deadline_unix_ms
    }

    /// Copies `out.len()` bytes of the string, from `start` on. The range must lie within
    /// [`Record::len`]; bytes beyond it are left as they are.
    pub fn copy_to(&self, start: usize, out: &mut [u8]) {
        let bytes = self.cell.data.to_bytes();
        if let Some(source) = bytes.get(start..(start + out.len()).min(bytes.len())) {
            out[..source.len()].copy_from_slice(source);
        }
    }

    /// Calls `visit` with the bytes of `range` in order, in one or more pieces. A piece of a value
    /// of several pages starts at a multiple of eight bytes from the value's start.
    pub fn for_each_chunk(&self, range: Range<usize>, mut visit: impl FnMut(&[u8])) {
        let bytes = self.cell.data.to_bytes();
        visit(&bytes[range.start.min(bytes.len())..range.end.min(bytes.len())]);
    }

    /// The whole string in a buffer of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// Bytes the record costs: key, value, header and index share (MEMORY USAGE).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.key.len() + self.len() + 48
    }

    /// Seconds since the record was last used, where the policy keeps a clock; otherwise 0.
    #[must_use]
    pub fn idle_seconds(&self) -> u64 {
        0
    }

    /// The logarithmic use counter, where the policy keeps one; otherwise 0.
    #[must_use]
    pub fn frequency(&self) -> u8 {
        0
    }
}

/// A value taken out of, or made for, a record: moves between keys without being rebuilt.
#[derive(Clone, Debug)]
pub struct Owned {
    cell: Cell,
}

impl Owned {
    /// When the value stops existing where it is put.
    #[must_use]
    pub fn deadline_unix_ms(&self) -> Option<u64> {
        self.cell.deadline_unix_ms
    }

    /// The value's bytes (its effect needs them).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.cell.data.to_bytes()
    }
}

/// One key's place in the store, locked for a change.
///
/// An expired record is gone (and its removal stated) before the caller sees the entry.
pub struct Entry<'a> {
    key: Key<'a>,
    map: &'a mut Map,
    sink: Option<&'a mut (dyn EffectSink + 'static)>,
}

impl<'a> Entry<'a> {
    pub(crate) fn naive(
        key: Key<'a>,
        map: &'a mut Map,
        sink: Option<&'a mut (dyn EffectSink + 'static)>,
        now_unix_ms: u64,
    ) -> Self {
        let mut entry = Self { key, map, sink };
        let expired = entry
            .map
            .get(key.bytes())
            .is_some_and(|cell| cell.deadline_unix_ms.is_some_and(|at| at <= now_unix_ms));
        if expired {
            entry.map.remove(key.bytes());
            if let Some(sink) = entry.sink.as_deref_mut() {
                sink.removed(key.database(), key.bytes(), Cause::Expired);
            }
        }
        entry
    }

    /// The key this entry is for.
    #[must_use]
    pub fn key(&self) -> Key<'a> {
        self.key
    }

    /// The live record, if there is one.
    #[must_use]
    pub fn record(&self) -> Option<Record<'_>> {
        self.map
            .get(self.key.bytes())
            .map(|cell| Record::new(self.key.bytes(), cell))
    }

    /// Whether the key exists.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.map.contains_key(self.key.bytes())
    }

    /// Makes the key hold `value`, as a number when it is the canonical text of one.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] or [`StoreError::TooLarge`]; the record is unchanged.
    pub fn set(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        self.replace(Data::from_bytes(value), deadline);
        Ok(())
    }

    /// Makes the key hold `value` as bytes, whatever they spell (BITOP, SETRANGE on a new key …).
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_raw(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        self.replace(
            Data::Bytes {
                bytes: value.to_vec(),
                changed_in_place: true,
            },
            deadline,
        );
        Ok(())
    }

    /// Makes the key hold `value` as bytes that OBJECT ENCODING may call `embstr` (INCRBYFLOAT).
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_text(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        self.replace(
            Data::Bytes {
                bytes: value.to_vec(),
                changed_in_place: false,
            },
            deadline,
        );
        Ok(())
    }

    /// Makes the key hold a number.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_integer(&mut self, value: i64, deadline: Deadline) -> Result<(), StoreError> {
        self.replace(Data::Integer(value), deadline);
        Ok(())
    }

    /// Adds `tail` behind the string (an absent key starts empty); gives the new length.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn append(&mut self, tail: &[u8]) -> Result<usize, StoreError> {
        let bytes = self.bytes_mut();
        bytes.extend_from_slice(tail);
        Ok(bytes.len())
    }

    /// Overwrites the string from `offset` on, with zero bytes up to there if it is shorter (an
    /// absent key starts empty); gives the new length.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn write_at(&mut self, offset: usize, data: &[u8]) -> Result<usize, StoreError> {
        let end = offset.checked_add(data.len()).ok_or(StoreError::TooLarge)?;
        let bytes = self.bytes_mut();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(data);
        Ok(bytes.len())
    }

    /// Sets or clears the deadline of an existing record (`None`: lives on); no effect on an absent
    /// key.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_deadline(&mut self, deadline_unix_ms: Option<u64>) -> Result<(), StoreError> {
        if let Some(cell) = self.map.get_mut(self.key.bytes()) {
            cell.deadline_unix_ms = deadline_unix_ms;
        }
        Ok(())
    }

    /// Deletes the record; whether there was one.
    pub fn remove(&mut self) -> bool {
        self.map.remove(self.key.bytes()).is_some()
    }

    /// Marks the record as used now (TOUCH, GETEX).
    pub fn touch(&mut self) {}

    /// Moves the value out, deadline included; the key is then absent.
    pub fn take(&mut self) -> Option<Owned> {
        self.map.remove(self.key.bytes()).map(|cell| Owned { cell })
    }

    /// A copy of the value, deadline included. Large values share pages until one is changed.
    #[must_use]
    pub fn duplicate(&self) -> Option<Owned> {
        self.map
            .get(self.key.bytes())
            .map(|cell| Owned { cell: cell.clone() })
    }

    /// Makes the key hold a value that came from [`Entry::take`] or [`Entry::duplicate`], with that
    /// value's deadline.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn put(&mut self, value: Owned) -> Result<(), StoreError> {
        self.map.insert(self.key.bytes().to_vec(), value.cell);
        Ok(())
    }

    /// States what was done, while the record is still locked. `state` runs only when someone
    /// listens.
    pub fn effect(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        if let Some(sink) = self.sink.as_deref_mut() {
            state(&mut Effect::new(sink, self.key.database()));
        }
    }

    fn bytes_mut(&mut self) -> &mut Vec<u8> {
        let empty = Data::Bytes {
            bytes: Vec::new(),
            changed_in_place: true,
        };
        self.map
            .entry(self.key.bytes().to_vec())
            .or_insert(Cell {
                data: empty,
                deadline_unix_ms: None,
            })
            .data
            .bytes_mut()
    }

    fn replace(&mut self, data: Data, deadline: Deadline) {
        let deadline_unix_ms = match deadline {
            Deadline::Keep => self
                .map
                .get(self.key.bytes())
                .and_then(|cell| cell.deadline_unix_ms),
            Deadline::Never => None,
            Deadline::At(at) => Some(at),
        };
        self.map.insert(
            self.key.bytes().to_vec(),
            Cell {
                data,
                deadline_unix_ms,
            },
        );
    }
}
