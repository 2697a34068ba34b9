//! All directives of the table, and lookup by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::directive::Directive;
use super::table;
use crate::identity;

/// A directive's position in [`all`], the directive, and the name in the table that matched.
type Found = (usize, &'static Directive, &'static str);

/// Returns the directive called `name`, with its position in [`all`] and the table's spelling of
/// the name. Letter case does not matter.
pub(super) fn find(name: &[u8]) -> Option<Found> {
    static BY_NAME: LazyLock<HashMap<&[u8], Found>> = LazyLock::new(|| {
        let rows = all().iter().enumerate();
        rows.flat_map(|(at, row)| {
            row.names()
                .map(move |name| (name.as_bytes(), (at, *row, name)))
        })
        .collect()
    });
    BY_NAME.get(&name.to_ascii_lowercase()[..]).copied()
}

/// Returns the directive name that is nearest to `name`, if the two differ in only a few letters.
pub(super) fn find_nearest(name: &[u8]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let changes_max = 1 + name.len() / 6;
    let longest = all()
        .iter()
        .flat_map(|row| row.names())
        .map(str::len)
        .max()?;
    if name.len() > longest + changes_max {
        return None;
    }
    let names = all().iter().flat_map(|row| row.names());
    let near = names.map(|known| (changes_between(&name, known.as_bytes()), known));
    near.filter(|(changes, _)| *changes <= changes_max)
        .min_by_key(|(changes, _)| *changes)
        .map(|(_, known)| known)
}

/// Returns the number of bytes to insert, remove or replace to turn `from` into `to` (Levenshtein
/// distance). Computes one row of the matrix at a time.
pub(crate) fn changes_between(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (taken, byte) in from.iter().enumerate() {
        let mut diagonal = taken;
        row[0] = taken + 1;
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(byte != other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

/// Returns every directive, in the order of the table.
pub(super) fn all() -> &'static [&'static Directive] {
    static ALL: LazyLock<Vec<&'static Directive>> =
        LazyLock::new(|| table::SECTIONS.iter().copied().flatten().collect());
    &ALL
}

/// Returns why a word is refused that Redis knows in a file, but not as a directive with a value.
pub(super) fn find_refused(name: &[u8]) -> Option<String> {
    let (name, lacks) = table::REFUSED_WORDS
        .iter()
        .find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes()))?;
    let version = identity::IOLITE_VERSION;
    Some(format!("Iolite {version} {lacks}; '{name}' is refused"))
}
