//! Decides which replies of a worker wait for the log, and for how much of it.
//!
//! ```text
//!   requests ran ── before_flush: write_out ──► in the kernel: replies leave
//!                                     │ always, or of a connection that asked for it
//!                                     ▼
//!                                  held until durable ── the log moved ── the worker lets them leave
//! ```
//!
//! Under a control group replies may also wait for a majority of the copies: until what they show
//! is committed, while the lease of this office is valid. If the lease alone is not trusted
//! (`quorum-reads confirm`), they wait for a round in which the members confirm the office, instead
//! of for a sequence in the log: everything appended before the round is committed by then.
//!
//! This module decides; the worker's event loop holds the bytes. It knows connections by an id of
//! the loop's and by what each of them [wrote](Wrote), so that it runs without sockets.
//!
//! Invariants
//!  1. No reply of a write leaves before the write is in the kernel.
//!  2. Replies that wait for the disk wait for everything that was appended when they were
//!     gathered. So reads, too, show nothing that a power cut can undo.
//!  3. While the log cannot be written, replies of writes that it does not keep are held for a
//!     time, and then replaced by an error that ends the connection, because the fate of the write
//!     is unknown. Reads continue, and show what is in memory. But reads that wait for a majority
//!     are held as long, too, because what they show may be undone.
//!  4. A reply that waits for a majority leaves in the office in which it was gathered, or never:
//!     after that its client gets an error that the outcome is unknown. The client also gets this
//!     error if nothing is committed for long, although the lease is valid.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use engine::{Gate, LogPosition};

use crate::tail::{Appended, BEFORE_LOG, Majority, Tail};

/// How long replies of writes wait for a log that cannot be written.
const GRACE_MS: u64 = 100;

/// See the module.
pub struct HeldReplies<Id> {
    /// The log that replies wait for.
    pub log: Arc<dyn Tail>,
    appended: Appended,
    /// End of what other threads appended for clients of this worker.
    foreign_end: u64,
    /// Number of connections whose replies wait for the disk, and for a majority, although other
    /// replies do not.
    asking_counts: [usize; 2],
    majority: Option<Arc<dyn Majority>>,
    /// The office at the beginning of the turn.
    turn_office: u64,
    /// The office in which the replies held for a majority were gathered; 0 if none are held.
    held_office: u64,
    /// Whether nothing of the office was released at the last look, so that replies may be held:
    /// the lease may have been over, or not begun.
    found_nothing_released: bool,
    /// Progress of what is held for a majority of that office.
    majority_wait: MajorityWait,
    /// Number of the flush whose output is being gathered.
    gathered: u64,
    /// Whether a reply in the output being gathered shows no data.
    some_show_nothing: bool,
    /// Sequence at the flush: its output shows nothing that was appended behind this.
    end: u64,
    /// Round of members for which the flushed output waits; 0 for none.
    round: u64,
    /// The newest round for which any reply waited.
    last_round: u64,
    /// The newest of the rounds below that is over.
    disk_round_over: u64,
    /// Rounds of replies that wait for the disk, too, with the sequence that must be durable: both
    /// ascend.
    disk_rounds: VecDeque<(u64, u64)>,
    is_faulty: bool,
    /// Whether nothing is appended any more. Earlier frames may still have to become durable.
    is_ended: bool,
    /// When a reply was first held because of a fault.
    held_since_ms: Option<u64>,
    /// Connections that wait for room in the log.
    without_room: Vec<Id>,
    /// Connections that wait until the log is on disk up to a sequence.
    disk_waits: BTreeSet<(u64, Id)>,
}

/// What replies wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Whether replies wait until what they show is on disk.
    pub disk: bool,
    /// Whether replies wait until it is on a majority of the copies.
    pub majority: bool,
}

impl Waits {
    /// Returns the waits of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            disk: self.disk || other.disk,
            majority: self.majority || other.majority,
        }
    }

    fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// A wait until one of the watermarks of [`HeldReplies::released`] reaches a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Index of the watermark.
    pub watermark: u8,
    /// The value to reach.
    pub at: u64,
}

impl Ticket {
    /// Returns the ticket for a sequence in the log, or for a round of members if there is one.
    fn of(waits: Waits, end: u64, round: u64) -> Self {
        let (watermark, at) = match (waits.disk, waits.majority, round) {
            (_, false, _) => (0, end),
            (false, true, 0) => (1, end),
            (true, true, 0) => (2, end),
            (false, true, round) => (3, round),
            (true, true, round) => (4, round),
        };
        Self { watermark, at }
    }
}

/// What the output that a worker has gathered waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nothing.
    Now,
    /// All of it waits for this ticket.
    UpTo(Ticket),
    /// The caller asks for each connection ([`HeldReplies::ticket`]).
    Each,
}

/// The last writes and replies of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wrote {
    /// End of its last write in the log.
    pub end: u64,
    /// The flush with the reply of that write.
    flush: u64,
    /// The last flush with a reply that may show data, and the last one with a reply that shows
    /// none.
    showed: u64,
    showed_nothing: u64,
    /// The waits for which the connection is counted.
    asks: Waits,
}

/// How long replies have waited for a majority without progress.
#[derive(Debug, Default)]
struct MajorityWait {
    /// The highest sequence for which they wait.
    end: u64,
    /// The committed sequence at the last look that found replies waiting, and since when it has
    /// not risen.
    stuck: Option<(u64, u64)>,
    /// Whether that is too long ago.
    has_stalled: bool,
}

impl MajorityWait {
    /// Notes that everything below `up_to` is committed now.
    fn look(&mut self, up_to: u64, now_ms: u64, patience_ms: u64) {
        let waits = up_to < self.end;
        let before = self.stuck.filter(|(known, _)| waits && *known == up_to);
        self.stuck = before.or_else(|| waits.then_some((up_to, now_ms)));
        let is_long = |(_, since_ms)| now_ms.saturating_sub(since_ms) >= patience_ms;
        self.has_stalled = self.stuck.is_some_and(is_long);
    }
}

impl<Id: Copy + Ord> HeldReplies<Id> {
    /// Returns a state without held replies, for `log`; `appended` is where the worker's own
    /// effects end.
    #[must_use]
    pub fn new(log: Arc<dyn Tail>, appended: Appended) -> Self {
        Self {
            log,
            appended,
            foreign_end: 0,
            asking_counts: [0; 2],
            majority: None,
            turn_office: 0,
            held_office: 0,
            found_nothing_released: false,
            majority_wait: MajorityWait::default(),
            gathered: 1,
            some_show_nothing: false,
            end: 0,
            round: 0,
            last_round: 0,
            disk_round_over: 0,
            disk_rounds: VecDeque::new(),
            is_faulty: false,
            is_ended: false,
            held_since_ms: None,
            without_room: Vec::new(),
            disk_waits: BTreeSet::new(),
        }
    }

    /// Lets replies wait for a majority, too.
    #[must_use]
    pub fn with_majority(self, majority: Option<Arc<dyn Majority>>) -> Self {
        Self { majority, ..self }
    }

    /// Begins a turn.
    #[inline]
    pub fn begin_turn(&mut self) {
        if let Some(majority) = &self.majority {
            self.turn_office = majority.office();
        }
    }

    /// Whether this node was in an office when the turn began: then replies of reads already wait
    /// for a majority.
    #[must_use]
    pub fn is_in_office(&self) -> bool {
        self.turn_office > 0
    }

    /// Declares that nothing is appended from now on.
    pub fn end_log(&mut self) {
        self.is_ended = true;
    }

    /// Whether nothing is appended any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether nothing is appended any more, and everything appended is durable.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_ended && self.log.durable() >= self.log.tail()
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, id: Id, wrote: &mut Wrote, disk_wait: Option<u64>) {
        self.note_asking(wrote, Waits::default());
        if let Some(end) = disk_wait {
            self.forget_wait(id, end);
        }
    }

    /// Notes that requests of a connection ran, before which this thread had appended up to
    /// `before`. `asks` is what the connection wants its replies to wait for.
    #[inline]
    pub fn requests_ran(&mut self, wrote: &mut Wrote, before: u64, asks: Waits) {
        let end = self.appended.end();
        if end != before {
            self.note_end(wrote, end);
        }
        if asks != wrote.asks {
            self.note_asking(wrote, asks);
        }
    }

    /// Whether the caller must report, for each request, whether its reply shows data.
    #[inline]
    #[must_use]
    pub fn tells_what_is_shown(&self) -> bool {
        self.majority.is_some()
    }

    /// Notes that requests of a connection ran, whose replies may show data, or certainly show
    /// none. The latter do not wait for a majority, so that a server without a majority still
    /// answers its monitoring.
    pub fn note_shown(&mut self, wrote: &mut Wrote, may_show_data: bool) {
        if may_show_data {
            wrote.showed = self.gathered;
        } else {
            wrote.showed_nothing = self.gathered;
            self.some_show_nothing = true;
        }
    }

    /// Notes that another thread ran a request for a connection and appended up to `end`; its reply
    /// is written now.
    pub fn answered(&mut self, wrote: &mut Wrote, end: u64) {
        self.foreign_end = self.foreign_end.max(end);
        self.note_end(wrote, end);
        wrote.showed = self.gathered;
    }

    #[inline]
    fn note_end(&self, wrote: &mut Wrote, end: u64) {
        wrote.end = end;
        wrote.flush = self.gathered;
    }

    /// Counts a connection among those that ask for certain waits, or no longer.
    pub fn note_asking(&mut self, wrote: &mut Wrote, asks: Waits) {
        let pairs = [
            (wrote.asks.disk, asks.disk),
            (wrote.asks.majority, asks.majority),
        ];
        for (count, pair) in self.asking_counts.iter_mut().zip(pairs) {
            match pair {
                (false, true) => *count += 1,
                (true, false) => *count -= 1,
                _ => {}
            }
        }
        wrote.asks = asks;
    }

    /// Returns what all replies wait for.
    #[inline]
    fn waits_of_all(&self) -> Waits {
        Waits {
            disk: self.log.holds_replies(),
            majority: self.majority.as_ref().is_some_and(|it| it.holds_replies()),
        }
    }

    /// Notes the office in which replies are gathered, and returns whether there is one. Outside of
    /// an office no reply waits for a majority.
    fn note_office(&mut self) -> bool {
        let now = self.majority.as_ref().map_or(0, |it| it.office());
        let office = if self.turn_office > 0 {
            self.turn_office
        } else {
            now
        };
        if office > 0 && office != self.held_office {
            self.held_office = office;
            self.majority_wait = MajorityWait::default();
        }
        office > 0
    }

    /// Returns the sequences up to which replies may leave that wait for the disk, for a majority,
    /// and for both; then the rounds up to which replies may leave that wait for a round, and for a
    /// round and the disk.
    #[must_use]
    pub fn released(&mut self) -> [u64; 5] {
        let durable = self.log.durable();
        let of_majority = match &self.majority {
            Some(majority) if majority.office() == self.held_office => {
                let up_to = majority.released(&*self.log);
                self.found_nothing_released |= up_to == 0;
                up_to
            }
            _ => 0,
        };
        let [round, disk_round] = self.rounds_over(durable, of_majority > 0);
        [
            durable,
            of_majority,
            durable.min(of_majority),
            round,
            disk_round,
        ]
    }

    /// Returns the rounds up to which replies may leave.
    fn rounds_over(&mut self, durable: u64, may_leave: bool) -> [u64; 2] {
        let round = match &self.majority {
            Some(majority) if self.last_round > 0 && may_leave => majority.round_over(&*self.log),
            _ => 0,
        };
        let is_over = |(waited, end): &mut (u64, u64)| *waited <= round && *end <= durable;
        while let Some((waited, _)) = self.disk_rounds.pop_front_if(is_over) {
            self.disk_round_over = waited;
        }
        // A round without waiting replies is over together with those before it.
        let disk_round = match self.disk_rounds.front() {
            None => round,
            Some(_) => self.disk_round_over.min(round),
        };
        [round, disk_round]
    }

    /// Returns the ticket of `waits` for a sequence, or for the round of this flush.
    fn ticket_of(&mut self, waits: Waits, end: u64) -> Ticket {
        if waits.majority {
            self.majority_wait.end = end.max(self.majority_wait.end);
        }
        let ticket = Ticket::of(waits, end, self.round);
        if ticket.watermark == 4 {
            match self.disk_rounds.back_mut() {
                Some((round, known)) if *round == self.round => *known = end.max(*known),
                _ => self.disk_rounds.push_back((self.round, end)),
            }
        }
        ticket
    }

    /// Whether the replies held for a majority belong to an office that is over: they never leave.
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        let office = self.majority.as_ref().map_or(0, |it| it.office());
        self.held_office > 0 && office != self.held_office
    }

    /// Forgets that replies are held for a majority.
    pub fn forget_office(&mut self) {
        self.held_office = 0;
    }

    /// Whether the replies held for a majority cannot leave because the lease of this office is
    /// over, or nothing has been committed for long.
    #[must_use]
    pub fn is_lapsed(&self) -> bool {
        let is_over = |it: &Arc<dyn Majority>| it.is_lapsed() || self.majority_wait.has_stalled;
        self.held_office > 0 && self.majority.as_ref().is_some_and(is_over)
    }

    /// Checks whether more of the log is committed than before, if replies wait for that. Called
    /// once per turn.
    pub fn look_at_progress(&mut self, now_ms: u64) {
        let majority = self.majority.as_ref().filter(|_| self.held_office > 0);
        let Some(majority) = majority else { return };
        let (up_to, patience_ms) = (majority.released(&*self.log), majority.patience_ms());
        self.majority_wait.look(up_to, now_ms, patience_ms);
    }

    /// Whether nothing was released at the last look, as without a lease, and resets that. A new
    /// lease causes no move of the log, so the caller then looks again.
    pub fn take_nothing_released(&mut self) -> bool {
        std::mem::take(&mut self.found_nothing_released)
    }

    /// Returns what the output gathered so far has to wait for.
    #[inline]
    pub fn before_flush(&mut self) -> Release {
        self.gathered += 1;
        let some_show_nothing = std::mem::take(&mut self.some_show_nothing);
        let appended = self.appended.end().max(self.foreign_end);
        let is_unwritten = self.log.written() < appended && self.log.write_out(appended).is_err();
        let all = self.waits_of_all();
        if all.is_nothing() && self.asking_counts == [0; 2] {
            self.is_faulty = is_unwritten;
            return if is_unwritten {
                Release::Each
            } else {
                Release::Now
            };
        }
        self.wait_for(all, is_unwritten, some_show_nothing)
    }

    /// See [`HeldReplies::before_flush`], if some replies wait.
    fn wait_for(&mut self, mut all: Waits, is_unwritten: bool, some_show_nothing: bool) -> Release {
        let [disk, majority] = self.asking_counts.map(|count| count > 0);
        let mut most = all.and(Waits { disk, majority });
        if most.majority {
            let is_in_office = self.note_office();
            all.majority &= is_in_office;
            most.majority &= is_in_office;
        }
        self.end = self.log.tail();
        self.round = 0;
        if let Some(majority) = self.majority.as_ref().filter(|it| it.confirms())
            && most.majority
        {
            // After the log's end was read: everything below it is before the round.
            self.round = majority.next_round(&*self.log);
            self.last_round = self.round;
        }
        let ticket = self.ticket_of(most, self.end);
        if !most.is_nothing() && self.is_released(ticket) {
            return Release::Now;
        }
        self.is_faulty = is_unwritten || self.log.fault().is_some();
        if self.is_faulty {
            return Release::Each;
        }
        if most.is_nothing() {
            return Release::Now;
        }
        if most.disk {
            self.log.request_sync(self.end);
        }
        if most == all && !(some_show_nothing && all.majority) {
            Release::UpTo(ticket)
        } else {
            Release::Each
        }
    }

    fn is_released(&mut self, ticket: Ticket) -> bool {
        let mark = self.released().get(usize::from(ticket.watermark)).copied();
        mark.is_some_and(|mark| mark >= ticket.at)
    }

    /// Returns what the output of one connection waits for, after [`Release::Each`].
    pub fn ticket(&mut self, wrote: &Wrote, now_ms: u64) -> Option<Ticket> {
        let Wrote {
            end, flush, asks, ..
        } = *wrote;
        let mut waits = asks.and(self.waits_of_all());
        let shows_nothing =
            wrote.showed_nothing + 1 == self.gathered && wrote.showed != wrote.showed_nothing;
        waits.majority &= self.held_office > 0 && !shows_nothing;
        if !self.is_faulty {
            let ticket = self.ticket_of(waits, self.end);
            return (!waits.is_nothing() && !self.is_released(ticket)).then_some(ticket);
        }
        let has_written = flush + 1 == self.gathered;
        if waits.majority {
            // A failing disk does not make a read more certain, and no other client's write either.
            waits.disk &= has_written;
            let ticket = self.ticket_of(waits, self.end);
            if self.is_released(ticket) {
                return None;
            }
            self.held_since_ms.get_or_insert(now_ms);
            return Some(ticket);
        }
        let is_kept = if waits.is_nothing() {
            end <= self.log.written()
        } else {
            let ticket = self.ticket_of(waits, end);
            self.is_released(ticket)
        };
        if !has_written || is_kept {
            return None;
        }
        self.held_since_ms.get_or_insert(now_ms);
        Some(self.ticket_of(waits, end))
    }

    /// Passes this thread's appended frames to the kernel. A failure is noticed when a client is
    /// answered.
    pub fn write_out(&self) {
        let appended = self.appended.end();
        if self.log.written() < appended {
            let _seen_later = self.log.write_out(appended);
        }
    }

    /// Passes the frames of other threads to the kernel, too, if replies may wait for them: those
    /// that wait for a majority wait for the whole log. Each appending thread does this itself, but
    /// a late one must not delay others beyond this call.
    pub fn write_out_rest(&self) {
        let tail = self.log.tail();
        if self.held_office > 0 && self.log.written() < tail {
            let _seen_later = self.log.write_out(tail);
        }
    }

    /// Notes that the log can be written again.
    pub fn end_fault(&mut self) {
        self.held_since_ms = None;
    }

    /// Notes that a reply is held while the log cannot be written.
    pub fn note_held(&mut self, now_ms: u64) {
        self.held_since_ms.get_or_insert(now_ms);
    }

    /// Whether a connection waits for something that the log does not keep yet, or for a majority.
    #[must_use]
    pub fn has_to_wait(&self, wrote: &Wrote) -> bool {
        let waits = || wrote.asks.and(self.waits_of_all());
        wrote.end > self.log.durable() || self.held_office > 0 && waits().majority
    }

    /// Returns how long replies are still held because of a fault.
    #[must_use]
    pub fn grace_left_ms(&self, now_ms: u64) -> Option<u64> {
        let since_ms = self.held_since_ms?;
        Some((since_ms + GRACE_MS).saturating_sub(now_ms))
    }

    /// Whether replies have been held for too long; if so, resets the start of that time.
    pub fn take_end_of_grace(&mut self, now_ms: u64) -> bool {
        let is_over = self.grace_left_ms(now_ms) == Some(0);
        if is_over {
            self.held_since_ms = None;
        }
        is_over
    }

    /// Whether the log has room for writes, at the time when the turn began; sets the gate
    /// accordingly.
    #[inline]
    pub fn look_for_room(&self, gate: &Gate, now_ns: u64) -> bool {
        // Without the log they are refused, and need not wait.
        let has_room = self.is_ended || self.log.has_room(now_ns) || self.log.fault().is_some();
        if has_room == gate.is_log_full() {
            gate.set_log_full(!has_room);
            // Room may have become free just before the gate was closed.
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

    /// Takes the connections that wait for room.
    pub fn take_without_room(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.without_room)
    }

    /// Whether any connection waits for room.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        !self.without_room.is_empty()
    }

    /// Lets a connection wait until the log is on disk up to `end`.
    pub fn wait_for_disk(&mut self, id: Id, end: u64) {
        self.disk_waits.insert((end, id));
        self.log.request_sync(end);
    }

    /// Forgets that wait.
    pub fn forget_wait(&mut self, id: Id, end: u64) {
        self.disk_waits.remove(&(end, id));
    }

    /// Takes the connections that wait for the disk.
    pub fn take_disk_waits(&mut self) -> Vec<Id> {
        let waits = std::mem::take(&mut self.disk_waits);
        waits.into_iter().map(|(_, id)| id).collect()
    }

    /// Takes a connection whose wait for the disk is over.
    pub fn take_on_disk(&mut self) -> Option<Id> {
        let &(end, id) = self.disk_waits.first()?;
        if end > self.log.durable() {
            return None;
        }
        self.disk_waits.pop_first();
        Some(id)
    }
}

/// The log as seen by a running request: what its client wrote, and how much of that is on disk.
pub struct LogView<'a> {
    log: &'a dyn Tail,
    appended: &'a Appended,
    /// Sequence up to which the thread had appended before.
    before: u64,
    wrote_end: u64,
}

impl<'a> LogView<'a> {
    /// Returns the view of a connection whose requests are about to run. Checks whether there is
    /// room for them.
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

    /// Returns the state of the log as far as it concerns the client.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        let appended = self.appended.end();
        let wrote = if appended == self.before {
            self.wrote_end
        } else {
            appended
        };
        LogPosition {
            // Writes from before the log are kept once the log counts.
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

    /// A log that the test controls.
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

    /// Lets a connection's requests append up to `end`.
    fn write(
        (log, appended): (&Moved, &Appended),
        held: &mut HeldReplies<u32>,
        end: u64,
        disk: bool,
    ) -> Wrote {
        let mut wrote = Wrote::default();
        let before = appended.end();
        log.tail.store(end, Ordering::Relaxed);
        appended.note(end);
        let asks = Waits {
            disk,
            ..Waits::default()
        };
        held.requests_ran(&mut wrote, before, asks);
        wrote
    }

    fn on_disk(at: u64) -> Ticket {
        Ticket { watermark: 0, at }
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
        assert_eq!(held.before_flush(), Release::UpTo(on_disk(10)));
        log.durable.store(10, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::Now);
        log.is_always.store(false, Ordering::Relaxed);
        let asking = write((&log, &appended), &mut held, 20, true);
        let other = write((&log, &appended), &mut held, 30, false);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&asking, 0), Some(on_disk(30)));
        assert_eq!(held.ticket(&other, 0), None);
    }

    #[test]
    fn a_fault_holds_what_is_not_kept_for_a_time() {
        let (log, appended, mut held) = held(false);
        log.is_broken.store(true, Ordering::Relaxed);
        let wrote = write((&log, &appended), &mut held, 10, false);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&wrote, 5), Some(on_disk(10)));
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

    /// A majority that the test controls.
    #[derive(Default)]
    struct Committed {
        office: AtomicU64,
        up_to: AtomicU64,
        is_for_all: AtomicBool,
        is_lapsed: AtomicBool,
        patience_ms: AtomicU64,
        confirms: AtomicBool,
        /// Number of begun rounds, and the newest that is over.
        begun: AtomicU64,
        over: AtomicU64,
    }

    impl Majority for Committed {
        fn office(&self) -> u64 {
            self.office.load(Ordering::Relaxed)
        }

        fn holds_replies(&self) -> bool {
            self.is_for_all.load(Ordering::Relaxed)
        }

        fn released(&self, _: &dyn Tail) -> u64 {
            match self.is_lapsed() {
                true => 0,
                false => self.up_to.load(Ordering::Relaxed),
            }
        }

        fn is_lapsed(&self) -> bool {
            self.is_lapsed.load(Ordering::Relaxed)
        }

        fn patience_ms(&self) -> u64 {
            self.patience_ms.load(Ordering::Relaxed)
        }

        fn confirms(&self) -> bool {
            self.confirms.load(Ordering::Relaxed)
        }

        fn next_round(&self, _: &dyn Tail) -> u64 {
            self.begun.fetch_add(1, Ordering::Relaxed) + 1
        }

        fn round_over(&self, _: &dyn Tail) -> u64 {
            self.over.load(Ordering::Relaxed)
        }
    }

    /// Returns the state of a node in office in term 3.
    fn in_office() -> (Arc<Committed>, Arc<Moved>, Appended, HeldReplies<u32>) {
        let (log, appended, held) = held(false);
        let majority = Arc::<Committed>::default();
        majority.office.store(3, Ordering::Relaxed);
        let held = held.with_majority(Some(Arc::clone(&majority) as Arc<dyn Majority>));
        (majority, log, appended, held)
    }

    fn by_majority(at: u64) -> Ticket {
        Ticket { watermark: 1, at }
    }

    #[test]
    fn replies_wait_for_a_majority_while_the_lease_stands() {
        let (majority, log, appended, mut held) = in_office();
        majority.is_for_all.store(true, Ordering::Relaxed);
        held.begin_turn();
        write((&log, &appended), &mut held, 10, false);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(10)));
        majority.up_to.store(10, Ordering::Relaxed);
        assert_eq!(held.released(), [0, 10, 0, 0, 0]);
        assert_eq!(held.before_flush(), Release::Now);
        majority.is_lapsed.store(true, Ordering::Relaxed);
        assert_eq!(held.released()[1], 0);
        assert!(held.is_lapsed() && !held.is_deposed());
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(10)));
    }

    #[test]
    fn what_is_to_be_confirmed_waits_for_a_round_of_its_own() {
        let (majority, log, appended, mut held) = in_office();
        let set = |flag: &AtomicBool, on| flag.store(on, Ordering::Relaxed);
        set(&majority.is_for_all, true);
        set(&majority.confirms, true);
        majority.up_to.store(10, Ordering::Relaxed);
        held.begin_turn();
        write((&log, &appended), &mut held, 10, false);
        // Everything is committed, as far as known before.
        let in_round = |round| Ticket {
            watermark: 3,
            at: round,
        };
        assert_eq!(held.before_flush(), Release::UpTo(in_round(1)));
        assert_eq!(held.before_flush(), Release::UpTo(in_round(2)));
        majority.over.store(1, Ordering::Relaxed);
        assert_eq!(held.released(), [0, 10, 0, 1, 1]);
        set(&majority.is_lapsed, true);
        assert_eq!(held.released(), [0; 5], "without a lease none leaves");
        set(&majority.is_lapsed, false);
        // A reply that must also be on disk waits for that after its round.
        let asking = write((&log, &appended), &mut held, 20, true);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(
            held.ticket(&asking, 0),
            Some(Ticket {
                watermark: 4,
                at: 3
            })
        );
        majority.over.store(3, Ordering::Relaxed);
        assert_eq!(held.released()[3..], [3, 0]);
        log.durable.store(20, Ordering::Relaxed);
        assert_eq!(held.released()[3..], [3, 3]);
        // Such replies leave even if rounds are no longer confirmed.
        set(&majority.confirms, false);
        assert_eq!(held.released()[3], 3);
        majority.up_to.store(20, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::Now);
    }

    /// A failing disk does not make anything certain: what a read shows may be undone with the log.
    #[test]
    fn a_fault_lets_no_read_go_that_waits_for_a_majority() {
        let (majority, log, appended, mut held) = in_office();
        majority.is_for_all.store(true, Ordering::Relaxed);
        majority.up_to.store(5, Ordering::Relaxed);
        held.begin_turn();
        let writer = write((&log, &appended), &mut held, 10, false);
        log.is_broken.store(true, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::Each);
        let reader = Wrote::default();
        assert_eq!(held.ticket(&writer, 5), Some(by_majority(10)));
        assert_eq!(held.ticket(&reader, 5), Some(by_majority(10)));
        assert!(held.has_to_wait(&reader), "nor later");
        // The reader gets its error in time, like the writer.
        assert_eq!(held.grace_left_ms(5), Some(GRACE_MS));
        majority.is_lapsed.store(true, Ordering::Relaxed);
        majority.up_to.store(10, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::Each);
        let without_lease = held.ticket(&reader, 5);
        assert_eq!(without_lease, Some(by_majority(10)));
        majority.is_lapsed.store(false, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::Now);
        // A reader that waits for no majority sees what is in memory.
        majority.is_for_all.store(false, Ordering::Relaxed);
        let _other = write((&log, &appended), &mut held, 20, true);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&reader, 5), None);
        assert!(!held.has_to_wait(&reader));
    }

    /// The lease is valid while the group hears this node, whatever happened to its copies.
    #[test]
    fn what_is_not_committed_for_long_is_given_up() {
        let (majority, log, appended, mut held) = in_office();
        majority.is_for_all.store(true, Ordering::Relaxed);
        majority.patience_ms.store(1_000, Ordering::Relaxed);
        let up_to = |end| majority.up_to.store(end, Ordering::Relaxed);
        held.begin_turn();
        write((&log, &appended), &mut held, 10, false);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(10)));
        let mut is_lapsed_at = |now_ms| {
            held.look_at_progress(now_ms);
            held.is_lapsed()
        };
        assert!(!is_lapsed_at(50) && !is_lapsed_at(1_049));
        up_to(7);
        assert!(
            !is_lapsed_at(1_100) && !is_lapsed_at(2_099),
            "some of it is"
        );
        assert!(is_lapsed_at(2_100));
        up_to(10);
        assert!(!is_lapsed_at(2_200) && !is_lapsed_at(9_000), "all of it is");
        write((&log, &appended), &mut held, 20, false);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(20)));
        held.look_at_progress(9_100);
        held.look_at_progress(10_099);
        assert!(!held.is_lapsed());
        held.look_at_progress(10_100);
        assert!(held.is_lapsed());
    }

    #[test]
    fn what_shows_no_data_waits_for_no_majority() {
        let (majority, log, appended, mut held) = in_office();
        majority.is_for_all.store(true, Ordering::Relaxed);
        held.begin_turn();
        let mut writer = write((&log, &appended), &mut held, 10, false);
        held.note_shown(&mut writer, true);
        let mut watcher = Wrote::default();
        held.note_shown(&mut watcher, false);
        let mut both = Wrote::default();
        held.note_shown(&mut both, true);
        held.note_shown(&mut both, false);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&writer, 0), Some(by_majority(10)));
        assert_eq!(held.ticket(&watcher, 0), None);
        assert_eq!(held.ticket(&both, 0), Some(by_majority(10)));
        held.note_shown(&mut watcher, true);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(10)));
    }

    #[test]
    fn what_others_appended_holds_nobody_up_for_long() {
        let (majority, log, appended, mut held) = in_office();
        majority.is_for_all.store(true, Ordering::Relaxed);
        held.begin_turn();
        write((&log, &appended), &mut held, 10, false);
        // Another thread appends, which answers no client.
        log.tail.store(30, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(30)));
        assert_eq!(log.written(), 10);
        held.write_out_rest();
        assert_eq!(log.written(), 30);
    }

    /// An idle server appends nothing, so no move of the log would announce the new lease.
    #[test]
    fn what_was_held_without_a_lease_is_looked_at_again() {
        let (majority, log, appended, mut held) = in_office();
        majority.is_for_all.store(true, Ordering::Relaxed);
        majority.up_to.store(10, Ordering::Relaxed);
        majority.is_lapsed.store(true, Ordering::Relaxed);
        held.begin_turn();
        write((&log, &appended), &mut held, 10, false);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(10)));
        majority.is_lapsed.store(false, Ordering::Relaxed);
        assert!(held.take_nothing_released());
        assert_eq!(held.released()[1], 10);
        assert!(!held.take_nothing_released());
    }

    /// The same node may be promoted again, with another log at the same sequences.
    #[test]
    fn what_was_gathered_in_another_office_never_leaves() {
        let (majority, log, appended, mut held) = in_office();
        majority.is_for_all.store(true, Ordering::Relaxed);
        held.begin_turn();
        write((&log, &appended), &mut held, 10, false);
        // The office ends between the request and the flush.
        majority.office.store(0, Ordering::Relaxed);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(10)));
        assert!(held.is_deposed());
        majority.office.store(5, Ordering::Relaxed);
        majority.up_to.store(99, Ordering::Relaxed);
        assert!(held.is_deposed());
        assert_eq!(held.released(), [0; 5]);
        held.forget_office();
        assert!(!held.is_deposed());
        held.begin_turn();
        write((&log, &appended), &mut held, 200, false);
        assert_eq!(held.before_flush(), Release::UpTo(by_majority(200)));
        assert_eq!(held.released()[1], 99);
    }

    #[test]
    fn who_asks_for_a_majority_waits_and_nobody_else() {
        let (majority, log, appended, mut held) = in_office();
        held.begin_turn();
        let mut asking = write((&log, &appended), &mut held, 10, false);
        let majority_and = |disk| Waits {
            disk,
            majority: true,
        };
        held.note_asking(&mut asking, majority_and(false));
        let other = write((&log, &appended), &mut held, 20, false);
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&asking, 0), Some(by_majority(20)));
        assert_eq!(held.ticket(&other, 0), None);
        held.note_asking(&mut asking, majority_and(true));
        assert_eq!(held.before_flush(), Release::Each);
        assert_eq!(held.ticket(&asking, 0).map(|it| it.watermark), Some(2));
        majority.up_to.store(20, Ordering::Relaxed);
        assert_eq!(
            held.released(),
            [0, 20, 0, 0, 0],
            "the disk has to have it, too"
        );
        held.forget(1, &mut asking, None);
        assert_eq!(held.before_flush(), Release::Now);
        majority.office.store(0, Ordering::Relaxed);
        majority.is_for_all.store(true, Ordering::Relaxed);
        held.begin_turn();
        assert_eq!(
            held.before_flush(),
            Release::Now,
            "a replica waits for nobody"
        );
    }
}
