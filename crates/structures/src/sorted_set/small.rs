//! Few members: one packed block, each member followed by its score, in order.
//!
//! A score that is a whole number is stored as a number. Any other score is stored as `s` and its
//! eight bytes, which is shorter than its text and needs no parsing.

use std::ops::Range;

use super::{Scored, is_whole};
use crate::compact::OneBuffer;
use crate::element::Element;
use crate::packed::{self, At, Packed};
use crate::relocation::Relocation;

/// Marker before the bytes of a score: nine bytes that begin with it spell no number.
const MARK: u8 = b's';
const SCORE_BYTES: usize = 9;

/// Members and scores alternately, ascending by score, then by member.
#[derive(Clone, Debug, Default)]
pub(super) struct Small {
    packed: Packed,
}

impl Small {
    pub(super) const fn new() -> Self {
        Self {
            packed: Packed::new(),
        }
    }

    #[inline]
    pub(super) fn take_buffer(&mut self) -> Option<OneBuffer> {
        self.packed.take_buffer()
    }

    #[inline]
    pub(super) fn from_buffer(buffer: OneBuffer) -> Self {
        Self {
            packed: Packed::from_buffer(buffer),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.packed.len() / 2
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.packed.memory_bytes()
    }

    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        self.packed.move_pieces(relocation);
    }

    /// Whether the block has space for a member at all.
    pub(super) fn has_room_for(&self, member: &[u8]) -> bool {
        let score = Element::Bytes(&[MARK; SCORE_BYTES]);
        let bytes = Packed::entry_bytes(Element::parse(member)) + Packed::entry_bytes(score);
        self.packed.has_room_for(bytes)
    }

    /// Returns the position of a member, and its score.
    pub(super) fn find(&self, member: &[u8]) -> Option<(At, f64)> {
        let place = self
            .packed
            .find(Element::parse(member), self.packed.first(), 2)?;
        Some((place, self.score_behind(place)))
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let (place, score) = self.find(member)?;
        Some((self.packed.iter_to(place).count() / 2, score))
    }

    /// Adds a member that is not in the set.
    pub(super) fn insert(&mut self, score: f64, member: &[u8]) {
        let (place, _) = self.place_where(|one| {
            one.score < score || (one.score == score && one.member.as_bytes() < member)
        });
        let mut room = [0; SCORE_BYTES];
        self.packed.insert(place, encoded(score, &mut room));
        self.packed.insert(place, Element::parse(member));
    }

    pub(super) fn remove_at(&mut self, place: At) {
        self.packed.remove(place, 2);
    }

    pub(super) fn remove_range(
        &mut self,
        ranks: Range<usize>,
        mut removed: impl FnMut(Scored<'_>),
    ) {
        self.iter(ranks.clone()).for_each(&mut removed);
        self.packed
            .remove(self.packed.seek(ranks.start * 2), ranks.len() * 2);
    }

    pub(super) fn rank_where(&self, is_before: impl Fn(&Scored<'_>) -> bool) -> usize {
        self.place_where(is_before).1
    }

    pub(super) fn iter(&self, ranks: Range<usize>) -> Iter<'_> {
        let end = ranks.end.min(self.len());
        Iter {
            elements: self.packed.iter_from(self.packed.seek(ranks.start * 2)),
            behind: (self.len() - end) * 2,
            left: end.saturating_sub(ranks.start),
        }
    }

    /// Returns the first position whose member does not satisfy `is_before`, and its rank.
    fn place_where(&self, is_before: impl Fn(&Scored<'_>) -> bool) -> (At, usize) {
        let (mut place, mut rank) = (self.packed.first(), 0);
        while let Some(member) = self.packed.get(place) {
            let one = Scored {
                member: member.text(),
                score: self.score_behind(place),
            };
            if !is_before(&one) {
                break;
            }
            place = self.packed.skip(place, 2);
            rank += 1;
        }
        (place, rank)
    }

    fn score_behind(&self, place: At) -> f64 {
        self.packed
            .get(self.packed.after(place))
            .map_or(0.0, decoded)
    }
}

fn encoded(score: f64, room: &mut [u8; SCORE_BYTES]) -> Element<'_> {
    if let Some(whole) = is_whole(score) {
        return Element::Integer(whole);
    }
    room[0] = MARK;
    room[1..].copy_from_slice(&score.to_le_bytes());
    Element::Bytes(room)
}

#[allow(clippy::cast_precision_loss, reason = "only exact numbers are kept so")]
fn decoded(element: Element<'_>) -> f64 {
    match element {
        Element::Integer(whole) => whole as f64,
        Element::Bytes(bytes) => bytes
            .last_chunk()
            .map_or(0.0, |one| f64::from_le_bytes(*one)),
    }
}

/// Members in order, from both ends.
#[derive(Clone, Debug)]
pub(super) struct Iter<'a> {
    elements: packed::Iter<'a>,
    /// Number of elements at the end that are not in the range.
    behind: usize,
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Scored<'a>;

    fn next(&mut self) -> Option<Scored<'a>> {
        self.left = self.left.checked_sub(1)?;
        let member = self.elements.next()?.text();
        let score = decoded(self.elements.next()?);
        Some(Scored { member, score })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        for _ in 0..std::mem::take(&mut self.behind) {
            self.elements.next_back();
        }
        let score = decoded(self.elements.next_back()?);
        let member = self.elements.next_back()?.text();
        Some(Scored { member, score })
    }
}
