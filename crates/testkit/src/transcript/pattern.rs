//! Patterns of replies: a value, or a value with some parts left open.

use std::ops::RangeInclusive;

use base::glob::{Case, matches};
use protocol::Value;

/// What a reply must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Any reply.
    Any,
    /// This value: a status, error, number, string, boolean or null.
    Exactly(Value),
    /// A whole number in a range.
    Integer(RangeInclusive<i64>),
    /// A string.
    AnyBulk,
    /// Any error, or one that matches a glob.
    Error(Option<Vec<u8>>),
    /// A string, status or verbatim text that matches a glob (`None`: any).
    Text(Option<Vec<u8>>),
    /// A floating-point number.
    AnyDouble,
    /// An array in this order.
    Array(Sequence),
    /// An array in any order.
    AnyOrder(Sequence),
    /// A set, in any order.
    Set(Sequence),
    /// A push message.
    Push(Sequence),
    /// A map, in any order.
    Map {
        /// Keys with their values.
        pairs: Vec<(Pattern, Pattern)>,
        /// Whether further pairs may follow.
        open: bool,
    },
}

/// Elements of an aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// The required elements.
    pub items: Vec<Pattern>,
    /// Whether further elements may follow.
    pub open: bool,
}

impl Pattern {
    /// Whether `value` matches the pattern.
    #[must_use]
    pub fn accepts(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Any, _)
            | (Self::AnyBulk, Value::Bulk(_))
            | (Self::AnyDouble, Value::Double(_)) => true,
            (Self::Exactly(wanted), _) => wanted == value,
            (Self::Integer(range), Value::Integer(number)) => range.contains(number),
            (Self::Error(glob), Value::Error(text)) => fits(glob.as_deref(), text),
            (
                Self::Text(glob),
                Value::Bulk(text) | Value::Simple(text) | Value::Verbatim { text, .. },
            ) => fits(glob.as_deref(), text),
            (Self::Array(sequence), Value::Array(items))
            | (Self::Push(sequence), Value::Push(items)) => sequence.accepts_ordered(items),
            (Self::AnyOrder(sequence), Value::Array(items))
            | (Self::Set(sequence), Value::Set(items)) => sequence.accepts_any_order(items),
            (Self::Map { pairs, open }, Value::Map(entries)) => {
                accepts_pairs(pairs, *open, entries)
            }
            _ => false,
        }
    }
}

impl Sequence {
    fn has_count(&self, count: usize) -> bool {
        count == self.items.len() || (self.open && count > self.items.len())
    }

    fn accepts_ordered(&self, values: &[Value]) -> bool {
        let mut both = self.items.iter().zip(values);
        self.has_count(values.len()) && both.all(|(pattern, value)| pattern.accepts(value))
    }

    fn accepts_any_order(&self, values: &[Value]) -> bool {
        self.has_count(values.len())
            && assigns(self.items.len(), values.len(), |pattern, value| {
                self.items[pattern].accepts(&values[value])
            })
    }
}

fn accepts_pairs(pairs: &[(Pattern, Pattern)], open: bool, entries: &[(Value, Value)]) -> bool {
    (entries.len() == pairs.len() || (open && entries.len() > pairs.len()))
        && assigns(pairs.len(), entries.len(), |pair, entry| {
            let (key, value) = &pairs[pair];
            key.accepts(&entries[entry].0) && value.accepts(&entries[entry].1)
        })
}

fn fits(glob: Option<&[u8]>, text: &[u8]) -> bool {
    glob.is_none_or(|glob| matches(glob, text, Case::Sensitive))
}

/// Whether every pattern can be assigned a value of its own. Finds a bipartite matching by
/// augmenting paths.
fn assigns(patterns: usize, values: usize, accepts: impl Fn(usize, usize) -> bool) -> bool {
    let mut owner: Vec<Option<usize>> = vec![None; values];
    (0..patterns).all(|pattern| {
        let mut seen = vec![false; values];
        find_value(pattern, &mut owner, &mut seen, &accepts)
    })
}

fn find_value(
    pattern: usize,
    owner: &mut [Option<usize>],
    seen: &mut [bool],
    accepts: &impl Fn(usize, usize) -> bool,
) -> bool {
    for value in 0..owner.len() {
        if seen[value] || !accepts(pattern, value) {
            continue;
        }
        seen[value] = true;
        let is_free = owner[value].is_none_or(|other| find_value(other, owner, seen, accepts));
        if is_free {
            owner[value] = Some(pattern);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::notation::parse;
    use protocol::decode_value;

    fn accepts(pattern: &str, reply: &str) -> bool {
        let (value, _) = decode_value(reply.as_bytes()).unwrap().unwrap();
        parse(pattern).unwrap().accepts(&value)
    }

    #[test]
    fn wildcards() {
        assert!(accepts("*", "*0\r\n"));
        assert!(accepts("<integer>", ":-9\r\n"));
        assert!(accepts("<integer 1..3>", ":3\r\n"));
        assert!(!accepts("<integer 1..3>", ":4\r\n"));
        assert!(!accepts("<integer>", "$1\r\n1\r\n"));
        assert!(accepts("<bulk>", "$1\r\n1\r\n"));
        assert!(!accepts("<bulk>", "$-1\r\n"));
        assert!(accepts(r#"<text "a*c">"#, "=7\r\ntxt:abc\r\n"));
        assert!(!accepts(r#"<text "a*c">"#, "$3\r\nabd\r\n"));
        assert!(accepts(r#"<error "ERR *">"#, "-ERR no\r\n"));
        assert!(!accepts("<error>", "+no\r\n"));
    }

    #[test]
    fn order_counts_only_in_arrays() {
        let reply = "*3\r\n:1\r\n:2\r\n:2\r\n";
        assert!(accepts("[:1, :2, :2]", reply));
        assert!(accepts("[:1, ...]", reply));
        assert!(!accepts("[:1, :2]", reply));
        assert!(!accepts("[:2, :1, :2]", reply));
        assert!(accepts("{any-order: :2, :1, :2}", reply));
        assert!(!accepts("{any-order: :2, :1, :1}", reply));
        // The wildcard must leave the only 1 to the pattern that needs it.
        assert!(accepts("{any-order: *, :1, :2}", reply));
    }

    #[test]
    fn maps_have_no_order() {
        let reply = "%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n";
        assert!(accepts("%{+b: :2, +a: :1}", reply));
        assert!(accepts("%{+b: *, ...}", reply));
        assert!(!accepts("%{+b: :2}", reply));
        assert!(!accepts("%{+b: :1, +a: :2}", reply));
    }
}
