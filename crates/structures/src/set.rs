//! A set of members: whole numbers in order, few members in one block, or a table.
//!
//! The choice among the three follows the rules of Redis 7.2, so OBJECT ENCODING answers the same:
//! numbers until there are too many of them or another member is added, then a block, then a table.
//! A set never changes back.

use base::number::parse_i64;

use crate::compact::{CompactKind, OneBuffer};
use crate::element::{Element, ElementText};
use crate::int_set::IntSet;
use crate::kind::Encoding;
use crate::memory::allocated;
use crate::packed::Packed;
use crate::relocation::Relocation;
use crate::table::{Entry, Full, Table};

/// Limits up to which a set is kept small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// Maximum numbers in an intset: `set-max-intset-entries`.
    pub intset_entries: usize,
    /// Maximum members in a block: `set-max-listpack-entries`.
    pub listpack_entries: usize,
    /// Maximum bytes of a member in a block: `set-max-listpack-value`.
    pub listpack_value_bytes: usize,
}

/// Members, each once.
#[derive(Clone, Debug)]
pub struct Set {
    form: Repr,
}

#[derive(Clone, Debug)]
enum Repr {
    Ints(IntSet),
    Packed(Packed),
    Table(Box<Table>),
}

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

/// Two sets are equal if their members are, whatever their representation.
impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|one| other.contains(one.as_bytes()))
    }
}

impl Set {
    /// Creates an empty set. Its first member decides its representation.
    #[must_use]
    pub fn new() -> Self {
        Self::from(IntSet::new())
    }

    /// Takes the buffer out of a set that is not a table; see [`Packed::take_buffer`].
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Option<(CompactKind, OneBuffer)> {
        match &mut self.form {
            Repr::Ints(ints) => Some((CompactKind::Numbers, ints.take_buffer()?)),
            Repr::Packed(packed) => Some((CompactKind::Set, packed.take_buffer()?)),
            Repr::Table(_) => None,
        }
    }

    /// Returns the set with this buffer, of numbers or of any members.
    #[inline]
    pub(crate) fn from_buffer(kind: CompactKind, buffer: OneBuffer) -> Self {
        let form = match kind {
            CompactKind::Numbers => Repr::Ints(IntSet::from_buffer(buffer)),
            _ => Repr::Packed(Packed::from_buffer(buffer)),
        };
        Self { form }
    }

    /// Returns a set of `numbers`, which ascend, in the same representation as if they had been
    /// added one by one.
    ///
    /// # Errors
    /// [`Full`] if there is no space for so many.
    pub fn from_ascending(numbers: &[i64], limits: &SetLimits) -> Result<Self, Full> {
        let mut set = Self::from(IntSet::from_ascending(numbers));
        if numbers.len() > limits.intset_entries {
            set.make_table()?;
        }
        Ok(set)
    }

    /// Announces that `count` members will be added, `first` among them. The set immediately gets
    /// the representation that so many members will need.
    ///
    /// # Errors
    /// [`Full`] if there is no space for the existing members.
    pub fn expect(&mut self, first: &[u8], count: usize, limits: &SetLimits) -> Result<(), Full> {
        let is_of_numbers = parse_i64(first).is_some() && count <= limits.intset_entries;
        match &self.form {
            Repr::Ints(ints) if ints.is_empty() && !is_of_numbers => {
                if count <= limits.listpack_entries {
                    self.form = Repr::Packed(Packed::new());
                    return Ok(());
                }
                self.make_table()
            }
            Repr::Ints(_) if count > limits.intset_entries => self.make_table(),
            Repr::Packed(_) if count > limits.listpack_entries => self.make_table(),
            _ => Ok(()),
        }
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Repr::Ints(ints) => ints.len(),
            Repr::Packed(packed) => packed.len(),
            Repr::Table(table) => table.len(),
        }
    }

    /// Whether it has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the answer of OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Repr::Ints(_) => Encoding::Intset,
            Repr::Packed(_) => Encoding::Listpack,
            Repr::Table(_) => Encoding::Hashtable,
        }
    }

    /// Returns the bytes it takes beside itself, as the allocator rounds them. Constant time.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Repr::Ints(ints) => allocated(ints.capacity_bytes()),
            Repr::Packed(packed) => packed.memory_bytes(),
            Repr::Table(table) => table.memory_bytes(),
        }
    }

    /// Moves the pieces it consists of, as far as the relocation allows.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        match &mut self.form {
            Repr::Ints(ints) if relocation.is_one_next() => ints.move_pieces(relocation),
            Repr::Packed(packed) if relocation.is_one_next() => packed.move_pieces(relocation),
            Repr::Ints(_) | Repr::Packed(_) => {}
            Repr::Table(table) => {
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
            Repr::Ints(_) | Repr::Packed(_) => 1,
            Repr::Table(table) => table.allocations(),
        }
    }

    /// Returns the numbers, or `None` if it is not a set of numbers.
    #[must_use]
    pub fn ints(&self) -> Option<&IntSet> {
        match &self.form {
            Repr::Ints(ints) => Some(ints),
            _ => None,
        }
    }

    /// Returns the block, or `None` if it is not a block.
    #[must_use]
    pub fn packed(&self) -> Option<&Packed> {
        match &self.form {
            Repr::Packed(packed) => Some(packed),
            _ => None,
        }
    }

    /// Whether `member` is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.form {
            Repr::Ints(ints) => parse_i64(member).is_some_and(|number| ints.contains(number)),
            Repr::Packed(packed) => find(packed, member).is_some(),
            Repr::Table(table) => table.contains(member),
        }
    }

    /// Prefetches what a lookup of these members will read, for at most [`AHEAD_MAX`] of them.
    ///
    /// [`AHEAD_MAX`]: crate::table::AHEAD_MAX
    #[inline]
    pub fn prefetch<'m>(&self, members: impl Iterator<Item = &'m [u8]>) {
        if let Repr::Table(table) = &self.form {
            table.prefetch(members);
        }
    }

    /// Returns which of these members, at most [`AHEAD_MAX`], are in the set: one bit each, the
    /// lowest for the first. For many lookups in a large set: the memory accesses overlap.
    ///
    /// [`AHEAD_MAX`]: crate::table::AHEAD_MAX
    pub fn which<'m>(&self, members: impl Iterator<Item = &'m [u8]> + Clone) -> u32 {
        match &self.form {
            Repr::Table(table) => table.which(members),
            Repr::Ints(_) | Repr::Packed(_) => {
                let there = members.map(|member| u32::from(self.contains(member)));
                there
                    .enumerate()
                    .fold(0, |found, (at, is_there)| found | is_there << at)
            }
        }
    }

    /// Adds `member`. Returns whether it was absent.
    ///
    /// # Errors
    /// [`Full`] if there is no space for another member; the set is unchanged.
    pub fn insert(&mut self, member: &[u8], limits: &SetLimits) -> Result<bool, Full> {
        match &mut self.form {
            Repr::Ints(ints) => {
                let Some(number) = parse_i64(member) else {
                    self.leave_ints(member, limits)?;
                    return self.insert(member, limits);
                };
                let added = ints.insert(number);
                if ints.len() > limits.intset_entries {
                    self.make_table()?;
                }
                Ok(added)
            }
            Repr::Packed(packed) => {
                if find(packed, member).is_some() {
                    return Ok(false);
                }
                let element = Element::parse(member);
                let fits = packed.len() < limits.listpack_entries
                    && member.len() <= limits.listpack_value_bytes
                    && packed.has_room_for(Packed::entry_bytes(element));
                if !fits {
                    self.make_table()?;
                    return self.insert(member, limits);
                }
                packed.push_back(element);
                Ok(true)
            }
            Repr::Table(table) => table.insert(&entry(member)),
        }
    }

    /// Removes `member`. Returns whether it was present.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.form {
            Repr::Ints(ints) => parse_i64(member).is_some_and(|number| ints.remove(number)),
            Repr::Packed(packed) => match find(packed, member) {
                Some(place) => packed.remove(place, 1) == 1,
                None => false,
            },
            Repr::Table(table) => table.remove(member),
        }
    }

    /// Returns all members: numbers ascending, those of a block in the order of their insertion,
    /// those of a table in no order.
    pub fn iter(&self) -> impl Iterator<Item = ElementText<'_>> {
        let (ints, packed, table) = match &self.form {
            Repr::Ints(ints) => (Some(ints.iter()), None, None),
            Repr::Packed(packed) => (None, Some(packed.iter()), None),
            Repr::Table(table) => (None, None, Some(table.iter())),
        };
        let ints = ints
            .into_iter()
            .flatten()
            .map(|one| Element::Integer(one).text());
        let packed = packed.into_iter().flatten().map(|one| one.text());
        let table = table.into_iter().flatten();
        let table = table.map(|one| ElementText::Bytes(one.key));
        ints.chain(packed).chain(table)
    }

    /// Returns a member drawn with equal probability, by numbers from `random`.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<ElementText<'_>> {
        match &self.form {
            Repr::Ints(ints) => {
                let number = ints.get(below(random(), ints.len()))?;
                Some(Element::Integer(number).text())
            }
            Repr::Packed(packed) => {
                let place = packed.seek(below(random(), packed.len()));
                packed.get(place).map(|element| element.text())
            }
            Repr::Table(table) => table.random(random).map(|one| ElementText::Bytes(one.key)),
        }
    }

    /// Visits about `count` members from `cursor` on. Returns the next cursor, or 0 at the end. All
    /// members of a small set are visited in one call. A member that exists from the first call to
    /// the last is visited once.
    pub fn scan<'s>(
        &'s self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(ElementText<'s>),
    ) -> u64 {
        if let Repr::Table(table) = &self.form {
            return table.scan(cursor, count, |one| visit(ElementText::Bytes(one.key)));
        }
        self.iter().for_each(visit);
        0
    }

    /// Changes the representation of a set of numbers before a member that is not a number is
    /// added.
    fn leave_ints(&mut self, member: &[u8], limits: &SetLimits) -> Result<(), Full> {
        let Repr::Ints(ints) = &self.form else {
            return Ok(());
        };
        let ends = [ints.iter().next(), ints.iter().next_back()];
        let longest = ends.into_iter().flatten();
        let longest = longest.map(|number| Element::Integer(number).len()).max();
        let fits = ints.len() < limits.listpack_entries
            && member.len().max(longest.unwrap_or(0)) <= limits.listpack_value_bytes;
        if !fits {
            return self.make_table();
        }
        let mut packed = Packed::new();
        ints.iter()
            .for_each(|number| packed.push_back(Element::Integer(number)));
        self.form = Repr::Packed(packed);
        Ok(())
    }

    fn make_table(&mut self) -> Result<(), Full> {
        let mut table = Table::new();
        for member in self.iter() {
            table.insert(&entry(member.as_bytes()))?;
        }
        self.form = Repr::Table(Box::new(table));
        Ok(())
    }
}

impl From<IntSet> for Set {
    fn from(ints: IntSet) -> Self {
        Self {
            form: Repr::Ints(ints),
        }
    }
}

fn entry(member: &[u8]) -> Entry<'_> {
    Entry {
        key: member,
        value: b"",
        deadline_unix_ms: None,
    }
}

fn find(packed: &Packed, member: &[u8]) -> Option<crate::packed::At> {
    packed.find(Element::parse(member), packed.first(), 1)
}

/// Returns a number below `length` from 64 random bits (Lemire's multiplication), or 0 if `length`
/// is 0.
#[allow(clippy::cast_possible_truncation, reason = "below a length")]
fn below(random: u64, length: usize) -> usize {
    ((u128::from(random) * length as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::random::Prng;

    use super::*;

    const LIMITS: SetLimits = SetLimits {
        intset_entries: 512,
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };

    fn set_of(members: impl IntoIterator<Item = String>) -> Set {
        let mut set = Set::new();
        for member in members {
            set.insert(member.as_bytes(), &LIMITS).unwrap();
        }
        set
    }

    fn members(set: &Set) -> BTreeSet<Vec<u8>> {
        set.iter().map(|one| one.as_bytes().to_vec()).collect()
    }

    #[test]
    fn behaves_like_a_sorted_set() {
        for (seed, range, is_numeric) in [
            (1, 400, true),
            (2, 3_000, true),
            (3, 60, false),
            (4, 600, false),
        ] {
            let mut random = Prng::seeded(seed);
            let (mut set, mut twin) = (Set::new(), BTreeSet::new());
            for _ in 0..5_000 {
                let number = random.below(range);
                let member = match is_numeric || number.is_multiple_of(5) {
                    true => number.to_string(),
                    false => format!("member {number}"),
                };
                let member = member.into_bytes();
                if random.below(5) < 2 {
                    assert_eq!(set.remove(&member), twin.remove(&member));
                } else {
                    assert_eq!(
                        set.insert(&member, &LIMITS),
                        Ok(twin.insert(member.clone()))
                    );
                }
                assert_eq!(set.contains(&member), twin.contains(&member));
            }
            assert_eq!(members(&set), twin);
            assert_eq!(set.len(), twin.len());
            let drawn = set.random(|| random.next_u64()).unwrap();
            assert!(twin.contains(drawn.as_bytes()));
        }
    }

    #[test]
    fn the_form_follows_what_is_in_it() {
        let mut set = set_of((0..512).map(|number| number.to_string()));
        assert_eq!(set.encoding(), Encoding::Intset);
        set.insert(b"512", &LIMITS).unwrap();
        assert_eq!(set.encoding(), Encoding::Hashtable);
        let mut set = set_of((0..127).map(|number| number.to_string()));
        set.insert(b"x", &LIMITS).unwrap();
        assert_eq!(set.encoding(), Encoding::Listpack);
        set.insert(b"y", &LIMITS).unwrap();
        assert_eq!(set.encoding(), Encoding::Hashtable);
        let mut set = set_of(["x".to_owned()]);
        assert_eq!(set.encoding(), Encoding::Listpack);
        set.insert(&[b'x'; 65], &LIMITS).unwrap();
        assert_eq!(set.encoding(), Encoding::Hashtable);
        let set = set_of(
            (0..128)
                .map(|number| number.to_string())
                .chain(["x".to_owned()]),
        );
        assert_eq!(set.encoding(), Encoding::Hashtable);
    }

    #[test]
    fn numbers_at_once_make_the_set_that_they_make_one_by_one() {
        for count in [0, 1, 512, 513] {
            let numbers: Vec<i64> = (0..count).collect();
            let at_once = Set::from_ascending(&numbers, &LIMITS).unwrap();
            let one_by_one = set_of(numbers.iter().map(i64::to_string));
            assert_eq!(at_once.encoding(), one_by_one.encoding());
            assert_eq!(at_once, one_by_one);
        }
    }

    #[test]
    fn a_set_that_expects_many_is_made_for_them() {
        let expecting = |first: &[u8], count| {
            let mut set = Set::new();
            set.expect(first, count, &LIMITS).unwrap();
            set.encoding()
        };
        assert_eq!(expecting(b"1", 512), Encoding::Intset);
        assert_eq!(expecting(b"1", 513), Encoding::Hashtable);
        assert_eq!(expecting(b"x", 128), Encoding::Listpack);
        assert_eq!(expecting(b"x", 129), Encoding::Hashtable);
        let mut numbers = set_of(["1".to_owned()]);
        numbers.expect(b"x", 200, &LIMITS).unwrap();
        assert_eq!(numbers.encoding(), Encoding::Intset);
        numbers.expect(b"x", 513, &LIMITS).unwrap();
        assert_eq!(numbers.encoding(), Encoding::Hashtable);
    }

    #[test]
    fn equal_sets_may_be_kept_differently() {
        let few = set_of((0..10).map(|number| number.to_string()));
        let mut many = set_of((0..600).map(|number| number.to_string()));
        (10..600).for_each(|number| assert!(many.remove(number.to_string().as_bytes())));
        assert_ne!(few.encoding(), many.encoding());
        assert_eq!(few, many);
        many.remove(b"3");
        assert_ne!(few, many);
    }

    #[test]
    fn a_walk_shows_every_member_of_every_form() {
        for count in [10, 100, 1_000] {
            let mut names = (0..count).map(|number| format!("m{number}"));
            let set = set_of(names.by_ref());
            let (mut seen, mut cursor) = (BTreeSet::new(), 0);
            loop {
                cursor = set.scan(cursor, 10, |one| {
                    assert!(seen.insert(one.as_bytes().to_vec()));
                });
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen, members(&set));
        }
    }
}
