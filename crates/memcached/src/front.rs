//! One client: its input as commands, and the replies that it is owed.

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

/// The result of [`Front::read`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Number of input bytes that were consumed.
    pub consumed: usize,
    /// Number of bytes that the rest must have before another call can make progress; 0 if unknown.
    pub needed: usize,
    /// Whether the client quits, or its input can no longer be parsed.
    pub is_over: bool,
}

/// Replies that do not match the requests: the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("replies do not match the requests of a memcached client")
    }
}

impl std::error::Error for Broken {}

/// The state of a client of the memcached port: its requests and what it is owed.
#[derive(Debug)]
pub struct Front {
    item_bytes_max: usize,
    version: &'static str,
    requests: Vec<u8>,
    /// Number of bytes of `requests` that have run.
    ran: usize,
    owed: VecDeque<Owed>,
    /// Number of bytes of a refused data block that remain to be skipped.
    skipped: usize,
    /// Whether an item of the line was answered with an error, which ends the answer.
    line_failed: bool,
    /// Replies that wait for the reply of a request that is repeated.
    held: Vec<u8>,
}

/// The destination of parsed requests.
pub(crate) struct Sink<'a> {
    pub(crate) item_bytes_max: usize,
    pub(crate) version: &'static str,
    pub(crate) now_unix_ms: u64,
    requests: &'a mut Vec<u8>,
    owed: &'a mut VecDeque<Owed>,
    skipped: &'a mut usize,
}

/// The result of parsing a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The line was consumed, with this many bytes of data after it.
    All(usize),
    /// This many bytes of data must be available.
    Needs(usize),
    /// The client quits.
    Quit,
}

impl Sink<'_> {
    /// Adds a command, and what its reply becomes.
    pub(crate) fn ask(&mut self, words: &[&[u8]], owed: Owed) {
        encode_request(self.requests, words);
        self.owed.push_back(owed);
    }

    /// Adds a command for an item of a key.
    pub(crate) fn ask_item(&mut self, words: &[&[u8]], key: &[u8], shows_cas: bool) {
        let before = self.requests.len();
        encode_request(self.requests, words);
        // The key is the second word, after the lines of the count, the name, and the key's length.
        let header = before + request_bytes_before_key(words[0].len(), words.len(), key.len());
        let key = Key {
            start: header,
            len: key.len(),
        };
        self.owed.push_back(Owed::Item { key, shows_cas });
    }

    /// Adds a text for which no command runs.
    pub(crate) fn say(&mut self, text: &'static [u8]) {
        self.owed.push_back(Owed::Text(text));
    }

    /// As [`Sink::say`].
    pub(crate) fn owe(&mut self, owed: Owed) {
        self.owed.push_back(owed);
    }

    /// Skips a data block of this many bytes and its end, even if they have not been received yet.
    pub(crate) fn skip_data(&mut self, len: usize) {
        *self.skipped = len.saturating_add(2);
    }
}

/// Returns the number of bytes of an encoded request before its second word.
fn request_bytes_before_key(name_len: usize, words: usize, key_len: usize) -> usize {
    let digits = |number: usize| base::number::digits_count(number as u64);
    let count_line = 1 + digits(words) + 2;
    let name = 1 + digits(name_len) + 2 + name_len + 2;
    count_line + name + 1 + digits(key_len) + 2
}

impl Front {
    /// Returns the state of a new client. Items longer than `item_bytes_max` are refused.
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

    /// Returns whether the client waits for replies or for texts.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Returns the commands that have not run.
    #[must_use]
    pub fn requests(&self) -> &[u8] {
        &self.requests[self.ran..]
    }

    /// Returns the number of bytes of memory in use.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.requests.capacity() + self.held.capacity() + self.owed.capacity() * size_of::<Owed>()
    }

    /// Notes that the first `bytes` of [`Front::requests`] have run.
    pub fn note_run(&mut self, bytes: usize) {
        self.ran = self.requests.len().min(self.ran + bytes);
    }

    /// Parses a client's input: as many requests as may be run at once. The caller must call this
    /// only when nothing is [owed](Front::is_owed).
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
                // How the next line is parsed depends on whether the client is logged in by then.
                break;
            }
        }
        read
    }

    /// Writes the texts for `replies`, which are all replies of the commands that ran, and the
    /// texts after them. An outdated item may have to be requested once more: then there are
    /// [requests](Self::requests) again, and everything after that item waits.
    ///
    /// # Errors
    /// If there are more or fewer replies than commands, or replies of another kind.
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

    /// Requests an outdated item once more, so that its client learns whether it or another client
    /// is to fetch the item.
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
        // The repeated request runs after all others, so none of them may be answered after it:
        // otherwise the next client could win.
        if !self.has_all_replies(rest)? {
            return Ok(false);
        }
        meta.first = first.into();
        meta::ask_to_win(&mut self.requests, meta);
        *replies = rest;
        Ok(true)
    }

    /// Returns whether all requests have run and these are the replies of everything owed, so none
    /// runs elsewhere.
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

    /// Removes the previous requests.
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
