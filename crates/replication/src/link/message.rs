//! The messages of a link and their bodies.

use super::control::{Answer, Ask, SlotsStep};
use super::fields::{Append, Fields};
use super::{BODY_BYTES_MAX, LinkError};
use crate::attach::{Attach, Refusal};
use crate::lineage::{Lineage, TERMS_MAX, Term, TermId};

/// Longest name of a node.
pub const NODE_NAME_BYTES_MAX: usize = 64;
/// Most parallel streams of a full sync.
const STREAMS_MAX: usize = 64;
/// Bytes of a body beside the payload, for every message that has one.
const PAYLOAD_HEAD_BYTES: usize = 64;

/// What one node says to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'b> {
    /// The first message of both: who it is, and what it speaks.
    Hello(Hello),
    /// That the sender knows the secret: HMAC-SHA-256 over both nonces and the channel it came over.
    Proof([u8; 32]),
    /// The replica's log, and the full sync that was interrupted.
    Attach(Attach, Option<Resume>),
    /// The replica goes on.
    Continue {
        /// From this sequence.
        from: u64,
        /// In this term.
        term: u64,
    },
    /// The replica truncates its log there and attaches again.
    Rewind {
        /// See above.
        to: u64,
    },
    /// The replica is given everything.
    Full(Full),
    /// The replica keeps what it has.
    Refuse(Refusal),
    /// A piece of the log.
    Frames(Frames<'b>),
    /// How far the replica is.
    Ack(Ack),
    /// A block of a full sync.
    Block(Block<'b>),
    /// A part of a full sync is whole: its foot.
    PartEnd(Block<'b>),
    /// A full sync is whole.
    SyncEnd(SyncEnd<'b>),
    /// The primary's office is handed over: its log ends at a sequence, and nobody writes. The replica answers with the same
    /// when it has all of that and takes office next, and with 0 when it does not.
    Takeover {
        /// See above.
        sequence: u64,
    },
    /// At the digest point with this number, the keys of some groups are to be listed.
    Verify {
        /// See above.
        number: u64,
        /// Which groups.
        groups: Vec<u16>,
    },
    /// What a replica holds at a digest point.
    Digest(Digest<'b>),
    /// What nodes of a control group ask each other. A link whose first message this is carries nothing of the log.
    Ask(Ask<'b>),
    /// The answer to that.
    Answer(Answer<'b>),
    /// What the two ends of a move of hash slots say. A link whose first message this is carries nothing of the log.
    Slots(SlotsStep<'b>),
    /// What has no sequence and may be lost: a published message.
    Transient(&'b [u8]),
    /// All copies of the data have the log up to here, and it may begin here: a copy of the log alone may forget what is before.
    Floor {
        /// See above.
        sequence: u64,
    },
    /// Still there. The answer names the sender's time.
    Ping {
        /// The sender's time, in milliseconds since 1970 UTC.
        unix_ms: u64,
        /// The time of the ping that this one answers; 0 when it answers none.
        echo_unix_ms: u64,
    },
}

/// What a replica says about a digest point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DigestState {
    /// The sums of all groups, of eight bytes each.
    Sums = 0,
    /// It could not look.
    Busy = 1,
    /// It will list keys at the point.
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
    /// Which point.
    pub number: u64,
    /// The sequence after it; 0 before it was reached.
    pub sequence: u64,
    /// What this is.
    pub state: DigestState,
    /// See there.
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
    /// What else it can do: bits that are not known are passed over.
    pub features: u32,
    /// Which node it is.
    pub node: TermId,
    /// Random, new for each link.
    pub nonce: [u8; 32],
    /// What people call it.
    pub name: Vec<u8>,
}

/// A digest point lists the keys of so many groups at most.
const GROUPS_MAX: usize = 64;

/// A part of an interrupted full sync that is there to its end.
pub const WHOLE_PART: u32 = u32::MAX;

/// How far an interrupted full sync came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The node that sent it.
    pub node: TermId,
    /// Which full sync of that node it was.
    pub sync: u64,
    /// The generation of its cut.
    pub generation: u64,
    /// Whole blocks of each part that are kept; [`WHOLE_PART`] for one that has ended.
    pub blocks: Vec<u32>,
}

/// Where the records of a full sync come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// The checkpoint in force, file by file.
    Checkpoint = 1,
    /// A checkpoint that is being made.
    NewCheckpoint = 2,
    /// A cut of the store that goes to the link alone.
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
    /// Which full sync of this primary it is.
    pub sync: u64,
    /// The primary's term.
    pub term: u64,
    /// How many connections carry it.
    pub streams: u8,
    /// Where the records come from.
    pub source: Source,
    /// The generation of the cut: effects of older ones are in the records.
    pub generation: u64,
    /// The sequence from which on the log is needed.
    pub log_from: u64,
    /// How many records are expected.
    pub records: u64,
    /// How many bytes are expected.
    pub bytes: u64,
    /// Below this sequence the replica's log is a part of the primary's history; the highest number where that is not known.
    pub fork: u64,
}

/// See [`Message::Frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'b> {
    /// The sender's term, not that of the frames.
    pub term: u64,
    /// The sequence of the first byte.
    pub first: u64,
    /// What a majority has; 0 where nobody counts that.
    pub committed: u64,
    /// Whole frames, as in the log.
    pub bytes: &'b [u8],
}

/// See [`Message::Ack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The term that the replica follows.
    pub term: u64,
    /// Below: in its log.
    pub appended: u64,
    /// Below: on its disk.
    pub durable: u64,
    /// Below: readers see it.
    pub applied: u64,
    /// How old the newest applied frame is, on the primary's clock.
    pub lag_ms: u32,
}

/// See [`Message::Block`] and [`Message::PartEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'b> {
    /// Which full sync.
    pub sync: u64,
    /// Which part.
    pub part: u16,
    /// Which block of it; for the end of a part, how many there were.
    pub number: u32,
    /// A block as in a part file, or a foot.
    pub bytes: &'b [u8],
}

/// See [`Message::SyncEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncEnd<'b> {
    /// Which full sync.
    pub sync: u64,
    /// The replica is online once it has applied everything below.
    pub sequence: u64,
    /// The manifest of the checkpoint that was sent.
    pub manifest: &'b [u8],
}

/// Kinds, as they stand in headers. They never change.
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
    /// Longest payload of a message: frames, a block, a manifest.
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

    /// Whether it may come before the peer has shown that it knows the secret.
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

    /// The message of a kind; `None` when the kind is not known.
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

    /// What follows the fields of this version is passed over: a newer node may say more.
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
        // Sequences do not wrap.
        frames.first.checked_add(frames.bytes.len() as u64)?;
        Some(frames)
    }

    /// The sequence behind the last byte.
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
