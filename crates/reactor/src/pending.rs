//! Output of one connection that waits for its socket or for a ticket: the connection's own bytes,
//! and between them attachments, which are not copied.
//!
//! ```text
//!   bytes:   | sent |  own bytes  |  own bytes  |  held: ticket 7  |  held: ticket 9  |
//!                   ^             ^ place of the second attachment
//!                   place of the first, of which a part may be sent
//! ```
//!
//! Invariants
//!  1. Attachments are in the order of their places, and none is before `sent`.
//!  2. Held output is at the end, in parts. The tickets of one watermark ascend. Everything that is
//!     added belongs to the last part. A part begins at the start of an addition, so each
//!     attachment is entirely in one part.

use std::collections::VecDeque;
use std::io::IoSlice;

use base::shared_bytes::{Attachment, SharedBytes};

use crate::service::{Ticket, WATERMARKS};

/// Maximum number of pieces that are passed to the kernel at once. A piece of a large value has 64
/// KiB: more than any socket accepts.
const PIECES_MAX: usize = 64;

/// A connection with more held output than this is not served until some of it may be sent: its
/// peer would only get more output that it cannot have yet.
const HELD_BYTES_MAX: usize = 256 * 1024;

/// The waiting output of a connection. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    sent: usize,
    attached: VecDeque<Attached>,
    /// Unsent bytes of all attachments.
    attached_bytes: usize,
    held: VecDeque<Part>,
    /// Bytes of all held parts, including attachments.
    unreleased_bytes: usize,
    /// Whether its peer is served even if it accepts nothing (see [`crate::event_loop`]'s
    /// `insistent`).
    is_insistent: bool,
}

/// Output that may be sent after its ticket is released.
#[derive(Debug)]
struct Part {
    ticket: Ticket,
    /// Its length, including attachments.
    bytes: usize,
}

#[derive(Debug)]
struct Attached {
    /// Index in `bytes`.
    place: usize,
    content: Box<dyn SharedBytes>,
    sent: usize,
}

impl Attached {
    fn left(&self) -> usize {
        self.content.len() - self.sent
    }
}

impl Pending {
    /// Returns the waiting bytes, including attachments.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.attached_bytes
    }

    /// Returns the bytes that wait only for the socket.
    pub(crate) fn sendable_bytes(&self) -> usize {
        self.len() - self.unreleased_bytes
    }

    /// Whether anything is held.
    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether its connection may be served while it waits.
    pub(crate) fn lets_serve(&self) -> bool {
        (self.is_insistent || self.sendable_bytes() == 0) && self.unreleased_bytes <= HELD_BYTES_MAX
    }

    /// Makes the connection be served from now on, however much waits for its socket.
    pub(crate) fn insist(&mut self) {
        self.is_insistent = true;
    }

    /// Returns the bytes of memory in use, including what attachments keep alive.
    pub(crate) fn held_bytes(&self) -> usize {
        let parts_bytes = self.held.capacity() * size_of::<Part>();
        self.bytes.capacity() + self.attached_bytes + parts_bytes
    }

    /// Makes everything that is added from now on wait for a ticket, or for the ticket of the last
    /// held part if that is later. Returns whether a new part begins.
    pub(crate) fn hold(&mut self, ticket: Ticket) -> bool {
        let waits_as_long =
            |last: &Part| last.ticket.watermark == ticket.watermark && last.ticket.at >= ticket.at;
        let waits_long_enough = self.held.back().is_some_and(waits_as_long);
        if !waits_long_enough {
            self.held.push_back(Part { ticket, bytes: 0 });
        }
        !waits_long_enough
    }

    /// Releases the parts whose tickets the watermarks have reached. Returns whether there were
    /// any.
    pub(crate) fn release(&mut self, up_to: &[u64; WATERMARKS]) -> bool {
        let held = self.held.len();
        let is_released = |part: &mut Part| part.ticket.is_released(up_to);
        while let Some(part) = self.held.pop_front_if(is_released) {
            self.unreleased_bytes -= part.bytes;
        }
        self.held.len() < held
    }

    /// Drops all held output.
    pub(crate) fn drop_held(&mut self) {
        self.held.clear();
        let mut rest = std::mem::take(&mut self.unreleased_bytes);
        loop {
            let own_start = self.attached.back().map_or(self.sent, |last| last.place);
            let own = rest.min(self.bytes.len() - own_start);
            self.bytes.truncate(self.bytes.len() - own);
            rest -= own;
            if rest == 0 {
                return;
            }
            let Some(last) = self.attached.pop_back() else {
                return;
            };
            self.attached_bytes -= last.left();
            rest -= last.left();
        }
    }

    /// Counts bytes that were added.
    fn count_added(&mut self, bytes: usize) {
        if let Some(last) = self.held.back_mut() {
            last.bytes += bytes;
            self.unreleased_bytes += bytes;
        }
    }

    /// Appends bytes. Reuses the space of sent bytes before the buffer grows, if that is at least
    /// half of the buffer: each byte is moved once on average.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let is_full = self.bytes.len() + bytes.len() > self.bytes.capacity();
        if is_full && self.sent > 0 && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            for attached in &mut self.attached {
                attached.place -= self.sent;
            }
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
        self.count_added(bytes.len());
    }

    /// Appends bytes, with attachments at their places in them.
    pub(crate) fn append_with(
        &mut self,
        bytes: &[u8],
        attachments: impl Iterator<Item = Attachment>,
    ) {
        self.append(bytes);
        let start = self.bytes.len() - bytes.len();
        for Attachment { place, content } in attachments {
            self.attached_bytes += content.len();
            self.count_added(content.len());
            self.attached.push_back(Attached {
                place: start + place.min(bytes.len()),
                content,
                sent: 0,
            });
        }
    }

    /// Appends shared content without its first `sent` bytes, as an attachment.
    pub(crate) fn attach(&mut self, content: Box<dyn SharedBytes>, sent: usize) {
        self.attached_bytes += content.len() - sent;
        self.count_added(content.len() - sent);
        self.attached.push_back(Attached {
            place: self.bytes.len(),
            content,
            sent,
        });
    }

    /// Calls `send` with the first pieces of the output that is not held: at least one if there is
    /// any.
    pub(crate) fn with_pieces<R>(&self, send: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        let mut left = self.sendable_bytes();
        for piece in self.pieces().take(PIECES_MAX) {
            if left == 0 {
                break;
            }
            let piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            pieces[count] = IoSlice::new(piece);
            count += 1;
        }
        send(&pieces[..count])
    }

    /// Returns the waiting pieces in order.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut attached = self.attached.iter().peekable();
        let mut at = self.sent;
        // How much of the front attachment was already returned.
        let mut given = attached.peek().map_or(0, |first| first.sent);
        std::iter::from_fn(move || {
            loop {
                let Some(first) = attached.peek() else {
                    let rest = &self.bytes[at..];
                    at = self.bytes.len();
                    return (!rest.is_empty()).then_some(rest);
                };
                if at < first.place {
                    let own = &self.bytes[at..first.place];
                    at = first.place;
                    return Some(own);
                }
                let piece = first.content.piece_at(given);
                if !piece.is_empty() {
                    given += piece.len();
                    return Some(piece);
                }
                attached.next();
                given = 0;
            }
        })
    }

    /// Drops the first `sent` bytes, and the attachments that are sent completely.
    pub(crate) fn consume(&mut self, mut sent: usize) {
        while sent > 0 {
            let own_end = self
                .attached
                .front()
                .map_or(self.bytes.len(), |first| first.place);
            let own = sent.min(own_end - self.sent);
            self.sent += own;
            sent -= own;
            let Some(first) = self.attached.front_mut() else {
                return;
            };
            let part = sent.min(first.left());
            first.sent += part;
            self.attached_bytes -= part;
            sent -= part;
            if self.sent == first.place && first.left() == 0 {
                self.attached.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `count` bytes from the front, as a socket does.
    fn take(pending: &mut Pending, count: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        pending.with_pieces(|pieces| {
            for piece in pieces {
                taken.extend_from_slice(piece);
            }
        });
        taken.truncate(count);
        pending.consume(taken.len());
        taken
    }

    fn attachment(place: usize, content: &[u8]) -> Attachment {
        Attachment {
            place,
            content: Box::new(content.to_vec()),
        }
    }

    #[test]
    fn pending_output_keeps_its_order() {
        let mut pending = Pending::default();
        let (mut written, mut sent) = (Vec::new(), Vec::new());
        for number in 0..200_u8 {
            let bytes = vec![number; usize::from(number) % 17];
            if number % 3 == 0 && !bytes.is_empty() {
                let place = bytes.len() / 2;
                let attachments = [attachment(place, b"big"), attachment(bytes.len(), b"end")];
                pending.append_with(&bytes, attachments.into_iter());
                written.extend_from_slice(&bytes[..place]);
                written.extend_from_slice(b"big");
                written.extend_from_slice(&bytes[place..]);
                written.extend_from_slice(b"end");
            } else {
                pending.append(&bytes);
                written.extend_from_slice(&bytes);
            }
            assert_eq!(pending.len(), written.len() - sent.len());
            let count = pending.len() / 2;
            sent.extend(take(&mut pending, count));
        }
        while pending.len() > 0 {
            sent.extend(take(&mut pending, 7));
        }
        assert_eq!(sent, written);
        assert_eq!(pending.attached_bytes, 0);
    }

    /// Uses more pieces than are sent at once.
    #[test]
    fn what_is_sent_of_an_attachment_is_held_no_longer() {
        let mut pending = Pending::default();
        let all: Vec<_> = (0..100)
            .map(|place| attachment(place, &[b'x'; 10]))
            .collect();
        pending.append_with(&[b'.'; 100], all.into_iter());
        let held = pending.held_bytes();
        assert_eq!(take(&mut pending, usize::MAX).len(), 32 * 11);
        assert_eq!(pending.held_bytes(), held - 320);
        assert_eq!(pending.len(), 68 * 11);
    }

    #[test]
    fn what_is_held_leaves_with_its_ticket_and_in_order() {
        let mut pending = Pending::default();
        pending.append(b"free ");
        assert!(pending.hold(Ticket::from(7)));
        pending.append_with(b"seven", [attachment(2, b"--")].into_iter());
        assert!(!pending.hold(Ticket::from(7)));
        assert!(
            !pending.hold(Ticket::from(5)),
            "nothing overtakes what is held"
        );
        pending.append(b" ");
        assert!(pending.hold(Ticket::from(9)));
        pending.attach(Box::new(b"nine".to_vec()), 0);
        assert_eq!((pending.len(), pending.sendable_bytes()), (17, 5));
        assert_eq!(take(&mut pending, 99), b"free ");
        assert!(take(&mut pending, 99).is_empty());
        assert!(!pending.release(&[6, 0, 0, 0, 0]));
        assert!(pending.release(&[8, 0, 0, 0, 0]));
        assert_eq!(take(&mut pending, 3), b"se-");
        assert_eq!(take(&mut pending, 99), b"-ven ");
        assert!(pending.release(&[9, 0, 0, 0, 0]));
        assert_eq!(take(&mut pending, 99), b"nine");
        assert_eq!(pending.len(), 0);
        pending.append(b"x");
        assert_eq!(pending.sendable_bytes(), 1);
    }

    #[test]
    fn what_waits_for_another_watermark_overtakes_nothing() {
        let of = |watermark, at| Ticket { watermark, at };
        let mut pending = Pending::default();
        assert!(pending.hold(of(1, 20)));
        pending.append(b"quorum ");
        assert!(pending.hold(of(0, 10)), "another watermark");
        pending.append(b"disk");
        assert!(!pending.release(&[30, 10, 0, 0, 0]));
        assert!(pending.release(&[30, 20, 0, 0, 0]));
        assert_eq!(take(&mut pending, 99), b"quorum disk");
        assert!(pending.hold(of(7, 1)));
        assert!(!pending.release(&[99; WATERMARKS]), "no such watermark");
    }

    #[test]
    fn what_is_held_can_be_dropped() {
        for free in 0..4_u8 {
            let mut pending = Pending::default();
            if free > 0 {
                let all = [attachment(2, b"big"), attachment(4, b"end")];
                pending.append_with(b"free", all.into_iter());
                let count = usize::from(free) * 3 - 3;
                take(&mut pending, count);
            }
            let before = pending.len();
            pending.hold(Ticket::from(1));
            pending.append(b"one");
            pending.append_with(
                b"two",
                [attachment(0, b"x"), attachment(3, b"y")].into_iter(),
            );
            pending.hold(Ticket::from(2));
            pending.attach(Box::new(b"three".to_vec()), 0);
            pending.drop_held();
            assert_eq!((pending.len(), pending.sendable_bytes()), (before, before));
            pending.append(b"!");
            let rest = take(&mut pending, usize::MAX);
            assert!(b"frbigeeend!".ends_with(&rest), "{free}: {rest:?}");
            assert_eq!((pending.len(), pending.attached_bytes), (0, 0));
        }
    }
}
