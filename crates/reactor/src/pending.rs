//! Output of one connection that waits for its socket: bytes of its own, and between them what is
//! sent from where it lies.
//!
//! ```text
//!   bytes:   | sent |  own bytes  |  own bytes        |
//!                   ^             ^ place of the second attachment
//!                   place of the first, of which a part may be sent
//! ```
//!
//! Invariant: attachments are in the order of their places, and none is before `sent`.

use std::collections::VecDeque;
use std::io::IoSlice;

use base::shared_bytes::{Attachment, SharedBytes};

/// Pieces handed to the kernel at once. A piece of a large value has 64 KiB: more than any socket
/// takes.
const PIECES_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    sent: usize,
    attached: VecDeque<Attached>,
    /// What is left of all attachments.
    attached_bytes: usize,
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
    /// Bytes that wait, attachments included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.attached_bytes
    }

    /// Bytes of memory held, what attachments keep alive included.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.attached_bytes
    }

    /// Adds bytes behind; room that was sent is used before the buffer grows.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.sent > 0 && self.bytes.len() + bytes.len() > self.bytes.capacity() {
            self.bytes.drain(..self.sent);
            for attached in &mut self.attached {
                attached.place -= self.sent;
            }
            self.sent = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds bytes behind, and attachments at their places in them.
    pub(crate) fn append_with(
        &mut self,
        bytes: &[u8],
        attachments: impl Iterator<Item = Attachment>,
    ) {
        self.append(bytes);
        let start = self.bytes.len() - bytes.len();
        for Attachment { place, content } in attachments {
            self.attached_bytes += content.len();
            self.attached.push_back(Attached {
                place: start + place.min(bytes.len()),
                content,
                sent: 0,
            });
        }
    }

    /// Adds what is left behind the first `sent` bytes of something that lies elsewhere.
    pub(crate) fn attach(&mut self, content: Box<dyn SharedBytes>, sent: usize) {
        self.attached_bytes += content.len() - sent;
        self.attached.push_back(Attached {
            place: self.bytes.len(),
            content,
            sent,
        });
    }

    /// Calls `send` with the first pieces; there is at least one if anything waits.
    pub(crate) fn with_pieces<R>(&self, send: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for piece in self.pieces().take(PIECES_MAX) {
            pieces[count] = IoSlice::new(piece);
            count += 1;
        }
        send(&pieces[..count])
    }

    /// What waits, in order.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut attached = self.attached.iter().peekable();
        let mut at = self.sent;
        // How much of the attachment at the front was given out.
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

    /// Drops the first `sent` bytes, and attachments as they are done with.
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

    /// Takes `count` bytes from the front, as a socket would.
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

    /// More pieces than go out at once.
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
}
