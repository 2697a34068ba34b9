//! The keys of a command that touches several as one step.

use std::ops::Deref;

use store::Key;

/// How many keys need no allocation.
const INLINE_KEYS: usize = 16;

/// Keys to hand to [`store::Handle::locked`]; the first few stay on the stack.
pub struct KeyList<'k> {
    inline: [Key<'k>; INLINE_KEYS],
    count: usize,
    /// All of them, when they are too many for `inline`.
    spilled: Vec<Key<'k>>,
}

impl<'k> FromIterator<Key<'k>> for KeyList<'k> {
    fn from_iter<I: IntoIterator<Item = Key<'k>>>(keys: I) -> Self {
        let mut list = Self {
            inline: [Key::with_hash(&[], 0, 0); INLINE_KEYS],
            count: 0,
            spilled: Vec::new(),
        };
        for key in keys {
            list.push(key);
        }
        list
    }
}

impl<'k> KeyList<'k> {
    fn push(&mut self, key: Key<'k>) {
        if let Some(place) = self.inline.get_mut(self.count) {
            *place = key;
        } else {
            if self.spilled.is_empty() {
                self.spilled.extend_from_slice(&self.inline);
            }
            self.spilled.push(key);
        }
        self.count += 1;
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
