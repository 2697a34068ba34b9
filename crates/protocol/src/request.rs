//! Decoded requests: views of the bytes from which they were decoded.
//!
//! A [`Batch`] is a flat list of argument positions and a list of ranges over it. Requests of a
//! pipeline are mostly similar, so one range is a run of them: consecutive requests that differ
//! only in their arguments. A reader of a batch determines once per run what all its requests have
//! in common.
//!
//! A worker keeps one batch for all its sessions. An inline request with quotes has arguments that
//! differ from their encoding. Only those are copied, to a side buffer of the batch.

use base::number::digits_count;

use crate::short::Shape;

/// Maximum number of argument positions that a batch keeps between two decodings. A request with
/// more frees its memory.
const SPANS_KEPT_MAX: usize = 64 * 1024;
/// Maximum number of runs for which a batch keeps places.
const RUNS_KEPT_MAX: usize = 1024;
/// Maximum number of unescaped bytes that a batch keeps between two decodings.
const UNESCAPED_BYTES_KEPT_MAX: usize = 64 * 1024;

/// Maximum arguments of a request that is decoded by the short way.
pub(crate) const SHORT_ARGUMENTS_MAX: usize = 9;
/// Bytes before a short request's name: `*2 CR LF $3 CR LF`.
pub(crate) const SHORT_HEAD_BYTES: u32 = 8;
/// Maximum number of requests that are decoded by the short way at once.
pub(crate) const SHORT_REQUESTS_MAX: usize = 16;

/// A command's name of up to seven bytes as one word, which no other name has. It contains the
/// name's bytes as they were sent, the first in the lowest byte, and their number in the highest.
/// For a fast lookup in a table of known spellings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NameKey(u64);

impl NameKey {
    /// No key: for longer names, and for requests that were not decoded by the short way.
    pub const NONE: Self = Self(0);
    /// Maximum length of a name that has a key.
    pub const BYTES_MAX: usize = 7;

    /// Returns the key of `name`, or [`NameKey::NONE`] if it has none.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        let bytes = name.iter().rev();
        let word = bytes.fold(0, |word, &byte| word << 8 | u64::from(byte));
        Self::new(word, Self::mask_and_tag(name.len()))
    }

    /// Returns what turns the first word of a name into its key: the mask of the name's bits, and
    /// the bits that encode its length. Both are 0 for a name that has no key.
    #[inline(always)]
    pub(crate) const fn mask_and_tag(name_bytes: usize) -> (u64, u64) {
        if name_bytes == 0 || name_bytes > Self::BYTES_MAX {
            return (0, 0);
        }
        let mask = u64::MAX >> (64 - 8 * name_bytes);
        (mask, (name_bytes as u64) << 56)
    }

    /// Returns the key of a name from its first word.
    #[inline(always)]
    pub(crate) const fn new(word: u64, (mask, tag): (u64, u64)) -> Self {
        Self(word & mask | tag)
    }

    /// Returns the key of the name at this span.
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

    /// Returns the word.
    #[inline]
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }
}

/// The position of an argument in the bytes that contain it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Creates a span. The caller has excluded positions above `u32::MAX`.
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

    /// Returns the span of the same argument after `offset` bytes before it were removed.
    fn moved_front(self, offset: usize) -> Self {
        Self::new(self.start as usize - offset, self.len as usize)
    }

    /// Returns the end of its line.
    #[inline]
    fn line_end(self) -> u32 {
        self.start + self.len + 2
    }

    #[inline]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.start as usize + self.len as usize]
    }
}

/// A growing list whose memory is initialised once, when it grows, so that adding several items
/// costs one check instead of one per item. Invariant: `used <= slots.len()`.
#[derive(Debug, Default)]
pub(crate) struct Slots<T> {
    slots: Vec<T>,
    used: usize,
}

/// Positions of arguments.
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

    /// Returns places for `count` more.
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

    /// Removes all items and keeps memory for at most `kept_max`.
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
    /// Takes the spans from `start` on. They then count from `offset` bytes later in the input.
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

/// Requests of a batch that have the same name and number of arguments: one, or several short ones.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RunRange {
    name: NameKey,
    requests: u32,
    /// Arguments of each request. The spans of all requests follow those of the run before.
    arguments: u32,
    /// End of the last request in the input.
    end: u32,
    /// Length of its encoding; 0 for short requests, whose spans determine it.
    wire_bytes: u32,
    /// Whether the spans point into the batch's side buffer instead of the input.
    unescaped: bool,
}

impl RunRange {
    /// Creates an empty run of short requests.
    #[inline(always)]
    pub(crate) fn begin(name: NameKey, arguments: usize) -> Self {
        Self {
            name,
            arguments: Span::new(0, arguments).len,
            ..Self::default()
        }
    }

    /// Whether a request with this name and number of arguments can be added to it.
    #[inline(always)]
    pub(crate) fn takes(&self, name: NameKey, arguments: usize) -> bool {
        self.name == name && self.arguments as usize == arguments && name != NameKey::NONE
    }

    /// Whether it has requests, and their name has this key.
    #[inline(always)]
    pub(crate) fn is_of(&self, name: NameKey) -> bool {
        self.name == name && self.requests > 0
    }

    /// Counts `requests` more requests.
    #[inline(always)]
    pub(crate) fn grow(&mut self, requests: usize) {
        self.requests += Span::new(0, requests).len;
    }

    /// Adds it to `runs` with the end of its last request, unless it is empty.
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
    /// The probable shape of the next short request.
    shape: Shape,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all requests and keeps a bounded amount of memory for the next ones.
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

    /// Returns the number of decoded requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.requests_count
    }

    /// Whether no request was decoded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory, used or not.
    pub fn held_bytes(&self) -> usize {
        self.spans.held_bytes() + self.runs.held_bytes() + self.unescaped.capacity()
    }

    /// Returns the request at `index`, found by counting from the first. `input` must be the bytes
    /// from which the batch was decoded.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    pub fn request<'a>(&'a self, index: usize, input: &'a [u8]) -> Request<'a> {
        let request = self.iter(input).nth(index);
        request.expect("the batch has so many requests")
    }

    /// Returns all requests in order. `input` must be the bytes from which the batch was decoded.
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = Request<'a>> {
        self.runs(input).flat_map(|run| run.requests)
    }

    /// Returns all requests in order, grouped into runs of consecutive similar requests. `input`
    /// must be the bytes from which the batch was decoded.
    #[inline]
    pub fn runs<'a>(&'a self, input: &'a [u8]) -> Runs<'a> {
        Runs {
            runs: self.runs.as_slice().iter(),
            spans: &self.spans.slots,
            input,
            unescaped: &self.unescaped,
        }
    }

    /// Returns how many bytes of the input are consumed after the request at `index`. A session
    /// that stops in the middle of a batch continues there, after
    /// [`Decoder::reset`](crate::Decoder::reset).
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
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

    /// Makes one request, encoded in `start..end`, of the spans from `spans_start` on, which belong
    /// to no request yet.
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

    /// Adds the position of the next argument of a request that is composed here instead of
    /// decoded: a position in the bytes that will be the batch's input, below 4 GiB. The name comes
    /// first.
    #[inline]
    pub fn add_argument(&mut self, start: usize, len: usize) {
        self.spans.push(Span::new(start, len));
    }

    /// Completes the request whose `arguments` arguments were [added](Self::add_argument). `input`
    /// already contains its name. Its [`Request::wire_bytes`] are about what it would take on the
    /// wire.
    ///
    /// # Panics
    /// If fewer arguments were added, or none.
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

    /// Returns the runs, places for the arguments of `requests` short requests, and their probable
    /// shape. [`take_room`](Self::take_room) then counts what was written.
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

    /// Counts `requests` requests that were added to the runs, and `spans` arguments that were
    /// written to the places.
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
    /// Spans of the remaining runs, and unused ones behind them.
    spans: &'a [Span],
    input: &'a [u8],
    unescaped: &'a [u8],
}

/// Consecutive requests with the same name and number of arguments.
#[derive(Clone)]
pub struct Run<'a> {
    /// The key of their name, if it has one.
    pub name: NameKey,
    /// Number of arguments of each request, including its name.
    pub arguments_count: usize,
    /// Number of requests.
    pub requests_count: usize,
    /// The requests.
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
    /// Spans of the remaining requests.
    spans: &'a [Span],
    /// Arguments of each request; at least one.
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
    /// Length of its encoding; 0 for a short request.
    wire_bytes: u32,
}

impl<'a> Request<'a> {
    /// Returns the command's name as the client wrote it.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.arg(0).unwrap_or_default()
    }

    /// Returns the number of arguments, including the name.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a request has at least its name"
    )]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the argument at `index`; the name is at 0.
    #[inline]
    pub fn arg(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.bytes))
    }

    /// Returns all arguments in order, beginning with the name.
    #[inline]
    pub fn iter(&self) -> RequestIter<'a> {
        RequestIter {
            spans: self.spans.iter(),
            bytes: self.bytes,
        }
    }

    /// Returns the request that consists of the arguments from `first` on, or `None` if there are
    /// none.
    pub fn behind(&self, first: usize) -> Option<Self> {
        let spans = self.spans.get(first..).filter(|spans| !spans.is_empty())?;
        Some(Self { spans, ..*self })
    }

    /// Returns how many bytes the request took on the wire.
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
    /// The arguments, concatenated.
    bytes: Vec<u8>,
    /// Number of bytes that it would take on the wire.
    wire_bytes: u32,
}

impl OwnedRequest {
    /// Creates a copy of `args`, the name first.
    ///
    /// # Panics
    /// If `args` is empty or longer than 4 GiB in total.
    pub fn new<A: AsRef<[u8]>>(args: &[A]) -> Self {
        let mut request = Self::default();
        request.set(args);
        request
    }

    /// Replaces it by a copy of `args`, the name first. Reuses its memory.
    ///
    /// # Panics
    /// If `args` is empty or longer than 4 GiB in total.
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

    /// Returns the bytes of memory, used or not.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// Returns the view that commands take.
    ///
    /// # Panics
    /// If it was never set.
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

/// Returns the bytes of a count on the wire, including its mark and the end of its line.
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
