//! Values by id, in pieces that clones share.
//!
//! ```text
//!   pieces   BTreeMap: an id up to the piece's first ─ Arc ─ [id value │ id value │ …]   in order
//! ```
//!
//! A group may have a million pending entries. A copy of them costs one count per piece, and a
//! later change copies the piece it is in, if that is shared. Ids mostly come in order, so a full
//! piece stays as it is and the next one begins. A full piece in the middle is split.
//!
//! Invariants
//!  1. No piece is empty, and none has more than [`PIECE_LEN`] values.
//!  2. A piece's key is at most its first id, and above the last id of the piece before.
//!  3. `len` and `bytes` are the sums over all pieces.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::id::EntryId;
use crate::memory::allocated;

/// Maximum values of a piece. The first change after a copy moves as many, up to 5 KiB.
const PIECE_LEN: usize = 128;
/// A piece with fewer values is checked for merging with the next one.
const MERGE_BELOW: usize = PIECE_LEN / 4;
/// Bytes of a piece beside its values: itself with two counts, and its part of a node.
const BESIDE_BYTES: usize = allocated(2 * size_of::<usize>() + size_of::<Vec<u8>>()) + 40;

type Piece<V> = Vec<(EntryId, V)>;

/// A map of ids. See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct IdMap<V> {
    pieces: BTreeMap<EntryId, Arc<Piece<V>>>,
    len: usize,
    bytes: usize,
}

impl<V> Default for IdMap<V> {
    fn default() -> Self {
        Self {
            pieces: BTreeMap::new(),
            len: 0,
            bytes: 0,
        }
    }
}

impl<V: Copy> IdMap<V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes it takes beside itself. O(1).
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the approximate number of its allocations.
    pub(super) fn allocations(&self) -> usize {
        2 * self.pieces.len()
    }

    pub(super) fn get(&self, id: EntryId) -> Option<V> {
        let (_, piece) = self.pieces.range(..=id).next_back()?;
        let at = find(piece, id).ok()?;
        Some(piece[at].1)
    }

    /// Returns the values from `from` to `to`, both included, in order.
    pub(super) fn range(
        &self,
        from: EntryId,
        to: EntryId,
    ) -> impl DoubleEndedIterator<Item = (EntryId, V)> {
        let pieces = (from <= to).then(|| {
            let before = self.pieces.range(..=from).next_back();
            let start = before.map_or(from, |(key, _)| *key);
            self.pieces.range(start..=to)
        });
        pieces.into_iter().flatten().flat_map(move |(_, piece)| {
            let start = piece.partition_point(|(id, _)| *id < from);
            let end = piece.partition_point(|(id, _)| *id <= to);
            piece[start..end].iter().copied()
        })
    }

    /// Stores a value. Returns the former value of this id.
    pub(super) fn insert(&mut self, id: EntryId, value: V) -> Option<V> {
        let Some((key, piece)) = self.pieces.range_mut(..=id).next_back() else {
            self.insert_first(id, value);
            return None;
        };
        match find(piece, id) {
            Ok(at) => {
                let put = |piece: &mut Piece<V>| std::mem::replace(&mut piece[at].1, value);
                return Some(change(piece, &mut self.bytes, put));
            }
            Err(at) if piece.len() < PIECE_LEN => {
                change(piece, &mut self.bytes, |piece| {
                    piece.insert(at, (id, value));
                });
            }
            Err(PIECE_LEN) => self.add(id, vec![(id, value)]),
            Err(_) => {
                let key = *key;
                self.split(key);
                return self.insert(id, value);
            }
        }
        self.len += 1;
        None
    }

    /// Removes and returns a value.
    pub(super) fn remove(&mut self, id: EntryId) -> Option<V> {
        let (key, piece) = self.pieces.range_mut(..=id).next_back()?;
        let (key, at) = (*key, find(piece, id).ok()?);
        self.len -= 1;
        if piece.len() == 1 {
            return self.take(key)?.pop().map(|(_, value)| value);
        }
        let removed = change(piece, &mut self.bytes, |piece| piece.remove(at).1);
        if piece.len() < MERGE_BELOW {
            self.merge(key);
        }
        Some(removed)
    }

    /// Stores a value whose id is below all others. The key of its piece is lowered to it.
    fn insert_first(&mut self, id: EntryId, value: V) {
        match self.pieces.first_key_value() {
            Some((key, piece)) if piece.len() < PIECE_LEN => {
                let key = *key;
                if let Some(mut piece) = self.take(key) {
                    piece.insert(0, (id, value));
                    self.add(id, piece);
                }
            }
            _ => self.add(id, vec![(id, value)]),
        }
        self.len += 1;
    }

    /// Splits a piece in two.
    fn split(&mut self, key: EntryId) {
        if let Some(piece) = self.pieces.get_mut(&key) {
            let split = |piece: &mut Piece<V>| piece.split_off(PIECE_LEN / 2);
            let upper = change(piece, &mut self.bytes, split);
            self.add(upper[0].0, upper);
        }
    }

    /// Merges this piece with the next if together they fill at most half of one.
    fn merge(&mut self, key: EntryId) {
        let mut from_here = self.pieces.range(key..);
        let (Some((_, piece)), Some((next_key, next))) = (from_here.next(), from_here.next())
        else {
            return;
        };
        let next_key = *next_key;
        if piece.len() + next.len() <= PIECE_LEN / 2
            && let Some(next) = self.take(next_key)
            && let Some(piece) = self.pieces.get_mut(&key)
        {
            change(piece, &mut self.bytes, |piece| piece.extend(next));
        }
    }

    fn add(&mut self, key: EntryId, piece: Piece<V>) {
        self.bytes += BESIDE_BYTES + values_bytes(&piece);
        self.pieces.insert(key, Arc::new(piece));
    }

    fn take(&mut self, key: EntryId) -> Option<Piece<V>> {
        let piece = self.pieces.remove(&key)?;
        self.bytes -= BESIDE_BYTES + values_bytes(&piece);
        Some(Arc::unwrap_or_clone(piece))
    }
}

/// Changes a piece, after copying it if it is shared, and updates the count of its bytes.
#[inline]
fn change<V: Clone, R>(
    piece: &mut Arc<Piece<V>>,
    bytes: &mut usize,
    change: impl FnOnce(&mut Piece<V>) -> R,
) -> R {
    let before = values_bytes(piece);
    let piece = Arc::make_mut(piece);
    let answer = change(piece);
    *bytes = *bytes - before + values_bytes(piece);
    answer
}

fn find<V>(piece: &Piece<V>, id: EntryId) -> Result<usize, usize> {
    piece.binary_search_by_key(&id, |(id, _)| *id)
}

fn values_bytes<V>(piece: &Piece<V>) -> usize {
    allocated(piece.capacity() * size_of::<(EntryId, V)>())
}

#[cfg(test)]
mod tests {
    use base::random::Prng;

    use super::*;

    fn check(map: &IdMap<u64>, twin: &BTreeMap<EntryId, u64>, random: &mut Prng, ids: u64) {
        assert_eq!(map.len(), twin.len());
        let all = map.range(EntryId::MIN, EntryId::MAX);
        assert!(all.eq(twin.iter().map(|(id, value)| (*id, *value))));
        let bytes: usize = map
            .pieces
            .values()
            .map(|piece| BESIDE_BYTES + values_bytes(piece))
            .sum();
        assert_eq!(map.memory_bytes(), bytes);
        let mut last = None;
        for (key, piece) in &map.pieces {
            assert!((1..=PIECE_LEN).contains(&piece.len()));
            assert!(last < Some(*key) && *key <= piece[0].0);
            last = piece.last().map(|(id, _)| *id);
        }
        for _ in 0..8 {
            let [from, to] = [(); 2].map(|()| EntryId::new(random.below(ids), 0));
            let expected: Vec<_> = if from > to {
                Vec::new()
            } else {
                twin.range(from..=to)
                    .map(|(id, value)| (*id, *value))
                    .collect()
            };
            assert!(map.range(from, to).eq(expected.iter().copied()));
            assert!(map.range(from, to).rev().eq(expected.into_iter().rev()));
        }
    }

    #[test]
    fn behaves_like_a_map() {
        for (seed, ids, removals) in [(1, 300, 5), (2, 5_000, 4), (3, 5_000, 6), (4, 100_000, 2)] {
            let mut random = Prng::seeded(seed);
            let (mut map, mut twin) = (IdMap::default(), BTreeMap::new());
            let mut copy = None;
            for step in 0..20_000_u64 {
                // In order for a while, and then at random positions.
                let number = if step % 4_000 < 1_500 {
                    step % ids
                } else {
                    random.below(ids)
                };
                let id = EntryId::new(number, 0);
                if random.below(10) < removals {
                    assert_eq!(map.remove(id), twin.remove(&id));
                } else {
                    assert_eq!(map.insert(id, step), twin.insert(id, step));
                }
                assert_eq!(map.get(id), twin.get(&id).copied());
                if step % 2_500 == 0 {
                    check(&map, &twin, &mut random, ids);
                    copy = Some((map.clone(), twin.clone()));
                }
            }
            check(&map, &twin, &mut random, ids);
            let (map, twin) = copy.expect("made");
            check(&map, &twin, &mut random, ids);
        }
    }

    #[test]
    fn a_change_copies_one_piece() {
        let mut map = IdMap::default();
        for number in 0..100_000 {
            map.insert(EntryId::new(number, 0), ());
        }
        assert_eq!(map.pieces.len(), 100_000_usize.div_ceil(PIECE_LEN));
        let copy = map.clone();
        map.remove(EntryId::new(50_000, 0));
        let shared = |(key, piece): (&EntryId, &Arc<Piece<()>>)| {
            map.pieces
                .get(key)
                .is_some_and(|one| Arc::ptr_eq(one, piece))
        };
        let shared_count = copy.pieces.iter().filter(|one| shared(*one)).count();
        assert_eq!(shared_count, map.pieces.len() - 1);
        assert_eq!(copy.len(), 100_000);
    }
}
