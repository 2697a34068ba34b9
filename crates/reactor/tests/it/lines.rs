//! The service under test: answers lines of text.
//!
//! | line | what happens |
//! |---|---|
//! | `quit` | `bye`, then close after flush |
//! | `drop` | close at once |
//! | `pause` | `paused`, then nothing until the loop is woken |
//! | `big N` | N bytes of `x` and a line end |
//! | `lend N` | N bytes of `y`, attached, and a line end |
//! | `blob N` | the N bytes that follow are answered by `blob N` |
//! | `keep N` | the N bytes that follow, and a line end, are answered by `kept N` and their sum |
//! | `hold N` | what the connection gets from this turn on waits for ticket N |
//! | `tell` | every connection of the loop gets `told` aside |
//! | anything else | the line itself |

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::shared_bytes::Attachment;
use reactor::{
    CloseReason, ConnectionId, Departure, FLUSH_BYTES, Filled, Io, OutputArena, PeerInfo, Received,
    Service, Then, Ticket, Verdict,
};

/// State that tests share with the services of all workers of a rig.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    pub(crate) refuse: AtomicBool,
    pub(crate) opened_count: AtomicUsize,
    pub(crate) served_by: Mutex<BTreeMap<usize, usize>>,
    pub(crate) closed: Mutex<Vec<CloseReason>>,
    pub(crate) woken_count: AtomicUsize,
    pub(crate) accept_failures: AtomicUsize,
    /// Maximum bytes of one loop's buffers at the end of a turn.
    pub(crate) buffers_peak: AtomicUsize,
    /// Number of turns.
    pub(crate) turns_count: AtomicUsize,
    /// Number of calls of `received`.
    pub(crate) received_count: AtomicUsize,
    /// Number of flushes, counted after the service has returned what they wait for.
    pub(crate) flushes_count: AtomicUsize,
    /// The ticket that all output waits for; 0 for none.
    pub(crate) ticket: AtomicU64,
    /// Tickets up to this are released when the loop is woken.
    pub(crate) released: AtomicU64,
    /// Whether held output is refused when the loop is woken.
    pub(crate) refuse_held: AtomicBool,
}

/// Limits that a test chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) output_max: usize,
    pub(crate) input_max: usize,
    /// Number of lines served per call, after which the service yields.
    pub(crate) lines_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            output_max: usize::MAX,
            input_max: usize::MAX,
            lines_max: usize::MAX,
        }
    }
}

/// Replies of a turn.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    attachments: Vec<Attachment>,
    attached_bytes: usize,
}

impl Arena {
    fn attach(&mut self, content: Vec<u8>) {
        self.attached_bytes += content.len();
        self.attachments.push(Attachment {
            place: self.bytes.len(),
            content: Box::new(content),
        });
    }
}

impl Deref for Arena {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Arena {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl OutputArena for Arena {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    fn len_with_attachments(&self) -> usize {
        self.bytes.len() + self.attached_bytes
    }

    fn take_attachments(&mut self) -> Vec<Attachment> {
        self.attached_bytes = 0;
        std::mem::take(&mut self.attachments)
    }

    fn clear(&mut self) {
        self.bytes.clear();
    }

    fn shrink_to(&mut self, capacity_bytes: usize) {
        self.bytes.shrink_to(capacity_bytes);
    }
}

/// A service that answers lines. See the module documentation.
pub(crate) struct Lines {
    pub(crate) shared: Arc<Shared>,
    pub(crate) bounds: Bounds,
    pub(crate) worker: usize,
    pub(crate) open: Vec<ConnectionId>,
    pub(crate) paused: Vec<ConnectionId>,
    /// Ids of closed connections, used on purpose.
    pub(crate) stale: Vec<ConnectionId>,
    /// Memory for bytes received into the service, and how much of it is filled.
    pub(crate) apart: BTreeMap<ConnectionId, (Vec<AtomicU8>, usize)>,
    /// The tickets that the output of connections waits for.
    pub(crate) tickets: BTreeMap<ConnectionId, u64>,
    /// Lines with their connections, in the order in which they were served.
    pub(crate) order: Vec<(ConnectionId, Vec<u8>)>,
}

impl Lines {
    pub(crate) fn new(shared: &Arc<Shared>, bounds: Bounds, worker: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            bounds,
            worker,
            open: Vec::new(),
            paused: Vec::new(),
            stale: Vec::new(),
            apart: BTreeMap::new(),
            tickets: BTreeMap::new(),
            order: Vec::new(),
        }
    }

    fn serve(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        line: &[u8],
        output: &mut Arena,
    ) -> Then {
        self.order.push((id, line.to_vec()));
        match line {
            b"quit" => {
                output.extend_from_slice(b"bye\n");
                return Then::CloseAfterFlush;
            }
            b"drop" => return Then::CloseNow,
            b"pause" => {
                output.extend_from_slice(b"paused\n");
                self.paused.push(id);
                return Then::Pause;
            }
            b"tell" => {
                for &other in self.open.iter().filter(|&&other| other != id) {
                    io.write(other, b"told\n");
                }
            }
            line => {
                if let Some(count) = number_after(line, b"big ") {
                    let length = output.len() + count;
                    output.resize(length, b'x');
                } else if let Some(ticket) = number_after(line, b"hold ") {
                    self.tickets.insert(id, u64::try_from(ticket).unwrap());
                    output.extend_from_slice(line);
                } else if let Some(count) = number_after(line, b"lend ") {
                    output.push(b'>');
                    output.attach(vec![b'y'; count]);
                } else {
                    output.extend_from_slice(line);
                }
                output.push(b'\n');
            }
        }
        Then::Continue
    }
}

impl Service for Lines {
    type Output = Arena;

    fn admit(&mut self, _: &PeerInfo) -> Result<(), &'static [u8]> {
        match self.shared.refuse.load(Ordering::SeqCst) {
            true => Err(b"refused\n"),
            false => Ok(()),
        }
    }

    fn accept_failed(&mut self, _: &std::io::Error) {
        self.shared.accept_failures.fetch_add(1, Ordering::SeqCst);
    }

    fn opened(&mut self, _: &mut Io<'_>, id: ConnectionId, _: &PeerInfo) {
        self.open.push(id);
        *self
            .shared
            .served_by
            .lock()
            .unwrap()
            .entry(self.worker)
            .or_default() += 1;
        self.shared.opened_count.fetch_add(1, Ordering::SeqCst);
    }

    fn received(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        input: &[u8],
        output: &mut Arena,
    ) -> Received {
        self.shared.received_count.fetch_add(1, Ordering::SeqCst);
        assert!(self.open.contains(&id), "{id:?} is not open");
        let mut consumed = 0;
        let output_at_start = output.len_with_attachments();
        for _ in 0..self.bounds.lines_max {
            let rest = &input[consumed..];
            let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
                return Received::consumed(consumed);
            };
            let line = &rest[..end];
            if let Some(count) = number_after(line, b"blob ") {
                let needed = end + 1 + count;
                if rest.len() < needed {
                    return Received::consumed(consumed).needing(needed);
                }
                output.extend_from_slice(&rest[..=end]);
                consumed += needed;
                continue;
            }
            if let Some(count) = number_after(line, b"keep ") {
                let came = &rest[end + 1..];
                if came.len() < count {
                    let mut apart: Vec<_> = came.iter().map(|&byte| AtomicU8::new(byte)).collect();
                    apart.resize_with(count, AtomicU8::default);
                    self.apart.insert(id, (apart, came.len()));
                    return Received::consumed(input.len()).then(Then::Receive);
                }
                let needed = end + 1 + count + 1;
                if rest.len() < needed {
                    return Received::consumed(consumed).needing(needed);
                }
                output.extend_from_slice(kept(&came[..count]).as_bytes());
                consumed += needed;
                continue;
            }
            consumed += end + 1;
            let then = self.serve(io, id, line, output);
            if then != Then::Continue {
                return Received::consumed(consumed).then(then);
            }
            if output.len_with_attachments() - output_at_start >= FLUSH_BYTES {
                break;
            }
        }
        Received::consumed(consumed).then(Then::Yield)
    }

    /// Returns at most 5,000 bytes at a time.
    fn room(&mut self, id: ConnectionId) -> Option<&[AtomicU8]> {
        let (apart, filled) = self.apart.get(&id)?;
        let end = apart.len().min(filled + 5_000);
        apart.get(*filled..end)
    }

    fn filled(&mut self, id: ConnectionId, count: usize) -> Filled {
        let Some((apart, filled)) = self.apart.get_mut(&id) else {
            return Filled::Close;
        };
        *filled += count;
        if *filled > self.bounds.input_max {
            return Filled::Close;
        }
        if *filled < apart.len() {
            return Filled::More;
        }
        let bytes: Vec<u8> = apart
            .iter()
            .map(|byte| byte.load(Ordering::SeqCst))
            .collect();
        self.apart.remove(&id);
        let line = kept(&bytes);
        Filled::Input(line.trim_end().as_bytes().to_vec())
    }

    fn closed(&mut self, id: ConnectionId, reason: CloseReason) {
        let before = self.open.len();
        self.open.retain(|&other| other != id);
        assert_eq!(self.open.len() + 1, before, "{id:?} closed twice");
        self.apart.remove(&id);
        self.stale.push(id);
        self.shared.closed.lock().unwrap().push(reason);
    }

    fn woken(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        self.shared.woken_count.fetch_add(1, Ordering::SeqCst);
        if self.shared.stop.load(Ordering::SeqCst) {
            io.stop();
        }
        let released = self.shared.released.load(Ordering::SeqCst);
        io.release(&[released; reactor::WATERMARKS]);
        if self.shared.refuse_held.load(Ordering::SeqCst) {
            for id in io.held() {
                io.refuse_held(id, b"no\n");
            }
        }
        for id in std::mem::take(&mut self.paused) {
            output.extend_from_slice(b"resumed\n");
            io.address(id, output.len());
            io.resume(id);
        }
    }

    fn turn(&mut self, io: &mut Io<'_>, _: &mut Arena) {
        for &id in &self.stale {
            io.write(id, b"not for you\n");
            io.resume(id);
            io.close(id);
        }
        self.shared.turns_count.fetch_add(1, Ordering::SeqCst);
        let bytes = io.buffer_bytes_total();
        self.shared.buffers_peak.fetch_max(bytes, Ordering::SeqCst);
    }

    fn before_flush(&mut self) -> Departure {
        let ticket = self.shared.ticket.load(Ordering::SeqCst);
        self.shared.flushes_count.fetch_add(1, Ordering::SeqCst);
        match ticket {
            0 if self.tickets.is_empty() => Departure::Now,
            0 => Departure::Each,
            ticket => Departure::At(ticket.into()),
        }
    }

    fn ticket(&mut self, id: ConnectionId) -> Option<Ticket> {
        let released = self.shared.released.load(Ordering::SeqCst);
        let ticket = self.tickets.get(&id).copied();
        ticket.filter(|&ticket| ticket > released).map(Ticket::from)
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn output_limit(&mut self, _: ConnectionId, pending_bytes: usize) -> Verdict {
        verdict(pending_bytes <= self.bounds.output_max)
    }

    fn input_limit(&mut self, _: ConnectionId, buffered_bytes: usize) -> Verdict {
        verdict(buffered_bytes <= self.bounds.input_max)
    }
}

/// Returns the answer to `keep`. It is also a line that is answered by itself.
pub(crate) fn kept(bytes: &[u8]) -> String {
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    format!("kept {} {sum}\n", bytes.len())
}

fn verdict(keep: bool) -> Verdict {
    if keep { Verdict::Keep } else { Verdict::Close }
}

fn number_after(line: &[u8], word: &[u8]) -> Option<usize> {
    let digits = line.strip_prefix(word)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
