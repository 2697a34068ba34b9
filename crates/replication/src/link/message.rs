//! The messages of a link and their bodies.

use super::control::{Answer, Ask, SlotsStep};
use super::fields::{Append, Fields};
use super::{BODY_BYTES_MAX, LinkError};
use crate::attach::{Attach, Refusal};
use crate::lineage::{Lineage, TERMS_MAX, Term, TermId};

/// Maximum length of a node's name.
pub const NODE_NAME_BYTES_MAX: usize = 64;
/// Maximum number of parallel streams of a full sync.
const STREAMS_MAX: usize = 64;
/// Bytes reserved for the fields besides the payload, in every message that has one.
const PAYLOAD_HEAD_BYTES: usize = 64;

/// A message from one node to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'b> {
    /// The first message of both ends: the node, and the versions it speaks.
    Hello(Hello),
    /// Proof that the sender knows the secret: HMAC-SHA-256 over both nonces and the channel that
    /// carries it.
    Proof([u8; 32]),
    /// The replica's log, and the full sync that was interrupted, if any.
    Attach(Attach, Option<Resume>),
    /// The replica continues its log.
    Continue {
        /// Sequence from which it continues.
        from: u64,
        /// Term of the primary.
        term: u64,
    },
    /// The replica truncates its log and attaches again.
    Rewind {
        /// Sequence at which it truncates.
        to: u64,
    },
    /// The replica gets a full sync.
    Full(Full),
    /// The replica is refused and keeps its data.
    Refuse(Refusal),
    /// A piece of the log.
    Frames(Frames<'b>),
    /// The replica's progress.
    Ack(Ack),
    /// A block of a full sync.
    Block(Block<'b>),
    /// A part of a full sync is complete. Carries its foot.
    PartEnd(Block<'b>),
    /// A full sync is complete.
    SyncEnd(SyncEnd<'b>),
    /// The primary hands over its office: its log ends at a sequence, and no client writes. The
    /// replica answers with the same sequence if it has all of the log and takes office next, and
    /// with 0 otherwise.
    Takeover {
        /// End of the primary's log, or the answer.
        sequence: u64,
    },
    /// A request to list the keys of some groups at a digest point.
    Verify {
        /// Number of the digest point.
        number: u64,
        /// The groups.
        groups: Vec<u16>,
    },
    /// The data of a replica at a digest point.
    Digest(Digest<'b>),
    /// A question of a node of the control group to another. A link that begins with this message
    /// carries nothing of the log.
    Ask(Ask<'b>),
    /// The answer to a question.
    Answer(Answer<'b>),
    /// A message between the two ends of a move of hash slots. A link that begins with this message
    /// carries nothing of the log.
    Slots(SlotsStep<'b>),
    /// Data that has no sequence and may be lost: a published message.
    Transient(&'b [u8]),
    /// All copies of the data have the log up to here, and a log may begin here: a log-only copy
    /// may discard everything before.
    Floor {
        /// The sequence up to which all copies have the log.
        sequence: u64,
    },
    /// A sign of life. The answer names the sender's time.
    Ping {
        /// The sender's time, in milliseconds since 1970 UTC.
        unix_ms: u64,
        /// The time of the ping that this one answers, or 0 if it answers none.
        echo_unix_ms: u64,
    },
}

/// What a replica reports about a digest point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DigestState {
    /// The sums of all groups, of eight bytes each.
    Sums = 0,
    /// The replica could not compute them.
    Busy = 1,
    /// The replica will list keys at the point.
    Ready = 2,
    /// Keys, each as database (2 bytes), sum (8), length (4) and name.
    Keys = 3,
}

impl DigestState {
    fn of(number: u8) -> Option<Self> {
        [Self::Sums, Self::Busy, Self::Ready, Self::Keys]
            .into_iter()
            .find(|it| *it as u8 == number)
    }
}

/// See [`Message::Digest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest<'b> {
    /// Number of the digest point.
    pub number: u64,
    /// The sequence after the point, or 0 before the replica reached it.
    pub sequence: u64,
    /// What `bytes` contain.
    pub state: DigestState,
    /// Content in the form that `state` describes.
    pub bytes: &'b [u8],
}

/// See [`Message::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The highest version of the link that the sender speaks.
    pub link_version: u16,
    /// The highest version of the log that it reads.
    pub log_version: u16,
    /// The highest version of checkpoint parts that it reads.
    pub part_version: u16,
    /// Features of the sender, as bits. Unknown bits are ignored.
    pub features: u32,
    /// Identity of the node.
    pub node: TermId,
    /// Random bytes, new for each link.
    pub nonce: [u8; 32],
    /// Name of the node for people.
    pub name: Vec<u8>,
}

/// Maximum number of groups whose keys are listed at a digest point.
const GROUPS_MAX: usize = 64;

/// Marks a part of an interrupted full sync that was received to its end.
pub const WHOLE_PART: u32 = u32::MAX;
/// Number that stands for a part in the blocks of a manifest that is too long for [`Message::SyncEnd`].
pub const MANIFEST_PART: u16 = u16::MAX;

/// Progress of an interrupted full sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The node that sent it.
    pub node: TermId,
    /// Number of the full sync of that node.
    pub sync: u64,
    /// The generation of its cut.
    pub generation: u64,
    /// Number of whole blocks of each part that are kept; [`WHOLE_PART`] for a part that has ended.
    pub blocks: Vec<u32>,
}

/// Source of the records of a full sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// The checkpoint in force, file by file.
    Checkpoint = 1,
    /// A checkpoint that is being made.
    NewCheckpoint = 2,
    /// A cut of the store that is sent over the link only.
    Cut = 3,
}

impl Source {
    fn of(number: u8) -> Option<Self> {
        [Self::Checkpoint, Self::NewCheckpoint, Self::Cut]
            .into_iter()
            .find(|it| *it as u8 == number)
    }
}

/// See [`Message::Full`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Number of the full sync of this primary.
    pub sync: u64,
    /// The primary's term.
    pub term: u64,
    /// Number of connections that carry it.
    pub streams: u8,
    /// Source of the records.
    pub source: Source,
    /// The generation of the cut. The records include the effects of older generations.
    pub generation: u64,
    /// The sequence from which the replica needs the log.
    pub log_from: u64,
    /// Expected number of records.
    pub records: u64,
    /// Expected number of bytes.
    pub bytes: u64,
    /// Below this sequence the replica's log is a part of the primary's history; `u64::MAX` if that
    /// is unknown.
    pub fork: u64,
}

/// See [`Message::Frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'b> {
    /// The sender's term, not the term that wrote the frames.
    pub term: u64,
    /// The sequence of the first byte.
    pub first: u64,
    /// The sequence below which a majority has the log; 0 if no quorum is counted.
    pub committed: u64,
    /// Whole frames, as in the log.
    pub bytes: &'b [u8],
}

/// See [`Message::Ack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The term that the replica follows.
    pub term: u64,
    /// The replica's log has everything below this.
    pub appended: u64,
    /// Everything below this is durable.
    pub durable: u64,
    /// Readers see everything below this.
    pub applied: u64,
    /// Age of the newest applied frame, by the primary's clock.
    pub lag_ms: u32,
}

/// See [`Message::Block`] and [`Message::PartEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'b> {
    /// Number of the full sync.
    pub sync: u64,
    /// Number of the part.
    pub part: u16,
    /// Number of the block in the part; at the end of a part, the number of its blocks.
    pub number: u32,
    /// A block as in a part file, or a foot.
    pub bytes: &'b [u8],
}

/// See [`Message::SyncEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncEnd<'b> {
    /// Number of the full sync.
    pub sync: u64,
    /// The replica is online after it has applied everything below this.
    pub sequence: u64,
    /// The manifest of the checkpoint that was sent; empty if it came before, as the blocks of
    /// [`MANIFEST_PART`].
    pub manifest: &'b [u8],
}

/// Kinds as headers contain them. They never change.
mod kind {
    pub(super) const PING: u8 = 1;
    pub(super) const TRANSIENT: u8 = 2;
    pub(super) const FLOOR: u8 = 3;
    pub(super) const HELLO: u8 = 128;
    pub(super) const PROOF: u8 = 129;
    pub(super) const ATTACH: u8 = 130;
    pub(super) const CONTINUE: u8 = 131;
    pub(super) const REWIND: u8 = 132;
    pub(super) const FULL: u8 = 133;
    pub(super) const REFUSE: u8 = 134;
    pub(super) const FRAMES: u8 = 135;
    pub(super) const ACK: u8 = 136;
    pub(super) const BLOCK: u8 = 137;
    pub(super) const PART_END: u8 = 138;
    pub(super) const SYNC_END: u8 = 139;
    pub(super) const VERIFY: u8 = 140;
    pub(super) const DIGEST: u8 = 141;
    pub(super) const TAKEOVER: u8 = 142;
    pub(super) const ASK: u8 = super::super::control::ASK;
    pub(super) const ANSWER: u8 = 144;
    pub(super) const SLOTS: u8 = super::super::control::SLOTS;
}

impl<'b> Message<'b> {
    /// Returns the maximum length of a message's payload: frames, a block, a manifest.
    #[must_use]
    pub const fn payload_bytes_max() -> usize {
        BODY_BYTES_MAX - PAYLOAD_HEAD_BYTES
    }

    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Proof(_) => kind::PROOF,
            Self::Attach(..) => kind::ATTACH,
            Self::Continue { .. } => kind::CONTINUE,
            Self::Rewind { .. } => kind::REWIND,
            Self::Full(_) => kind::FULL,
            Self::Refuse(_) => kind::REFUSE,
            Self::Frames(_) => kind::FRAMES,
            Self::Ack(_) => kind::ACK,
            Self::Block(_) => kind::BLOCK,
            Self::PartEnd(_) => kind::PART_END,
            Self::SyncEnd(_) => kind::SYNC_END,
            Self::Verify { .. } => kind::VERIFY,
            Self::Digest(_) => kind::DIGEST,
            Self::Takeover { .. } => kind::TAKEOVER,
            Self::Ask(_) => kind::ASK,
            Self::Answer(_) => kind::ANSWER,
            Self::Slots(_) => kind::SLOTS,
            Self::Transient(_) => kind::TRANSIENT,
            Self::Floor { .. } => kind::FLOOR,
            Self::Ping { .. } => kind::PING,
        }
    }

    /// Whether it is allowed before the peer has proved that it knows the secret.
    #[must_use]
    pub fn is_greeting(&self) -> bool {
        matches!(self, Self::Hello(_) | Self::Proof(_))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.encode(out),
            Self::Proof(proof) => out.bytes(proof),
            Self::Attach(attach, resume) => encode_attach(attach, resume.as_ref(), out),
            Self::Continue { from, term } => {
                out.u64(*from);
                out.u64(*term);
            }
            Self::Rewind { to: number }
            | Self::Takeover { sequence: number }
            | Self::Floor { sequence: number } => out.u64(*number),
            Self::Full(full) => full.encode(out),
            Self::Refuse(refusal) => out.u8(*refusal as u8),
            Self::Frames(frames) => {
                for number in [frames.term, frames.first, frames.committed] {
                    out.u64(number);
                }
                out.bytes(frames.bytes);
            }
            Self::Ack(ack) => {
                for number in [ack.term, ack.appended, ack.durable, ack.applied] {
                    out.u64(number);
                }
                out.u32(ack.lag_ms);
            }
            Self::Block(block) | Self::PartEnd(block) => {
                out.u64(block.sync);
                out.u16(block.part);
                out.u32(block.number);
                out.bytes(block.bytes);
            }
            Self::SyncEnd(end) => {
                out.u64(end.sync);
                out.u64(end.sequence);
                out.bytes(end.manifest);
            }
            Self::Verify { number, groups } => {
                out.u64(*number);
                let groups = &groups[..groups.len().min(GROUPS_MAX)];
                out.length(groups.len());
                for group in groups {
                    out.u16(*group);
                }
            }
            Self::Digest(digest) => {
                out.u64(digest.number);
                out.u64(digest.sequence);
                out.u8(digest.state as u8);
                out.bytes(digest.bytes);
            }
            Self::Ask(ask) => ask.encode(out),
            Self::Answer(answer) => answer.encode(out),
            Self::Slots(step) => step.encode(out),
            Self::Transient(bytes) => out.bytes(bytes),
            Self::Ping {
                unix_ms,
                echo_unix_ms,
            } => {
                out.u64(*unix_ms);
                out.u64(*echo_unix_ms);
            }
        }
    }

    /// Decodes a message of this kind. Returns `None` if the kind is unknown.
    pub(super) fn decode(kind: u8, body: &'b [u8]) -> Option<Result<Self, LinkError>> {
        let mut fields = Fields::new(body);
        let message = match kind {
            kind::HELLO => Hello::decode(fields).map(Self::Hello),
            kind::PROOF => fields.array().and_then(|it| fields.end(Self::Proof(it))),
            kind::ATTACH => {
                decode_attach(fields).map(|(attach, resume)| Self::Attach(attach, resume))
            }
            kind::CONTINUE => decode_continue(fields),
            kind::REWIND => fields.u64().and_then(|to| fields.end(Self::Rewind { to })),
            kind::FULL => Full::decode(fields).map(Self::Full),
            kind::REFUSE => {
                let refusal = fields.u8().and_then(Refusal::of);
                refusal.and_then(|it| fields.end(Self::Refuse(it)))
            }
            kind::FRAMES => Frames::decode(fields).map(Self::Frames),
            kind::ACK => Ack::decode(fields).map(Self::Ack),
            kind::BLOCK => Block::decode(fields).map(Self::Block),
            kind::PART_END => Block::decode(fields).map(Self::PartEnd),
            kind::SYNC_END => SyncEnd::decode(fields).map(Self::SyncEnd),
            kind::TAKEOVER => fields
                .u64()
                .and_then(|sequence| fields.end(Self::Takeover { sequence })),
            kind::VERIFY => decode_verify(fields),
            kind::DIGEST => Digest::decode(fields).map(Self::Digest),
            kind::ASK => Ask::decode(fields).map(Self::Ask),
            kind::ANSWER => Answer::decode(fields).map(Self::Answer),
            kind::SLOTS => SlotsStep::decode(fields).map(Self::Slots),
            kind::TRANSIENT => Some(Self::Transient(fields.rest())),
            kind::FLOOR => fields
                .u64()
                .and_then(|sequence| fields.end(Self::Floor { sequence })),
            kind::PING => decode_ping(fields),
            _ => return None,
        };
        Some(message.ok_or(LinkError::Body(kind)))
    }
}

fn decode_verify<'b>(mut fields: Fields<'_>) -> Option<Message<'b>> {
    let number = fields.u64()?;
    let groups = fields.list(GROUPS_MAX, Fields::u16)?;
    fields.end(Message::Verify { number, groups })
}

impl<'b> Digest<'b> {
    fn decode(mut fields: Fields<'b>) -> Option<Self> {
        Some(Self {
            number: fields.u64()?,
            sequence: fields.u64()?,
            state: DigestState::of(fields.u8()?)?,
            bytes: fields.rest(),
        })
    }
}

fn decode_continue<'b>(mut fields: Fields<'_>) -> Option<Message<'b>> {
    let (from, term) = (fields.u64()?, fields.u64()?);
    fields.end(Message::Continue { from, term })
}

fn decode_ping<'b>(mut fields: Fields<'_>) -> Option<Message<'b>> {
    let (unix_ms, echo_unix_ms) = (fields.u64()?, fields.u64()?);
    fields.end(Message::Ping {
        unix_ms,
        echo_unix_ms,
    })
}

impl Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        for version in [self.link_version, self.log_version, self.part_version] {
            out.u16(version);
        }
        out.u32(self.features);
        out.bytes(&self.node.0);
        out.bytes(&self.nonce);
        let name = &self.name[..self.name.len().min(NODE_NAME_BYTES_MAX)];
        out.length(name.len());
        out.bytes(name);
    }

    /// Ignores everything after the fields of this version, because a newer node may send more.
    fn decode(mut fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            link_version: fields.u16()?,
            log_version: fields.u16()?,
            part_version: fields.u16()?,
            features: fields.u32()?,
            node: TermId(fields.array()?),
            nonce: fields.array()?,
            name: fields.short_bytes(NODE_NAME_BYTES_MAX)?.to_vec(),
        })
    }
}

fn encode_attach(attach: &Attach, resume: Option<&Resume>, out: &mut Vec<u8>) {
    out.u64(attach.end);
    out.u64(attach.durable);
    out.flag(attach.has_data);
    out.flag(attach.may_discard);
    out.flag(attach.is_damaged);
    let terms = attach.lineage.terms();
    out.length(terms.len());
    for term in terms {
        out.u64(term.number);
        out.bytes(&term.id.0);
        out.u64(term.start);
    }
    out.flag(resume.is_some());
    if let Some(resume) = resume {
        out.bytes(&resume.node.0);
        out.u64(resume.sync);
        out.u64(resume.generation);
        let blocks = &resume.blocks[..resume.blocks.len().min(STREAMS_MAX)];
        out.length(blocks.len());
        for block in blocks {
            out.u32(*block);
        }
    }
}

fn decode_attach(mut fields: Fields<'_>) -> Option<(Attach, Option<Resume>)> {
    let (end, durable) = (fields.u64()?, fields.u64()?);
    let (has_data, may_discard, is_damaged) = (fields.flag()?, fields.flag()?, fields.flag()?);
    let terms = fields.list(TERMS_MAX, |fields| {
        Some(Term {
            number: fields.u64()?,
            id: TermId(fields.array()?),
            start: fields.u64()?,
        })
    })?;
    let attach = Attach {
        lineage: Lineage::new(terms).ok()?,
        end,
        durable,
        has_data,
        may_discard,
        is_damaged,
    };
    let is_possible = durable <= end && attach.lineage.last().is_none_or(|last| last.start < end);
    let resume = if fields.flag()? {
        Some(Resume {
            node: TermId(fields.array()?),
            sync: fields.u64()?,
            generation: fields.u64()?,
            blocks: fields.list(STREAMS_MAX, Fields::u32)?,
        })
    } else {
        None
    };
    fields.end((attach, resume)).filter(|_| is_possible)
}

impl Full {
    fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.sync);
        out.u64(self.term);
        out.u8(self.streams);
        out.u8(self.source as u8);
        for number in [
            self.generation,
            self.log_from,
            self.records,
            self.bytes,
            self.fork,
        ] {
            out.u64(number);
        }
    }

    fn decode(mut fields: Fields<'_>) -> Option<Self> {
        let full = Self {
            sync: fields.u64()?,
            term: fields.u64()?,
            streams: fields.u8()?,
            source: Source::of(fields.u8()?)?,
            generation: fields.u64()?,
            log_from: fields.u64()?,
            records: fields.u64()?,
            bytes: fields.u64()?,
            fork: fields.u64()?,
        };
        let is_possible = (1..=STREAMS_MAX).contains(&usize::from(full.streams));
        fields.end(full).filter(|_| is_possible)
    }
}

impl<'b> Frames<'b> {
    fn decode(mut fields: Fields<'b>) -> Option<Self> {
        let frames = Self {
            term: fields.u64()?,
            first: fields.u64()?,
            committed: fields.u64()?,
            bytes: fields.rest(),
        };
        // Sequences must not overflow.
        frames.first.checked_add(frames.bytes.len() as u64)?;
        Some(frames)
    }

    /// Returns the sequence after the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.bytes.len() as u64)
    }
}

impl Ack {
    fn decode(mut fields: Fields<'_>) -> Option<Self> {
        let ack = Self {
            term: fields.u64()?,
            appended: fields.u64()?,
            durable: fields.u64()?,
            applied: fields.u64()?,
            lag_ms: fields.u32()?,
        };
        let is_possible = ack.durable.max(ack.applied) <= ack.appended;
        fields.end(ack).filter(|_| is_possible)
    }
}

impl<'b> Block<'b> {
    fn decode(mut fields: Fields<'b>) -> Option<Self> {
        Some(Self {
            sync: fields.u64()?,
            part: fields.u16()?,
            number: fields.u32()?,
            bytes: fields.rest(),
        })
    }
}

impl<'b> SyncEnd<'b> {
    fn decode(mut fields: Fields<'b>) -> Option<Self> {
        Some(Self {
            sync: fields.u64()?,
            sequence: fields.u64()?,
            manifest: fields.rest(),
        })
    }
}
