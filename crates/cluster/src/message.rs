//! What members and the leader of the control group say to each other.
//!
//! A node sends heartbeats to every voter, so that a new leader knows at once who was heard when. Only the leader answers.

use crate::bytes::{Malformed, Reader, Writer};
use crate::leader_lease::Report;
use crate::state::{LogEnd, NodeId, ShardId};

/// A node says so many shards in one message at most.
pub const SHARDS_MAX: usize = 4_096;

/// A sign of life of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub node: NodeId,
    /// Which of its heartbeats, from its start on: it knows when it sent it.
    pub number: u64,
    /// How often it was started.
    pub start_count: u64,
    /// The index of the control state that it has applied.
    pub index: u64,
    /// Its copies.
    pub copies: Vec<CopyStatus>,
    /// When it last acknowledged leaders before the present one, where it votes.
    pub acknowledged: Option<Report>,
    /// When it sent this, by its own clock; not said to who does not know of it.
    pub sent_ms: Option<u64>,
}

/// How one copy of a shard is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStatus {
    /// Of which shard.
    pub shard: ShardId,
    /// It takes nothing of terms below.
    pub seal: u64,
    /// The term in which it is primary; 0 for none.
    pub office: u64,
    /// It is about to take this term's office; 0 for none.
    pub taking: u64,
    /// Where its log ends.
    pub end: LogEnd,
    /// Up to here its data is.
    pub applied: u64,
    /// The newest term whose office it has left, for good: it takes no lease of that any more.
    pub left: u64,
}

/// The leader's answer to one heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// Which.
    pub number: u64,
    /// The index of the leader's state.
    pub index: u64,
    /// Leases: each of a shard, in a term.
    pub leases: Vec<(ShardId, u64)>,
    /// By how many parts in a million the clock of the node is behind the leader's; said to who says its time.
    pub drift_ppm: Option<i64>,
    /// For how long a lease counts at the leader; not said to who does not know of it, nor without the clock.
    pub lease_ms: Option<u64>,
}

/// The leader has a member refuse older terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Of which shard.
    pub shard: ShardId,
    /// It takes nothing of terms below.
    pub term: u64,
    /// The epoch that the round is of: its answers are of no worth in another.
    pub epoch: u64,
}

/// A member's answer: the seal and the log it tells of are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealAnswer {
    /// Who.
    pub node: NodeId,
    /// What was asked.
    pub seal: Seal,
    /// Where its log ends.
    pub end: LogEnd,
    /// Up to here its data is.
    pub applied: u64,
    /// It has all that it ever acknowledged.
    pub is_certain: bool,
    /// It has followed nobody in the term before since it was started.
    pub is_fresh: bool,
    /// It does not want to be promoted.
    pub declines: bool,
    /// It has nothing of the shard yet, and cannot be promoted.
    pub is_blank: bool,
    /// It has left its office for this member, which has all of its log.
    pub successor: Option<NodeId>,
    /// Where its log begins, of a copy of the log alone; others lack nothing before their log.
    pub begins: Option<u64>,
}

/// The leader has a sealed member get what a copy of the log alone has more than it, before it answers the seal anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The seal that both have answered.
    pub seal: Seal,
    /// Who has it.
    pub from: NodeId,
    /// Where its log ends.
    pub end: LogEnd,
}

/// Any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Of a node, to voters.
    Heartbeat(Heartbeat),
    /// Of the leader.
    Reply(HeartbeatReply),
    /// Of the leader.
    Seal(Seal),
    /// To the leader.
    Answer(SealAnswer),
    /// Of the leader, to who is no member: the index of its state. Who joined by an entry up to there has left.
    Gone(u64),
    /// Of the leader.
    Fetch(Fetch),
}

impl Message {
    /// As bytes.
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

    /// From bytes.
    ///
    /// # Errors
    /// Where they are none.
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
