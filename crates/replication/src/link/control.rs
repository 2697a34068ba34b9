//! What the nodes of a control group ask each other: a number, a subject, and bytes that this room does not know.

use super::fields::{Append, Fields};

/// The kind of [`Message::Ask`](super::Message::Ask): a link that begins with it is one of the control group.
pub const ASK: u8 = 143;

/// The kind of [`Message::Slots`](super::Message::Slots): a link that begins with it moves hash slots.
pub const SLOTS: u8 = 145;

/// See [`Message::Slots`](super::Message::Slots).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsStep<'b> {
    /// Which step of a move it is.
    pub step: u8,
    /// What the step says.
    pub bytes: &'b [u8],
}

/// See [`Message::Ask`](super::Message::Ask).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'b> {
    /// Which question of this link it is: the answer names it.
    pub number: u64,
    /// What it is about.
    pub subject: u8,
    /// The question goes on in the next message of the same number.
    pub has_more: bool,
    /// A piece of it.
    pub bytes: &'b [u8],
}

/// See [`Message::Answer`](super::Message::Answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'b> {
    /// Which question it is for.
    pub number: u64,
    /// The question was not answered: the bytes say why, as text.
    pub is_refused: bool,
    /// The answer goes on in the next message of the same number.
    pub has_more: bool,
    /// A piece of it.
    pub bytes: &'b [u8],
}

impl<'b> Ask<'b> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.number);
        out.u8(self.subject);
        out.flag(self.has_more);
        out.bytes(self.bytes);
    }

    pub(super) fn decode(mut fields: Fields<'b>) -> Option<Self> {
        Some(Self {
            number: fields.u64()?,
            subject: fields.u8()?,
            has_more: fields.flag()?,
            bytes: fields.rest(),
        })
    }
}

impl<'b> Answer<'b> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.number);
        out.flag(self.is_refused);
        out.flag(self.has_more);
        out.bytes(self.bytes);
    }

    pub(super) fn decode(mut fields: Fields<'b>) -> Option<Self> {
        Some(Self {
            number: fields.u64()?,
            is_refused: fields.flag()?,
            has_more: fields.flag()?,
            bytes: fields.rest(),
        })
    }
}

impl<'b> SlotsStep<'b> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u8(self.step);
        out.bytes(self.bytes);
    }

    pub(super) fn decode(mut fields: Fields<'b>) -> Option<Self> {
        Some(Self {
            step: fields.u8()?,
            bytes: fields.rest(),
        })
    }
}
