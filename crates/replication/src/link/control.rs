//! Requests between nodes of a control group: a number, a subject, and bytes that this room does
//! not interpret.

use super::fields::{Append, Fields};

/// The kind of [`Message::Ask`](super::Message::Ask). A link that begins with it belongs to the
/// control group.
pub const ASK: u8 = 143;

/// The kind of [`Message::Slots`](super::Message::Slots). A link that begins with it moves hash
/// slots.
pub const SLOTS: u8 = 145;

/// See [`Message::Slots`](super::Message::Slots).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsStep<'b> {
    /// Number of the step of a move.
    pub step: u8,
    /// Content of the step.
    pub bytes: &'b [u8],
}

/// See [`Message::Ask`](super::Message::Ask).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'b> {
    /// Number of the question on this link. The answer names it.
    pub number: u64,
    /// Subject of the question.
    pub subject: u8,
    /// Whether the question continues in the next message with the same number.
    pub has_more: bool,
    /// A piece of the question.
    pub bytes: &'b [u8],
}

/// See [`Message::Answer`](super::Message::Answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'b> {
    /// Number of the question.
    pub number: u64,
    /// Whether the question was refused. The bytes then give the reason as text.
    pub is_refused: bool,
    /// Whether the answer continues in the next message with the same number.
    pub has_more: bool,
    /// A piece of the answer.
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
