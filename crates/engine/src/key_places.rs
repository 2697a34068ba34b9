//! Which arguments of a request are keys, by the key specifications of its row.

use protocol::Request;

use crate::spec::{Begin, CommandSpec, Find, KeyAccess, KeySpec};
use crate::table::Table;

/// Returns the indexes of the arguments that are keys, with the access to each, or `None` if the
/// arguments do not fit the specification.
pub fn of(
    table: &Table,
    spec: &CommandSpec,
    request: &Request<'_>,
) -> Option<Vec<(usize, KeyAccess)>> {
    if let Some(keys_of) = spec.keys_of {
        return Some(keys_of(table, request));
    }
    let mut found = Vec::new();
    for keys in spec.keys {
        found.extend(of_group(spec, keys, request)?);
    }
    Some(found)
}

/// Returns the same for the groups of keys that the arguments fit: the minimum that a request
/// touches, whether it is refused for the rest or not.
///
/// Returns `None` if a count of keys is wrong, or 0 where keys are required. Such a request is
/// refused before it looks at a key, and Redis' rules let it pass to its error.
pub fn that_fit(
    table: &Table,
    spec: &CommandSpec,
    request: &Request<'_>,
) -> Vec<(usize, KeyAccess)> {
    if let Some(keys_of) = spec.keys_of {
        return keys_of(table, request);
    }
    let mut found = Vec::new();
    for keys in spec.keys {
        let before = found.len();
        found.extend(of_group(spec, keys, request).into_iter().flatten());
        if matches!(keys.find, Find::Count { .. }) && found.len() == before {
            return Vec::new();
        }
    }
    found
}

/// Returns the keys of one group, or `None` if the arguments do not fit its specification.
fn of_group(
    spec: &CommandSpec,
    keys: &KeySpec,
    request: &Request<'_>,
) -> Option<impl Iterator<Item = (usize, KeyAccess)> + use<>> {
    let access = spec
        .access_of
        .map_or(keys.access, |access_of| access_of(request));
    let places = match start(keys, request) {
        Some(begin) => places(keys.find, begin, request)?,
        None => NO_PLACES,
    };
    let (begin, end, step) = places;
    if end > request.len() {
        return None;
    }
    Some((begin..end).step_by(step).map(move |at| (at, access)))
}

/// An empty range: start, end and step.
const NO_PLACES: (usize, usize, usize) = (0, 0, 1);

fn places(find: Find, begin: usize, request: &Request<'_>) -> Option<(usize, usize, usize)> {
    match find {
        Find::Range { last, step, limit } => {
            let last = last_of_range(begin, last, limit, request.len())?;
            Some((begin, last + 1, usize::from(step.max(1))))
        }
        Find::Count { count, first, step } => {
            let count = request.arg(begin + usize::from(count))?;
            let count = usize::try_from(base::number::parse_i64(count)?).ok()?;
            let first = begin + usize::from(first);
            let step = usize::from(step.max(1));
            let past = count
                .checked_mul(step)
                .and_then(|span| first.checked_add(span))?;
            Some((first, past, step))
        }
        Find::Unknown => Some(NO_PLACES),
    }
}

fn start(keys: &KeySpec, request: &Request<'_>) -> Option<usize> {
    match keys.begin {
        Begin::Index(at) => Some(usize::from(at)),
        Begin::Keyword(word, from) => {
            let is_word = |at: usize| {
                request
                    .arg(at)
                    .is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
            };
            let len = request.len();
            let found = match usize::try_from(from) {
                Ok(from) => (from..len).find(|at| is_word(*at)),
                Err(_) => {
                    let from = len.checked_sub(usize::from(from.unsigned_abs()))?;
                    (1..=from).rev().find(|at| is_word(*at))
                }
            };
            found.map(|at| at + 1)
        }
        Begin::Unknown => None,
    }
}

/// Returns the index of the last key of a range. If it is before the first, the range is empty.
fn last_of_range(begin: usize, last: i16, limit: u16, len: usize) -> Option<usize> {
    match usize::try_from(last) {
        Ok(last) => Some(begin + last),
        Err(_) if limit <= 1 => len.checked_sub(usize::from(last.unsigned_abs())),
        Err(_) => {
            let rest = len.checked_sub(begin)?;
            Some((begin + rest / usize::from(limit)).saturating_sub(1))
        }
    }
}

/// Returns first key, last key and step as `COMMAND` shows them, a form older than key
/// specifications: the range that covers all ranges at fixed positions.
pub fn legacy_range(spec: &CommandSpec) -> (i64, i64, i64) {
    let ranges: Vec<(i64, i64, i64)> = spec
        .keys
        .iter()
        .filter_map(|keys| match (keys.begin, keys.find) {
            (Begin::Index(at), Find::Range { last, step, .. }) => {
                let first = i64::from(at);
                let last = if last < 0 {
                    i64::from(last)
                } else {
                    first + i64::from(last)
                };
                Some((first, last, i64::from(step)))
            }
            _ => None,
        })
        .collect();
    let Some((first, ..)) = ranges.iter().min() else {
        return (0, 0, 0);
    };
    let last = ranges.iter().map(|(_, last, _)| *last);
    let last = if last.clone().any(|last| last < 0) {
        last.min()
    } else {
        last.max()
    };
    let step = ranges.iter().map(|(.., step)| *step).max();
    (*first, last.unwrap_or(0), step.unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use protocol::OwnedRequest;

    use super::*;

    /// Returns the arguments of `words` that are keys by these specifications.
    fn found(specs: &'static [KeySpec], words: &[&str]) -> Option<Vec<usize>> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let owned = OwnedRequest::new(&words);
        let spec = CommandSpec {
            keys: specs,
            ..CommandSpec::BLANK
        };
        let keys = of(Table::build([]), &spec, &owned.request())?;
        Some(keys.into_iter().map(|(at, _)| at).collect())
    }

    const fn spec(begin: Begin, find: Find) -> KeySpec {
        KeySpec {
            begin,
            find,
            access: KeyAccess::RO,
            notes: "",
        }
    }

    #[test]
    fn ranges_reach_the_end_or_a_part_of_it() {
        const ALL: &[KeySpec] = &[KeySpec::range(1, -1, 2, KeyAccess::RO)];
        assert_eq!(found(ALL, &["MSET", "a", "1", "b", "2"]), Some(vec![1, 3]));
        const HALF: &[KeySpec] = &[spec(
            Begin::Keyword("STREAMS", 1),
            Find::Range {
                last: -1,
                step: 1,
                limit: 2,
            },
        )];
        let words = ["XREAD", "COUNT", "1", "streams", "a", "b", "0", "0"];
        assert_eq!(found(HALF, &words), Some(vec![4, 5]));
    }

    #[test]
    fn counts_are_checked() {
        const COUNTED: &[KeySpec] = &[spec(
            Begin::Index(1),
            Find::Count {
                count: 0,
                first: 1,
                step: 1,
            },
        )];
        assert_eq!(found(COUNTED, &["X", "2", "a", "b", "c"]), Some(vec![2, 3]));
        for wrong in ["3", "-1", "x", "9223372036854775807"] {
            assert_eq!(found(COUNTED, &["X", wrong, "a", "b"]), None, "{wrong}");
        }
    }

    #[test]
    fn keywords_may_be_looked_for_from_the_end() {
        const LAST: &[KeySpec] = &[spec(
            Begin::Keyword("KEYS", -2),
            Find::Range {
                last: -1,
                step: 1,
                limit: 0,
            },
        )];
        assert_eq!(
            found(LAST, &["MIGRATE", "keys", "x", "KEYS", "a", "b"]),
            Some(vec![4, 5])
        );
        assert_eq!(found(LAST, &["MIGRATE", "x", "y"]), Some(vec![]));
    }
}
