//! One client: what it sent, as commands, and what it is owed.

use std::collections::VecDeque;
use std::fmt;

use protocol::{ReplyBuffer, encode_request};

use crate::limits::{AHEAD_BYTES_MAX, AHEAD_REQUESTS_MAX, KEPT_BYTES_MAX};
use crate::owed::{Key, Owed};
use crate::replies::{Writer, skip};
use crate::words::{Line, line};
use crate::{classic, meta, meta_reply};

const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";

/// What [`Front::read`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Bytes of input that are done with.
    pub consumed: usize,
    /// How many bytes the rest must have before another call can do anything; 0 if unknown.
    pub needed: usize,
    /// The client wants no more, or can be understood no longer.
    pub is_over: bool,
}

/// Replies that are not those of the requests: the connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("replies do not match the requests of a memcached client")
    }
}

impl std::error::Error for Broken {}

/// What a client of the memcached port sent, and is owed.
#[derive(Debug)]
pub struct Front {
    item_bytes_max: usize,
    version: &'static str,
    requests: Vec<u8>,
    /// Bytes of `requests` that ran.
    ran: usize,
    owed: VecDeque<Owed>,
    /// Bytes of a data block that is not wanted.
    skipped: usize,
    /// An item of the line was answered with an error, which ends the answer.
    line_failed: bool,
    /// Replies that wait for the one of a request that was asked once more.
    held: Vec<u8>,
}

/// Where a request is written down.
pub(crate) struct Sink<'a> {
    pub(crate) item_bytes_max: usize,
    pub(crate) version: &'static str,
    pub(crate) now_unix_ms: u64,
    requests: &'a mut Vec<u8>,
    owed: &'a mut VecDeque<Owed>,
    skipped: &'a mut usize,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was, with so many bytes of data behind it.
    All(usize),
    /// So many bytes of data must be there.
    Needs(usize),
    /// The client goes.
    Quit,
}

impl Sink<'_> {
    /// A command, and what its reply becomes.
    pub(crate) fn ask(&mut self, words: &[&[u8]], owed: Owed) {
        encode_request(self.requests, words);
        self.owed.push_back(owed);
    }

    /// An item of a key.
    pub(crate) fn ask_item(&mut self, words: &[&[u8]], key: &[u8], shows_cas: bool) {
        let before = self.requests.len();
        encode_request(self.requests, words);
        // The key is the second word, behind the lines of the count, the name, and its own length.
        let header = before + request_bytes_before_key(words[0].len(), words.len(), key.len());
        let key = Key {
            start: header,
            len: key.len(),
        };
        self.owed.push_back(Owed::Item { key, shows_cas });
    }

    /// A text for which no command runs.
    pub(crate) fn say(&mut self, text: &'static [u8]) {
        self.owed.push_back(Owed::Text(text));
    }

    /// As [`Sink::say`].
    pub(crate) fn owe(&mut self, owed: Owed) {
        self.owed.push_back(owed);
    }

    /// Drops a data block of so many bytes and its end, which may not have come.
    pub(crate) fn skip_data(&mut self, len: usize) {
        *self.skipped = len.saturating_add(2);
    }
}

/// Bytes of an encoded request in front of its second word.
fn request_bytes_before_key(name_len: usize, words: usize, key_len: usize) -> usize {
    let digits = |number: usize| base::number::digits_count(number as u64);
    let count_line = 1 + digits(words) + 2;
    let name = 1 + digits(name_len) + 2 + name_len + 2;
    count_line + name + 1 + digits(key_len) + 2
}

impl Front {
    /// Of a client that just came. Longer items than `item_bytes_max` are refused.
    #[must_use]
    pub const fn new(item_bytes_max: usize, version: &'static str) -> Self {
        Self {
            item_bytes_max,
            version,
            requests: Vec::new(),
            ran: 0,
            owed: VecDeque::new(),
            skipped: 0,
            line_failed: false,
            held: Vec::new(),
        }
    }

    /// Whether it waits for replies, or has texts to be written.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Commands that have not run.
    #[must_use]
    pub fn requests(&self) -> &[u8] {
        &self.requests[self.ran..]
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.requests.capacity() + self.held.capacity() + self.owed.capacity() * size_of::<Owed>()
    }

    /// The first bytes of [`Front::requests`] ran.
    pub fn note_run(&mut self, bytes: usize) {
        self.ran = self.requests.len().min(self.ran + bytes);
    }

    /// Takes up what a client sent: as many requests as may be run at once. To be called when nothing is
    /// [owed](Front::is_owed).
    pub fn read(&mut self, input: &[u8], is_logged_in: bool, now_unix_ms: u64) -> Read {
        self.begin();
        let mut read = Read::default();
        for _ in 0..AHEAD_REQUESTS_MAX {
            let skipped = self.skipped.min(input.len() - read.consumed);
            self.skipped -= skipped;
            read.consumed += skipped;
            let rest = &input[read.consumed..];
            if rest.is_empty() || self.requests.len() >= AHEAD_BYTES_MAX {
                break;
            }
            let (text, line_bytes) = match line(rest) {
                Line::Whole(text, line_bytes) => (text, line_bytes),
                Line::Partial => break,
                Line::TooLong => {
                    self.owed.push_back(Owed::Text(LINE_TOO_LONG));
                    read.consumed = input.len();
                    read.is_over = true;
                    break;
                }
            };
            let behind = &rest[line_bytes..];
            match self.take(text, behind, is_logged_in, now_unix_ms) {
                Taken::All(data_bytes) => read.consumed += line_bytes + data_bytes,
                Taken::Needs(data_bytes) => {
                    read.needed = line_bytes.saturating_add(data_bytes);
                    break;
                }
                Taken::Quit => {
                    read.consumed = input.len();
                    read.is_over = true;
                    break;
                }
            }
            if !is_logged_in {
                // What comes next depends on whether it is then.
                break;
            }
        }
        read
    }

    /// Writes the texts that `replies` become, which are all those of commands that ran, and the texts after them. An item
    /// that is out of date may have to be asked for once more: then there are [requests](Self::requests) again, and what
    /// comes after it waits.
    ///
    /// # Errors
    /// When there are more or fewer replies, or others, than the commands have.
    pub fn answer(&mut self, replies: &[u8], out: &mut ReplyBuffer) -> Result<(), Broken> {
        if self.held.is_empty() {
            return self.answer_all(replies, out);
        }
        if replies.is_empty() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        self.answer_all(&[replies, &held].concat(), out)
    }

    fn answer_all(&mut self, mut replies: &[u8], out: &mut ReplyBuffer) -> Result<(), Broken> {
        while let Some(mut owed) = self.owed.pop_front() {
            if owed.has_reply() && replies.is_empty() {
                self.owed.push_front(owed);
                return Ok(());
            }
            if self.asks_again(&mut owed, &mut replies, out)? {
                self.owed.push_front(owed);
                self.held = replies.to_vec();
                return Ok(());
            }
            let mut writer = Writer {
                replies,
                requests: &self.requests,
                out,
                line_failed: &mut self.line_failed,
            };
            writer.write(&owed)?;
            let left = writer.replies.len();
            replies = &replies[replies.len() - left..];
        }
        if replies.is_empty() {
            Ok(())
        } else {
            Err(Broken)
        }
    }

    /// Asks once more for an item that is out of date, for its client to be told to fetch it, or that another one was.
    fn asks_again(
        &mut self,
        owed: &mut Owed,
        replies: &mut &[u8],
        out: &mut ReplyBuffer,
    ) -> Result<bool, Broken> {
        let Owed::Meta(meta) = owed else {
            return Ok(false);
        };
        if !std::mem::take(&mut meta.asks_again) {
            return Ok(false);
        }
        let mut writer = Writer {
            replies,
            requests: &self.requests,
            out,
            line_failed: &mut self.line_failed,
        };
        let Some(bytes) = meta_reply::stale_bytes(&mut writer)? else {
            return Ok(false);
        };
        let (first, rest) = replies.split_at(bytes);
        // It runs after all the others, so none of them may be answered after this: the next client may win then.
        if !self.has_all_replies(rest)? {
            return Ok(false);
        }
        meta.first = first.into();
        meta::ask_to_win(&mut self.requests, meta);
        *replies = rest;
        Ok(true)
    }

    /// Whether all requests ran, and these are the replies of all that is owed: none runs elsewhere.
    fn has_all_replies(&self, mut replies: &[u8]) -> Result<bool, Broken> {
        if self.ran < self.requests.len() {
            return Ok(false);
        }
        for _ in self.owed.iter().filter(|owed| owed.has_reply()) {
            if replies.is_empty() {
                return Ok(false);
            }
            replies = skip(replies)?;
        }
        Ok(true)
    }

    /// Forgets the requests of before.
    fn begin(&mut self) {
        self.requests.clear();
        self.requests.shrink_to(KEPT_BYTES_MAX);
        self.owed.shrink_to(AHEAD_REQUESTS_MAX);
        self.ran = 0;
        self.line_failed = false;
    }

    fn take(&mut self, text: &[u8], behind: &[u8], is_logged_in: bool, now_unix_ms: u64) -> Taken {
        let mut sink = Sink {
            item_bytes_max: self.item_bytes_max,
            version: self.version,
            now_unix_ms,
            requests: &mut self.requests,
            owed: &mut self.owed,
            skipped: &mut self.skipped,
        };
        if !is_logged_in {
            return classic::log_in(&mut sink, text, behind).unwrap_or_else(|| {
                sink.say(UNAUTHENTICATED);
                Taken::All(0)
            });
        }
        match text {
            [b'm', _, b' ', ..] | b"mn" => meta::take(&mut sink, text, behind),
            _ => classic::take(&mut sink, text, behind),
        }
    }
}
