//! The directives that are set for all nodes of a group: one document of the control state.
//!
//! The server interprets them. Only the node timeout is read here, because leases and the waits for
//! them depend on it.
//!
//! ```text
//!   CONFIG SET 1,500 after 15,000 ─► node timeout 1,500, before 15,000 ──── no lease of 15,000 can stand ─► node timeout 1,500
//! ```
//!
//! Invariant: an elected leader has applied all committed entries. So it knows the longest time for
//! which a lease may count by any value that was set, even if it was only just started.

use std::collections::BTreeMap;

use crate::bytes::{Malformed, Reader, Writer};
use crate::entry::Entry;
use crate::state::{ControlState, DocumentKind};

/// Name of the only document of its kind.
pub const NAME: &[u8] = b"";
/// The directive from which all times of a group derive.
pub const NODE_TIMEOUT: &str = "cluster-node-timeout";
/// Not a directive: the longest earlier node timeout, kept while leases of that time may stand.
pub const TIMEOUT_BEFORE: &str = "cluster-node-timeout before";

/// Names and values.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Encodes names and values.
#[must_use]
pub fn encode(pairs: &Pairs) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.count(pairs.len());
    for (name, value) in pairs {
        writer.string(name).string(value);
    }
    writer.0
}

/// Decodes names and values.
///
/// # Errors
/// The bytes are malformed.
pub fn decode(bytes: &[u8]) -> Result<Pairs, Malformed> {
    let mut reader = Reader(bytes);
    let count = reader.count()?;
    let pair = |_| Ok((reader.string()?.to_vec(), reader.string()?.to_vec()));
    let pairs = (0..count).map(pair).collect::<Result<Pairs, _>>()?;
    reader.end()?;
    Ok(pairs)
}

/// Returns the version of the document and the directives that are set.
#[must_use]
pub fn of_state(state: &ControlState) -> (u64, Pairs) {
    let document = state.documents.get(&(DocumentKind::Config, NAME.to_vec()));
    document.map_or_else(Default::default, |document| {
        (document.version, decode(&document.body).unwrap_or_default())
    })
}

/// The node timeout according to the control state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTimeout {
    /// Version of the document that holds it.
    pub version: u64,
    /// The timeout in milliseconds, or `None` if it is not set for all nodes.
    pub set_ms: Option<u64>,
    /// The longest earlier timeout, while leases of that time may stand.
    pub before_ms: Option<u64>,
}

impl NodeTimeout {
    /// Reads the node timeout from a state.
    #[must_use]
    pub fn of_state(state: &ControlState) -> Self {
        let (version, pairs) = of_state(state);
        Self {
            version,
            set_ms: number(&pairs, NODE_TIMEOUT),
            before_ms: number(&pairs, TIMEOUT_BEFORE),
        }
    }

    /// Returns the longest time for which a lease may count by the values that were set.
    #[must_use]
    pub fn longest_ms(&self) -> u64 {
        self.set_ms.max(self.before_ms).unwrap_or(0)
    }
}

fn number(pairs: &Pairs, name: &str) -> Option<u64> {
    let value = pairs.get(name.as_bytes())?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Replaces the directives `known` by `new`: keeps an earlier node timeout that is longer. `own_ms`
/// is the timeout if it was never set.
pub fn keep_timeout_before(known: &Pairs, new: &mut Pairs, own_ms: u64) {
    let Some(new_ms) = number(new, NODE_TIMEOUT) else {
        return;
    };
    let known_ms = number(known, NODE_TIMEOUT).unwrap_or(own_ms);
    let longest_ms = known_ms.max(number(known, TIMEOUT_BEFORE).unwrap_or(0));
    match longest_ms > new_ms {
        true => new.insert(TIMEOUT_BEFORE.into(), longest_ms.to_string().into_bytes()),
        false => new.remove(TIMEOUT_BEFORE.as_bytes()),
    };
}

/// Returns the entry that records `before_ms` as the longest earlier timeout by which leases may
/// stand, or removes that record.
#[must_use]
pub fn timeout_before(state: &ControlState, before_ms: Option<u64>) -> Entry {
    let (expected_version, mut pairs) = of_state(state);
    match before_ms {
        Some(ms) => pairs.insert(TIMEOUT_BEFORE.into(), ms.to_string().into_bytes()),
        None => pairs.remove(TIMEOUT_BEFORE.as_bytes()),
    };
    Entry::Document {
        kind: DocumentKind::Config,
        name: NAME.to_vec(),
        expected_version,
        body: Some(encode(&pairs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Versioned;

    #[test]
    fn directives_come_back_as_they_were_written() {
        let pairs: Pairs = [("a", "1"), ("timeout", ""), ("z", "x y")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let bytes = encode(&pairs);
        assert_eq!(decode(&bytes), Ok(pairs));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    fn state_of(pairs: &Pairs) -> ControlState {
        let mut state = ControlState::default();
        let document = Versioned {
            version: 7,
            body: encode(pairs),
        };
        let key = (DocumentKind::Config, NAME.to_vec());
        state.documents.insert(key, document);
        state
    }

    #[test]
    fn the_longest_node_timeout_of_before_is_kept_until_it_is_forgotten() {
        assert_eq!(
            NodeTimeout::of_state(&ControlState::default()),
            NodeTimeout::default()
        );
        let mut known = Pairs::new();
        for (set_ms, before_ms) in [
            (2_000, None),
            (1_000, Some(2_000)),
            (1_000, Some(2_000)),
            (500, Some(2_000)),
            (700, Some(2_000)),
            (15_000, None),
            (1_500, Some(15_000)),
        ] {
            let mut new = known.clone();
            new.insert(NODE_TIMEOUT.into(), set_ms.to_string().into_bytes());
            keep_timeout_before(&known, &mut new, 1_500);
            let timeout = NodeTimeout::of_state(&state_of(&new));
            assert_eq!(timeout.version, 7);
            assert_eq!(
                (timeout.set_ms, timeout.before_ms),
                (Some(set_ms), before_ms)
            );
            assert_eq!(timeout.longest_ms(), before_ms.unwrap_or(set_ms));
            known = new;
        }
        let Entry::Document {
            body,
            expected_version,
            ..
        } = timeout_before(&state_of(&known), None)
        else {
            panic!("a document");
        };
        known.remove(TIMEOUT_BEFORE.as_bytes());
        assert_eq!((decode(&body.unwrap()), expected_version), (Ok(known), 7));
    }

    #[test]
    fn what_a_node_timeout_was_that_nobody_set_is_kept_too() {
        let mut new = [("maxmemory-samples".into(), b"7".to_vec())].into();
        keep_timeout_before(&Pairs::new(), &mut new, 15_000);
        assert_eq!(new.len(), 1);
        new.insert(NODE_TIMEOUT.into(), b"1500".to_vec());
        keep_timeout_before(&Pairs::new(), &mut new, 15_000);
        let timeout = NodeTimeout::of_state(&state_of(&new));
        assert_eq!(timeout.before_ms, Some(15_000));
    }
}
