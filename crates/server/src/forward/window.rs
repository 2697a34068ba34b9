//! The requests of one client in flight, in order, and their replies.

use std::collections::VecDeque;
use std::ops::Range;

use engine::Outcome;

use super::merge::Merge;

/// Maximum number of a client's requests in flight, ...
pub(crate) const REQUESTS_MAX: usize = 1_024;
/// ... and of their bytes; a longer request is in flight alone.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// If more bytes of replies than this wait for earlier ones, the client is not read from, nor are
/// its own connections to nodes.
pub(crate) const SAVED_BYTES_MAX: usize = 16 << 20;
/// Maximum memory that is kept for replies that are ready.
const READY_KEPT_BYTES: usize = 16 << 10;

/// The node that a part of a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The node that serves a slot.
    Slot(u16),
    /// This one node.
    Node([u8; 20]),
}

/// State of a part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// To be sent, for the first time or again.
    Unsent,
    /// Sent.
    Sent,
    /// Answered.
    Done,
}

/// The part of a request that is sent to one node.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) aim: Aim,
    pub(crate) stage: Stage,
    /// Its place in the window's bytes.
    pub(crate) bytes: Range<usize>,
    /// Number of replies before its own: to MULTI and to queued commands.
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

/// What a request consists of.
#[derive(Debug)]
pub(crate) enum Work {
    /// It was run here.
    Here,
    /// One node answers it.
    One(Part),
    /// Several nodes answer it.
    Several(Box<Merge>),
}

/// One request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) work: Work,
    /// The reply to the client, once it is known.
    pub(crate) reply: Option<Vec<u8>>,
    /// Whether no reply is sent (CLIENT REPLY).
    pub(crate) is_silent: bool,
    /// Whether it only reads, so that it can be sent again.
    pub(crate) is_read: bool,
    /// Whether it may take any time.
    pub(crate) blocks: bool,
    /// Whether the other node refused a command that is queued there.
    pub(crate) is_refused: bool,
    /// Whether it runs only if what is watched at its node has not changed.
    pub(crate) is_conditional: bool,
    /// When it was received, by the monotonic clock.
    pub(crate) began_ms: u64,
}

impl Entry {
    /// Returns a part of it.
    pub(crate) fn part_mut(&mut self, part: usize) -> Option<&mut Part> {
        match &mut self.work {
            Work::Here => None,
            Work::One(one) => (part == 0).then_some(one),
            Work::Several(merge) => merge.parts.get_mut(part),
        }
    }

    /// Number of its parts.
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
    /// Number of the first entry.
    first: u64,
    /// Bytes of requests that were sent or are to be sent.
    pub(crate) bytes: Vec<u8>,
    /// Whether no further request is accepted until all in the window are answered: the last one
    /// may block.
    pub(crate) is_barrier: bool,
    /// What happens to the client then.
    pub(crate) after: Option<Outcome>,
    /// Parts to be sent again: number of the entry, and of the part.
    pub(crate) again: Vec<(u64, usize)>,
    /// Bytes of replies that wait for earlier ones.
    pub(crate) saved_bytes: usize,
    /// Replies that are ready to be sent, ...
    ready: Vec<u8>,
    /// ... of this many requests.
    ready_count: usize,
}

impl Window {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it accepts no further request at present.
    pub(crate) fn is_full(&self) -> bool {
        self.is_barrier
            || self.after.is_some()
            || self.entries.len() >= REQUESTS_MAX
            || self.bytes.len() >= BYTES_MAX
            || self.saved_bytes > SAVED_BYTES_MAX
    }

    /// Adds a request, and returns its number.
    pub(crate) fn push(&mut self, entry: Entry) -> u64 {
        self.saved_bytes += entry.reply.as_ref().map_or(0, Vec::len);
        self.entries.push_back(entry);
        let number = self.first + self.entries.len() as u64 - 1;
        self.advance();
        number
    }

    /// Adds a request that was run here.
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

    /// Returns the first unanswered request, with its number.
    pub(crate) fn front_mut(&mut self) -> Option<(u64, &mut Entry)> {
        let first = self.first;
        self.entries.front_mut().map(|entry| (first, entry))
    }

    /// Notes the reply to a request. If all earlier requests are answered, the request leaves the
    /// window.
    pub(crate) fn answer(&mut self, number: u64, reply: &[u8]) {
        if number == self.first {
            // The usual case: no earlier request is unanswered.
            if let Some(entry) = self.entries.pop_front() {
                self.end_first(entry.is_silent, reply);
            }
            return self.advance();
        }
        if let Some(entry) = self.get_mut(number)
            && entry.reply.is_none()
        {
            entry.reply = Some(reply.to_vec());
            self.saved_bytes += reply.len();
        }
    }

    /// Passes on the replies that are ready. Returns the number of their requests.
    pub(crate) fn drain(&mut self, send: impl FnOnce(&[u8])) -> usize {
        if !self.ready.is_empty() {
            send(&self.ready);
            self.ready.clear();
            self.ready.shrink_to(READY_KEPT_BYTES);
        }
        std::mem::take(&mut self.ready_count)
    }

    /// Moves the replies of the first requests to those that are ready.
    fn advance(&mut self) {
        while self.entries.front().is_some_and(|it| it.reply.is_some()) {
            if let Some(entry) = self.entries.pop_front()
                && let Some(reply) = entry.reply
            {
                self.saved_bytes = self.saved_bytes.saturating_sub(reply.len());
                self.end_first(entry.is_silent, &reply);
            }
        }
        if self.entries.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(BYTES_MAX / 16);
            self.is_barrier = false;
        }
    }

    /// Appends the reply of the first request, which was taken out, to those that are ready.
    fn end_first(&mut self, is_silent: bool, reply: &[u8]) {
        if !is_silent {
            self.ready.extend_from_slice(reply);
        }
        self.first += 1;
        self.ready_count += 1;
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

    fn drained(window: &mut Window) -> (usize, String) {
        let mut out = Vec::new();
        let count = window.drain(|replies| out.extend_from_slice(replies));
        (count, String::from_utf8(out).unwrap())
    }

    #[test]
    fn replies_leave_in_the_order_of_their_requests() {
        let mut window = Window::default();
        let numbers: Vec<u64> = (0..3).map(|_| window.push(entry(false))).collect();
        window.push_done(b"+here\r\n".to_vec(), 0);
        window.answer(numbers[2], b"+c\r\n");
        assert_eq!(drained(&mut window), (0, String::new()));
        assert_eq!(window.saved_bytes, 11);
        window.answer(numbers[0], b"+a\r\n");
        assert_eq!(drained(&mut window), (1, "+a\r\n".to_owned()));
        // A second answer changes nothing, whether the first was sent or waits.
        window.answer(numbers[0], b"+x\r\n");
        window.answer(numbers[2], b"+x\r\n");
        window.answer(numbers[1], b"+b\r\n");
        window.answer(numbers[1], b"+x\r\n");
        assert_eq!(
            drained(&mut window),
            (3, "+b\r\n+c\r\n+here\r\n".to_owned())
        );
        assert!(window.is_empty() && window.saved_bytes == 0);
        let next = window.push(entry(true));
        assert_eq!(next, 4);
        window.answer(next, b"+silent\r\n");
        assert_eq!(drained(&mut window), (1, String::new()));
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
        let mut window = Window::default();
        window.push(entry(false));
        let number = window.push(entry(false));
        window.answer(number, &vec![0; SAVED_BYTES_MAX + 1]);
        assert!(window.is_full());
        let mut window = Window::default();
        let number = window.push(entry(false));
        window.is_barrier = true;
        assert!(window.is_full());
        window.answer(number, b"+OK\r\n");
        assert!(!window.is_full());
    }
}
