//! Messages between nodes of two clusters about which one gives way, and within that one about how
//! it does.

use cluster::NodeId;
use cluster::bytes::{Malformed, Reader, Writer};
use cluster::entry::{SlotRange, are_ranges, decode_ranges, encode_ranges};

use crate::group::files::{KnownPeer, NODES_MAX, Place};

/// A question from a node of one cluster to a node of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The founder of the asker's cluster.
    pub(super) founder: NodeId,
    /// The asker's address.
    pub(super) place: Place,
    /// The hash slots that have owners in its cluster.
    pub(super) owned: Vec<SlotRange>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They are in one cluster already, or soon will be.
    Later,
    /// The asker's cluster has to give way: its nodes join there.
    GiveWay(Place),
    /// They cannot merge, for this reason.
    Refused(String),
}

/// The notice that a cluster gives way: sent to its founder, which sends it to each of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// Its founder.
    pub(super) founder: NodeId,
    /// Address of a node of the other cluster.
    pub(super) to: Place,
}

impl Question {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.place.encode(writer.raw(&self.founder.0));
        encode_ranges(&mut writer, &self.owned);
        writer.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let question = Self {
            founder: NodeId(reader.array()?),
            place: Place::decode(&mut reader)?,
            owned: decode_ranges(&mut reader)?,
        };
        reader.end()?;
        let is_sound = are_ranges(&question.owned);
        is_sound.then_some(question).ok_or(Malformed::Value)
    }
}

impl Verdict {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Later => drop(writer.u8(1)),
            Self::GiveWay(to) => to.encode(writer.u8(2)),
            Self::Refused(reason) => drop(writer.u8(3).string(reason.as_bytes())),
        }
        writer.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let verdict = match reader.u8()? {
            1 => Self::Later,
            2 => Self::GiveWay(Place::decode(&mut reader)?),
            3 => Self::Refused(reader.text()?),
            kind => return Err(Malformed::Kind(kind)),
        };
        reader.end()?;
        Ok(verdict)
    }
}

impl Order {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.to.encode(writer.raw(&self.founder.0));
        writer.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let order = Self {
            founder: NodeId(reader.array()?),
            to: Place::decode(&mut reader)?,
        };
        reader.end()?;
        Ok(order)
    }
}

/// Encodes the other nodes of the cluster that a node has left.
pub(super) fn encode_peers(peers: &[KnownPeer]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.count(peers.len());
    for peer in peers {
        let writer = writer.raw(&peer.node.0).u64(peer.raft_id);
        peer.place.encode(writer);
    }
    writer.0
}

pub(super) fn decode_peers(bytes: &[u8]) -> Result<Vec<KnownPeer>, Malformed> {
    let mut reader = Reader(bytes);
    let count = reader.count()?;
    if count > NODES_MAX {
        return Err(Malformed::Length);
    }
    let mut peers = Vec::new();
    for _ in 0..count {
        peers.push(KnownPeer {
            node: NodeId(reader.array()?),
            raft_id: reader.u64()?,
            place: Place::decode(&mut reader)?,
        });
    }
    reader.end()?;
    Ok(peers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            host: "10.0.0.1".to_owned(),
            port: 17_000,
        }
    }

    /// Checks that encoded messages decode to the same, and truncated ones do not decode.
    fn assert_comes_back<T: PartialEq + std::fmt::Debug>(
        said: &T,
        bytes: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, Malformed>,
    ) {
        assert_eq!(&decode(bytes).unwrap(), said);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{said:?}, {end}");
        }
    }

    #[test]
    fn what_is_said_comes_back_from_its_bytes() {
        let question = Question {
            founder: NodeId([7; 20]),
            place: place(),
            owned: vec![(0, 100), (200, 16_383)],
        };
        assert_comes_back(&question, &question.encode(), Question::decode);
        for verdict in [
            Verdict::Later,
            Verdict::GiveWay(place()),
            Verdict::Refused("no".to_owned()),
        ] {
            assert_comes_back(&verdict, &verdict.encode(), Verdict::decode);
        }
        let order = Order {
            founder: NodeId([8; 20]),
            to: place(),
        };
        assert_comes_back(&order, &order.encode(), Order::decode);
        let peers = vec![KnownPeer {
            node: NodeId([9; 20]),
            raft_id: 12,
            place: place(),
        }];
        assert_comes_back(&peers, &encode_peers(&peers), decode_peers);
    }

    #[test]
    fn what_nobody_says_is_refused() {
        assert!(Verdict::decode(&[9]).is_err());
        let too_many = u32::MAX.to_le_bytes();
        assert!(decode_peers(&too_many).is_err());
    }
}
