//! The elements to sort, copied out of their key into one buffer, and their order.

use std::cmp::Ordering;
use std::ops::Range;

use engine::error::CommandError;
use store::Record;
use structures::{List, Object, Set, SortedSet};

use super::Options;

/// Elements in the order in which they were found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Elements {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
    /// The requested range of the sorted elements.
    window: Range<usize>,
    /// Whether their source has no order of its own.
    is_set: bool,
}

impl Elements {
    /// Returns the elements of a record, or none without a record. If the order is the record's
    /// own, elements outside of LIMIT are not copied.
    pub(super) fn of(
        record: Option<&Record<'_>>,
        options: &Options<'_>,
    ) -> Result<Self, CommandError> {
        let Some(record) = record else {
            return Ok(Self::default());
        };
        match record.object().as_deref() {
            Some(Object::List(list)) => Ok(Self::of_list(list, options)),
            Some(Object::Set(set)) => Ok(Self::of_set(set, options)),
            Some(Object::SortedSet(set)) => Ok(Self::of_sorted_set(set, options)),
            _ => Err(CommandError::WrongType),
        }
    }

    fn of_list(list: &List, options: &Options<'_>) -> Self {
        Self::in_order(list.len(), options, |elements, range| {
            list.for_each(range, |element| elements.push(element.text().as_bytes()));
        })
    }

    fn of_sorted_set(set: &SortedSet, options: &Options<'_>) -> Self {
        Self::in_order(set.len(), options, |elements, ranks| {
            set.range(ranks)
                .for_each(|scored| elements.push(scored.member.as_bytes()));
        })
    }

    fn of_set(set: &Set, options: &Options<'_>) -> Self {
        let mut elements = Self {
            is_set: true,
            ..Self::default()
        };
        for member in set.iter() {
            elements.push(member.as_bytes());
        }
        elements.window = options.window(set.len());
        elements
    }

    /// Returns elements of a value with its own order. `copy` copies a range of it.
    fn in_order(
        len: usize,
        options: &Options<'_>,
        copy: impl FnOnce(&mut Self, Range<usize>),
    ) -> Self {
        let mut elements = Self::default();
        let window = options.window(len);
        if options.sorts() {
            copy(&mut elements, 0..len);
            elements.window = window;
            return elements;
        }
        elements.window = 0..window.len();
        if options.is_descending {
            copy(&mut elements, len - window.end..len - window.start);
            elements.places.reverse();
        } else {
            copy(&mut elements, window);
        }
        elements
    }

    fn push(&mut self, element: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(element);
        self.places.push(start..self.bytes.len());
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether they come from a set, which has no order of its own.
    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|place| &self.bytes[place.clone()])
    }

    fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.places[index].clone()]
    }

    /// Returns the requested elements in the order of their weights; O(n log n).
    pub(super) fn sorted(&self, weights: &Weights, is_descending: bool) -> Vec<&[u8]> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        let compare = |one: usize, other: usize| match weights {
            Weights::None => Ordering::Equal,
            Weights::Elements => self.get(one).cmp(self.get(other)),
            Weights::Scores(scores) => scores[one]
                .partial_cmp(&scores[other])
                .unwrap_or(Ordering::Equal)
                .then_with(|| self.get(one).cmp(self.get(other))),
            // An element without a text precedes all elements with one.
            Weights::Texts(texts) => texts[one].cmp(&texts[other]),
        };
        if !matches!(weights, Weights::None) {
            // Stable, so that equal elements keep their order in both directions.
            order.sort_by(|one, other| {
                if is_descending {
                    compare(*other, *one)
                } else {
                    compare(*one, *other)
                }
            });
        }
        let asked_for = order.into_iter().skip(self.window.start);
        asked_for
            .take(self.window.len())
            .map(|index| self.get(index))
            .collect()
    }
}

/// The sort keys of elements.
pub(super) enum Weights {
    /// None: the elements keep their order.
    None,
    /// Their own bytes.
    Elements,
    /// Numbers; equal numbers are ordered by the elements' bytes.
    Scores(Vec<f64>),
    /// Texts found at other keys.
    Texts(Vec<Option<Vec<u8>>>),
}

/// Parses a text as the number it is sorted by. Accepts what C's `strtod` accepts: leading spaces,
/// up to a zero byte. An empty text is zero; a number too small for full precision is invalid.
pub(super) fn score(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| *byte == 0);
    let text = &text[..end.unwrap_or(text.len())];
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    let value = base::float::parse(&text[start..])?;
    (!value.is_nan() && !value.is_subnormal()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, value) in [
            (&b""[..], Some(0.0)),
            (b" \t12", Some(12.0)),
            (b"12\0abc", Some(12.0)),
            (b"+5", Some(5.0)),
            (b"-inf", Some(f64::NEG_INFINITY)),
            (b"0x10", Some(16.0)),
            (b" ", None),
            (b"12 ", None),
            (b".", None),
            (b"nan", None),
            (b"1e-310", None),
            (b"1e999", None),
        ] {
            assert_eq!(score(text), value, "{text:?}");
        }
    }
}
