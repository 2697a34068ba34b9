//! The owners of a cluster's hash slots, and the replies of nodes when owners have changed.

use std::collections::BTreeSet;

use base::hash_slot::{self, HASH_SLOTS};
use protocol::Value;

use crate::cli::keys::text_of;
use crate::endpoint::Address;
use crate::error::BenchError;

/// The nodes of a cluster that own hash slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    /// Sorted by address, so that two of them are equal if every slot has the same owner.
    nodes: Vec<Address>,
    /// The index of the node that owns each slot.
    owners: Vec<Option<usize>>,
}

impl Slots {
    /// Parses the reply to CLUSTER SLOTS. `asked` is the node that replied, for nodes that do not
    /// know their own address.
    pub(super) fn read(reply: &Value, asked: &Address) -> Result<Self, BenchError> {
        let Value::Array(ranges) = reply else {
            return Err(crate::cli::keys::refused("CLUSTER SLOTS", reply));
        };
        let ranges: Option<Vec<(usize, usize, Address)>> = ranges
            .iter()
            .map(|range| read_range(range, asked))
            .collect();
        let ranges = ranges.ok_or_else(|| BenchError::Refused {
            request: "CLUSTER SLOTS".to_owned(),
            reply: "its answer is not understood".to_owned(),
        })?;
        let nodes: BTreeSet<&Address> = ranges.iter().map(|(.., at)| at).collect();
        let mut slots = Self {
            nodes: nodes.into_iter().cloned().collect(),
            owners: vec![None; HASH_SLOTS],
        };
        for (first, last, at) in &ranges {
            let owner = slots.nodes.iter().position(|node| node == at);
            slots.owners[*first..=*last].fill(owner);
        }
        Ok(slots)
    }

    pub(super) fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    /// Returns the owner of a key's slot.
    pub(super) fn owner(&self, key: &[u8]) -> Option<&Address> {
        self.owners[usize::from(hash_slot::of(key))].map(|at| &self.nodes[at])
    }
}

/// Parses `[first, last, [host, port, …], …]`; `None` for anything else.
fn read_range(range: &Value, asked: &Address) -> Option<(usize, usize, Address)> {
    let Value::Array(parts) = range else {
        return None;
    };
    let slot = |part: Option<&Value>| match part {
        Some(Value::Integer(slot)) => usize::try_from(*slot)
            .ok()
            .filter(|slot| *slot < HASH_SLOTS),
        _ => None,
    };
    let (first, last) = (slot(parts.first())?, slot(parts.get(1))?);
    let Some(Value::Array(primary)) = parts.get(2) else {
        return None;
    };
    let port = match primary.get(1)? {
        Value::Integer(port) => u16::try_from(*port).ok()?,
        _ => return None,
    };
    let host = String::from_utf8(text_of(primary.first()?)).ok()?;
    let is_known = matches!(primary.first(), Some(Value::Bulk(_) | Value::Simple(_)));
    let address = match is_known {
        true => at(&host, port, asked),
        false => at("", port, asked),
    };
    (first <= last).then_some((first, last, address))
}

/// Returns a node's address; without a host, that of the node that was asked.
fn at(host: &str, port: u16, asked: &Address) -> Address {
    let own = match asked {
        Address::Tcp(host, _) => host.as_str(),
        Address::Unix(_) => "127.0.0.1",
    };
    let host = if matches!(host, "" | "?") { own } else { host };
    Address::Tcp(host.to_owned(), port)
}

/// A redirection in a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The slot is being moved there: only this request goes there.
    Ask(Address),
    /// The owners have changed, or will change in a moment.
    Again,
}

/// Prefixes of temporary errors.
const PASSING: [&[u8]; 6] = [
    b"MOVED ",
    b"TRYAGAIN",
    b"CLUSTERDOWN",
    b"LOADING",
    b"MASTERDOWN",
    b"READONLY",
];

/// Returns the redirection in a reply, or `None` if the reply is final.
pub(super) fn sent(reply: &Value, asked: &Address) -> Option<Sent> {
    let Value::Error(text) = reply else {
        return None;
    };
    if let Some(rest) = text.strip_prefix(b"ASK ") {
        let rest = std::str::from_utf8(rest).ok()?;
        let (host, port) = rest.split_once(' ')?.1.rsplit_once(':')?;
        return Some(Sent::Ask(at(host, port.trim().parse().ok()?, asked)));
    }
    let is_passing = PASSING.iter().any(|start| text.starts_with(start));
    is_passing.then_some(Sent::Again)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        Value::Array(vec![
            Value::Integer(first),
            Value::Integer(last),
            Value::Array(vec![
                host,
                Value::Integer(port),
                Value::Bulk(b"id".to_vec()),
            ]),
        ])
    }

    fn host(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn asked() -> Address {
        Address::Tcp("seed".to_owned(), 1)
    }

    #[test]
    fn every_key_has_the_owner_of_its_slot() {
        let ranges = [
            range(8_192, 16_383, host("b"), 7),
            range(0, 8_190, Value::Null, 6),
        ];
        let slots = Slots::read(&Value::Array(ranges.to_vec()), &asked()).unwrap();
        let a = Address::Tcp("seed".to_owned(), 6);
        let b = Address::Tcp("b".to_owned(), 7);
        assert_eq!(slots.nodes(), [b.clone(), a.clone()]);
        // 12,182 and 5,061.
        assert_eq!(slots.owner(b"foo"), Some(&b));
        assert_eq!(slots.owner(b"bar"), Some(&a));
        let owned = slots.owners.iter().filter(|owner| owner.is_some()).count();
        assert_eq!(owned, HASH_SLOTS - 1);
    }

    #[test]
    fn the_order_of_ranges_says_nothing() {
        let mut ranges = vec![
            range(0, 99, host("a"), 1),
            range(100, 199, host("b"), 1),
            range(200, 299, host("a"), 1),
        ];
        let one = Slots::read(&Value::Array(ranges.clone()), &asked()).unwrap();
        ranges.reverse();
        let other = Slots::read(&Value::Array(ranges), &asked()).unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for wrong in [
            Value::Error(b"ERR no".to_vec()),
            Value::Array(vec![Value::Integer(1)]),
            Value::Array(vec![range(0, 16_384, host("a"), 1)]),
            Value::Array(vec![range(5, 4, host("a"), 1)]),
            Value::Array(vec![range(0, 4, host("a"), 70_000)]),
        ] {
            assert!(Slots::read(&wrong, &asked()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn answers_say_where_a_request_goes() {
        let error = |text: &str| Value::Error(text.as_bytes().to_vec());
        let to = |text: &str| sent(&error(text), &asked());
        assert_eq!(to("MOVED 1 10.0.0.1:7"), Some(Sent::Again));
        assert_eq!(to("TRYAGAIN Multiple keys"), Some(Sent::Again));
        let there = Address::Tcp("10.0.0.1".to_owned(), 7);
        assert_eq!(to("ASK 1 10.0.0.1:7"), Some(Sent::Ask(there)));
        let here = Address::Tcp("seed".to_owned(), 7);
        assert_eq!(to("ASK 1 :7"), Some(Sent::Ask(here)));
        assert_eq!(to("ERR Bad data format"), None);
        assert_eq!(to("ASK nonsense"), None);
        assert_eq!(sent(&Value::Null, &asked()), None);
    }
}
