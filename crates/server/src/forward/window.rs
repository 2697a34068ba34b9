//! The requests of one client that are on their way, in their order, and what became of them.

use std::collections::VecDeque;
use std::ops::Range;

use engine::Outcome;

use super::merge::Merge;

/// A client has so many requests on their way, ...
pub(crate) const REQUESTS_MAX: usize = 1_024;
/// ... and so many bytes of requests; one that is longer goes alone.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// Which node a part of a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The one that serves a slot.
    Slot(u16),
    /// This one.
    Node([u8; 20]),
}

/// How far a part of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is to be sent, for the first time or again.
    Unsent,
    /// It is on its way.
    Sent,
    /// It is answered.
    Done,
}

/// What is sent to one node.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) aim: Aim,
    pub(crate) stage: Stage,
    /// Where it lies in the window's bytes.
    pub(crate) bytes: Range<usize>,
    /// The replies before its own: of MULTI and of what is queued.
    pub(crate) extra_replies: usize,
}

impl Part {
    pub(crate) fn new(aim: Aim, bytes: Range<usize>) -> Self {
        Self {
            aim,
            stage: Stage::Unsent,
            bytes,
            extra_replies: 0,
        }
    }
}

/// What a request is made of.
#[derive(Debug)]
pub(crate) enum Work {
    /// It ran here.
    Here,
    /// One node answers it.
    One(Part),
    /// Several do.
    Several(Box<Merge>),
}

/// One request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) work: Work,
    /// What the client is sent, once that is known.
    pub(crate) reply: Option<Vec<u8>>,
    /// Nothing is sent (CLIENT REPLY).
    pub(crate) is_silent: bool,
    /// It only reads: it can be sent again.
    pub(crate) is_read: bool,
    /// It may take as long as it likes.
    pub(crate) blocks: bool,
    /// What is queued at the other node was refused there.
    pub(crate) is_refused: bool,
    /// It runs if what is watched at its node has not changed.
    pub(crate) is_conditional: bool,
    /// When it came, on the monotonic clock.
    pub(crate) began_ms: u64,
}

impl Entry {
    /// A part of it.
    pub(crate) fn part_mut(&mut self, part: usize) -> Option<&mut Part> {
        match &mut self.work {
            Work::Here => None,
            Work::One(one) => (part == 0).then_some(one),
            Work::Several(merge) => merge.parts.get_mut(part),
        }
    }

    /// How many parts it has.
    pub(crate) fn parts_count(&self) -> usize {
        match &self.work {
            Work::Here => 0,
            Work::One(_) => 1,
            Work::Several(merge) => merge.parts.len(),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Window {
    entries: VecDeque<Entry>,
    /// The number of the first of them.
    first: u64,
    /// What was sent, or is to be.
    pub(crate) bytes: Vec<u8>,
    /// Nothing more is taken in until all that is in it is answered: the last request may block.
    pub(crate) is_barrier: bool,
    /// What becomes of the client then.
    pub(crate) after: Option<Outcome>,
    /// Parts that are to be sent again, by number of the entry and of the part.
    pub(crate) again: Vec<(u64, usize)>,
    /// Bytes of replies that wait for those before them.
    pub(crate) saved_bytes: usize,
}

impl Window {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it takes nothing more at present.
    pub(crate) fn is_full(&self) -> bool {
        self.is_barrier
            || self.after.is_some()
            || self.entries.len() >= REQUESTS_MAX
            || self.bytes.len() >= BYTES_MAX
    }

    /// Takes a request in; its number.
    pub(crate) fn push(&mut self, entry: Entry) -> u64 {
        self.saved_bytes += entry.reply.as_ref().map_or(0, Vec::len);
        self.entries.push_back(entry);
        self.first + self.entries.len() as u64 - 1
    }

    /// Takes in what ran here.
    pub(crate) fn push_done(&mut self, reply: Vec<u8>, now_ms: u64) {
        self.push(Entry {
            work: Work::Here,
            reply: Some(reply),
            is_silent: false,
            is_read: true,
            blocks: false,
            is_refused: false,
            is_conditional: false,
            began_ms: now_ms,
        });
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let at = number.checked_sub(self.first)?;
        self.entries.get_mut(usize::try_from(at).ok()?)
    }

    /// The first request that is not answered, with its number.
    pub(crate) fn front_mut(&mut self) -> Option<(u64, &mut Entry)> {
        let first = self.first;
        self.entries.front_mut().map(|entry| (first, entry))
    }

    /// Notes the reply of a request.
    pub(crate) fn answer(&mut self, number: u64, reply: Vec<u8>) {
        let bytes = reply.len();
        if let Some(entry) = self.get_mut(number)
            && entry.reply.is_none()
        {
            entry.reply = Some(reply);
            self.saved_bytes += bytes;
        }
    }

    /// Takes the replies out that can be sent; how many requests they are of.
    pub(crate) fn drain(&mut self, out: &mut Vec<u8>) -> usize {
        let mut count = 0;
        while self.entries.front().is_some_and(|it| it.reply.is_some()) {
            if let Some(entry) = self.entries.pop_front()
                && let Some(reply) = entry.reply
            {
                self.saved_bytes = self.saved_bytes.saturating_sub(reply.len());
                if !entry.is_silent {
                    out.extend_from_slice(&reply);
                }
            }
            self.first += 1;
            count += 1;
        }
        if self.entries.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(BYTES_MAX / 16);
            self.is_barrier = false;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(is_silent: bool) -> Entry {
        Entry {
            work: Work::One(Part::new(Aim::Slot(1), 0..0)),
            reply: None,
            is_silent,
            is_read: true,
            blocks: false,
            is_refused: false,
            is_conditional: false,
            began_ms: 0,
        }
    }

    #[test]
    fn replies_leave_in_the_order_of_their_requests() {
        let (mut window, mut out) = (Window::default(), Vec::new());
        let numbers: Vec<u64> = (0..3).map(|_| window.push(entry(false))).collect();
        window.push_done(b"+here\r\n".to_vec(), 0);
        window.answer(numbers[2], b"+c\r\n".to_vec());
        assert_eq!((window.drain(&mut out), window.saved_bytes), (0, 11));
        window.answer(numbers[0], b"+a\r\n".to_vec());
        assert_eq!(window.drain(&mut out), 1);
        window.answer(numbers[1], b"+b\r\n".to_vec());
        // A late second answer changes nothing.
        window.answer(numbers[1], b"+x\r\n".to_vec());
        assert_eq!(window.drain(&mut out), 3);
        assert_eq!(out, b"+a\r\n+b\r\n+c\r\n+here\r\n");
        assert!(window.is_empty() && window.saved_bytes == 0);
        let next = window.push(entry(true));
        assert_eq!(next, 4);
        window.answer(next, b"+silent\r\n".to_vec());
        out.clear();
        assert_eq!((window.drain(&mut out), out.len()), (1, 0));
    }

    #[test]
    fn it_takes_no_more_than_it_has_room_for() {
        let mut window = Window::default();
        for _ in 0..REQUESTS_MAX {
            assert!(!window.is_full());
            window.push(entry(false));
        }
        assert!(window.is_full());
        let mut window = Window::default();
        window.bytes.resize(BYTES_MAX, 0);
        assert!(window.is_full());
        let mut window = Window {
            is_barrier: true,
            ..Window::default()
        };
        assert!(window.is_full());
        window.drain(&mut Vec::new());
        assert!(!window.is_full());
    }
}
