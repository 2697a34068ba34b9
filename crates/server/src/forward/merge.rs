//! Merges the replies of several nodes into one.

use base::hash_slot::HASH_SLOTS;
use base::number::parse_u64;

use super::replies::{elements, integer};
use super::window::Part;

/// A client's cursor has the slot of the node that is asked in its low bits, and that node's own
/// cursor above them.
const SLOT_BITS: u32 = 14;

/// How replies are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The values of keys: for each, the part that has it and its index there.
    Values(Vec<(usize, usize)>),
    /// The sum of numbers.
    Sum,
    /// OK, if all parts say OK.
    Done,
    /// All elements, one part after the other.
    Elements,
    /// The reply of this part.
    One(usize),
    /// The first reply, from this part on, that is not null.
    Any(usize),
    /// The reply of the node with this slot. The node with the other slot is next, if there is one.
    Cursor(u16, Option<u16>),
}

/// A request that several nodes answer.
#[derive(Debug)]
pub(crate) struct Merge {
    pub(crate) how: How,
    pub(crate) parts: Vec<Part>,
    replies: Vec<Option<Vec<u8>>>,
}

impl Merge {
    pub(crate) fn new(how: How, parts: Vec<Part>) -> Self {
        let replies = parts.iter().map(|_| None).collect();
        Self {
            how,
            parts,
            replies,
        }
    }

    /// Notes the reply of a part. Returns the merged reply if that was the last.
    pub(crate) fn answer(&mut self, part: usize, reply: &[u8]) -> Option<Vec<u8>> {
        if let Some(place) = self.replies.get_mut(part) {
            *place = Some(reply.to_vec());
        }
        let replies: Option<Vec<&[u8]>> = self.replies.iter().map(|it| it.as_deref()).collect();
        Some(merged(&self.how, &replies?))
    }
}

fn merged(how: &How, replies: &[&[u8]]) -> Vec<u8> {
    let failed: Vec<&&[u8]> = replies
        .iter()
        .filter(|it| it.starts_with(b"-") || it.starts_with(b"!"))
        .collect();
    if let Some(first) = failed.first() {
        return refusal(first, failed.len(), replies.len());
    }
    let whole = match how {
        How::Values(places) => values(places, replies),
        How::Sum => sum(replies),
        How::Done => Some(b"+OK\r\n".to_vec()),
        How::Elements => all_elements(replies),
        How::One(part) => replies.get(*part).map(|it| it.to_vec()),
        How::Any(from) => any(*from, replies),
        How::Cursor(slot, next) => {
            let reply = replies.first();
            reply.and_then(|reply| cursor(reply, *slot, *next))
        }
    };
    whole.unwrap_or_else(|| b"-ERR a node answered what it should not\r\n".to_vec())
}

/// Returns the first error, and how many parts failed if others succeeded.
fn refusal(first: &[u8], failed: usize, all: usize) -> Vec<u8> {
    let text = first.strip_suffix(b"\r\n").unwrap_or(first);
    let mut reply = text.to_vec();
    if failed < all && text.starts_with(b"-") {
        let note = format!(" ({failed} of the {all} parts of the request failed)");
        reply.extend_from_slice(note.as_bytes());
    }
    reply.extend_from_slice(b"\r\n");
    reply
}

fn values(places: &[(usize, usize)], replies: &[&[u8]]) -> Option<Vec<u8>> {
    let lists: Option<Vec<Vec<&[u8]>>> = replies.iter().map(|reply| elements(reply)).collect();
    let lists = lists?;
    let mut whole = format!("*{}\r\n", places.len()).into_bytes();
    for (part, at) in places {
        whole.extend_from_slice(lists.get(*part)?.get(*at)?);
    }
    Some(whole)
}

fn sum(replies: &[&[u8]]) -> Option<Vec<u8>> {
    let mut total = 0_i64;
    for reply in replies {
        total = total.checked_add(integer(reply)?)?;
    }
    Some(format!(":{total}\r\n").into_bytes())
}

fn all_elements(replies: &[&[u8]]) -> Option<Vec<u8>> {
    let lists: Option<Vec<Vec<&[u8]>>> = replies.iter().map(|reply| elements(reply)).collect();
    let all = lists?.concat();
    let mut whole = format!("*{}\r\n", all.len()).into_bytes();
    whole.extend_from_slice(&all.concat());
    Some(whole)
}

fn any(from: usize, replies: &[&[u8]]) -> Option<Vec<u8>> {
    let is_null = |reply: &[u8]| reply.starts_with(b"$-1") || reply.starts_with(b"_");
    let in_order = (0..replies.len()).map(|at| replies[(from + at) % replies.len()]);
    let first = in_order.clone().find(|reply| !is_null(reply));
    first
        .or_else(|| in_order.clone().next())
        .map(<[u8]>::to_vec)
}

/// Splits a client's cursor into the slot of the node that is asked, and that node's own cursor.
pub(crate) fn taken_apart(cursor: u64) -> (u16, u64) {
    let slot = u16::try_from(cursor & (HASH_SLOTS as u64 - 1)).unwrap_or(0);
    (slot, cursor >> SLOT_BITS)
}

fn put_together(slot: u16, own: u64) -> Option<u64> {
    let high = own.checked_mul(1 << SLOT_BITS)?;
    Some(high | u64::from(slot))
}

fn cursor(reply: &[u8], slot: u16, next: Option<u16>) -> Option<Vec<u8>> {
    let parts = elements(reply)?;
    let [own, keys] = parts[..] else {
        return None;
    };
    let text = own.split(|byte| *byte == b'\n').nth(1)?;
    let own = parse_u64(text.strip_suffix(b"\r")?)?;
    let cursor = match (own, next) {
        (0, None) => 0,
        (0, Some(next)) => u64::from(next),
        (own, _) => put_together(slot, own)?,
    };
    let text = cursor.to_string();
    let mut whole = format!("*2\r\n${}\r\n{text}\r\n", text.len()).into_bytes();
    whole.extend_from_slice(keys);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(how: &How, replies: &[&str]) -> String {
        let replies: Vec<&[u8]> = replies.iter().map(|it| it.as_bytes()).collect();
        String::from_utf8(merged(how, &replies)).unwrap()
    }

    #[test]
    fn replies_are_put_together() {
        let values = How::Values(vec![(1, 0), (0, 0), (1, 1)]);
        let parts = ["*1\r\n$1\r\nb\r\n", "*2\r\n$1\r\na\r\n$-1\r\n"];
        assert_eq!(text(&values, &parts), "*3\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n");
        assert_eq!(text(&How::Sum, &[":1\r\n", ":41\r\n"]), ":42\r\n");
        assert_eq!(text(&How::Done, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        let lists = ["*0\r\n", "*1\r\n$1\r\na\r\n"];
        assert_eq!(text(&How::Elements, &lists), "*1\r\n$1\r\na\r\n");
        assert_eq!(text(&How::One(1), &["+a\r\n", "+b\r\n"]), "+b\r\n");
        assert_eq!(
            text(&How::Any(1), &["$1\r\na\r\n", "$-1\r\n"]),
            "$1\r\na\r\n"
        );
        assert_eq!(text(&How::Any(0), &["_\r\n", "_\r\n"]), "_\r\n");
    }

    #[test]
    fn an_error_of_one_part_is_that_of_the_whole() {
        let one = ["+OK\r\n", "-OOM no\r\n"];
        assert_eq!(
            text(&How::Done, &one),
            "-OOM no (1 of the 2 parts of the request failed)\r\n"
        );
        assert_eq!(text(&How::Sum, &["-A x\r\n", "-B y\r\n"]), "-A x\r\n");
        assert!(text(&How::Sum, &["+what\r\n"]).starts_with("-ERR"));
        assert!(text(&How::Sum, &[":9223372036854775807\r\n", ":1\r\n"]).starts_with("-ERR"));
    }

    #[test]
    fn a_cursor_goes_from_node_to_node() {
        let how = How::Cursor(7, Some(8_000));
        assert_eq!(
            text(&how, &["*2\r\n$2\r\n12\r\n*0\r\n"]),
            format!("*2\r\n$6\r\n{}\r\n*0\r\n", (12 << 14) | 7)
        );
        assert_eq!(taken_apart((12 << 14) | 7), (7, 12));
        assert_eq!(
            text(&how, &["*2\r\n$1\r\n0\r\n*0\r\n"]),
            "*2\r\n$4\r\n8000\r\n*0\r\n"
        );
        let last = How::Cursor(8_000, None);
        assert_eq!(
            text(&last, &["*2\r\n$1\r\n0\r\n*0\r\n"]),
            "*2\r\n$1\r\n0\r\n*0\r\n"
        );
    }
}
