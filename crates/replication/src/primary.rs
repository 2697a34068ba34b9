//! The primary's end of its links: what it sends to each replica, and what acknowledgements count
//! for.
//!
//! ```text
//!               ┌────────────── rewind ─────────────┐
//!               ▼                                   │
//!   (link) ─► Handshake ── attach ─┬─ continue ─► Streaming ── lapped ─► Recovery
//!                                  ├─ full ────► Waiting                    │
//!                                  └─ refuse ─► (closed)                    ▼
//!                                        Waiting ─► Sending ─► Finishing ─► Streaming
//! ```
//!
//! A replica is a cursor into the log and at most one piece in flight: its lag costs no memory
//! here, and it never slows down other replicas or clients. Only a replica in `Streaming` counts
//! for WAIT, for `min-replicas-to-write`, and for a quorum. An acknowledgement counts only in the
//! term that it names. The end that a replica names when it attaches counts for nothing.
//!
//! The server performs the [`Action`]s. It reads pieces of the log itself, because this module does
//! not know whether they come from memory or files.

use std::collections::BTreeMap;

use crate::attach::{Attach, FullReason, PrimaryLog, Verdict, judge};
use crate::link::{Ack, Frames, Full, Message, Resume, SyncEnd};
use crate::planted::{self, Bug};

/// Maximum length of a piece of the log that is sent at once.
pub const PIECE_BYTES_MAX: u64 = 256 << 10;

/// A link to a replica, as the server names it. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// Configurable times, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A link that received nothing for this time is closed (`repl-timeout`).
    pub timeout_ms: u64,
    /// Maximum time between two messages to a replica.
    pub ping_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            timeout_ms: 60_000,
            ping_ms: 100,
        }
    }
}

/// State of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has not attached yet.
    Handshake,
    /// It waits for the cut of a full sync.
    Waiting,
    /// It is receiving the records of a full sync, and the log in parallel.
    Sending {
        /// Number of the full sync.
        sync: u64,
    },
    /// It was sent all records. It counts after it has applied everything below a sequence.
    Finishing {
        /// That sequence.
        sequence: u64,
    },
    /// It is receiving the log.
    Streaming,
    /// It was streaming, but the log no longer reaches back to it: it waits for a full sync.
    Recovery,
}

/// An action for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<'m> {
    /// Send a message. Call [`Primary::on_sent`] when the link accepts more.
    Send(LinkId, Message<'m>),
    /// Read a piece of the log and pass it to [`Primary::on_read`].
    Read {
        /// The link that needs it.
        link: LinkId,
        /// The sequence of its first byte.
        from: u64,
        /// Maximum length: whole frames up to this, or a single longer one in pieces.
        bytes_max: u64,
    },
    /// Begin a full sync, and describe it with [`Primary::on_sync_begun`].
    BeginSync {
        /// The link that needs it.
        link: LinkId,
        /// Reason for the full sync.
        reason: FullReason,
        /// Progress of an interrupted full sync, if any.
        resume: Option<Resume>,
    },
    /// Close the link after everything was sent.
    Close(LinkId, CloseReason),
}

/// Why a link is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The replica was refused.
    Refused,
    /// Nothing was received for too long.
    Silent,
    /// The replica sent a message that is not allowed in its state.
    Protocol,
}

/// Result of reading the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'m> {
    /// The bytes read.
    Frames(&'m [u8]),
    /// The log no longer reaches back so far.
    Gone,
}

/// One replica.
#[derive(Clone, Debug)]
struct Peer {
    stage: Stage,
    /// The sequence of the next byte to send.
    cursor: u64,
    /// Whether a piece is being read or sent.
    is_busy: bool,
    /// Sequence at which its log leaves the primary's history, if known. A full sync reports it.
    fork: u64,
    acked: Ack,
    acked_ms: u64,
    heard_ms: u64,
    said_ms: u64,
}

/// All replicas of a primary in one term. A new term gets a new value, so no acknowledgement
/// outlives its term.
#[derive(Clone, Debug)]
pub struct Primary {
    term: u64,
    times: Times,
    peers: BTreeMap<LinkId, Peer>,
}

impl Primary {
    /// Creates a primary in a term, without replicas.
    #[must_use]
    pub fn new(term: u64, times: Times) -> Self {
        Self {
            term,
            times,
            peers: BTreeMap::new(),
        }
    }

    /// Returns its term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Returns the state of the replica of a link.
    #[must_use]
    pub fn stage(&self, link: LinkId) -> Option<Stage> {
        self.peers.get(&link).map(|peer| peer.stage)
    }

    /// Returns the last acknowledgement of the replica of a link, in this term.
    #[must_use]
    pub fn acked(&self, link: LinkId) -> Option<Ack> {
        self.peers.get(&link).map(|peer| peer.acked)
    }

    /// Returns the links with the states of their replicas.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, Stage)> + '_ {
        self.peers.iter().map(|(link, peer)| (*link, peer.stage))
    }

    /// Returns the lowest sequence that has yet to be sent to some replica. No replica needs the
    /// log below it.
    #[must_use]
    pub fn needed_from(&self) -> Option<u64> {
        let reads_log = |peer: &&Peer| {
            !matches!(
                peer.stage,
                Stage::Handshake | Stage::Waiting | Stage::Recovery
            )
        };
        self.peers
            .values()
            .filter(reads_log)
            .map(|peer| peer.cursor)
            .min()
    }

    /// Returns the number of replicas that have applied everything below a sequence (WAIT).
    #[must_use]
    pub fn applied_count(&self, sequence: u64) -> usize {
        self.count(|ack| ack.applied >= sequence)
    }

    /// Returns the number of replicas on which everything below a sequence is durable (WAITAOF).
    #[must_use]
    pub fn durable_count(&self, sequence: u64) -> usize {
        self.count(|ack| ack.durable >= sequence)
    }

    /// Returns the number of replicas whose logs have everything below a sequence (quorum).
    #[must_use]
    pub fn appended_count(&self, sequence: u64) -> usize {
        self.count(|ack| ack.appended >= sequence)
    }

    /// Returns the number of replicas that acknowledged within `lag_ms` (`min-replicas-to-write`).
    #[must_use]
    pub fn recent_count(&self, now_ms: u64, lag_ms: u64) -> usize {
        let is_recent = |peer: &&Peer| now_ms.saturating_sub(peer.acked_ms) <= lag_ms;
        self.counting().filter(is_recent).count()
    }

    fn count(&self, has: impl Fn(&Ack) -> bool) -> usize {
        self.counting().filter(|peer| has(&peer.acked)).count()
    }

    fn counting(&self) -> impl Iterator<Item = &Peer> {
        let counts = |peer: &&Peer| match peer.stage {
            Stage::Streaming => true,
            Stage::Sending { .. } | Stage::Finishing { .. } => planted::is_on(Bug::SyncingCounts),
            _ => false,
        };
        self.peers.values().filter(counts)
    }

    /// Adds a link to a replica that has authenticated itself.
    pub fn on_connected(&mut self, link: LinkId, now_ms: u64) {
        let peer = Peer {
            stage: Stage::Handshake,
            cursor: 0,
            is_busy: false,
            fork: u64::MAX,
            acked: Ack::default(),
            acked_ms: now_ms,
            heard_ms: now_ms,
            said_ms: now_ms,
        };
        self.peers.insert(link, peer);
    }

    /// Removes a link that is closed.
    pub fn on_closed(&mut self, link: LinkId) {
        self.peers.remove(&link);
    }

    /// Handles a message of a replica.
    pub fn on_message<'m>(
        &mut self,
        link: LinkId,
        message: Message<'_>,
        log: &PrimaryLog,
        now_ms: u64,
    ) -> Vec<Action<'m>> {
        let Some(peer) = self.peers.get_mut(&link) else {
            return Vec::new();
        };
        peer.heard_ms = now_ms;
        match (message, peer.stage) {
            (Message::Attach(attach, resume), Stage::Handshake) => {
                self.on_attach(link, &attach, resume, log)
            }
            (
                Message::Ack(ack),
                Stage::Sending { .. } | Stage::Finishing { .. } | Stage::Streaming,
            ) => self.on_ack(link, ack, now_ms),
            // The replica sent it before it learnt that it gets a full sync.
            (Message::Ack(_), Stage::Waiting | Stage::Recovery) => Vec::new(),
            (
                Message::Ping {
                    unix_ms,
                    echo_unix_ms: 0,
                },
                _,
            ) => {
                vec![Action::Send(
                    link,
                    Message::Ping {
                        unix_ms: now_ms,
                        echo_unix_ms: unix_ms,
                    },
                )]
            }
            (Message::Ping { .. } | Message::Transient(_), _) => Vec::new(),
            _ => vec![Action::Close(link, CloseReason::Protocol)],
        }
    }

    fn on_attach<'m>(
        &mut self,
        link: LinkId,
        attach: &Attach,
        resume: Option<Resume>,
        log: &PrimaryLog,
    ) -> Vec<Action<'m>> {
        let term = self.term;
        let Some(peer) = self.peers.get_mut(&link) else {
            return Vec::new();
        };
        match judge(log, attach) {
            Verdict::Continue { from } => {
                (peer.stage, peer.cursor) = (Stage::Streaming, from);
                if planted::is_on(Bug::AttachCounts) {
                    (peer.acked.appended, peer.acked.durable) = (attach.end, attach.durable);
                }
                let mut actions = vec![Action::Send(link, Message::Continue { from, term })];
                actions.extend(self.next_piece(link, log.end));
                actions
            }
            // The replica truncates its log and attaches again, over the same link.
            Verdict::Rewind { to } => vec![Action::Send(link, Message::Rewind { to })],
            Verdict::Full(reason) => {
                peer.stage = Stage::Waiting;
                let fork = log.lineage.fork(log.end, &attach.lineage, attach.end);
                peer.fork = fork.unwrap_or(u64::MAX);
                vec![Action::BeginSync {
                    link,
                    reason,
                    resume,
                }]
            }
            Verdict::Refuse(refusal) => vec![
                Action::Send(link, Message::Refuse(refusal)),
                Action::Close(link, CloseReason::Refused),
            ],
        }
    }

    fn on_ack<'m>(&mut self, link: LinkId, ack: Ack, now_ms: u64) -> Vec<Action<'m>> {
        let term = self.term;
        let Some(peer) = self.peers.get_mut(&link) else {
            return Vec::new();
        };
        if ack.term != term && !planted::is_on(Bug::AckOfOlderTerm) {
            return Vec::new();
        }
        if ack.appended > peer.cursor && ack.term == term {
            // The replica cannot have what was not sent to it.
            return vec![Action::Close(link, CloseReason::Protocol)];
        }
        peer.acked = Ack {
            term: ack.term,
            appended: peer.acked.appended.max(ack.appended),
            durable: peer.acked.durable.max(ack.durable),
            applied: peer.acked.applied.max(ack.applied),
            lag_ms: ack.lag_ms,
        };
        peer.acked_ms = now_ms;
        if let Stage::Finishing { sequence } = peer.stage
            && peer.acked.applied >= sequence
        {
            peer.stage = Stage::Streaming;
        }
        Vec::new()
    }

    /// Begins a full sync for a replica that waits for one: sends its description, and then the log
    /// in parallel.
    pub fn on_sync_begun<'m>(&mut self, link: LinkId, full: Full, log_end: u64) -> Vec<Action<'m>> {
        let Some(peer) = self.peers.get_mut(&link) else {
            return Vec::new();
        };
        let full = Full {
            fork: peer.fork,
            ..full
        };
        if !matches!(peer.stage, Stage::Waiting | Stage::Recovery) {
            return Vec::new();
        }
        // Acknowledgements of the old data are void.
        peer.acked = Ack::default();
        peer.stage = Stage::Sending { sync: full.sync };
        peer.cursor = full.log_from;
        let mut actions = vec![Action::Send(link, Message::Full(full))];
        actions.extend(self.next_piece(link, log_end));
        actions
    }

    /// Handles that all records of a full sync were sent. The replica is online after it has
    /// applied everything below `end.sequence`.
    pub fn on_sync_sent<'m>(&mut self, link: LinkId, end: SyncEnd<'m>) -> Vec<Action<'m>> {
        match self.peers.get_mut(&link) {
            Some(peer) if peer.stage == (Stage::Sending { sync: end.sync }) => {
                let sequence = end.sequence;
                peer.stage = Stage::Finishing { sequence };
                vec![Action::Send(link, Message::SyncEnd(end))]
            }
            _ => Vec::new(),
        }
    }

    /// Handles that the log grew.
    pub fn on_log<'m>(&mut self, log_end: u64) -> Vec<Action<'m>> {
        let links: Vec<LinkId> = self.peers.keys().copied().collect();
        let pieces = links.into_iter().map(|link| self.next_piece(link, log_end));
        pieces.flatten().collect()
    }

    /// Does the same as [`Primary::on_log`] for one link, on behalf of its sender.
    pub fn on_log_of<'m>(&mut self, link: LinkId, log_end: u64) -> Option<Action<'m>> {
        self.next_piece(link, log_end)
    }

    /// Handles the result of reading a piece of the log.
    pub fn on_read<'m>(
        &mut self,
        link: LinkId,
        piece: Piece<'m>,
        committed: u64,
        now_ms: u64,
    ) -> Vec<Action<'m>> {
        let term = self.term;
        let Some(peer) = self.peers.get_mut(&link) else {
            return Vec::new();
        };
        let bytes = match piece {
            Piece::Frames(bytes) => bytes,
            Piece::Gone => {
                peer.is_busy = false;
                // Everything that the replica has was sent to it.
                peer.fork = u64::MAX;
                peer.stage = Stage::Recovery;
                let (reason, resume) = (FullReason::Lapped, None);
                return vec![Action::BeginSync {
                    link,
                    reason,
                    resume,
                }];
            }
        };
        let first = peer.cursor;
        peer.cursor = first.saturating_add(bytes.len() as u64);
        peer.said_ms = now_ms;
        let frames = Frames {
            term,
            first,
            committed,
            bytes,
        };
        vec![Action::Send(link, Message::Frames(frames))]
    }

    /// Reports the committed sequence to a replica that is up to date at the moment.
    pub fn on_committed<'m>(&mut self, link: LinkId, committed: u64) -> Option<Action<'m>> {
        let peer = self.peers.get(&link)?;
        let has_time =
            matches!(peer.stage, Stage::Finishing { .. } | Stage::Streaming) && !peer.is_busy;
        let frames = Frames {
            term: self.term,
            first: peer.cursor,
            committed,
            bytes: &[],
        };
        (has_time && committed > 0).then_some(Action::Send(link, Message::Frames(frames)))
    }

    /// Handles that the link of a replica accepts more bytes.
    pub fn on_sent<'m>(&mut self, link: LinkId, log_end: u64) -> Vec<Action<'m>> {
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.is_busy = false;
        }
        self.next_piece(link, log_end).into_iter().collect()
    }

    /// Handles the passing of time. Must be called about every [`Times::ping_ms`].
    pub fn on_tick<'m>(&mut self, now_ms: u64) -> Vec<Action<'m>> {
        let links: Vec<LinkId> = self.peers.keys().copied().collect();
        let due = links.into_iter().map(|link| self.on_tick_of(link, now_ms));
        due.flatten().collect()
    }

    /// Does the same as [`Primary::on_tick`] for one link, on behalf of its sender.
    pub fn on_tick_of<'m>(&mut self, link: LinkId, now_ms: u64) -> Vec<Action<'m>> {
        let times = self.times;
        let Some(peer) = self.peers.get_mut(&link) else {
            return Vec::new();
        };
        // If the clock was set back, the time without messages starts now.
        peer.heard_ms = peer.heard_ms.min(now_ms);
        peer.said_ms = peer.said_ms.min(now_ms);
        if now_ms.saturating_sub(peer.heard_ms) >= times.timeout_ms {
            vec![Action::Close(link, CloseReason::Silent)]
        } else if now_ms.saturating_sub(peer.said_ms) >= times.ping_ms {
            peer.said_ms = now_ms;
            let ping = Message::Ping {
                unix_ms: now_ms,
                echo_unix_ms: 0,
            };
            vec![Action::Send(link, ping)]
        } else {
            Vec::new()
        }
    }

    fn next_piece<'m>(&mut self, link: LinkId, log_end: u64) -> Option<Action<'m>> {
        let peer = self.peers.get_mut(&link)?;
        let is_sent_log = matches!(
            peer.stage,
            Stage::Sending { .. } | Stage::Finishing { .. } | Stage::Streaming
        );
        if !is_sent_log || peer.is_busy || peer.cursor >= log_end {
            return None;
        }
        peer.is_busy = true;
        let from = if planted::is_on(Bug::SkipPiece) && log_end - peer.cursor > 8 {
            peer.cursor + 8
        } else {
            peer.cursor
        };
        Some(Action::Read {
            link,
            from,
            bytes_max: PIECE_BYTES_MAX.min(log_end - from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::plant;

    const LINK: LinkId = LinkId(1);

    fn log(end: u64) -> PrimaryLog {
        PrimaryLog {
            end,
            has_data: true,
            is_whole: true,
            ..PrimaryLog::default()
        }
    }

    /// Returns a primary in term 5 whose log ends at 800, with an empty replica that was answered
    /// `continue`.
    fn streaming() -> Primary {
        let mut primary = Primary::new(5, Times::default());
        primary.on_connected(LINK, 0);
        let attach = Message::Attach(Attach::default(), None);
        let actions = primary.on_message(LINK, attach, &log(800), 0);
        let answer = Message::Continue { from: 0, term: 5 };
        assert_eq!(actions[0], Action::Send(LINK, answer));
        assert_eq!(primary.stage(LINK), Some(Stage::Streaming));
        primary
    }

    fn ack(term: u64, appended: u64) -> Message<'static> {
        Message::Ack(Ack {
            term,
            appended,
            durable: appended,
            applied: appended,
            lag_ms: 0,
        })
    }

    #[test]
    fn one_piece_is_in_flight_whatever_the_lag() {
        let mut primary = streaming();
        assert_eq!(primary.on_log(80_000), []);
        let sent = primary.on_read(LINK, Piece::Frames(&[0; 800]), 0, 1);
        assert!(
            matches!(sent[..], [Action::Send(LINK, Message::Frames(frames))] if frames.first == 0)
        );
        assert_eq!(primary.on_log(90_000), []);
        let next = Action::Read {
            link: LINK,
            from: 800,
            bytes_max: 90_000 - 800,
        };
        assert_eq!(primary.on_sent(LINK, 90_000), [next]);
    }

    #[test]
    fn an_acknowledgement_counts_in_its_own_term_only() {
        let with = |bug| {
            plant(bug);
            let mut primary = streaming();
            let _sent = primary.on_read(LINK, Piece::Frames(&[0; 800]), 0, 1);
            let _nothing = primary.on_message(LINK, ack(4, 800), &log(800), 2);
            let older = primary.applied_count(800);
            let _nothing = primary.on_message(LINK, ack(5, 800), &log(800), 2);
            plant(None);
            (older, primary.applied_count(800))
        };
        assert_eq!(with(None), (0, 1));
        assert_eq!(with(Some(Bug::AckOfOlderTerm)), (1, 1));
    }

    /// Links use the machine's clock, which may be set.
    #[test]
    fn a_clock_that_is_set_back_hides_no_silence_and_stops_no_heartbeats() {
        const YEAR_MS: u64 = 365 * 86_400_000;
        let times = Times::default();
        let mut primary = Primary::new(5, times);
        primary.on_connected(LINK, YEAR_MS);
        assert_eq!(primary.on_tick_of(LINK, 1_000), []);
        let beats = primary.on_tick_of(LINK, 1_000 + times.ping_ms);
        assert!(matches!(
            beats[..],
            [Action::Send(LINK, Message::Ping { .. })]
        ));
        let silent = Action::Close(LINK, CloseReason::Silent);
        assert_eq!(primary.on_tick_of(LINK, 1_000 + times.timeout_ms), [silent]);
    }

    #[test]
    fn the_end_named_in_an_attach_counts_for_nothing() {
        let with = |bug| {
            plant(bug);
            let mut primary = Primary::new(5, Times::default());
            primary.on_connected(LINK, 0);
            let mut lineage = crate::lineage::Lineage::default();
            let term = crate::lineage::Term {
                number: 5,
                ..crate::lineage::Term {
                    number: 0,
                    id: crate::lineage::TermId([1; 20]),
                    start: 0,
                }
            };
            let _begun = lineage.begin(term);
            let attach = Attach {
                lineage: lineage.clone(),
                end: 400,
                durable: 400,
                has_data: true,
                ..Attach::default()
            };
            let log = PrimaryLog {
                lineage,
                ..log(800)
            };
            let _actions = primary.on_message(LINK, Message::Attach(attach, None), &log, 0);
            plant(None);
            primary.appended_count(400)
        };
        assert_eq!(with(None), 0);
        assert_eq!(with(Some(Bug::AttachCounts)), 1);
    }

    #[test]
    fn what_was_not_sent_cannot_be_acknowledged() {
        let mut primary = streaming();
        let actions = primary.on_message(LINK, ack(5, 8), &log(800), 1);
        assert_eq!(actions, [Action::Close(LINK, CloseReason::Protocol)]);
        assert_eq!(primary.applied_count(8), 0);
    }

    #[test]
    fn watermarks_never_fall_and_are_counted_apart() {
        let mut primary = streaming();
        let _sent = primary.on_read(LINK, Piece::Frames(&[0; 800]), 0, 1);
        let ack = |appended, durable, applied| {
            Message::Ack(Ack {
                term: 5,
                appended,
                durable,
                applied,
                lag_ms: 0,
            })
        };
        let _nothing = primary.on_message(LINK, ack(800, 400, 600), &log(800), 2);
        let _nothing = primary.on_message(LINK, ack(700, 300, 500), &log(800), 3);
        let counts = |sequence| {
            (
                primary.appended_count(sequence),
                primary.durable_count(sequence),
                primary.applied_count(sequence),
            )
        };
        assert_eq!(counts(400), (1, 1, 1));
        assert_eq!(counts(600), (1, 0, 1));
        assert_eq!(counts(800), (1, 0, 0));
        assert_eq!(primary.recent_count(10_003, 10_000), 1);
        assert_eq!(primary.recent_count(10_004, 10_000), 0);
    }

    #[test]
    fn a_lapped_replica_is_given_a_full_sync_and_counts_again_once_it_applied_it() {
        let mut primary = streaming();
        let lapped = primary.on_read(LINK, Piece::Gone, 0, 1);
        assert!(matches!(
            lapped[..],
            [Action::BeginSync {
                reason: FullReason::Lapped,
                ..
            }]
        ));
        assert_eq!(
            (primary.stage(LINK), primary.needed_from()),
            (Some(Stage::Recovery), None)
        );
        let full = Full {
            sync: 3,
            term: 5,
            streams: 1,
            source: crate::link::Source::Checkpoint,
            generation: 1,
            log_from: 400,
            records: 0,
            bytes: 0,
            fork: u64::MAX,
        };
        let begun = primary.on_sync_begun(LINK, full, 800);
        assert_eq!(begun[0], Action::Send(LINK, Message::Full(full)));
        assert_eq!(primary.needed_from(), Some(400));
        let _sent = primary.on_read(LINK, Piece::Frames(&[0; 400]), 0, 1);
        let _nothing = primary.on_message(LINK, ack(5, 800), &log(800), 2);
        assert_eq!(primary.appended_count(8), 0);
        let end = SyncEnd {
            sync: 3,
            sequence: 800,
            manifest: b"",
        };
        assert_eq!(
            primary.on_sync_sent(LINK, end),
            [Action::Send(LINK, Message::SyncEnd(end))]
        );
        let _nothing = primary.on_message(LINK, ack(5, 800), &log(800), 3);
        assert_eq!(
            (primary.stage(LINK), primary.appended_count(800)),
            (Some(Stage::Streaming), 1)
        );
    }

    #[test]
    fn a_silent_replica_is_closed_and_a_quiet_one_is_pinged() {
        let mut primary = streaming();
        assert!(matches!(
            primary.on_tick(100)[..],
            [Action::Send(LINK, Message::Ping { .. })]
        ));
        assert_eq!(primary.on_tick(150), []);
        assert_eq!(
            primary.on_tick(60_000),
            [Action::Close(LINK, CloseReason::Silent)]
        );
        primary.on_closed(LINK);
        assert_eq!(primary.on_tick(70_000), []);
    }
}
