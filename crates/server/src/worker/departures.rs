//! When the replies of a worker leave while there is a log.
//!
//! ```text
//!   requests ran ── before_flush: write_out ──► in the kernel: replies leave
//!                                     │ always, or of a connection that asked for it
//!                                     ▼
//!                                  held until durable ── log_moved ── Io::release
//! ```
//!
//! Invariants
//!  1. No reply of a write leaves before the write is in the kernel.
//!  2. Where replies wait for the disk they wait for all that was appended when they were gathered, so
//!     reads, too, show nothing that a power cut takes back.
//!  3. While the log cannot be written, replies of writes that it does not keep are held, for a time, and
//!     then replaced by an error that ends the connection: what became of the write is not known. Reads
//!     go on, and show what is in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use commands::{Gate, LogPosition};
use reactor::{ConnectionId, Departure};

use super::sessions::Connected;
use persistence::tail::{Appended, BEFORE_LOG, Tail};

/// So long replies of writes wait for a log that cannot be written.
const GRACE_MS: u64 = 100;

/// See the module.
pub(super) struct Departures {
    pub(super) log: Arc<dyn Tail>,
    appended: Appended,
    /// Behind what others appended for clients of this worker.
    foreign_end: u64,
    /// Connections whose replies wait for the disk though others' do not.
    asking_count: usize,
    /// The number of the flush whose output is being gathered.
    gathered: u64,
    /// What is flushed shows nothing that was appended behind this.
    end: u64,
    is_faulty: bool,
    /// Nothing is appended any more; what was has yet to become durable.
    is_ended: bool,
    /// When something was held because of a fault.
    held_since_ms: Option<u64>,
    /// Connections that wait for room in the log.
    without_room: Vec<ConnectionId>,
    /// Connections that wait until the log is on disk up to a place.
    disk_waits: BTreeSet<(u64, ConnectionId)>,
}

/// What a connection wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wrote {
    /// Behind what it wrote last.
    pub(super) end: u64,
    /// The flush that has the reply.
    flush: u64,
    /// Counted among those that ask to wait for the disk.
    asks: bool,
}

impl Departures {
    pub(super) fn new(log: Arc<dyn Tail>, appended: Appended) -> Self {
        Self {
            log,
            appended,
            foreign_end: 0,
            asking_count: 0,
            gathered: 1,
            end: 0,
            is_faulty: false,
            is_ended: false,
            held_since_ms: None,
            without_room: Vec::new(),
            disk_waits: BTreeSet::new(),
        }
    }

    /// Nothing is appended from now on.
    pub(super) fn end_log(&mut self) {
        self.is_ended = true;
    }

    /// Whether nothing is appended any more.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether nothing is appended any more, and all that was is durable.
    pub(super) fn is_over(&self) -> bool {
        self.is_ended && self.log.durable() >= self.log.tail()
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, connected: &mut Connected) {
        self.note_asking(connected, false);
        if let Some(end) = connected.disk_wait {
            self.forget_wait(connected.id, end);
        }
    }

    /// Requests of a connection ran; before, this thread had appended up to `before`.
    #[inline]
    pub(super) fn requests_ran(&mut self, connected: &mut Connected, before: u64) {
        let end = self.appended.end();
        if end != before {
            self.wrote(connected, end);
        }
        if connected.session.waits_for_disk != connected.wrote.asks {
            self.note_asking(connected, connected.session.waits_for_disk);
        }
    }

    /// Others ran a request for a connection and appended up to `end`; its reply is written now.
    pub(super) fn answered(&mut self, connected: &mut Connected, end: u64) {
        self.foreign_end = self.foreign_end.max(end);
        self.wrote(connected, end);
    }

    fn wrote(&self, connected: &mut Connected, end: u64) {
        connected.wrote.end = end;
        connected.wrote.flush = self.gathered;
    }

    /// Counts a connection among those that ask to wait for the disk, or not.
    pub(super) fn note_asking(&mut self, connected: &mut Connected, asks: bool) {
        match (connected.wrote.asks, asks) {
            (false, true) => self.asking_count += 1,
            (true, false) => self.asking_count -= 1,
            _ => {}
        }
        connected.wrote.asks = asks;
    }

    /// What the output gathered so far has to wait for.
    pub(super) fn before_flush(&mut self) -> Departure {
        self.gathered += 1;
        let appended = self.appended.end().max(self.foreign_end);
        let is_unwritten = self.log.written() < appended && self.log.write_out(appended).is_err();
        let holds_all = self.log.holds_replies();
        if !holds_all && self.asking_count == 0 {
            self.is_faulty = is_unwritten;
            return if is_unwritten {
                Departure::Each
            } else {
                Departure::Now
            };
        }
        self.end = self.log.tail();
        if self.log.durable() >= self.end {
            return Departure::Now;
        }
        self.is_faulty = is_unwritten || self.log.fault().is_some();
        if self.is_faulty {
            return Departure::Each;
        }
        self.log.request_sync(self.end);
        if holds_all {
            Departure::At(self.end)
        } else {
            Departure::Each
        }
    }

    /// What the output of one connection waits for, after [`Departure::Each`].
    pub(super) fn ticket(&mut self, connected: &Connected, now_ms: u64) -> Option<u64> {
        let Wrote { end, flush, asks } = connected.wrote;
        let waits_for_disk = asks || self.log.holds_replies();
        if !self.is_faulty {
            return waits_for_disk.then_some(self.end);
        }
        let kept = if waits_for_disk {
            self.log.durable()
        } else {
            self.log.written()
        };
        if flush + 1 != self.gathered || end <= kept {
            return None;
        }
        self.held_since_ms.get_or_insert(now_ms);
        Some(end)
    }

    /// Hands the kernel what this thread appended. That it cannot is seen when somebody is answered.
    pub(super) fn write_out(&self) {
        let appended = self.appended.end();
        if self.log.written() < appended {
            let _seen_later = self.log.write_out(appended);
        }
    }

    /// The log can be written.
    pub(super) fn end_fault(&mut self) {
        self.held_since_ms = None;
    }

    /// Something is held while the log cannot be written.
    pub(super) fn note_held(&mut self, now_ms: u64) {
        self.held_since_ms.get_or_insert(now_ms);
    }

    /// Whether a connection waits for something that the log does not keep yet.
    pub(super) fn has_to_wait(&self, connected: &Connected) -> bool {
        connected.wrote.end > self.log.durable()
    }

    /// How long replies are still held because of a fault.
    pub(super) fn grace_left_ms(&self, now_ms: u64) -> Option<u64> {
        let since_ms = self.held_since_ms?;
        Some((since_ms + GRACE_MS).saturating_sub(now_ms))
    }

    /// Whether replies have been held for too long; forgets since when.
    pub(super) fn take_end_of_grace(&mut self, now_ms: u64) -> bool {
        let is_over = self.grace_left_ms(now_ms) == Some(0);
        if is_over {
            self.held_since_ms = None;
        }
        is_over
    }

    /// Whether requests may write as far as room is concerned, at the time when the turn began; says so at the
    /// gate.
    #[inline]
    pub(super) fn look_for_room(&self, gate: &Gate, now_ns: u64) -> bool {
        // Without the log they are refused, and need not wait.
        let has_room = self.is_ended || self.log.has_room(now_ns) || self.log.fault().is_some();
        if has_room == gate.is_log_full() {
            gate.set_log_full(!has_room);
            // It may have got room just before it was said that it has none.
            if !has_room && self.log.has_room(now_ns) {
                gate.set_log_full(false);
                return true;
            }
        }
        has_room
    }

    /// Notes that a connection waits for room in the log.
    pub(super) fn wait_for_room(&mut self, id: ConnectionId) {
        self.without_room.push(id);
    }

    /// Those that wait for room.
    pub(super) fn take_without_room(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.without_room)
    }

    /// Whether anybody waits for room.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.without_room.is_empty()
    }

    /// Lets a connection wait until the log is on disk up to `end`.
    pub(super) fn wait_for_disk(&mut self, id: ConnectionId, end: u64) {
        self.disk_waits.insert((end, id));
        self.log.request_sync(end);
    }

    /// Forgets that.
    pub(super) fn forget_wait(&mut self, id: ConnectionId, end: u64) {
        self.disk_waits.remove(&(end, id));
    }

    /// Those that wait for the disk.
    pub(super) fn take_disk_waits(&mut self) -> Vec<ConnectionId> {
        let waits = std::mem::take(&mut self.disk_waits);
        waits.into_iter().map(|(_, id)| id).collect()
    }

    /// A connection that has waited long enough for the disk, which is forgotten.
    pub(super) fn take_on_disk(&mut self) -> Option<ConnectionId> {
        let &(end, id) = self.disk_waits.first()?;
        if end > self.log.durable() {
            return None;
        }
        self.disk_waits.pop_first();
        Some(id)
    }
}

/// The log for a request that runs: what its client wrote, and how much of that is on disk.
pub(crate) struct LogView<'a> {
    departures: &'a Departures,
    /// Up to where the thread had appended before.
    before: u64,
    wrote_end: u64,
}

impl<'a> LogView<'a> {
    /// The view of a connection whose requests are about to run. Looks whether there is room for them.
    #[inline]
    pub(super) fn new(
        departures: &'a Departures,
        gate: &Gate,
        now_ns: u64,
        connected: &Connected,
    ) -> Self {
        departures.look_for_room(gate, now_ns);
        Self {
            departures,
            before: departures.appended.end(),
            wrote_end: connected.wrote.end,
        }
    }

    /// How far the log is, as it concerns the client.
    pub(crate) fn position(&self) -> LogPosition {
        let appended = self.departures.appended.end();
        let wrote = if appended == self.before {
            self.wrote_end
        } else {
            appended
        };
        LogPosition {
            // What was written before the log is kept when the log counts.
            wrote: wrote.max(BEFORE_LOG),
            durable: self.departures.log.durable(),
        }
    }
}
