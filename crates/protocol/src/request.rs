//! Decoded requests: views into the bytes they were decoded from.
//!
//! A [`Batch`] is a flat list of argument positions and a list of ranges over it. Requests of a pipeline
//! are mostly alike, so one range is a run of them: those that stand one behind the other and differ in
//! their arguments only. What reads a batch finds out once a run what is the same for all of it.
//!
//! A worker keeps one batch for all its sessions. An inline request with quotes has arguments that
//! differ from their encoding; only those are copied, into a side buffer of the batch.

use base::number::digits_count;

use crate::short::Shape;

/// Argument positions a batch may keep between two decodings; a request with more gives its memory
/// back.
const SPANS_KEPT_MAX: usize = 64 * 1024;
/// Runs of requests a batch may keep places for.
const RUNS_KEPT_MAX: usize = 1024;
/// Unescaped bytes a batch may keep between two decodings.
const UNESCAPED_BYTES_KEPT_MAX: usize = 64 * 1024;

/// Arguments of a request that is decoded the short way.
pub(crate) const SHORT_ARGUMENTS_MAX: usize = 9;
/// Bytes in front of a short request's name: `*2 CR LF $3 CR LF`.
pub(crate) const SHORT_HEAD_BYTES: u32 = 8;
/// Requests that are decoded the short way at once.
pub(crate) const SHORT_REQUESTS_MAX: usize = 16;

/// A command's name of up to seven bytes as one word, which no other name has: its bytes as they
/// were sent, the first in the lowest place, and how many they are in the highest. For a quick
/// look into a table of known spellings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NameKey(u64);

impl NameKey {
    /// No key: of longer names, and of requests that were not decoded the short way.
    pub const NONE: Self = Self(0);
    /// The longest name that has a key.
    pub const BYTES_MAX: usize = 7;

    /// The key of `name`, if it has one.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let bytes = name.iter().rev();
        let word = bytes.fold(0, |word, &byte| word << 8 | u64::from(byte));
        Self::new(word, Self::mask_and_tag(name.len()))
    }

    /// What makes a key of the word at the beginning of a name: the bits that are the name's, and
    /// those that say how long it is. Neither for a name that has no key.
    #[inline(always)]
    pub(crate) const fn mask_and_tag(name_bytes: usize) -> (u64, u64) {
        if name_bytes == 0 || name_bytes > Self::BYTES_MAX {
            return (0, 0);
        }
        let mask = u64::MAX >> (64 - 8 * name_bytes);
        (mask, (name_bytes as u64) << 56)
    }

    /// The key of a name, from the word at its beginning.
    #[inline(always)]
    pub(crate) const fn new(word: u64, (mask, tag): (u64, u64)) -> Self {
        Self(word & mask | tag)
    }

    /// The key of the name that lies there.
    #[inline]
    fn at(input: &[u8], name: Span) -> Self {
        let (start, len) = (name.start as usize, name.len as usize);
        let behind = input.get(start..).unwrap_or_default();
        match behind.first_chunk() {
            Some(word) => Self::new(u64::from_le_bytes(*word), Self::mask_and_tag(len)),
            None => behind
                .get(..len)
                .filter(|name| name.len() <= Self::BYTES_MAX)
                .map_or(Self::NONE, Self::of),
        }
    }

    /// The word itself.
    #[inline]
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }
}

/// Where an argument lies in the bytes it belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Positions above `u32::MAX` must have been ruled out before.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the decoder looks at no more than u32::MAX bytes at once"
    )]
    pub(crate) fn new(start: usize, len: usize) -> Self {
        debug_assert!(start + len <= u32::MAX as usize);
        Self {
            start: start as u32,
            len: len as u32,
        }
    }

    /// The same argument when `offset` bytes in front of it are gone.
    fn moved_front(self, offset: usize) -> Self {
        Self::new(self.start as usize - offset, self.len as usize)
    }

    /// Where the line that it stands on ends.
    #[inline]
    fn line_end(self) -> u32 {
        self.start + self.len + 2
    }

    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.start as usize + self.len as usize]
    }
}

/// A growing list whose memory is initialised once, when it grows, so that adding some costs one
/// check instead of one each. Invariant: `used <= slots.len()`.
#[derive(Debug, Default)]
pub(crate) struct Slots<T> {
    slots: Vec<T>,
    used: usize,
}

/// Where arguments are.
pub(crate) type Spans = Slots<Span>;

impl<T: Copy + Default> Slots<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        &self.slots[..self.used]
    }

    /// Places for `count` more.
    #[inline]
    fn room(&mut self, count: usize) -> &mut [T] {
        if self.slots.len() - self.used < count {
            self.grow(count);
        }
        &mut self.slots[self.used..][..count]
    }

    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        self.room(1)[0] = item;
        self.used += 1;
    }

    #[inline]
    fn last_mut(&mut self) -> Option<&mut T> {
        self.slots[..self.used].last_mut()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<T>()
    }

    /// Forgets all; keeps memory for at most `kept_max`.
    #[inline]
    fn clear(&mut self, kept_max: usize) {
        self.used = 0;
        if self.slots.len() > kept_max {
            self.slots.truncate(kept_max);
            self.slots.shrink_to_fit();
        }
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.slots.reserve(self.used + count - self.slots.len());
        self.slots.resize(self.slots.capacity(), T::default());
    }
}

impl Spans {
    /// Takes the spans from `start` on out, counted from `offset` bytes later in the input.
    pub(crate) fn split_off(&mut self, start: usize, offset: usize) -> Self {
        let moved = self.slots[start..self.used]
            .iter()
            .map(|span| span.moved_front(offset));
        let slots: Vec<Span> = moved.collect();
        self.used = start;
        Self {
            used: slots.len(),
            slots,
        }
    }
}

/// Requests of a batch that have the same name and as many arguments: one, or several short ones.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunRange {
    name: NameKey,
    requests: u32,
    /// Of each; the spans of all are behind those of the run before.
    arguments: u32,
    /// Where the last one ends in the input.
    end: u32,
    /// How long its encoding is; 0 for short ones, whose spans tell.
    wire_bytes: u32,
    /// The spans point into the batch's side buffer instead of the input.
    unescaped: bool,
}

impl RunRange {
    /// A run of short requests that has none yet.
    #[inline(always)]
    pub(crate) fn begin(name: NameKey, arguments: usize) -> Self {
        Self {
            name,
            arguments: Span::new(0, arguments).len,
            ..Self::default()
        }
    }

    /// Whether a request with this name and so many arguments can go on with it.
    #[inline(always)]
    pub(crate) fn takes(&self, name: NameKey, arguments: usize) -> bool {
        self.name == name && self.arguments as usize == arguments && name != NameKey::NONE
    }

    /// Whether its requests have a name with this key, if it has any.
    #[inline(always)]
    pub(crate) fn is_of(&self, name: NameKey) -> bool {
        self.name == name && self.requests > 0
    }

    /// Counts so many more requests.
    #[inline(always)]
    pub(crate) fn grow(&mut self, requests: usize) {
        self.requests += Span::new(0, requests).len;
    }

    /// Adds it to `runs`, with the end of its last request; unless it has none.
    #[inline]
    pub(crate) fn end_at(mut self, end: usize, runs: &mut Slots<Self>) {
        if self.requests > 0 {
            self.end = Span::new(end, 0).start;
            runs.push(self);
        }
    }
}

/// The requests of one call of [`Decoder::decode`](crate::Decoder::decode).
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) spans: Spans,
    runs: Slots<RunRange>,
    requests_count: usize,
    pub(crate) unescaped: Vec<u8>,
    /// What short requests look like, most probably.
    shape: Shape,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all requests; keeps a bounded amount of memory for the next ones.
    #[inline]
    pub fn clear(&mut self) {
        self.requests_count = 0;
        self.runs.clear(RUNS_KEPT_MAX);
        self.spans.clear(SPANS_KEPT_MAX);
        self.unescaped.clear();
        if self.unescaped.capacity() > UNESCAPED_BYTES_KEPT_MAX {
            self.unescaped.shrink_to(UNESCAPED_BYTES_KEPT_MAX);
        }
    }

    /// How many requests were decoded.
    #[inline]
    pub fn len(&self) -> usize {
        self.requests_count
    }

    /// Whether no request was decoded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held, used or not.
    pub fn held_bytes(&self) -> usize {
        self.spans.held_bytes() + self.runs.held_bytes() + self.unescaped.capacity()
    }

    /// The request at `index`, found by counting from the first. `input` must be the bytes the batch
    /// was decoded from.
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    pub fn request<'a>(&'a self, index: usize, input: &'a [u8]) -> Request<'a> {
        let request = self.iter(input).nth(index);
        request.expect("the batch has so many requests")
    }

    /// All requests in order. `input` must be the bytes the batch was decoded from.
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = Request<'a>> {
        self.runs(input).flat_map(|run| run.requests)
    }

    /// All requests in order, those together that stand one behind the other and are much the same.
    /// `input` must be the bytes the batch was decoded from.
    #[inline]
    pub fn runs<'a>(&'a self, input: &'a [u8]) -> Runs<'a> {
        Runs {
            runs: self.runs.as_slice().iter(),
            spans: &self.spans.slots,
            input,
            unescaped: &self.unescaped,
        }
    }

    /// How many bytes of the input are used up once the request at `index` is done. A session
    /// that stops in the middle of a batch continues there, after
    /// [`Decoder::reset`](crate::Decoder::reset).
    ///
    /// # Panics
    /// When `index` is not below [`len`](Self::len).
    pub fn end_of(&self, index: usize) -> usize {
        let (mut requests, mut spans) = (0, 0);
        for run in self.runs.as_slice() {
            let more = index - requests;
            if more + 1 == run.requests as usize {
                return run.end as usize;
            }
            if more < run.requests as usize {
                let last = spans + (more + 1) * run.arguments as usize - 1;
                return self.spans.as_slice()[last].line_end() as usize;
            }
            requests += run.requests as usize;
            spans += (run.requests * run.arguments) as usize;
        }
        panic!("the batch has so many requests");
    }

    /// Declares the spans from `spans_start` on, which no request has, to be one request encoded in
    /// `start..end`.
    #[inline]
    pub(crate) fn push_request(
        &mut self,
        spans_start: usize,
        start: usize,
        end: usize,
        unescaped: bool,
    ) {
        let wire = Span::new(start, end - start);
        let mut run = RunRange::begin(NameKey::NONE, self.spans.len() - spans_start);
        run.grow(1);
        run.wire_bytes = wire.len;
        run.unescaped = unescaped;
        run.end_at(end, &mut self.runs);
        self.requests_count += 1;
    }

    /// Says where the next argument of a request lies that is put together here instead of decoded: in the bytes
    /// that will be given as the batch's input, below 4 GiB. The name comes first.
    #[inline]
    pub fn add_argument(&mut self, start: usize, len: usize) {
        self.spans.push(Span::new(start, len));
    }

    /// Says that the request is complete whose arguments were [added](Self::add_argument), so many of them;
    /// `input` has its name already. Its [`Request::wire_bytes`] are about what it would take on the wire.
    ///
    /// # Panics
    /// When so many were not added, or none.
    #[inline]
    pub fn end_added(&mut self, arguments: usize, input: &[u8]) {
        let spans = self.spans.as_slice();
        let (first, last) = (spans[spans.len() - arguments], spans[spans.len() - 1]);
        let name = NameKey::at(input, first);
        self.requests_count += 1;
        if let Some(run) = self.runs.last_mut()
            && run.takes(name, arguments)
        {
            run.grow(1);
            run.end = last.line_end();
            return;
        }
        let mut run = RunRange::begin(name, arguments);
        run.grow(1);
        run.end = last.line_end();
        self.runs.push(run);
    }

    /// The runs, places for the arguments of so many short requests, and their probable shape. What
    /// came to be is counted by [`take_room`](Self::take_room).
    #[inline]
    pub(crate) fn room(
        &mut self,
        requests: usize,
    ) -> (&mut Slots<RunRange>, &mut [Span], &mut Shape) {
        (
            &mut self.runs,
            self.spans.room(requests * SHORT_ARGUMENTS_MAX),
            &mut self.shape,
        )
    }

    /// Counts so many requests as added to the runs, and so many arguments as written to the room.
    #[inline]
    pub(crate) fn take_room(&mut self, requests: usize, spans: usize) {
        self.requests_count += requests;
        self.spans.used = self.spans.slots.len().min(self.spans.used + spans);
    }
}

/// The requests of a [`Batch`], run by run.
#[derive(Clone)]
pub struct Runs<'a> {
    runs: std::slice::Iter<'a, RunRange>,
    /// Of the runs that are left, and unused ones behind.
    spans: &'a [Span],
    input: &'a [u8],
    unescaped: &'a [u8],
}

/// Requests that stand one behind the other, with the same name and as many arguments.
#[derive(Clone)]
pub struct Run<'a> {
    /// The key of their name, if it has one.
    pub name: NameKey,
    /// How many arguments each of them has, its name included.
    pub arguments_count: usize,
    /// How many there are.
    pub requests_count: usize,
    /// They themselves.
    pub requests: Requests<'a>,
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    #[inline]
    fn next(&mut self) -> Option<Run<'a>> {
        let run = self.runs.next()?;
        let (requests_count, arguments_count) = (run.requests as usize, run.arguments as usize);
        let spans = self
            .spans
            .split_at_checked(requests_count * arguments_count);
        let (spans, behind) = spans?;
        self.spans = behind;
        Some(Run {
            name: run.name,
            arguments_count,
            requests_count,
            requests: Requests {
                spans,
                arguments_count: arguments_count.max(1),
                bytes: if run.unescaped {
                    self.unescaped
                } else {
                    self.input
                },
                wire_bytes: run.wire_bytes,
            },
        })
    }
}

/// The requests of a [`Run`], in order.
#[derive(Clone)]
pub struct Requests<'a> {
    /// Of those that are left.
    spans: &'a [Span],
    /// Of each; at least one.
    arguments_count: usize,
    bytes: &'a [u8],
    wire_bytes: u32,
}

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Request<'a>> {
        let (spans, behind) = self.spans.split_at_checked(self.arguments_count)?;
        self.spans = behind;
        Some(Request {
            spans,
            bytes: self.bytes,
            wire_bytes: self.wire_bytes,
        })
    }
}

/// One request: a command's name and its arguments, as bytes. Never empty.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    spans: &'a [Span],
    bytes: &'a [u8],
    /// 0 for a short one.
    wire_bytes: u32,
}

impl<'a> Request<'a> {
    /// The command's name as the client wrote it.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.arg(0).unwrap_or_default()
    }

    /// How many arguments there are, the name included.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a request has at least its name"
    )]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The argument at `index`; the name is at 0.
    #[inline]
    pub fn arg(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.bytes))
    }

    /// All arguments in order, beginning with the name.
    #[inline]
    pub fn iter(&self) -> RequestIter<'a> {
        RequestIter {
            spans: self.spans.iter(),
            bytes: self.bytes,
        }
    }

    /// The request that the arguments from `first` on would be by themselves, if there are any.
    pub fn behind(&self, first: usize) -> Option<Self> {
        let spans = self.spans.get(first..).filter(|spans| !spans.is_empty())?;
        Some(Self { spans, ..*self })
    }

    /// How many bytes the request took on the wire.
    #[inline]
    pub fn wire_bytes(&self) -> usize {
        let wire_bytes = match (self.wire_bytes, self.spans) {
            (0, [name, ..]) => {
                let last = self.spans.last().unwrap_or(name);
                last.line_end() - name.start + SHORT_HEAD_BYTES
            }
            (wire_bytes, _) => wire_bytes,
        };
        wire_bytes as usize
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let arguments = self
            .iter()
            .map(|argument| argument.escape_ascii().to_string());
        f.debug_list().entries(arguments).finish()
    }
}

impl<'a> IntoIterator for Request<'a> {
    type Item = &'a [u8];
    type IntoIter = RequestIter<'a>;

    fn into_iter(self) -> RequestIter<'a> {
        self.iter()
    }
}

/// The arguments of a [`Request`].
#[derive(Clone)]
pub struct RequestIter<'a> {
    spans: std::slice::Iter<'a, Span>,
    bytes: &'a [u8],
}

impl<'a> Iterator for RequestIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.spans.next().map(|span| span.of(self.bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl ExactSizeIterator for RequestIter<'_> {}

impl DoubleEndedIterator for RequestIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.spans.next_back().map(|span| span.of(self.bytes))
    }
}

/// A request that owns its bytes: for callers inside the server, for requests kept for later, and
/// for tests.
#[derive(Debug, Clone, Default)]
pub struct OwnedRequest {
    spans: Vec<Span>,
    /// The arguments, one behind the other.
    bytes: Vec<u8>,
    /// How many bytes it would take on the wire.
    wire_bytes: u32,
}

impl OwnedRequest {
    /// A copy of `args`, the name first.
    ///
    /// # Panics
    /// When `args` is empty or longer than 4 GiB in total.
    pub fn new<A: AsRef<[u8]>>(args: &[A]) -> Self {
        let mut request = Self::default();
        request.set(args);
        request
    }

    /// Makes it a copy of `args`, the name first, in the memory that it has.
    ///
    /// # Panics
    /// When `args` is empty or longer than 4 GiB in total.
    pub fn set<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        assert!(!args.is_empty(), "a request has at least its name");
        self.spans.clear();
        self.bytes.clear();
        let mut wire_bytes = header_bytes(args.len());
        for argument in args {
            let argument = argument.as_ref();
            wire_bytes += header_bytes(argument.len()) + argument.len() + b"\r\n".len();
            assert!(
                u32::try_from(wire_bytes).is_ok(),
                "a request is shorter than 4 GiB"
            );
            self.spans.push(Span::new(self.bytes.len(), argument.len()));
            self.bytes.extend_from_slice(argument);
        }
        self.wire_bytes = Span::new(0, wire_bytes).len;
    }

    /// Bytes of memory held, used or not.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// The view that commands take.
    ///
    /// # Panics
    /// When it was never set.
    #[inline]
    pub fn request(&self) -> Request<'_> {
        assert!(!self.spans.is_empty(), "a request has at least its name");
        Request {
            spans: &self.spans,
            bytes: &self.bytes,
            wire_bytes: self.wire_bytes,
        }
    }
}

impl From<Request<'_>> for OwnedRequest {
    fn from(request: Request<'_>) -> Self {
        Self::new(&request.iter().collect::<Vec<_>>())
    }
}

/// Bytes of a count on the wire, its mark and the end of its line.
fn header_bytes(count: usize) -> usize {
    b"$\r\n".len() + digits_count(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_name_at_most() {
        let names = [
            &b"GET"[..],
            b"get",
            b"GET\0",
            b"GET\r",
            b"G",
            b"GETEX",
            b"GETRANG",
            b"\0",
            b"\x03",
        ];
        for one in names {
            for other in names {
                let (key, other_key) = (NameKey::of(one), NameKey::of(other));
                assert_eq!(key == other_key, one == other);
                assert_ne!(key, NameKey::NONE);
            }
            let mut word = [0xff; 8];
            word[..one.len()].copy_from_slice(one);
            let word = u64::from_le_bytes(word);
            let key = NameKey::new(word, NameKey::mask_and_tag(one.len()));
            assert_eq!(key, NameKey::of(one));
        }
        for long in [&b"GETRANGE"[..], b"GET\0\0\0\0\x03", b"SETRANGE2"] {
            assert_eq!(NameKey::of(long), NameKey::NONE);
            assert_eq!(NameKey::mask_and_tag(long.len()), (0, 0));
        }
    }

    #[test]
    fn requests_can_be_put_together() {
        let requests: [&[&[u8]]; 6] = [
            &[b"SET", b"a", b"1"],
            &[b"SET", b"key", b""],
            &[b"SET", b"a", b"1", b"PXAT", b"1000"],
            &[b"GETRANGE", b"a", b"0", b"1"],
            &[b"GETRANGE", b"b", b"0", b"1"],
            &[b"GET", b"a"],
        ];
        let (mut batch, mut input) = (Batch::new(), Vec::new());
        for round in 0..2 {
            batch.clear();
            input.clear();
            for request in requests {
                for argument in request {
                    input.push(b'.');
                    batch.add_argument(input.len(), argument.len());
                    input.extend_from_slice(argument);
                }
                batch.end_added(request.len(), &input);
            }
            assert_eq!(batch.len(), requests.len(), "{round}");
            let found: Vec<Vec<&[u8]>> = batch.iter(&input).map(|it| it.iter().collect()).collect();
            assert!(
                found
                    .iter()
                    .zip(requests)
                    .all(|(found, request)| found == request)
            );
            let runs = batch.runs(&input);
            let runs: Vec<_> = runs.map(|run| (run.name, run.requests_count)).collect();
            let (set, get) = (NameKey::of(b"SET"), NameKey::of(b"GET"));
            let long = (NameKey::NONE, 1);
            assert_eq!(runs, [(set, 2), (set, 1), long, long, (get, 1)]);
            assert!(batch.iter(&input).all(|request| request.wire_bytes() > 8));
        }
    }

    #[test]
    fn an_owned_request_shows_its_arguments() {
        let long = [b'x'; 1000];
        let owned = OwnedRequest::new(&[&b"SET"[..], b"", &long, b"0123456789"]);
        let request = owned.request();
        assert_eq!(request.name(), b"SET");
        assert_eq!(request.len(), 4);
        assert_eq!(request.arg(1), Some(&b""[..]));
        assert_eq!(request.arg(2), Some(&long[..]));
        assert_eq!(request.iter().next_back(), Some(&b"0123456789"[..]));
        assert_eq!(request.arg(4), None);
        let copy = OwnedRequest::from(request);
        assert!(copy.request().iter().eq(request.iter()));
        let args: Vec<&[u8]> = request.iter().collect();
        let mut encoded = Vec::new();
        crate::encode_request(&mut encoded, &args);
        assert_eq!(request.wire_bytes(), encoded.len());
        let mut again = copy;
        again.set(&[b"GET", b"key"]);
        assert!(again.request().iter().eq([&b"GET"[..], b"key"]));
    }
}
