//! A hash: fields with values. Few fields are one block, many are a table. Each field may have a
//! deadline.
//!
//! Only the table can keep deadlines, so the first deadline turns a small hash into a table, too.
//! While such a hash is small, its encoding is `listpackex`, as for Redis' small hashes with
//! deadlines.
//!
//! A reader with a time after a field's deadline no longer sees the field, whether or not
//! [`Hash::expire`] has removed it yet.

use crate::compact::{CompactKind, OneBuffer};
use crate::element::{Element, ElementText};
use crate::kind::Encoding;
use crate::packed::{At, Packed};
use crate::relocation::Relocation;
use crate::table::{Entry, Full, Table};

/// Limits up to which a hash is kept in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashLimits {
    /// Maximum number of fields: `hash-max-listpack-entries`.
    pub listpack_entries: usize,
    /// Maximum bytes of a field or a value: `hash-max-listpack-value`.
    pub listpack_value_bytes: usize,
}

/// What happens to a field's deadline when the field's value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDeadline {
    /// The deadline stays.
    Keep,
    /// The field has no deadline from now on.
    Never,
    /// The deadline becomes this, in milliseconds since 1970.
    At(u64),
}

/// A field as a reader sees it.
#[derive(Debug)]
pub struct Field<'a> {
    /// Its name.
    pub name: ElementText<'a>,
    /// Its value.
    pub value: ElementText<'a>,
    /// Time at which it expires, in milliseconds since 1970.
    pub deadline_unix_ms: Option<u64>,
}

/// A set of fields with values.
#[derive(Clone, Debug)]
pub struct Hash {
    form: Repr,
}

#[derive(Clone, Debug)]
enum Repr {
    /// Names and values in turn.
    Packed(Packed),
    Table(Box<Table>),
    /// A table that exists only because of deadlines.
    SmallTable(Box<Table>),
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

/// Two hashes are equal if their fields are, with values and deadlines, whatever their
/// representation.
impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        let has = |field: Field<'_>| {
            other.get(field.name.as_bytes(), 0).is_some_and(|twin| {
                twin.value.as_bytes() == field.value.as_bytes()
                    && twin.deadline_unix_ms == field.deadline_unix_ms
            })
        };
        self.len() == other.len() && self.iter(0).all(has)
    }
}

impl Hash {
    /// Creates a hash without fields. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            form: Repr::Packed(Packed::new()),
        }
    }

    /// Takes the buffer out of a hash that is one block; see [`Packed::take_buffer`].
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Option<(CompactKind, OneBuffer)> {
        match &mut self.form {
            Repr::Packed(packed) => Some((CompactKind::Hash, packed.take_buffer()?)),
            Repr::Table(_) | Repr::SmallTable(_) => None,
        }
    }

    /// Returns the hash that is one block with this buffer.
    #[inline]
    pub(crate) fn from_buffer(_: CompactKind, buffer: OneBuffer) -> Self {
        Self {
            form: Repr::Packed(Packed::from_buffer(buffer)),
        }
    }

    /// Returns the number of fields, including those whose deadline has passed.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Repr::Packed(packed) => packed.len() / 2,
            Repr::Table(table) | Repr::SmallTable(table) => table.len(),
        }
    }

    /// Whether it has no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of fields at `now_unix_ms`. Constant time while no deadline has passed.
    #[must_use]
    pub fn len_at(&self, now_unix_ms: u64) -> usize {
        if self.has_due(now_unix_ms) {
            self.iter(now_unix_ms).count()
        } else {
            self.len()
        }
    }

    /// Whether there may be fields whose deadline is not after `now_unix_ms`. Constant time. May be
    /// wrong about a field whose deadline was changed.
    #[inline]
    #[must_use]
    pub fn has_due(&self, now_unix_ms: u64) -> bool {
        match &self.form {
            Repr::Packed(_) => false,
            Repr::Table(table) | Repr::SmallTable(table) => table.has_due(now_unix_ms),
        }
    }

    /// Returns the answer of OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Repr::Packed(_) => Encoding::Listpack,
            Repr::SmallTable(_) => Encoding::ListpackEx,
            Repr::Table(_) => Encoding::Hashtable,
        }
    }

    /// Returns the bytes it takes beside itself, as the allocator rounds them. Constant time.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Repr::Packed(packed) => packed.memory_bytes(),
            Repr::Table(table) | Repr::SmallTable(table) => table.memory_bytes(),
        }
    }

    /// Moves the pieces it consists of, as far as the relocation allows.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        match &mut self.form {
            Repr::Packed(packed) if relocation.is_one_next() => packed.move_pieces(relocation),
            Repr::Packed(_) => {}
            Repr::Table(table) | Repr::SmallTable(table) => {
                if relocation.is_one_next() {
                    relocation.boxed(table, Table::new);
                }
                table.move_pieces(relocation);
            }
        }
    }

    /// Returns the approximate number of its allocations, which is the cost of freeing it.
    #[must_use]
    pub fn allocations(&self) -> usize {
        match &self.form {
            Repr::Packed(_) => 1,
            Repr::Table(table) | Repr::SmallTable(table) => table.allocations(),
        }
    }

    /// Returns the block with names and values in turn, or `None` if it is a table.
    #[must_use]
    pub fn packed(&self) -> Option<&Packed> {
        match &self.form {
            Repr::Packed(packed) => Some(packed),
            Repr::Table(_) | Repr::SmallTable(_) => None,
        }
    }

    /// Returns the field `name`, or `None` if it does not exist at `now_unix_ms`.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &[u8], now_unix_ms: u64) -> Option<Field<'_>> {
        match &self.form {
            Repr::Packed(packed) => {
                let place = find(packed, name)?;
                Some(Field {
                    name: packed.get(place)?.text(),
                    value: packed.get(packed.after(place))?.text(),
                    deadline_unix_ms: None,
                })
            }
            Repr::Table(table) | Repr::SmallTable(table) => {
                let entry = table.get(name)?;
                is_there(&entry, now_unix_ms).then(|| field(entry))
            }
        }
    }

    /// Prefetches what a lookup of these fields will read, for at most [`AHEAD_MAX`] of them.
    ///
    /// [`AHEAD_MAX`]: crate::table::AHEAD_MAX
    #[inline]
    pub fn prefetch<'n>(&self, names: impl Iterator<Item = &'n [u8]>) {
        if let Repr::Table(table) = &self.form {
            table.prefetch(names);
        }
    }

    /// Sets the value of a field. Returns whether the field was absent at `now_unix_ms`. A deadline
    /// that has passed is not kept.
    ///
    /// # Errors
    /// [`Full`] if there is no space for another field; the hash is unchanged.
    pub fn set(
        &mut self,
        name: &[u8],
        value: &[u8],
        deadline: FieldDeadline,
        now_unix_ms: u64,
        limits: &HashLimits,
    ) -> Result<bool, Full> {
        if let Repr::Packed(packed) = &mut self.form {
            let place = find(packed, name);
            let is_plain = !matches!(deadline, FieldDeadline::At(_));
            if is_plain && put(packed, place, name, value, limits) {
                return Ok(place.is_none());
            }
        }
        let table = self.table()?;
        let before = table.get(name);
        let before = before.filter(|entry| is_there(entry, now_unix_ms));
        let is_new = before.is_none();
        let deadline_unix_ms = match deadline {
            FieldDeadline::Keep => before.and_then(|entry| entry.deadline_unix_ms),
            FieldDeadline::Never => None,
            FieldDeadline::At(deadline) => Some(deadline),
        };
        table.insert(&Entry {
            key: name,
            value,
            deadline_unix_ms,
        })?;
        let is_long = name.len().max(value.len()) > limits.listpack_value_bytes;
        if is_long || self.len() > limits.listpack_entries {
            self.outgrow();
        }
        Ok(is_new)
    }

    /// Sets or removes the deadline of a field. Returns `false` if the field does not exist.
    ///
    /// # Errors
    /// [`Full`] if there is no space; the hash is unchanged.
    pub fn set_deadline(
        &mut self,
        name: &[u8],
        deadline_unix_ms: Option<u64>,
    ) -> Result<bool, Full> {
        if let Repr::Packed(packed) = &self.form
            && (deadline_unix_ms.is_none() || find(packed, name).is_none())
        {
            return Ok(find(packed, name).is_some());
        }
        let table = self.table()?;
        let Some(entry) = table.get(name) else {
            return Ok(false);
        };
        let value = entry.value.to_vec();
        table.insert(&Entry {
            key: name,
            value: &value,
            deadline_unix_ms,
        })?;
        Ok(true)
    }

    /// Removes a field. Returns whether it existed, even if its deadline had passed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        match &mut self.form {
            Repr::Packed(packed) => match find(packed, name) {
                Some(place) => packed.remove(place, 2) == 2,
                None => false,
            },
            Repr::Table(table) | Repr::SmallTable(table) => table.remove(name),
        }
    }

    /// Returns all fields that exist at `now_unix_ms`: those of a block in the order of their
    /// insertion, those of a table in no order.
    pub fn iter(&self, now_unix_ms: u64) -> impl Iterator<Item = Field<'_>> {
        let (packed, table) = match &self.form {
            Repr::Packed(packed) => (Some(pairs(packed)), None),
            Repr::Table(table) | Repr::SmallTable(table) => (None, Some(table.iter())),
        };
        let table = table.into_iter().flatten();
        let table = table.filter(move |entry| is_there(entry, now_unix_ms));
        packed.into_iter().flatten().chain(table.map(field))
    }

    /// Returns a field drawn with equal probability from those that exist at `now_unix_ms`, by
    /// numbers from `random`. Most fields of the hash must exist: a draw of an expired field is
    /// repeated up to a hundred times; after that the first existing field is returned.
    pub fn random(&self, now_unix_ms: u64, mut random: impl FnMut() -> u64) -> Option<Field<'_>> {
        match &self.form {
            Repr::Packed(packed) => {
                let pairs_count = packed.len() as u64 / 2;
                let chosen = random().checked_rem(pairs_count)?;
                pairs(packed).nth(usize::try_from(chosen).ok()?)
            }
            Repr::Table(table) | Repr::SmallTable(table) => {
                for _ in 0..100 {
                    let entry = table.random(&mut random)?;
                    if is_there(&entry, now_unix_ms) {
                        return Some(field(entry));
                    }
                }
                self.iter(now_unix_ms).next()
            }
        }
    }

    /// Visits about `count` fields from `cursor` on. Returns the next cursor, or 0 at the end. All
    /// fields of a block are visited in one call. A field that exists from the first call to the
    /// last is visited once.
    pub fn scan<'h>(
        &'h self,
        cursor: u64,
        count: usize,
        now_unix_ms: u64,
        mut visit: impl FnMut(Field<'h>),
    ) -> u64 {
        match &self.form {
            Repr::Packed(packed) => {
                pairs(packed).for_each(visit);
                0
            }
            Repr::Table(table) | Repr::SmallTable(table) => table.scan(cursor, count, |entry| {
                if is_there(&entry, now_unix_ms) {
                    visit(field(entry));
                }
            }),
        }
    }

    /// Returns the earliest deadline of all fields.
    pub fn first_deadline_unix_ms(&mut self) -> Option<u64> {
        match &mut self.form {
            Repr::Packed(_) => None,
            Repr::Table(table) | Repr::SmallTable(table) => table.first_deadline_unix_ms(),
        }
    }

    /// Whether any field has a deadline.
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        match &self.form {
            Repr::Packed(_) => false,
            Repr::Table(table) | Repr::SmallTable(table) => table.expiring_len() > 0,
        }
    }

    /// Removes at most `count` fields whose deadline is not after `now_unix_ms`, and calls `visit`
    /// with each before its removal. Returns the number of removed fields.
    pub fn expire(
        &mut self,
        now_unix_ms: u64,
        count: usize,
        mut visit: impl FnMut(Field<'_>),
    ) -> usize {
        match &mut self.form {
            Repr::Packed(_) => 0,
            Repr::Table(table) | Repr::SmallTable(table) => {
                table.expire(now_unix_ms, count, |entry| visit(field(entry)))
            }
        }
    }

    /// Records that the hash would be a table even without deadlines.
    fn outgrow(&mut self) {
        if let Repr::SmallTable(table) = &mut self.form {
            self.form = Repr::Table(std::mem::take(table));
        }
    }

    /// Returns the table. Creates it if the hash is a block.
    fn table(&mut self) -> Result<&mut Table, Full> {
        if let Repr::Packed(packed) = &self.form {
            let mut table = Table::new();
            for pair in pairs(packed) {
                table.insert(&Entry {
                    key: pair.name.as_bytes(),
                    value: pair.value.as_bytes(),
                    deadline_unix_ms: None,
                })?;
            }
            self.form = Repr::SmallTable(Box::new(table));
        }
        match &mut self.form {
            Repr::Table(table) | Repr::SmallTable(table) => Ok(table),
            Repr::Packed(_) => Err(Full),
        }
    }
}

/// Puts a field into the block, replacing the field at `place` if there is one. Returns `false` if
/// these limits leave no space for it.
fn put(
    packed: &mut Packed,
    place: Option<At>,
    name: &[u8],
    value: &[u8],
    limits: &HashLimits,
) -> bool {
    let (name, value) = (Element::parse(name), Element::parse(value));
    let bytes = Packed::entry_bytes(name) + Packed::entry_bytes(value);
    let longest = name.len().max(value.len());
    let is_short = longest <= limits.listpack_value_bytes && packed.has_room_for(bytes);
    let has_place = place.is_some() || packed.len() / 2 < limits.listpack_entries;
    if !is_short || !has_place {
        return false;
    }
    if let Some(place) = place {
        packed.replace(packed.after(place), value);
    } else {
        packed.push_back(name);
        packed.push_back(value);
    }
    true
}

fn find(packed: &Packed, name: &[u8]) -> Option<At> {
    packed.find(Element::parse(name), packed.first(), 2)
}

fn pairs(packed: &Packed) -> impl Iterator<Item = Field<'_>> {
    let mut elements = packed.iter();
    std::iter::from_fn(move || {
        Some(Field {
            name: elements.next()?.text(),
            value: elements.next()?.text(),
            deadline_unix_ms: None,
        })
    })
}

fn is_there(entry: &Entry<'_>, now_unix_ms: u64) -> bool {
    entry
        .deadline_unix_ms
        .is_none_or(|deadline| deadline > now_unix_ms)
}

fn field(entry: Entry<'_>) -> Field<'_> {
    Field {
        name: ElementText::Bytes(entry.key),
        value: ElementText::Bytes(entry.value),
        deadline_unix_ms: entry.deadline_unix_ms,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::random::Prng;

    use super::*;

    const LIMITS: HashLimits = HashLimits {
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };

    fn set(hash: &mut Hash, name: &str, value: &str) -> bool {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        hash.set(name, value, FieldDeadline::Never, 0, &LIMITS)
            .unwrap()
    }

    fn text(hash: &Hash, name: &str) -> Option<Vec<u8>> {
        let field = hash.get(name.as_bytes(), 0)?;
        Some(field.value.as_bytes().to_vec())
    }

    #[test]
    fn behaves_like_a_map_at_any_time() {
        for (seed, names) in [(1, 20), (2, 120), (3, 2_000)] {
            let mut random = Prng::seeded(seed);
            let (mut hash, mut twin) = (Hash::new(), BTreeMap::new());
            for now in 1_000..6_000 {
                let name = format!("f{}", random.below(names)).into_bytes();
                twin.retain(|_, (_, deadline): &mut (_, Option<u64>)| {
                    deadline.is_none_or(|at| at > now)
                });
                let value = random.below(1_000).to_string().into_bytes();
                let before = twin.get(&name).cloned();
                let old_deadline = before.as_ref().and_then(|(_, deadline)| *deadline);
                let (deadline, kept) = match random.below(6) {
                    0 if seed > 1 => {
                        let at = now + 1 + random.below(500);
                        (FieldDeadline::At(at), Some(at))
                    }
                    1 => (FieldDeadline::Keep, old_deadline),
                    2 => {
                        hash.expire(now, 3, |_| ());
                        assert_eq!(hash.get(&name, now).is_some(), before.is_some());
                        hash.remove(&name);
                        twin.remove(&name);
                        continue;
                    }
                    _ => (FieldDeadline::Never, None),
                };
                let is_new = hash.set(&name, &value, deadline, now, &LIMITS).unwrap();
                assert_eq!(is_new, before.is_none());
                twin.insert(name, (value, kept));
                assert_eq!(hash.len_at(now), twin.len());
            }
            let now = 5_999;
            let all: BTreeMap<_, _> = hash
                .iter(now)
                .map(|one| {
                    let kept = (one.value.as_bytes().to_vec(), one.deadline_unix_ms);
                    (one.name.as_bytes().to_vec(), kept)
                })
                .collect();
            assert_eq!(all, twin);
            let drawn = hash.random(now, || random.next_u64()).unwrap();
            assert!(twin.contains_key(drawn.name.as_bytes()));
            let mut seen = 0;
            let mut cursor = 0;
            loop {
                cursor = hash.scan(cursor, 10, now, |_| seen += 1);
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen, twin.len());
        }
    }

    #[test]
    fn the_form_follows_what_is_in_it() {
        let mut hash = Hash::new();
        for number in 0..128 {
            assert!(set(&mut hash, &number.to_string(), "value"));
        }
        assert_eq!(hash.encoding(), Encoding::Listpack);
        assert!(!set(&mut hash, "5", "other"));
        assert_eq!(hash.encoding(), Encoding::Listpack);
        set(&mut hash, "one more", "value");
        assert_eq!(hash.encoding(), Encoding::Hashtable);
        assert_eq!(text(&hash, "5").unwrap(), b"other");
        let mut hash = Hash::new();
        set(&mut hash, "field", &"x".repeat(65));
        assert_eq!(hash.encoding(), Encoding::Hashtable);
    }

    #[test]
    fn a_deadline_makes_a_small_hash_a_table_of_another_name() {
        let mut hash = Hash::new();
        set(&mut hash, "one", "1");
        set(&mut hash, "two", "2");
        assert_eq!(hash.set_deadline(b"none", Some(50)), Ok(false));
        assert_eq!(hash.set_deadline(b"one", None), Ok(true));
        assert_eq!(hash.encoding(), Encoding::Listpack);
        assert_eq!(hash.set_deadline(b"one", Some(50)), Ok(true));
        assert_eq!(hash.encoding(), Encoding::ListpackEx);
        assert!(hash.get(b"one", 49).is_some());
        assert!(hash.get(b"one", 50).is_none());
        assert_eq!((hash.len(), hash.len_at(50)), (2, 1));
        let deadline = hash.get(b"one", 0).unwrap().deadline_unix_ms;
        assert_eq!(deadline, Some(50));
        assert_eq!(hash.set_deadline(b"one", None), Ok(true));
        assert!(!hash.has_deadlines());
        assert_eq!(text(&hash, "one").unwrap(), b"1");
    }

    #[test]
    fn equal_hashes_may_be_kept_differently() {
        let (mut one, mut other) = (Hash::new(), Hash::new());
        set(&mut one, "field", "1");
        set(&mut other, "field", "1");
        set(&mut other, "long", &"x".repeat(100));
        assert_ne!(one, other);
        other.remove(b"long");
        assert_eq!(one, other);
        other.set_deadline(b"field", Some(9)).unwrap();
        assert_ne!(one, other);
    }
}
