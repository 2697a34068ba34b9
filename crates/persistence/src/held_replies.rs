//! Which replies of a worker wait for the log, and for how much of it.
//!
//! ```text
//!   requests ran ── before_flush: write_out ──► in the kernel: replies leave
//!                                     │ always, or of a connection that asked for it
//!                                     ▼
//!                                  held until durable ── the log moved ── the worker lets them leave
//! ```
//!
//! This decides; the worker's event loop holds the bytes. It knows connections by an id of the loop's and by what
//! each of them [wrote](Wrote), so that it runs without sockets.
//!
//! Invariants
//!  1. No reply of a write leaves before the write is in the kernel.
//!  2. Where replies wait for the disk they wait for all that was appended when they were gathered. So
//!     reads, too, show nothing that a power cut takes back.
//!  3. While the log cannot be written, replies of writes that it does not keep are held, for a time, and
//!     then replaced by an error that ends the connection: what became of the write is not known. Reads
//!     go on, and show what is in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Gate, LogPosition};

use crate::tail::{Appended, BEFORE_LOG, Tail};

/// So long replies of writes wait for a log that cannot be written.
const GRACE_MS: u64 = 100;

/// See the module.
pub struct HeldReplies<Id> {
    /// The log that replies wait for.
    pub log: Arc<dyn Tail>,
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
    without_room: Vec<Id>,
    /// Connections that wait until the log is on disk up to a place.
    disk_waits: BTreeSet<(u64, Id)>,
}

/// What the output that a worker has gathered waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nothing.
    Now,
    /// All of it, until the log is durable up to here.
    UpTo(u64),
    /// Each connection is asked for ([`HeldReplies::ticket`]).
    Each,
}

/// What a connection wrote.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wrote {
    /// Behind what it wrote last.
    pub end: u64,
    /// The flush that has the reply.
    flush: u64,
    /// Counted among those that ask to wait for the disk.
    asks: bool,
}

impl<Id: Copy + Ord> HeldReplies<Id> {
    /// None is held. Of this log; `appended` is where the worker's own effects end.
    #[must_use]
    pub fn new(log: Arc<dyn Tail>, appended: Appended) -> Self {
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
    pub fn end_log(&mut self) {
        self.is_ended = true;
    }

    /// Whether nothing is appended any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether nothing is appended any more, and all that was is durable.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_ended && self.log.durable() >= self.log.tail()
    }

    /// A connection is gone.
    pub fn forget(&mut self, id: Id, wrote: &mut Wrote, disk_wait: Option<u64>) {
        self.note_asking(wrote, false);
        if let Some(end) = disk_wait {
            self.forget_wait(id, end);
        }
    }

    /// Requests of a connection ran; before, this thread had appended up to `before`. Whether it `asks` for its
    /// replies to wait for the disk.
    #[inline]
    pub fn requests_ran(&mut self, wrote: &mut Wrote, before: u64, asks: bool) {
        let end = self.appended.end();
        if end != before {
            self.note_end(wrote, end);
        }
        if asks != wrote.asks {
            self.note_asking(wrote, asks);
        }
    }

    /// Others ran a request for a connection and appended up to `end`; its reply is written now.
    pub fn answered(&mut self, wrote: &mut Wrote, end: u64) {
        self.foreign_end = self.foreign_end.max(end);
        self.note_end(wrote, end);
    }

    #[inline]
    fn note_end(&self, wrote: &mut Wrote, end: u64) {
        wrote.end = end;
        wrote.flush = self.gathered;
    }

    /// Counts a connection among those that ask to wait for the disk, or not.
    pub fn note_asking(&mut self, wrote: &mut Wrote, asks: bool) {
        match (wrote.asks, asks) {
            (false, true) => self.asking_count += 1,
            (true, false) => self.asking_count -= 1,
            _ => {}
        }
        wrote.asks = asks;
    }

    /// What the output gathered so far has to wait for.
    #[inline]
    pub fn before_flush(&mut self) -> Release {
        self.gathered += 1;
        let appended = self.appended.end().max(self.foreign_end);
        let is_unwritten = self.log.written() < appended && self.log.write_out(appended).is_err();
        let holds_all = self.log.holds_replies();
        if !holds_all && self.asking_count == 0 {
            self.is_faulty = is_unwritten;
            return if is_unwritten {
                Release::Each
            } else {
                Release::Now
            };
        }
        self.end = self.log.tail();
        if self.log.durable() >= self.end {
            return Release::Now;
        }
        self.is_faulty = is_unwritten || self.log.fault().is_some();
        if self.is_faulty {
            return Release::Each;
        }
        self.log.request_sync(self.end);
        if holds_all {
            Release::UpTo(self.end)
        } else {
            Release::Each
        }
    }

    /// Up to where the log has to be durable for the output of one connection to leave, after [`Release::Each`].
    pub fn ticket(&mut self, wrote: &Wrote, now_ms: u64) -> Option<u64> {
        let Wrote { end, flush, asks } = *wrote;
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
    pub fn write_out(&self) {
        let appended = self.appended.end();
        if self.log.written() < appended {
            let _seen_later = self.log.write_out(appended);
        }
    }

    /// The log can be written.
    pub fn end_fault(&mut self) {
        self.held_since_ms = None;
    }

    /// Something is held while the log cannot be written.
    pub fn note_held(&mut self, now_ms: u64) {
        self.held_since_ms.get_or_insert(now_ms);
    }

    /// Whether a connection waits for something that the log does not keep yet.
    #[must_use]
    pub fn has_to_wait(&self, wrote: &Wrote) -> bool {
        wrote.end > self.log.durable()
    }

    /// How long replies are still held because of a fault.
    #[must_use]
    pub fn grace_left_ms(&self, now_ms: u64) -> Option<u64> {
        let since_ms = self.held_since_ms?;
        Some((since_ms + GRACE_MS).saturating_sub(now_ms))
    }

    /// Whether replies have been held for too long; forgets since when.
    pub fn take_end_of_grace(&mut self, now_ms: u64) -> bool {
        let is_over = self.grace_left_ms(now_ms) == Some(0);
        if is_over {
            self.held_since_ms = None;
        }
        is_over
    }

    /// Whether requests may write as far as room is concerned, at the time when the turn began; says so at the
    /// gate.
    #[inline]
    pub fn look_for_room(&self, gate: &Gate, now_ns: u64) -> bool {
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
    pub fn wait_for_room(&mut self, id: Id) {
        self.without_room.push(id);
    }

    /// Those that wait for room.
    pub fn take_without_room(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.without_room)
    }

    /// Whether anybody waits for room.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        !self.without_room.is_empty()
    }

    /// Lets a connection wait until the log is on disk up to `end`.
    pub fn wait_for_disk(&mut self, id: Id, end: u64) {
        self.disk_waits.insert((end, id));
        self.log.request_sync(end);
    }

    /// Forgets that.
    pub fn forget_wait(&mut self, id: Id, end: u64) {
        self.disk_waits.remove(&(end, id));
    }

    /// Those that wait for the disk.
    pub fn take_disk_waits(&mut self) -> Vec<Id> {
        let waits = std::mem::take(&mut self.disk_waits);
        waits.into_iter().map(|(_, id)| id).collect()
    }

    /// A connection that has waited long enough for the disk, which is forgotten.
    pub fn take_on_disk(&mut self) -> Option<Id> {
        let &(end, id) = self.disk_waits.first()?;
        if end > self.log.durable() {
            return None;
        }
        self.disk_waits.pop_first();
        Some(id)
    }
}

/// The log for a request that runs: what its client wrote, and how much of that is on disk.
pub struct LogView<'a> {
    log: &'a dyn Tail,
    appended: &'a Appended,
    /// Up to where the thread had appended before.
    before: u64,
    wrote_end: u64,
}

impl<'a> LogView<'a> {
    /// The view of a connection whose requests are about to run. Looks whether there is room for them.
    #[inline]
    #[must_use]
    pub fn new<Id: Copy + Ord>(
        held: &'a HeldReplies<Id>,
        gate: &Gate,
        now_ns: u64,
        wrote: &Wrote,
    ) -> Self {
        held.look_for_room(gate, now_ns);
        Self {
            log: &*held.log,
            appended: &held.appended,
            before: held.appended.end(),
            wrote_end: wrote.end,
        }
    }

    /// How far the log is, as it concerns the client.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        let appended = self.appended.end();
        let wrote = if appended == self.before {
            self.wrote_end
        } else {
            appended
        };
        LogPosition {
            // What was written before the log is kept when the log counts.
            wrote: wrote.max(BEFORE_LOG),
            durable: self.log.durable(),
            is_kept: self.log.is_kept(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use store::EffectSink;

    use super::*;

    /// A log that the test moves.
    #[derive(Default)]
    struct Moved {
        tail: AtomicU64,
        written: AtomicU64,
        durable: AtomicU64,
        is_always: AtomicBool,
        is_broken: AtomicBool,
    }

    impl Tail for Moved {
        fn tail(&self) -> u64 {
            self.tail.load(Ordering::Relaxed)
        }

        fn written(&self) -> u64 {
            self.written.load(Ordering::Relaxed)
        }

        fn durable(&self) -> u64 {
            self.durable.load(Ordering::Relaxed)
        }

        fn holds_replies(&self) -> bool {
            self.is_always.load(Ordering::Relaxed)
        }

        fn write_out(&self, up_to: u64) -> Result<(), String> {
            if let Some(fault) = self.fault() {
                return Err(fault);
            }
            self.written.store(up_to, Ordering::Relaxed);
            Ok(())
        }

        fn request_sync(&self, _: u64) {}

        fn fault(&self) -> Option<String> {
            let is_broken = self.is_broken.load(Ordering::Relaxed);
            is_broken.then(|| "broken".to_owned())
        }

        fn has_room(&self, _: u64) -> bool {
            true
        }

        fn sink(self: Arc<Self>, _: &Appended) -> Box<dyn EffectSink> {
            unreachable!("nothing is stated here")
        }
    }

    fn held(is_always: bool) -> (Arc<Moved>, Appended, HeldReplies<u32>) {
        let (log, appended) = (Arc::<Moved>::default(), Appended::default());
        log.is_always.store(is_always, Ordering::Relaxed);
        let held = HeldReplies::new(Arc::clone(&log) as Arc<dyn Tail>, appended.clone());
        (log, appended, held)
    }

    /// A connection's requests append up to `end`.
    fn write(
        (log, appended): (&Moved, &Appended),
        held: &mut HeldReplies<u32>,
        end: u64,
        asks: bool,
    ) -> Wrote {
        let mut wrote = Wrote::default();
        let before = appended.end();
        log.tail.store(end, Ordering::Relaxed);
        appended.note(end);
        held.requests_ran(&mut wrote, before, asks);
        wrote
    }

    #[test]
    fn replies_leave_when_the_kernel_has_what_they_acknowledge() {
        let (log, appended, mut held) = held(false);
        let wrote = write((&log, &appended), &mut held, 10, false);
        assert_eq!(held.before_flush(), Release::Now);
        assert_eq!((log.written(), wrote.end), (10, 10));
    }

    #[test]
    fn replies_wait_for_the_disk_where_all_do_or_one_asks() {
        let (log, appended, mut held) = held(true);
        write((&log, &appended), &mut held, 10, false);
        assert_eq!(held.before_flush(), Release::UpTo(10));
        log.durable.store(10, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::Now);
        log.is_always.store(false, Ordering::Relaxed);
        let asking = write((&log, &appended), &mut held, 20, true);
        let other = write((&log, &appended), &mut held, 30, false);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&asking, 0), Some(30));
        assert_eq!(held.ticket(&other, 0), None);
    }

    #[test]
    fn a_fault_holds_what_is_not_kept_for_a_time() {
        let (log, appended, mut held) = held(false);
        log.is_broken.store(true, Ordering::Relaxed);
        let wrote = write((&log, &appended), &mut held, 10, false);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&wrote, 5), Some(10));
        assert_eq!(held.ticket(&Wrote::default(), 5), None, "a reader");
        assert!(held.has_to_wait(&wrote));
        assert!(!held.take_end_of_grace(5 + GRACE_MS - 1));
        assert!(held.take_end_of_grace(5 + GRACE_MS));
        assert_eq!(held.grace_left_ms(1_000), None);
    }

    #[test]
    fn who_waits_for_the_disk_is_given_in_the_order_of_the_log() {
        let (log, _, mut held) = held(false);
        for (id, end) in [(1, 30), (2, 10), (3, 20)] {
            held.wait_for_disk(id, end);
        }
        held.forget_wait(3, 20);
        assert_eq!(held.take_on_disk(), None);
        log.durable.store(30, Ordering::Relaxed);
        assert_eq!(
            [held.take_on_disk(), held.take_on_disk()],
            [Some(2), Some(1)]
        );
        assert_eq!(held.take_on_disk(), None);
    }
}
