//! A hash: fields with values, few in one block, many in a table; each field may have a deadline.
//!
//! Deadlines are known to the table only, so the first one makes a hash of few fields a table, too.
//! It says `listpackex` of itself while it is small, as Redis does of its small hashes with them.
//!
//! A field whose deadline has passed is no longer there for whoever asks with that time, whether or
//! not [`Hash::expire`] has removed it yet.

use crate::compact::{CompactKind, OneBuffer};
use crate::element::{Element, ElementText};
use crate::kind::Encoding;
use crate::packed::{At, Packed};
use crate::relocation::Relocation;
use crate::table::{Entry, Full, Table};

/// Up to what a hash is kept in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashLimits {
    /// Fields: `hash-max-listpack-entries`.
    pub listpack_entries: usize,
    /// Bytes of a field or a value: `hash-max-listpack-value`.
    pub listpack_value_bytes: usize,
}

/// What becomes of a field's deadline when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDeadline {
    /// It stays.
    Keep,
    /// There is none from now on.
    Never,
    /// It is this, in milliseconds since 1970.
    At(u64),
}

/// A field as it is read.
#[derive(Debug)]
pub struct Field<'a> {
    /// Its name.
    pub name: ElementText<'a>,
    /// Its value.
    pub value: ElementText<'a>,
    /// When it stops to exist, in milliseconds since 1970.
    pub deadline_unix_ms: Option<u64>,
}

/// Fields, each once.
#[derive(Clone, Debug)]
pub struct Hash {
    form: Repr,
}

#[derive(Clone, Debug)]
enum Repr {
    /// Names and values in turn.
    Packed(Packed),
    Table(Box<Table>),
    /// A table that is one only because of deadlines.
    SmallTable(Box<Table>),
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

/// Hashes are equal when their fields are, values and deadlines included, however they are kept.
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
    /// Without fields; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            form: Repr::Packed(Packed::new()),
        }
    }

    /// Takes the one buffer of a hash in a block; see [`Packed::take_buffer`].
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Option<(CompactKind, OneBuffer)> {
        match &mut self.form {
            Repr::Packed(packed) => Some((CompactKind::Hash, packed.take_buffer()?)),
            Repr::Table(_) | Repr::SmallTable(_) => None,
        }
    }

    /// The hash in a block whose buffer this is.
    #[inline]
    pub(crate) fn from_buffer(_: CompactKind, buffer: OneBuffer) -> Self {
        Self {
            form: Repr::Packed(Packed::from_buffer(buffer)),
        }
    }

    /// Number of fields, those included whose deadline has passed.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Repr::Packed(packed) => packed.len() / 2,
            Repr::Table(table) | Repr::SmallTable(table) => table.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of fields at `now_unix_ms`. Constant time while no deadline has passed.
    #[must_use]
    pub fn len_at(&self, now_unix_ms: u64) -> usize {
        if self.has_due(now_unix_ms) {
            self.iter(now_unix_ms).count()
        } else {
            self.len()
        }
    }

    /// Whether there may be fields whose deadline is not after `now_unix_ms`. Constant time; may be
    /// wrong about a field whose deadline was changed.
    #[inline]
    #[must_use]
    pub fn has_due(&self, now_unix_ms: u64) -> bool {
        match &self.form {
            Repr::Packed(_) => false,
            Repr::Table(table) | Repr::SmallTable(table) => table.has_due(now_unix_ms),
        }
    }

    /// What OBJECT ENCODING says.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Repr::Packed(_) => Encoding::Listpack,
            Repr::SmallTable(_) => Encoding::ListpackEx,
            Repr::Table(_) => Encoding::Hashtable,
        }
    }

    /// Bytes it takes beside itself, with what the allocator adds. Constant time.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Repr::Packed(packed) => packed.memory_bytes(),
            Repr::Table(table) | Repr::SmallTable(table) => table.memory_bytes(),
        }
    }

    /// Moves pieces that it is made of, as far as a relocation says.
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

    /// About how many allocations it has, which is what freeing it costs.
    #[must_use]
    pub fn allocations(&self) -> usize {
        match &self.form {
            Repr::Packed(_) => 1,
            Repr::Table(table) | Repr::SmallTable(table) => table.allocations(),
        }
    }

    /// The block, names and values in turn, if it is kept so.
    #[must_use]
    pub fn packed(&self) -> Option<&Packed> {
        match &self.form {
            Repr::Packed(packed) => Some(packed),
            Repr::Table(_) | Repr::SmallTable(_) => None,
        }
    }

    /// The field `name`, if it is there at `now_unix_ms`.
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

    /// Asks the cache for what looking up these fields will read, [`AHEAD_MAX`] of them at most.
    ///
    /// [`AHEAD_MAX`]: crate::table::AHEAD_MAX
    #[inline]
    pub fn prefetch<'n>(&self, names: impl Iterator<Item = &'n [u8]>) {
        if let Repr::Table(table) = &self.form {
            table.prefetch(names);
        }
    }

    /// Sets the value of a field. True when the field was not there at `now_unix_ms`; a deadline that
    /// has passed is not kept.
    ///
    /// # Errors
    /// [`Full`] when there is no room for another field; the hash is unchanged.
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

    /// Sets or removes the deadline of a field, which must be there. False when it is not.
    ///
    /// # Errors
    /// [`Full`] when there is no room; the hash is unchanged.
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

    /// Removes a field. True when it was there, its deadline passed or not.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        match &mut self.form {
            Repr::Packed(packed) => match find(packed, name) {
                Some(place) => packed.remove(place, 2) == 2,
                None => false,
            },
            Repr::Table(table) | Repr::SmallTable(table) => table.remove(name),
        }
    }

    /// All fields that are there at `now_unix_ms`: a block's in the order in which they came, a
    /// table's in none.
    pub fn iter(&self, now_unix_ms: u64) -> impl Iterator<Item = Field<'_>> {
        let (packed, table) = match &self.form {
            Repr::Packed(packed) => (Some(pairs(packed)), None),
            Repr::Table(table) | Repr::SmallTable(table) => (None, Some(table.iter())),
        };
        let table = table.into_iter().flatten();
        let table = table.filter(move |entry| is_there(entry, now_unix_ms));
        packed.into_iter().flatten().chain(table.map(field))
    }

    /// A field drawn with equal chances from those that are there at `now_unix_ms`, by numbers from
    /// `random`. Most of them must be: a draw that meets one that is gone is repeated, a hundred
    /// times, before the first that is found is taken.
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

    /// Shows about `count` fields from `cursor` on and returns where to go on, 0 at the end. A hash
    /// in a block is shown at once. What is there from the first call to the last is shown once.
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

    /// The earliest deadline of all fields.
    pub fn first_deadline_unix_ms(&mut self) -> Option<u64> {
        match &mut self.form {
            Repr::Packed(_) => None,
            Repr::Table(table) | Repr::SmallTable(table) => table.first_deadline_unix_ms(),
        }
    }

    /// Whether some field has a deadline.
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        match &self.form {
            Repr::Packed(_) => false,
            Repr::Table(table) | Repr::SmallTable(table) => table.expiring_len() > 0,
        }
    }

    /// Removes fields whose deadline is not after `now_unix_ms`, at most `count` of them, and shows
    /// each before it goes. Returns how many went.
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

    /// From now on it would be a table without deadlines, too.
    fn outgrow(&mut self) {
        if let Repr::SmallTable(table) = &mut self.form {
            self.form = Repr::Table(std::mem::take(table));
        }
    }

    /// The table, made if there is none yet.
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

/// Puts a field into the block, in place of the one at `place` if there is one. False when it has no
/// room for it under these limits.
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
