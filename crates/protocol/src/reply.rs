//! Writing replies.
//!
//! One method per shape. RESP3 types are written in RESP2 as Redis writes them: maps, sets and
//! pushes become arrays; doubles, big numbers and verbatim texts become bulk strings; booleans
//! become 0 and 1. A reply is written once, directly to the buffer. Nothing here allocates except
//! the buffer when it grows.

use base::float::FloatText;
use base::number::{TEXT_BYTES_MAX, decimal_len, write_i64, write_u64};
use base::shared_bytes::SharedBytes;

use crate::buffer::ReplyBuffer;
use crate::value::short_lines;

/// Maximum length of a header: a type byte, a number, CR LF.
const HEADER_BYTES_MAX: usize = 1 + TEXT_BYTES_MAX + 2;
const LINE_END: &[u8; 2] = b"\r\n";

/// The headers of strings below a hundred bytes, padded to one word each.
const SHORT_BULK_HEADERS: [[u8; 8]; 100] = {
    let lines = short_lines::<100>();
    let mut headers = [[0; 8]; 100];
    let mut len = 0;
    while len < headers.len() {
        headers[len] = lines[len].to_le_bytes();
        headers[len][0] = b'$';
        len += 1;
    }
    headers
};

/// The version of the protocol of a session, as chosen by HELLO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resp {
    /// RESP2, with which every session starts.
    #[default]
    V2,
    /// RESP3.
    V3,
}

/// Writes replies to one session's buffer.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut ReplyBuffer,
    version: Resp,
}

/// The position of a header whose length is not known yet. The caller passes it to
/// [`Reply::end_array`] or a similar method.
#[derive(Debug)]
#[must_use = "the reply is malformed until the length is written"]
pub struct Deferred {
    mark: usize,
}

impl<'a> Reply<'a> {
    /// Creates a writer that appends to `buffer` in the protocol's `version`.
    #[inline]
    pub fn new(buffer: &'a mut ReplyBuffer, version: Resp) -> Self {
        Self { buffer, version }
    }

    /// Returns the version in use.
    #[inline]
    pub fn version(&self) -> Resp {
        self.version
    }

    /// Changes the version of the following replies, as HELLO does.
    #[inline]
    pub fn set_version(&mut self, version: Resp) {
        self.version = version;
    }

    /// Returns the current end, for [`rollback`](Self::rollback).
    #[inline]
    pub fn mark(&self) -> usize {
        self.buffer.mark()
    }

    /// Removes everything written since `mark`.
    #[inline]
    pub fn rollback(&mut self, mark: usize) {
        self.buffer.truncate(mark);
    }

    /// Returns the bytes written since `mark`.
    pub fn since(&self, mark: usize) -> &[u8] {
        self.buffer.as_slice().get(mark..).unwrap_or_default()
    }

    /// Returns the bytes in the buffer, including replies before this one, without attachments.
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the same number with attachments.
    #[inline]
    pub fn len_with_attachments(&self) -> usize {
        self.buffer.len_with_attachments()
    }

    /// Whether the buffer is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Writes `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// Writes a status, such as `PONG`.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error: the full text with its code, without the leading `-`.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// Writes an error that quotes what a client sent. Line ends inside become blanks and those at
    /// the end are dropped, so that the text can never be read as another reply.
    pub fn error_bytes(&mut self, text: &[u8]) {
        let end = text
            .iter()
            .rposition(|&byte| !is_line_end(byte))
            .map_or(0, |last| last + 1);
        self.line(b'-', &text[..end]);
    }

    /// Writes a whole number.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        let small = usize::try_from(value)
            .ok()
            .and_then(|value| small_header(b':', value));
        if let Some(header) = small {
            self.raw(&header);
        } else {
            self.long_integer(value);
        }
    }

    /// Writes a count.
    #[inline]
    pub fn count(&mut self, count: usize) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Writes a string of any bytes.
    #[inline]
    pub fn bulk(&mut self, content: &[u8]) {
        self.bulk_with(content.len(), |room| room.copy_from_slice(content));
    }

    /// Writes a string of text.
    #[inline]
    pub fn bulk_str(&mut self, content: &str) {
        self.bulk(content.as_bytes());
    }

    /// Writes a string of exactly `len` bytes that `fill` writes in place. Their content is
    /// unspecified before.
    #[inline(always)]
    pub fn bulk_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        // `fill` is called at one place only, so that it can be inlined into its caller.
        fill(self.bulk_room(len));
    }

    /// Writes all of a string except its content, and returns the space for the content.
    #[inline(always)]
    fn bulk_room(&mut self, len: usize) -> &mut [u8] {
        let Some(header) = SHORT_BULK_HEADERS.get(len) else {
            return self.blob_room(b'$', &[], len);
        };
        let header_bytes = if len < 10 { 4 } else { 5 };
        let end = header_bytes + len;
        let room = self.buffer.append_chunk(end + LINE_END.len());
        room[..header.len()].copy_from_slice(header);
        room[end..end + LINE_END.len()].copy_from_slice(LINE_END);
        &mut room[header_bytes..end]
    }

    /// Writes a string whose content is sent without being copied: for long ones, see
    /// [`ReplyBuffer::attach`](crate::ReplyBuffer::attach).
    pub fn bulk_shared(&mut self, content: Box<dyn SharedBytes>) {
        self.header(b'$', content.len());
        self.buffer.attach(content);
        self.raw(LINE_END);
    }

    /// Writes a whole number as a string.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk_with(decimal_len(value), |room| {
            write_i64(room, value);
        });
    }

    /// Writes a null: a missing string or value.
    #[inline]
    pub fn null(&mut self) {
        match self.version {
            Resp::V2 => self.raw(b"$-1\r\n"),
            Resp::V3 => self.raw(b"_\r\n"),
        }
    }

    /// Writes a null in place of an array.
    #[inline]
    pub fn null_array(&mut self) {
        match self.version {
            Resp::V2 => self.raw(b"*-1\r\n"),
            Resp::V3 => self.raw(b"_\r\n"),
        }
    }

    /// Writes the header of an array; `len` replies follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// Writes the header of a map; `len` pairs of a key and a value follow.
    #[inline]
    pub fn map(&mut self, len: usize) {
        match self.version {
            Resp::V2 => self.header(b'*', len * 2),
            Resp::V3 => self.header(b'%', len),
        }
    }

    /// Writes the header of a set; `len` replies follow.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.header_by_version(b'~', len);
    }

    /// Writes the header of a push, which answers no request; `len` replies follow.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.header_by_version(b'>', len);
    }

    /// Writes the header of an attribute: `len` pairs that annotate the reply after them. RESP2 has
    /// no attributes: then it writes nothing and returns `false`, and the caller must omit the
    /// pairs.
    pub fn attribute(&mut self, len: usize) -> bool {
        if self.version == Resp::V3 {
            self.header(b'|', len);
        }
        self.version == Resp::V3
    }

    /// Writes a floating-point number, in the shortest text that reads back as the same number.
    pub fn double(&mut self, value: f64) {
        let text = FloatText::shortest(value);
        match self.version {
            Resp::V2 => self.bulk(text.as_bytes()),
            Resp::V3 => self.line(b',', text.as_bytes()),
        }
    }

    /// Writes a boolean.
    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.raw(match (self.version, value) {
            (Resp::V2, false) => b":0\r\n",
            (Resp::V2, true) => b":1\r\n",
            (Resp::V3, false) => b"#f\r\n",
            (Resp::V3, true) => b"#t\r\n",
        });
    }

    /// Writes a whole number of any size, as decimal text.
    pub fn big_number(&mut self, digits: &str) {
        match self.version {
            Resp::V2 => self.bulk(digits.as_bytes()),
            Resp::V3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Writes a text that is shown verbatim. `format` has three characters, such as `txt`.
    pub fn verbatim(&mut self, format: &str, content: &[u8]) {
        debug_assert_eq!(
            format.len(),
            3,
            "the format of a verbatim text has three characters"
        );
        match (self.version, format.as_bytes()) {
            (Resp::V3, &[a, b, c]) => {
                let fill = |room: &mut [u8]| room.copy_from_slice(content);
                fill(self.blob_room(b'=', &[a, b, c, b':'], content.len()));
            }
            _ => self.bulk(content),
        }
    }

    /// Writes bytes that are already a reply, or part of one.
    #[inline]
    pub fn raw(&mut self, encoded: &[u8]) {
        self.buffer.push_slice(encoded);
    }

    /// Begins an array whose length becomes known later.
    #[inline]
    pub fn begin_array(&mut self) -> Deferred {
        self.begin()
    }

    /// Ends an array of `len` replies.
    #[inline]
    pub fn end_array(&mut self, slot: Deferred, len: usize) {
        self.end(slot, b'*', len);
    }

    /// Begins a map whose length becomes known later.
    #[inline]
    pub fn begin_map(&mut self) -> Deferred {
        self.begin()
    }

    /// Ends a map of `len` pairs.
    #[inline]
    pub fn end_map(&mut self, slot: Deferred, len: usize) {
        match self.version {
            Resp::V2 => self.end(slot, b'*', len * 2),
            Resp::V3 => self.end(slot, b'%', len),
        }
    }

    /// Begins a set whose length becomes known later.
    #[inline]
    pub fn begin_set(&mut self) -> Deferred {
        self.begin()
    }

    /// Ends a set of `len` replies.
    #[inline]
    pub fn end_set(&mut self, slot: Deferred, len: usize) {
        match self.version {
            Resp::V2 => self.end(slot, b'*', len),
            Resp::V3 => self.end(slot, b'~', len),
        }
    }

    /// Reserves space for a header of one digit, the most frequent.
    #[inline]
    fn begin(&mut self) -> Deferred {
        let mark = self.buffer.mark();
        self.raw(b"*0\r\n");
        Deferred { mark }
    }

    /// Writes the header into the reserved space. Moves the bytes behind it if the header has more
    /// digits.
    fn end(&mut self, slot: Deferred, marker: u8, len: usize) {
        let mut header = [0; HEADER_BYTES_MAX];
        let header_bytes = write_header(&mut header, marker, len);
        if header_bytes > 4 {
            self.buffer.open_gap(slot.mark, header_bytes - 4);
        }
        self.buffer.overwrite(slot.mark, &header[..header_bytes]);
    }

    fn long_integer(&mut self, value: i64) {
        let room = self.buffer.reserve(HEADER_BYTES_MAX);
        room[0] = b':';
        let count = 1 + write_i64(&mut room[1..], value);
        room[count..count + 2].copy_from_slice(LINE_END);
        self.buffer.commit(count + 2);
    }

    #[inline]
    fn header_by_version(&mut self, marker: u8, len: usize) {
        match self.version {
            Resp::V2 => self.header(b'*', len),
            Resp::V3 => self.header(marker, len),
        }
    }

    #[inline]
    fn header(&mut self, marker: u8, len: usize) {
        if let Some(header) = small_header(marker, len) {
            self.raw(&header);
        } else {
            let count = write_header(self.buffer.reserve(HEADER_BYTES_MAX), marker, len);
            self.buffer.commit(count);
        }
    }

    /// Writes `marker`, length and `prefix`, and returns the space for the content. The length
    /// includes the prefix.
    fn blob_room(&mut self, marker: u8, prefix: &[u8], len: usize) -> &mut [u8] {
        let content_bytes = prefix.len() + len;
        let mut header = [0; HEADER_BYTES_MAX];
        let header_bytes = write_header(&mut header, marker, content_bytes);
        let room = self
            .buffer
            .append(header_bytes + content_bytes + LINE_END.len());
        let (before, rest) = room.split_at_mut(header_bytes);
        before.copy_from_slice(&header[..header_bytes]);
        let (before, rest) = rest.split_at_mut(prefix.len());
        before.copy_from_slice(prefix);
        let (content, end) = rest.split_at_mut(len);
        end.copy_from_slice(LINE_END);
        content
    }

    /// Writes `marker` and one line of text, in which line ends become blanks.
    fn line(&mut self, marker: u8, text: &[u8]) {
        let room = self.buffer.reserve(1 + text.len() + LINE_END.len());
        room[0] = marker;
        for (place, &byte) in room[1..].iter_mut().zip(text) {
            *place = if is_line_end(byte) { b' ' } else { byte };
        }
        room[1 + text.len()..].copy_from_slice(LINE_END);
        self.buffer.commit(1 + text.len() + LINE_END.len());
    }
}

/// Returns the header for a number below ten, or `None` for other numbers.
#[inline]
fn small_header(marker: u8, number: usize) -> Option<[u8; 4]> {
    match u8::try_from(number) {
        Ok(digit @ 0..=9) => Some([marker, b'0' + digit, b'\r', b'\n']),
        _ => None,
    }
}

/// Writes a header to the front of `room` and returns its size.
#[inline(never)]
fn write_header(room: &mut [u8], marker: u8, number: usize) -> usize {
    room[0] = marker;
    let count = 1 + write_u64(&mut room[1..], number as u64);
    room[count..count + 2].copy_from_slice(LINE_END);
    count + 2
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}
