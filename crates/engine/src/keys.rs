//! The keys of a command that changes several atomically.

use std::ops::Deref;

use store::{Handle, Key};

/// Number of keys that need no allocation.
const INLINE_KEYS: usize = 16;

/// Number of records that are prefetched at a time.
const RECORDS_AHEAD: usize = 32;

/// Keys to hand to [`store::Handle::locked`]; the first few stay on the stack.
pub struct KeyList<'k> {
    inline: [Key<'k>; INLINE_KEYS],
    count: usize,
    /// All keys, if they are too many for `inline`.
    spilled: Vec<Key<'k>>,
    /// Number of keys at the front that the batch's plan has prefetched.
    planned: usize,
}

impl<'k> FromIterator<Key<'k>> for KeyList<'k> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = Key<'k>>>(keys: I) -> Self {
        let mut list = Self {
            inline: [Key::with_hash(&[], 0, 0); INLINE_KEYS],
            count: 0,
            spilled: Vec::new(),
            planned: 0,
        };
        for key in keys {
            list.push(key);
        }
        list
    }
}

impl<'k> KeyList<'k> {
    #[inline(always)]
    fn push(&mut self, key: Key<'k>) {
        match self.inline.get_mut(self.count) {
            Some(place) => *place = key,
            None => self.spill(key),
        }
        self.count += 1;
    }

    #[cold]
    fn spill(&mut self, key: Key<'k>) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline);
        }
        self.spilled.push(key);
    }

    /// Returns the list with its first `planned` keys marked as prefetched. Prefetches the first
    /// records of the rest, whose buckets are already being loaded.
    pub(crate) fn planned(mut self, planned: usize, store: &Handle) -> Self {
        self.planned = planned;
        self.look_ahead(store, 0);
        self
    }

    /// Prefetches the record of the key at `at` and those of the next keys, unless the plan of the
    /// batch did. To be called before each key is visited, in order.
    #[inline]
    pub fn look_ahead(&self, store: &Handle, at: usize) {
        if at.is_multiple_of(RECORDS_AHEAD) && at + RECORDS_AHEAD > self.planned {
            self.ask_for_records(store, at.max(self.planned), at + RECORDS_AHEAD);
        }
    }

    #[inline(never)]
    fn ask_for_records(&self, store: &Handle, from: usize, to: usize) {
        let some = self.get(from..to.min(self.count)).unwrap_or_default();
        if let [_, _, ..] = some
            && let Some(first) = some.first()
        {
            store.lookahead(first.database()).records(some, Key::hash);
        }
    }
}

impl<'k> Deref for KeyList<'k> {
    type Target = [Key<'k>];

    fn deref(&self) -> &[Key<'k>] {
        if self.count <= INLINE_KEYS {
            &self.inline[..self.count]
        } else {
            &self.spilled
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_any_number_of_keys_in_order() {
        for count in [0, 1, INLINE_KEYS, INLINE_KEYS + 1, 100] {
            let names: Vec<String> = (0..count).map(|index| index.to_string()).collect();
            let list: KeyList<'_> = names
                .iter()
                .map(|name| Key::with_hash(name.as_bytes(), 0, 0))
                .collect();
            let seen: Vec<&[u8]> = list.iter().map(Key::bytes).collect();
            assert_eq!(seen, names.iter().map(String::as_bytes).collect::<Vec<_>>());
        }
    }
}
