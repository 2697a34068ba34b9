//! Entries of the control log: typed, each with a request id and the state that it expects.
//!
//! ```text
//!   version u8 │ request id 16 bytes │ kind u8 │ fields of the kind
//! ```
//!
//! Kind 13 (`migration`) has a second byte: 1 `move`, 2 `end of moves`.

use base::hash_slot::HASH_SLOTS;

use crate::bytes::{Malformed, Reader, STRING_BYTES_MAX, Writer};
use crate::state::{
    CopyKind, DocumentKind, Drain, LogEnd, NodeId, NodeRecord, Shard, ShardId, TEXT_BYTES_MAX,
};

/// The version of entries that this server writes, and the highest that it can read.
pub const VERSION: u8 = 1;

/// Identifies a request: if it is repeated, it is applied once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub [u8; 16]);

/// An entry with the id of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The request.
    pub request: RequestId,
    /// The change.
    pub entry: Entry,
}

/// A change of the control state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A node joins. Its Raft id is the index of this entry, except for the founder of the group.
    Join {
        /// Its permanent name.
        node: NodeId,
        /// The node's record about itself.
        record: NodeRecord,
    },
    /// A node leaves the group together with its copies. Refused for a primary.
    Leave {
        /// The node.
        node: NodeId,
    },
    /// A node updates its record.
    Node {
        /// The node.
        node: NodeId,
        /// The record, with a start count that is not lower than before.
        record: NodeRecord,
    },
    /// A node is not heard any more, or is heard again.
    NodeState {
        /// The node.
        node: NodeId,
        /// Whether it counts as failed.
        is_failed: bool,
    },
    /// A shard or its members change.
    Shard {
        /// The shard.
        shard: ShardId,
        /// The index of the last entry about the shard.
        expected_epoch: u64,
        /// The change.
        change: ShardChange,
    },
    /// A member becomes the primary.
    Promote {
        /// The shard.
        shard: ShardId,
        /// The term before.
        expected_term: u64,
        /// The index of the last entry about the shard.
        expected_epoch: u64,
        /// The new term.
        term: u64,
        /// The new primary.
        primary: NodeId,
        /// Where its log ended when it was sealed: it takes office only with this end.
        end: LogEnd,
    },
    /// A user, a library or a directive is replaced as a whole, or removed.
    Document {
        /// The kind of document.
        kind: DocumentKind,
        /// Its name.
        name: Vec<u8>,
        /// Its present version; 0 if it does not exist.
        expected_version: u64,
        /// Its new body, or `None` to remove it.
        body: Option<Vec<u8>>,
    },
    /// The secret of links is replaced.
    Secret {
        /// Its present version.
        expected_version: u64,
        /// The new secret.
        body: Vec<u8>,
    },
    /// All members know this level: entries of it may be written.
    FeatureLevel {
        /// The new level, which is higher.
        level: u16,
    },
    /// The group continues after a forced recovery.
    Incarnation {
        /// The new incarnation, which is higher.
        incarnation: u64,
    },
    /// Hash slots get another owner, all or none.
    Slots {
        /// First and last slot of each range; no slot occurs twice.
        ranges: Vec<SlotRange>,
        /// The present owner of all of them, or `None`.
        expected: Option<ShardId>,
        /// The new owner, or `None`.
        owner: Option<ShardId>,
    },
    /// Copied hash slots go to another shard, all or none, if neither shard has changed since the
    /// copy began.
    Move {
        /// First and last slot of each range; no slot occurs twice.
        ranges: Vec<SlotRange>,
        /// The present owner of all of them, and the index of the last entry about it.
        from: (ShardId, u64),
        /// The new owner, and the index of the last entry about it.
        to: (ShardId, u64),
    },
    /// A node stops leading, or may lead again.
    Drain {
        /// The node.
        node: NodeId,
        /// Its new drain state.
        drain: Drain,
    },
    /// No earlier move from or to a shard can still be applied: keys that were copied for one may
    /// be removed.
    EndMoves {
        /// The shard.
        shard: ShardId,
    },
}

/// A range of hash slots: the first and the last.
pub type SlotRange = (u16, u16);

/// A change of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardChange {
    /// The shard is created with one member, its primary in term 1.
    Create {
        /// The member.
        primary: NodeId,
        /// Where its log ends.
        end: LogEnd,
        /// Whether writes wait for a majority.
        is_quorum: bool,
    },
    /// A member is added: from here on both sets have to agree.
    Add {
        /// The node.
        node: NodeId,
        /// What its copy holds.
        kind: CopyKind,
    },
    /// A member is removed: from here on both sets have to agree.
    Remove {
        /// The node, which is not the primary.
        node: NodeId,
    },
    /// The new set has all that the old one had: it decides alone.
    Finish,
    /// Whether writes wait for a majority is changed.
    SetQuorum {
        /// The new setting.
        is_quorum: bool,
    },
}

impl Proposal {
    /// Encodes the proposal.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(VERSION).raw(&self.request.0);
        self.entry.encode(&mut writer);
        writer.0
    }

    /// Decodes a proposal.
    ///
    /// # Errors
    /// If the bytes are malformed or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::versioned(bytes, VERSION)?;
        let request = RequestId(reader.array()?);
        let entry = Entry::decode(&mut reader)?;
        reader.end()?;
        Ok(Self { request, entry })
    }
}

impl Entry {
    /// Returns the entry that gives a node a data copy of a shard, if the shard is unchanged.
    #[must_use]
    pub fn add_data_copy(shard_id: ShardId, shard: &Shard, node: NodeId) -> Self {
        Self::Shard {
            shard: shard_id,
            expected_epoch: shard.epoch,
            change: ShardChange::Add {
                node,
                kind: CopyKind::Data,
            },
        }
    }

    /// Returns the level from which all nodes know the entry. It is not proposed before: a node
    /// that meets an unknown entry applies nothing more.
    #[must_use]
    pub fn level(&self) -> u16 {
        match self {
            Self::Slots { .. } | Self::Move { .. } | Self::EndMoves { .. } | Self::Drain { .. } => {
                2
            }
            Self::Join { .. }
            | Self::Leave { .. }
            | Self::Node { .. }
            | Self::NodeState { .. }
            | Self::Shard { .. }
            | Self::Promote { .. }
            | Self::Document { .. }
            | Self::Secret { .. }
            | Self::FeatureLevel { .. }
            | Self::Incarnation { .. } => 1,
        }
    }

    /// Whether all parts are within their limits.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        match self {
            Self::Join { record, .. } | Self::Node { record, .. } => record.is_within_limits(),
            Self::Document { name, body, .. } => {
                name.len() <= TEXT_BYTES_MAX
                    && body
                        .as_ref()
                        .is_none_or(|body| body.len() <= STRING_BYTES_MAX)
            }
            Self::Secret { body, .. } => body.len() <= TEXT_BYTES_MAX,
            Self::Slots { ranges, .. } | Self::Move { ranges, .. } => are_ranges(ranges),
            _ => true,
        }
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Join { node, record } => record.encode(writer.u8(1).raw(&node.0)),
            Self::Leave { node } => {
                writer.u8(2).raw(&node.0);
            }
            Self::Node { node, record } => record.encode(writer.u8(3).raw(&node.0)),
            Self::NodeState { node, is_failed } => {
                writer.u8(4).raw(&node.0).u8(u8::from(*is_failed));
            }
            Self::Shard {
                shard,
                expected_epoch,
                change,
            } => change.encode(writer.u8(5).u32(shard.0).u64(*expected_epoch)),
            Self::Promote {
                shard,
                expected_term,
                expected_epoch,
                term,
                primary,
                end,
            } => {
                let writer = writer.u8(6).u32(shard.0).u64(*expected_term);
                let writer = writer.u64(*expected_epoch).u64(*term).raw(&primary.0);
                end.encode(writer);
            }
            Self::Document {
                kind,
                name,
                expected_version,
                body,
            } => {
                let writer = writer
                    .u8(7)
                    .u8(*kind as u8)
                    .string(name)
                    .u64(*expected_version);
                match body {
                    Some(body) => writer.u8(1).string(body),
                    None => writer.u8(0),
                };
            }
            Self::Secret {
                expected_version,
                body,
            } => {
                writer.u8(8).u64(*expected_version).string(body);
            }
            Self::FeatureLevel { level } => drop(writer.u8(9).u16(*level)),
            Self::Incarnation { incarnation } => drop(writer.u8(10).u64(*incarnation)),
            Self::Slots {
                ranges,
                expected,
                owner,
            } => encode_slots(writer.u8(12), ranges, [*expected, *owner]),
            Self::Move { ranges, from, to } => {
                let shards = [Some(from.0), Some(to.0)];
                encode_slots(writer.u8(13).u8(1), ranges, shards);
                writer.u64(from.1).u64(to.1);
            }
            Self::EndMoves { shard } => {
                writer.u8(13).u8(2).u32(shard.0);
            }
            Self::Drain { node, drain } => drop(writer.u8(14).raw(&node.0).u8(*drain as u8)),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            1 => Self::Join {
                node: NodeId(reader.array()?),
                record: NodeRecord::decode(reader)?,
            },
            2 => Self::Leave {
                node: NodeId(reader.array()?),
            },
            3 => Self::Node {
                node: NodeId(reader.array()?),
                record: NodeRecord::decode(reader)?,
            },
            4 => Self::NodeState {
                node: NodeId(reader.array()?),
                is_failed: reader.bool()?,
            },
            5 => Self::Shard {
                shard: ShardId(reader.u32()?),
                expected_epoch: reader.u64()?,
                change: ShardChange::decode(reader)?,
            },
            6 => Self::Promote {
                shard: ShardId(reader.u32()?),
                expected_term: reader.u64()?,
                expected_epoch: reader.u64()?,
                term: reader.u64()?,
                primary: NodeId(reader.array()?),
                end: LogEnd::decode(reader)?,
            },
            7 => Self::Document {
                kind: DocumentKind::of(reader.u8()?)?,
                name: reader.string()?.to_vec(),
                expected_version: reader.u64()?,
                body: match reader.bool()? {
                    true => Some(reader.string()?.to_vec()),
                    false => None,
                },
            },
            8 => Self::Secret {
                expected_version: reader.u64()?,
                body: reader.string()?.to_vec(),
            },
            9 => Self::FeatureLevel {
                level: reader.u16()?,
            },
            10 => Self::Incarnation {
                incarnation: reader.u64()?,
            },
            12 => Self::Slots {
                ranges: decode_ranges(reader)?,
                expected: optional_shard(reader)?,
                owner: optional_shard(reader)?,
            },
            13 => decode_migration(reader)?,
            14 => Self::Drain {
                node: NodeId(reader.array()?),
                drain: Drain::of(reader.u8()?)?,
            },
            kind => return Err(Malformed::Kind(kind)),
        })
    }
}

fn encode_slots(writer: &mut Writer, ranges: &[SlotRange], shards: [Option<ShardId>; 2]) {
    encode_ranges(writer, ranges);
    for shard in shards {
        match shard {
            Some(shard) => writer.u8(1).u32(shard.0),
            None => writer.u8(0),
        };
    }
}

fn decode_migration(reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
    Ok(match reader.u8()? {
        1 => {
            let ranges = decode_ranges(reader)?;
            let from = optional_shard(reader)?.ok_or(Malformed::Value)?;
            let to = optional_shard(reader)?.ok_or(Malformed::Value)?;
            Entry::Move {
                ranges,
                from: (from, reader.u64()?),
                to: (to, reader.u64()?),
            }
        }
        2 => Entry::EndMoves {
            shard: ShardId(reader.u32()?),
        },
        kind => return Err(Malformed::Kind(kind)),
    })
}

/// Writes ranges of hash slots.
pub fn encode_ranges(writer: &mut Writer, ranges: &[SlotRange]) {
    writer.count(ranges.len());
    for (first, last) in ranges {
        writer.u16(*first).u16(*last);
    }
}

/// Reads what [`encode_ranges`] wrote. [`are_ranges`] checks whether they are valid ranges.
///
/// # Errors
/// If there are fewer than announced, or more than there are hash slots.
pub fn decode_ranges(reader: &mut Reader<'_>) -> Result<Vec<SlotRange>, Malformed> {
    let count = reader.count()?;
    if count > HASH_SLOTS {
        return Err(Malformed::Length);
    }
    (0..count)
        .map(|_| Ok((reader.u16()?, reader.u16()?)))
        .collect()
}

fn optional_shard(reader: &mut Reader<'_>) -> Result<Option<ShardId>, Malformed> {
    Ok(match reader.bool()? {
        true => Some(ShardId(reader.u32()?)),
        false => None,
    })
}

/// Whether all are ranges of hash slots, without a slot in two of them.
#[must_use]
pub fn are_ranges(ranges: &[SlotRange]) -> bool {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let follow = sorted.windows(2).all(|pair| pair[0].1 < pair[1].0);
    let is_one = |&(first, last): &SlotRange| first <= last && usize::from(last) < HASH_SLOTS;
    follow && sorted.iter().all(is_one)
}

impl ShardChange {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Create {
                primary,
                end,
                is_quorum,
            } => end.encode(writer.u8(1).raw(&primary.0).u8(u8::from(*is_quorum))),
            Self::Add { node, kind } => {
                writer.u8(2).raw(&node.0).u8(*kind as u8);
            }
            Self::Remove { node } => {
                writer.u8(3).raw(&node.0);
            }
            Self::Finish => {
                writer.u8(4);
            }
            Self::SetQuorum { is_quorum } => {
                writer.u8(5).u8(u8::from(*is_quorum));
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            1 => {
                let primary = NodeId(reader.array()?);
                let is_quorum = reader.bool()?;
                let end = LogEnd::decode(reader)?;
                Self::Create {
                    primary,
                    end,
                    is_quorum,
                }
            }
            2 => Self::Add {
                node: NodeId(reader.array()?),
                kind: CopyKind::of(reader.u8()?)?,
            },
            3 => Self::Remove {
                node: NodeId(reader.array()?),
            },
            4 => Self::Finish,
            5 => Self::SetQuorum {
                is_quorum: reader.bool()?,
            },
            kind => return Err(Malformed::Kind(kind)),
        })
    }
}
