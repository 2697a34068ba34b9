//! The replica's end of a link: finds the replica's position in the primary's log, and keeps it
//! there.
//!
//! ```text
//!                    ┌──────────────── closed, silent, malformed ───────────────┐
//!                    ▼                                                          │
//!   Off ─ follow ─► BackOff ─► Connecting ─► Attaching ─┬─ continue ─► Following ┤
//!                                               ▲       ├─ rewind ──► Rewinding ─┤
//!                                               └───────┼──────────────┘         │
//!                                                       ├─ full ────► Syncing ───┘
//!                                                       └─ refuse ──► Refused
//! ```
//!
//! The replica appends received frames to its own log, verbatim, and only at its end. A gap, an
//! overlap or a frame of another position ends the link, and the next link begins by comparing the
//! histories again. The replica acknowledges what its log reported, never what it received.
//!
//! The server performs the [`Action`]s one after the other, and reports their results.

use crate::attach::{Attach, Refusal};
use crate::link::{Ack, Block, Frames, Full, Message, Resume, SyncEnd};
use crate::planted::{self, Bug};

/// The first pause after a failed link.
pub const BACK_OFF_MS_MIN: u64 = 50;
/// The longest pause. Each pause is twice the one before.
pub const BACK_OFF_MS_MAX: u64 = 5_000;
/// After this many consecutive failures at the same end of the log, the replica requests a full
/// sync.
pub const FAILURES_MAX: u32 = 3;

/// State of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It follows no primary.
    Off,
    /// It waits before it connects again.
    BackOff {
        /// End of the pause.
        until_ms: u64,
    },
    /// It is connecting.
    Connecting,
    /// It has sent the state of its log, and waits for the answer.
    Attaching,
    /// Its log is being truncated.
    Rewinding {
        /// Sequence at which it is truncated.
        to: u64,
    },
    /// It is receiving a full sync.
    Syncing {
        /// Number of the primary's full sync.
        sync: u64,
    },
    /// It is following.
    Following,
    /// It was refused and keeps its data until an operator decides.
    Refused(Refusal),
}

/// An action for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<'m> {
    /// Connect to the primary, and call [`Replica::on_connected`] or [`Replica::on_closed`].
    Connect,
    /// Close the link.
    Close,
    /// Send a message.
    Send(Message<'m>),
    /// Append these bytes to the log, at its end, which is their position: [`Replica::on_log`].
    Append {
        /// The sequence of the first byte.
        first: u64,
        /// Whole frames, or a piece of a long one.
        bytes: &'m [u8],
    },
    /// More of the log is committed. [`Replica::committed`] returns what may be applied.
    Committed,
    /// Save the log from a sequence on in a file, report it, and truncate the log there:
    /// [`Replica::on_truncated`].
    Truncate {
        /// That sequence.
        to: u64,
    },
    /// Discard the data and begin to load a full sync. The log continues at the full sync's
    /// `log_from`.
    BeginSync(Full),
    /// Load a block of the full sync.
    Load(Block<'m>),
    /// A part of the full sync is complete: compare what was loaded with the foot.
    EndPart(Block<'m>),
    /// The full sync is complete: put it in force, and call [`Replica::on_synced`].
    EndSync(SyncEnd<'m>),
    /// Report the refusal to the operator, once.
    Report(Refusal),
}

/// The log of a replica, as far as this state machine needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnLog {
    /// End of the log.
    pub appended: u64,
    /// Sequence up to which it is durable.
    pub durable: u64,
    /// Sequence up to which readers see it.
    pub applied: u64,
    /// Sequence up to which the checkpoint in use may contain parts of the log. Until the log is
    /// applied up to here, the data is not a state of one moment.
    pub settled: u64,
}

/// A replica with its link.
#[derive(Clone, Debug)]
pub struct Replica {
    state: State,
    timeout_ms: u64,
    log: OwnLog,
    /// Sequence after the bytes that were passed to the log. The next frame must begin here.
    expected: u64,
    /// The term of the followed primary, from its answer to the attach.
    term: u64,
    /// Whether an operator allowed it to discard unrelated data, once.
    may_discard: bool,
    back_off_ms: u64,
    failures: u32,
    failed_at: u64,
    heard_ms: u64,
    acked: Ack,
    resume: Option<Resume>,
    /// End of the primary's log after it had sent a full sync. Readers see nothing older. Only
    /// valid in the primary's term: a primary that lost power may have less of the log left.
    target: u64,
    /// The last sequence that the primary reported as present on a majority.
    committed: u64,
    lag_ms: u32,
}

impl Replica {
    /// Creates a replica that follows no primary.
    #[must_use]
    pub fn new(timeout_ms: u64) -> Self {
        Self {
            state: State::Off,
            timeout_ms,
            log: OwnLog::default(),
            expected: 0,
            term: 0,
            may_discard: false,
            back_off_ms: BACK_OFF_MS_MIN,
            failures: 0,
            failed_at: 0,
            heard_ms: 0,
            acked: Ack::default(),
            resume: None,
            target: 0,
            committed: 0,
            lag_ms: 0,
        }
    }

    /// Returns its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether readers see what a healthy primary has: it follows, and has applied what its full
    /// sync requires.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.state == State::Following && self.log.applied >= self.target.max(self.log.settled)
    }

    /// Returns the term of the followed primary.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Returns the sequence up to which the log may be applied if only committed data is applied:
    /// what the primary reports, and what a full sync includes.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed.max(self.target)
    }

    /// Returns the sequence up to which the log is committed, as the primary reports.
    #[must_use]
    pub fn told_committed(&self) -> u64 {
        self.committed
    }

    /// Follows a primary from now on. `may_discard`: an operator gave the command, so data that is
    /// unrelated to the primary's may be discarded, once.
    pub fn follow<'m>(&mut self, may_discard: bool, now_ms: u64) -> Vec<Action<'m>> {
        let mut actions = self.stop();
        self.may_discard = may_discard;
        (self.back_off_ms, self.failures) = (BACK_OFF_MS_MIN, 0);
        (self.state, self.heard_ms) = (State::Connecting, now_ms);
        actions.push(Action::Connect);
        actions
    }

    /// Stops following.
    pub fn stop<'m>(&mut self) -> Vec<Action<'m>> {
        let has_link = matches!(
            self.state,
            State::Connecting
                | State::Attaching
                | State::Rewinding { .. }
                | State::Syncing { .. }
                | State::Following
        );
        self.state = State::Off;
        (self.resume, self.target) = (None, 0);
        has_link.then_some(Action::Close).into_iter().collect()
    }

    /// Sets the progress of an interrupted full sync, which the next attach will name.
    pub fn keep_sync(&mut self, resume: Option<Resume>) {
        self.resume = resume;
    }

    /// Attaches over a link on which both ends have authenticated. `attach` is the state of this
    /// node.
    pub fn on_connected<'m>(
        &mut self,
        mut attach: Attach,
        log: OwnLog,
        now_ms: u64,
    ) -> Vec<Action<'m>> {
        if self.state != State::Connecting {
            return Vec::new();
        }
        self.heard_ms = now_ms;
        self.note_log(log);
        attach.may_discard = self.may_discard;
        attach.is_damaged |= self.failures >= FAILURES_MAX && self.failed_at == log.appended;
        self.attach(attach)
    }

    fn attach<'m>(&mut self, attach: Attach) -> Vec<Action<'m>> {
        self.state = State::Attaching;
        (self.expected, self.acked) = (attach.end, Ack::default());
        vec![Action::Send(Message::Attach(attach, self.resume.clone()))]
    }

    /// Attaches again after the log was truncated.
    pub fn on_truncated<'m>(&mut self, mut attach: Attach, log: OwnLog) -> Vec<Action<'m>> {
        if !matches!(self.state, State::Rewinding { .. }) {
            return Vec::new();
        }
        self.log = log;
        attach.may_discard = self.may_discard;
        self.attach(attach)
    }

    /// Handles a message of the primary.
    pub fn on_message<'m>(&mut self, message: Message<'m>, now_ms: u64) -> Vec<Action<'m>> {
        self.heard_ms = now_ms;
        match (message, self.state) {
            (Message::Continue { from, term }, State::Attaching) if from == self.expected => {
                if term != self.term {
                    self.target = 0;
                }
                (self.state, self.term) = (State::Following, term);
                (self.may_discard, self.committed) = (false, 0);
                let log = self.log;
                self.ack(log)
            }
            (Message::Rewind { to }, State::Attaching) if to < self.expected => {
                self.state = State::Rewinding { to };
                vec![Action::Truncate { to }]
            }
            (Message::Full(full), State::Attaching | State::Following) => {
                // The permission stays valid until the full sync is in force, because its link may
                // break.
                self.state = State::Syncing { sync: full.sync };
                (self.expected, self.term) = (full.log_from, full.term);
                self.committed = 0;
                (self.log, self.acked) = (OwnLog::default(), Ack::default());
                vec![Action::BeginSync(full)]
            }
            (Message::Refuse(refusal), State::Attaching) => {
                self.state = State::Refused(refusal);
                vec![Action::Report(refusal), Action::Close]
            }
            (Message::Frames(frames), State::Following | State::Syncing { .. }) => {
                self.on_frames(frames, now_ms)
            }
            (Message::Block(block), State::Syncing { sync }) if block.sync == sync => {
                vec![Action::Load(block)]
            }
            (Message::PartEnd(block), State::Syncing { sync }) if block.sync == sync => {
                vec![Action::EndPart(block)]
            }
            (Message::SyncEnd(end), State::Syncing { sync }) if end.sync == sync => {
                self.target = end.sequence;
                vec![Action::EndSync(end)]
            }
            (
                Message::Ping {
                    unix_ms,
                    echo_unix_ms: 0,
                },
                _,
            ) => {
                vec![Action::Send(Message::Ping {
                    unix_ms: now_ms,
                    echo_unix_ms: unix_ms,
                })]
            }
            (Message::Ping { .. } | Message::Transient(_), _) => Vec::new(),
            _ => self.fail(now_ms),
        }
    }

    fn on_frames<'m>(&mut self, frames: Frames<'m>, now_ms: u64) -> Vec<Action<'m>> {
        // Frames without bytes only report the committed sequence.
        let has_nothing = frames.bytes.is_empty() && frames.committed == 0;
        if frames.first != self.expected || has_nothing || frames.term != self.term {
            return self.fail(now_ms);
        }
        self.committed = self.committed.max(frames.committed);
        if frames.bytes.is_empty() {
            return vec![Action::Committed];
        }
        self.expected = frames.end();
        let (first, bytes) = (frames.first, frames.bytes);
        let mut actions = vec![Action::Append { first, bytes }];
        if planted::is_on(Bug::AckBeforeAppend) {
            let early = OwnLog {
                appended: self.expected,
                ..self.log
            };
            actions.extend(self.ack(early));
        }
        actions
    }

    /// Handles that the full sync is in force.
    pub fn on_synced<'m>(&mut self, log: OwnLog) -> Vec<Action<'m>> {
        if !matches!(self.state, State::Syncing { .. }) {
            return Vec::new();
        }
        self.state = State::Following;
        self.may_discard = false;
        (self.resume, self.failures) = (None, 0);
        self.on_log(log)
    }

    /// Ends the link after a full sync failed on this node. The next attach names what was kept of
    /// it.
    pub fn on_sync_failed<'m>(&mut self, resume: Option<Resume>, now_ms: u64) -> Vec<Action<'m>> {
        if !matches!(self.state, State::Syncing { .. }) {
            return Vec::new();
        }
        self.resume = resume;
        self.fail(now_ms)
    }

    /// Handles that the log grew, became durable, or was applied further.
    pub fn on_log<'m>(&mut self, log: OwnLog) -> Vec<Action<'m>> {
        self.note_log(log);
        if !matches!(self.state, State::Following | State::Syncing { .. }) {
            return Vec::new();
        }
        let log = self.log;
        self.ack(log)
    }

    /// Ends the link after the log refused bytes: their sum is wrong, or the device failed.
    pub fn on_append_failed<'m>(&mut self, now_ms: u64) -> Vec<Action<'m>> {
        self.fail(now_ms)
    }

    /// Sets the age of the last applied frame, for the following acknowledgements.
    pub fn note_lag(&mut self, lag_ms: u32) {
        self.lag_ms = lag_ms;
    }

    fn note_log(&mut self, log: OwnLog) {
        if log.appended > self.failed_at {
            self.failures = 0;
        }
        self.log = log;
    }

    fn ack<'m>(&mut self, log: OwnLog) -> Vec<Action<'m>> {
        let ack = Ack {
            term: self.term,
            appended: log.appended,
            durable: log.durable,
            applied: log.applied,
            lag_ms: self.lag_ms,
        };
        if ack == self.acked {
            return Vec::new();
        }
        self.acked = ack;
        vec![Action::Send(Message::Ack(ack))]
    }

    /// Handles that the link is closed.
    pub fn on_closed(&mut self, now_ms: u64) {
        if matches!(
            self.state,
            State::Off | State::Refused(_) | State::BackOff { .. }
        ) {
            return;
        }
        self.back_off(now_ms);
    }

    fn back_off(&mut self, now_ms: u64) {
        let until_ms = now_ms.saturating_add(self.back_off_ms);
        self.back_off_ms = (self.back_off_ms * 2).min(BACK_OFF_MS_MAX);
        self.state = State::BackOff { until_ms };
    }

    /// Ends the link after an invalid message; a new link will be tried.
    fn fail<'m>(&mut self, now_ms: u64) -> Vec<Action<'m>> {
        if matches!(
            self.state,
            State::Off | State::Refused(_) | State::BackOff { .. }
        ) {
            return Vec::new();
        }
        let at = self.log.appended;
        self.failures = if self.failed_at == at {
            self.failures.saturating_add(1)
        } else {
            1
        };
        self.failed_at = at;
        self.back_off(now_ms);
        vec![Action::Close]
    }

    /// Handles the passing of time.
    pub fn on_tick<'m>(&mut self, now_ms: u64) -> Vec<Action<'m>> {
        match self.state {
            // Does not wait for a clock that was set back.
            State::BackOff { until_ms }
                if now_ms >= until_ms || until_ms - now_ms > BACK_OFF_MS_MAX =>
            {
                (self.state, self.heard_ms) = (State::Connecting, now_ms);
                vec![Action::Connect]
            }
            State::Off | State::Refused(_) | State::BackOff { .. } => Vec::new(),
            State::Following => {
                // The link is healthy: the next pause is short.
                self.back_off_ms = BACK_OFF_MS_MIN;
                self.close_if_silent(now_ms)
            }
            _ => self.close_if_silent(now_ms),
        }
    }

    fn close_if_silent<'m>(&mut self, now_ms: u64) -> Vec<Action<'m>> {
        // If the clock was set back, the time without messages starts now.
        self.heard_ms = self.heard_ms.min(now_ms);
        if now_ms.saturating_sub(self.heard_ms) < self.timeout_ms {
            return Vec::new();
        }
        self.back_off(now_ms);
        vec![Action::Close]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Source;

    fn log(appended: u64) -> OwnLog {
        OwnLog {
            appended,
            durable: appended,
            applied: appended,
            settled: 0,
        }
    }

    fn frames(first: u64, bytes: &[u8]) -> Message<'_> {
        Message::Frames(Frames {
            term: 5,
            first,
            committed: 0,
            bytes,
        })
    }

    /// Returns a replica whose log ends at 64 and that was answered `continue`.
    fn following() -> Replica {
        let mut replica = Replica::new(60_000);
        assert_eq!(replica.follow(false, 0), [Action::Connect]);
        let attach = Attach {
            end: 64,
            ..Attach::default()
        };
        let attached = replica.on_connected(attach, log(64), 1);
        assert!(matches!(attached[..], [Action::Send(Message::Attach(..))]));
        let answered = replica.on_message(Message::Continue { from: 64, term: 5 }, 2);
        assert!(matches!(answered[..], [Action::Send(Message::Ack(ack))] if ack.appended == 64));
        replica
    }

    #[test]
    fn what_the_log_reported_is_acknowledged_and_nothing_else() {
        let mut replica = following();
        let appended = replica.on_message(frames(64, &[0; 8]), 3);
        assert_eq!(
            appended,
            [Action::Append {
                first: 64,
                bytes: &[0; 8]
            }]
        );
        assert!(
            matches!(replica.on_log(log(72))[..], [Action::Send(Message::Ack(ack))] if ack.appended == 72)
        );
        assert_eq!(replica.on_log(log(72)), []);
    }

    /// Returns a replica that got a full sync in term 5, up to 64, and needs the log up to 128.
    /// Then its link broke and it reconnected.
    fn synced_and_broken() -> Replica {
        let mut replica = Replica::new(60_000);
        let _connect = replica.follow(false, 0);
        let _attach = replica.on_connected(Attach::default(), log(0), 1);
        let full = Full {
            sync: 1,
            term: 5,
            streams: 1,
            source: Source::Checkpoint,
            generation: 1,
            log_from: 64,
            records: 0,
            bytes: 0,
            fork: u64::MAX,
        };
        let _begin = replica.on_message(Message::Full(full), 2);
        let end = SyncEnd {
            sync: full.sync,
            sequence: 128,
            manifest: b"",
        };
        let _load = replica.on_message(Message::SyncEnd(end), 3);
        let _ack = replica.on_synced(log(64));
        assert!(!replica.is_online(), "it is given what came meanwhile");
        replica.on_closed(4);
        let _connect = replica.on_tick(10_000);
        let _attach = replica.on_connected(
            Attach {
                end: 64,
                ..Attach::default()
            },
            log(64),
            10_000,
        );
        replica
    }

    #[test]
    fn what_a_primary_had_before_it_lost_its_power_is_not_waited_for() {
        let mut same = synced_and_broken();
        let _ack = same.on_message(Message::Continue { from: 64, term: 5 }, 10_001);
        assert!(!same.is_online(), "it has that still");
        let mut later = synced_and_broken();
        let _ack = later.on_message(Message::Continue { from: 64, term: 6 }, 10_001);
        assert!(later.is_online());
        assert_eq!(later.committed(), 0);
        // The replica waits for what the checkpoint has in part, whichever primary sends it.
        let unsettled = OwnLog {
            settled: 72,
            ..log(64)
        };
        let _ack = later.on_log(unsettled);
        assert!(!later.is_online());
    }

    #[test]
    fn news_of_what_is_committed_come_without_bytes() {
        let mut replica = following();
        let news = |committed| {
            Message::Frames(Frames {
                term: 5,
                first: 64,
                committed,
                bytes: &[],
            })
        };
        assert_eq!(replica.on_message(news(56), 3), [Action::Committed]);
        assert_eq!(replica.on_message(news(48), 4), [Action::Committed]);
        assert_eq!(replica.committed(), 56, "it never falls");
        assert_eq!(replica.on_message(news(0), 5), [Action::Close]);
    }

    #[test]
    fn a_gap_an_overlap_or_another_term_ends_the_link() {
        let other_term = Message::Frames(Frames {
            term: 6,
            first: 64,
            committed: 0,
            bytes: &[0; 8],
        });
        for message in [
            frames(72, &[0; 8]),
            frames(56, &[0; 16]),
            frames(64, &[]),
            other_term,
        ] {
            let mut replica = following();
            assert_eq!(replica.on_message(message, 3), [Action::Close]);
            assert_eq!(
                replica.state(),
                State::BackOff {
                    until_ms: 3 + BACK_OFF_MS_MIN
                }
            );
        }
    }

    #[test]
    fn links_that_fail_at_the_same_place_again_and_again_end_in_a_full_sync() {
        let mut replica = following();
        let mut now_ms = 3;
        for attempt in 1..=FAILURES_MAX {
            assert_eq!(replica.on_append_failed(now_ms), [Action::Close]);
            now_ms += BACK_OFF_MS_MAX;
            assert_eq!(replica.on_tick(now_ms), [Action::Connect]);
            let attach = Attach {
                end: 64,
                ..Attach::default()
            };
            let attached = replica.on_connected(attach, log(64), now_ms);
            let [Action::Send(Message::Attach(attach, _))] = &attached[..] else {
                panic!("{attached:?}");
            };
            assert_eq!(attach.is_damaged, attempt == FAILURES_MAX);
            let _ack = replica.on_message(Message::Continue { from: 64, term: 5 }, now_ms);
        }
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut replica = Replica::new(60_000);
        let _connect = replica.follow(false, 0);
        let mut pauses = Vec::new();
        let mut now_ms = 0;
        for _ in 0..9 {
            replica.on_closed(now_ms);
            let State::BackOff { until_ms } = replica.state() else {
                panic!("{:?}", replica.state());
            };
            assert_eq!(replica.on_tick(until_ms - 1), []);
            assert_eq!(replica.on_tick(until_ms), [Action::Connect]);
            pauses.push(until_ms - now_ms);
            now_ms = until_ms;
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }

    /// Links use the machine's clock, which may be set.
    #[test]
    fn a_clock_that_jumps_costs_a_link_at_most_and_stops_nobody() {
        const YEAR_MS: u64 = 365 * 86_400_000;
        let mut replica = Replica::new(60_000);
        let _connect = replica.follow(false, YEAR_MS);
        replica.on_closed(YEAR_MS);
        // Back by a year, during a pause.
        assert_eq!(replica.on_tick(1_000), [Action::Connect]);
        let _attach = replica.on_connected(Attach::default(), log(0), 1_000);
        // Forward by a year: once, the link counts as silent.
        assert_eq!(replica.on_tick(YEAR_MS), [Action::Close]);
        assert_eq!(
            replica.on_tick(YEAR_MS + BACK_OFF_MS_MAX),
            [Action::Connect]
        );
        let _attach = replica.on_connected(Attach::default(), log(0), YEAR_MS + BACK_OFF_MS_MAX);
        // Back on a link that then falls silent: this is detected after the usual time.
        assert_eq!(replica.on_tick(1_000), []);
        assert_eq!(replica.on_tick(60_999), []);
        assert_eq!(replica.on_tick(61_000), [Action::Close]);
    }

    #[test]
    fn a_refused_replica_stays_as_it_is_until_an_operator_decides() {
        let mut replica = Replica::new(60_000);
        let _connect = replica.follow(false, 0);
        let _attach = replica.on_connected(Attach::default(), log(64), 1);
        let refusal = Refusal::PrimaryOlder;
        let refused = replica.on_message(Message::Refuse(refusal), 2);
        assert_eq!(refused, [Action::Report(refusal), Action::Close]);
        replica.on_closed(3);
        assert_eq!(replica.on_tick(1_000_000), []);
        assert_eq!(replica.state(), State::Refused(refusal));
        let connect = replica.follow(true, 1_000_000);
        assert_eq!(connect, [Action::Connect]);
        let attached = replica.on_connected(Attach::default(), log(64), 1_000_001);
        assert!(
            matches!(&attached[..], [Action::Send(Message::Attach(attach, _))] if attach.may_discard)
        );
    }

    #[test]
    fn the_permission_to_discard_is_used_once() {
        let mut replica = Replica::new(60_000);
        let _connect = replica.follow(true, 0);
        let _attach = replica.on_connected(Attach::default(), log(0), 1);
        let _ack = replica.on_message(Message::Continue { from: 0, term: 5 }, 2);
        replica.on_closed(3);
        assert_eq!(replica.on_tick(10_000), [Action::Connect]);
        let attached = replica.on_connected(Attach::default(), log(0), 10_000);
        assert!(
            matches!(&attached[..], [Action::Send(Message::Attach(attach, _))] if !attach.may_discard)
        );
    }
}
