//! Messages between members and the leader of the control group.
//!
//! A node sends heartbeats to every voter, so that a new leader knows at once when each node was
//! heard. Only the leader answers.

use crate::bytes::{Malformed, Reader, Writer};
use crate::leader_lease::Report;
use crate::state::{LogEnd, NodeId, ShardId};

/// Maximum number of shards that a node reports in one message.
pub const SHARDS_MAX: usize = 4_096;

/// A heartbeat of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// The sender.
    pub node: NodeId,
    /// Number of the heartbeat, counted from the sender's start. The sender remembers when it sent
    /// it.
    pub number: u64,
    /// How often it was started.
    pub start_count: u64,
    /// The index of the control state that it has applied.
    pub index: u64,
    /// The sender's copies.
    pub copies: Vec<CopyStatus>,
    /// When the sender, if it votes, last acknowledged earlier leaders.
    pub acknowledged: Option<Report>,
    /// When it sent this, by its own clock. Omitted for receivers that do not know the field.
    pub sent_ms: Option<u64>,
}

/// The status of one copy of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStatus {
    /// The shard.
    pub shard: ShardId,
    /// The copy accepts nothing of terms below this.
    pub seal: u64,
    /// The term in which it is primary; 0 for none.
    pub office: u64,
    /// The term whose office it is about to take; 0 for none.
    pub taking: u64,
    /// Where its log ends.
    pub end: LogEnd,
    /// Up to where the log is applied to its data.
    pub applied: u64,
    /// The newest term whose office it has left, for good: it takes no lease of that term any more.
    pub left: u64,
}

/// The leader's reply to one heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The heartbeat's number.
    pub number: u64,
    /// The index of the leader's state.
    pub index: u64,
    /// Leases, each of a shard, in a term.
    pub leases: Vec<(ShardId, u64)>,
    /// By how many parts per million the node's clock lags behind the leader's, for nodes that send
    /// their time.
    pub drift_ppm: Option<i64>,
    /// How long a lease counts at the leader. Omitted for nodes that do not know the field or send
    /// no time.
    pub lease_ms: Option<u64>,
}

/// The leader's request that a member refuse older terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The shard.
    pub shard: ShardId,
    /// The member accepts nothing of terms below this.
    pub term: u64,
    /// The epoch of the round: its answers are worthless in another epoch.
    pub epoch: u64,
}

/// A member's answer to a seal: the seal and the log it describes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealAnswer {
    /// The member.
    pub node: NodeId,
    /// The seal that it answers.
    pub seal: Seal,
    /// Where its log ends.
    pub end: LogEnd,
    /// Up to where the log is applied to its data.
    pub applied: u64,
    /// Whether it has all that it ever acknowledged.
    pub is_certain: bool,
    /// Whether it has followed no primary of the preceding term since it was started.
    pub is_fresh: bool,
    /// Whether it refuses promotion.
    pub declines: bool,
    /// Whether it has nothing of the shard yet, so that it cannot be promoted.
    pub is_blank: bool,
    /// The member for which it has left its office, which has all of its log.
    pub successor: Option<NodeId>,
    /// Where its log begins, if it is a log-only copy. Other copies lack nothing before their log.
    pub begins: Option<u64>,
}

/// The leader's request that a sealed member fetch the tail of a log-only copy before it answers
/// the seal anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The seal that both have answered.
    pub seal: Seal,
    /// The member that has the tail.
    pub from: NodeId,
    /// Where its log ends.
    pub end: LogEnd,
}

/// Any of the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From a node to voters.
    Heartbeat(Heartbeat),
    /// From the leader.
    Reply(HeartbeatReply),
    /// From the leader.
    Seal(Seal),
    /// To the leader.
    Answer(SealAnswer),
    /// From the leader to a node that is not a member: the index of the leader's state. A node that
    /// joined by an entry up to that index has left.
    Gone(u64),
    /// From the leader.
    Fetch(Fetch),
}

impl Message {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Heartbeat(beat) => {
                match beat.sent_ms {
                    None => writer.u8(1),
                    Some(sent_ms) => writer.u8(6).u64(sent_ms),
                };
                writer.raw(&beat.node.0).u64(beat.number);
                writer.u64(beat.start_count).u64(beat.index);
                writer.count(beat.copies.len());
                for copy in &beat.copies {
                    let writer = writer.u32(copy.shard.0).u64(copy.seal);
                    let writer = writer.u64(copy.office).u64(copy.taking);
                    copy.end.encode(writer);
                    writer.u64(copy.applied).u64(copy.left);
                }
                match beat.acknowledged {
                    None => drop(writer.u8(0)),
                    Some(report) => drop(
                        writer
                            .u8(1)
                            .u64(report.reign.0)
                            .u64(report.reign.1)
                            .u64(report.ago_ms),
                    ),
                }
            }
            Self::Reply(reply) => {
                match (reply.drift_ppm, reply.lease_ms) {
                    (None, _) => writer.u8(2),
                    (Some(ppm), None) => writer.u8(7).u64(ppm.cast_unsigned()),
                    (Some(ppm), Some(lease_ms)) => {
                        writer.u8(10).u64(ppm.cast_unsigned()).u64(lease_ms)
                    }
                };
                writer.u64(reply.number).u64(reply.index);
                writer.count(reply.leases.len());
                for (shard, term) in &reply.leases {
                    writer.u32(shard.0).u64(*term);
                }
            }
            Self::Seal(seal) => encode_seal(writer.u8(3), *seal),
            Self::Answer(answer) => {
                match answer.begins {
                    None => writer.u8(4),
                    Some(begins) => writer.u8(8).u64(begins),
                };
                encode_seal(writer.raw(&answer.node.0), answer.seal);
                answer.end.encode(&mut writer);
                writer.u64(answer.applied).u8(u8::from(answer.is_certain));
                writer.u8(u8::from(answer.is_fresh));
                writer.u8(u8::from(answer.declines));
                writer.u8(u8::from(answer.is_blank));
                writer.u8(u8::from(answer.successor.is_some()));
                if let Some(successor) = answer.successor {
                    writer.raw(&successor.0);
                }
            }
            Self::Gone(index) => drop(writer.u8(5).u64(*index)),
            Self::Fetch(fetch) => {
                encode_seal(writer.u8(9), fetch.seal);
                fetch.end.encode(writer.raw(&fetch.from.0));
            }
        }
        writer.0
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// If the bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let reader = &mut reader;
        let message = match reader.u8()? {
            1 => Self::Heartbeat(decode_heartbeat(reader, None)?),
            2 => Self::Reply(decode_reply(reader, (None, None))?),
            3 => Self::Seal(decode_seal(reader)?),
            4 => Self::Answer(decode_answer(reader, None)?),
            5 => Self::Gone(reader.u64()?),
            6 => {
                let sent_ms = reader.u64()?;
                Self::Heartbeat(decode_heartbeat(reader, Some(sent_ms))?)
            }
            7 => {
                let ppm = reader.u64()?.cast_signed();
                Self::Reply(decode_reply(reader, (Some(ppm), None))?)
            }
            10 => {
                let ppm = reader.u64()?.cast_signed();
                let lease_ms = reader.u64()?;
                Self::Reply(decode_reply(reader, (Some(ppm), Some(lease_ms)))?)
            }
            8 => {
                let begins = reader.u64()?;
                Self::Answer(decode_answer(reader, Some(begins))?)
            }
            9 => Self::Fetch(Fetch {
                seal: decode_seal(reader)?,
                from: NodeId(reader.array()?),
                end: LogEnd::decode(reader)?,
            }),
            kind => return Err(Malformed::Kind(kind)),
        };
        reader.end()?;
        Ok(message)
    }
}

fn list<T>(
    reader: &mut Reader<'_>,
    one: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.count()?;
    if count > SHARDS_MAX {
        return Err(Malformed::Length);
    }
    (0..count).map(|_| one(reader)).collect()
}

fn decode_heartbeat(reader: &mut Reader<'_>, sent_ms: Option<u64>) -> Result<Heartbeat, Malformed> {
    Ok(Heartbeat {
        node: NodeId(reader.array()?),
        number: reader.u64()?,
        start_count: reader.u64()?,
        index: reader.u64()?,
        copies: list(reader, decode_copy)?,
        acknowledged: match reader.bool()? {
            false => None,
            true => Some(Report {
                reign: (reader.u64()?, reader.u64()?),
                ago_ms: reader.u64()?,
            }),
        },
        sent_ms,
    })
}

fn decode_answer(reader: &mut Reader<'_>, begins: Option<u64>) -> Result<SealAnswer, Malformed> {
    Ok(SealAnswer {
        node: NodeId(reader.array()?),
        seal: decode_seal(reader)?,
        end: LogEnd::decode(reader)?,
        applied: reader.u64()?,
        is_certain: reader.bool()?,
        is_fresh: reader.bool()?,
        declines: reader.bool()?,
        is_blank: reader.bool()?,
        successor: match reader.bool()? {
            true => Some(NodeId(reader.array()?)),
            false => None,
        },
        begins,
    })
}

fn decode_reply(
    reader: &mut Reader<'_>,
    (drift_ppm, lease_ms): (Option<i64>, Option<u64>),
) -> Result<HeartbeatReply, Malformed> {
    Ok(HeartbeatReply {
        number: reader.u64()?,
        index: reader.u64()?,
        leases: list(reader, |reader| Ok((ShardId(reader.u32()?), reader.u64()?)))?,
        drift_ppm,
        lease_ms,
    })
}

fn decode_copy(reader: &mut Reader<'_>) -> Result<CopyStatus, Malformed> {
    Ok(CopyStatus {
        shard: ShardId(reader.u32()?),
        seal: reader.u64()?,
        office: reader.u64()?,
        taking: reader.u64()?,
        end: LogEnd::decode(reader)?,
        applied: reader.u64()?,
        left: reader.u64()?,
    })
}

fn encode_seal(writer: &mut Writer, seal: Seal) {
    writer.u32(seal.shard.0).u64(seal.term).u64(seal.epoch);
}

fn decode_seal(reader: &mut Reader<'_>) -> Result<Seal, Malformed> {
    Ok(Seal {
        shard: ShardId(reader.u32()?),
        term: reader.u64()?,
        epoch: reader.u64()?,
    })
}
