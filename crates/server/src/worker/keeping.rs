//! A worker's duties for the log, and its reactions to progress of the log.

use std::sync::Arc;
use std::time::Duration;

use engine::Session;
use engine::refusals::{NOT_COMMITTED, log_fault_text};
use reactor::{ConnectionId, Io, Then};

use super::{Arena, Worker};
use crate::job::Piece;
use crate::replication::Watermarks;
use persistence::held_replies::{HeldReplies, Waits, Wrote};
use persistence::log_in_use::TakenUp;
use persistence::tail::Majority;

/// Reply of WAITAOF when the log that it waits for is no longer in use.
const NO_LOG: &str = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

impl Worker {
    /// Switches to the log in use. A log that ended stays until everything appended to it is
    /// durable.
    pub(super) fn take_up_log(&mut self) {
        let log = match self.log_user.take_up(self.engine.store()) {
            TakenUp::Same => return,
            TakenUp::Log(log) => log,
            TakenUp::Nothing => {
                if let Some(replies) = &mut self.held_replies {
                    replies.end_log();
                }
                return;
            }
        };
        let fence = &self.node.replication.fence;
        let majority = fence
            .is_grouped()
            .then(|| Arc::clone(fence) as Arc<dyn Majority>);
        let mut replies =
            HeldReplies::new(log, self.log_user.appended().clone()).with_majority(majority);
        for connected in self.sessions.iter_mut() {
            connected.wrote = Wrote::default();
            replies.note_asking(&mut connected.wrote, waits_of(&connected.session));
        }
        self.held_replies = Some(Box::new(replies));
    }

    /// Handles the switch to another log, or to none: ends all waits for space in the former log
    /// and for its data to be on disk.
    pub(super) fn log_changed(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        let replies = self.held_replies.as_mut();
        let (without_room, disk_waits) = replies
            .map(|one| (one.take_without_room(), one.take_disk_waits()))
            .unwrap_or_default();
        self.take_up_log();
        self.resume_all(io, without_room);
        for id in disk_waits {
            let Some(connected) = self.sessions.get_mut(id) else {
                continue;
            };
            connected.disk_wait = None;
            if let Some(reply) = self.engine.refuse_wait(&mut connected.session, NO_LOG) {
                self.forget_wait_end(id);
                self.answer(io, output, id, vec![Piece::Short(reply)]);
            }
        }
    }

    /// Handles a possible rise of the log's watermarks, or the begin or end of a fault.
    pub(super) fn log_moved(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        let Some(replies) = &mut self.held_replies else {
            return;
        };
        let is_over = replies.is_over();
        io.release(&replies.released());
        if replies.is_deposed() {
            replies.forget_office();
            refuse_held(io, NOT_COMMITTED);
        }
        if is_over {
            self.held_replies = None;
            return;
        }
        if replies.log.fault().is_none() {
            if !replies.is_lapsed() {
                replies.end_fault();
            }
        } else {
            let held = io.held();
            if !held.is_empty() {
                replies.note_held(self.now_ms);
            }
            self.release_readers(io, held);
        }
        self.find_room(io);
        self.answer_on_disk(io, output);
    }

    /// Releases the held replies of connections that wrote nothing that the log lacks.
    fn release_readers(&mut self, io: &mut Io<'_>, held: Vec<ConnectionId>) {
        let Some(replies) = &self.held_replies else {
            return;
        };
        for id in held {
            let connected = self.sessions.get_mut(id);
            if connected.is_none_or(|connected| !replies.has_to_wait(&connected.wrote)) {
                io.release_one(id);
            }
        }
    }

    /// Passes appended frames for which no reply waits to the kernel, and gives up replies that a
    /// fault has held for too long. Called once per turn.
    pub(super) fn look_after_log(&mut self, io: &mut Io<'_>) {
        let Some(replies) = &mut self.held_replies else {
            return;
        };
        replies.write_out();
        replies.look_at_progress(self.now_ms);
        if replies.is_deposed() {
            replies.forget_office();
            refuse_held(io, NOT_COMMITTED);
        } else if replies.is_lapsed() {
            self.look_at_lapse(io);
            return;
        } else if replies.take_nothing_released() {
            io.release(&replies.released());
        }
        if replies.take_end_of_grace(self.now_ms)
            && let Some(reason) = replies.log.fault()
        {
            let line = format!("-{}\r\n", log_fault_text(&reason));
            self.release_readers(io, io.held());
            for id in io.held() {
                io.refuse_held(id, line.as_bytes());
            }
        }
    }

    /// Gives up replies that wait for a majority if the lease ended some time ago.
    #[cold]
    fn look_at_lapse(&mut self, io: &mut Io<'_>) {
        let Some(replies) = &mut self.held_replies else {
            return;
        };
        if io.held().is_empty() {
            replies.end_fault();
            return;
        }
        replies.note_held(self.now_ms);
        if replies.take_end_of_grace(self.now_ms) {
            replies.forget_office();
            refuse_held(io, NOT_COMMITTED);
        }
    }

    /// Resumes the clients that wait for space in the log, if there is space or if they must get
    /// the error that says why not.
    pub(super) fn find_room(&mut self, io: &mut Io<'_>) {
        if let Some(replies) = &mut self.held_replies
            && replies.look_for_room(&self.node.core.shared.gate, self.turn_started_ns)
            && replies.waits_for_room()
        {
            let ids = replies.take_without_room();
            self.resume_all(io, ids);
        }
    }

    fn resume_all(&mut self, io: &mut Io<'_>, ids: Vec<ConnectionId>) {
        for id in ids {
            if let Some(connected) = self.sessions.get_mut(id) {
                connected.end_to_wait();
                io.resume(id);
            }
        }
    }

    /// Decides how a client continues whose request found no space in the log.
    #[cold]
    pub(super) fn wait_for_room(&mut self, id: ConnectionId) -> Then {
        let (gate, now_ns) = (&self.node.core.shared.gate, self.turn_started_ns);
        match (&mut self.held_replies, self.sessions.get_mut(id)) {
            // The log may have moved just now, and notifies only once.
            (Some(replies), Some(connected)) if !replies.look_for_room(gate, now_ns) => {
                connected.begin_to_be_blocked();
                replies.wait_for_room(id);
                Then::Pause
            }
            (None, _) => {
                gate.set_log_full(false);
                Then::Yield
            }
            _ => Then::Yield,
        }
    }

    /// Registers a client that has begun to wait, if it waits until the log is on disk.
    pub(super) fn begin_disk_wait(&mut self, id: ConnectionId) {
        if let Some(connected) = self.sessions.get_mut(id)
            && let Some(wait) = &connected.session.wait
            && let Some(end) = wait.log_end
            && let Some(replies) = &mut self.held_replies
        {
            replies.wait_for_disk(id, end);
            connected.disk_wait = Some(end);
        }
    }

    /// Answers the clients whose writes are on disk now.
    fn answer_on_disk(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        while let Some(replies) = &mut self.held_replies
            && let Some(id) = replies.take_on_disk()
        {
            let Some(connected) = self.sessions.get_mut(id) else {
                continue;
            };
            connected.disk_wait = None;
            let progress = Watermarks(&self.node);
            if let Some(reply) = self.engine.give_up(&mut connected.session, &progress) {
                self.forget_wait_end(id);
                self.answer(io, output, id, vec![Piece::Short(reply)]);
            }
        }
    }

    /// Removes a client's deadline and its wait for the disk.
    pub(super) fn forget_wait_end(&mut self, id: ConnectionId) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        if let Some(end) = connected.wait_end.take() {
            self.waits.remove(end);
        }
        if let Some(end) = connected.disk_wait.take()
            && let Some(replies) = &mut self.held_replies
        {
            replies.forget_wait(id, end);
        }
    }

    /// Returns how long replies are still held while the log cannot be written.
    pub(super) fn grace_left(&self) -> Option<Duration> {
        let left_ms = self.held_replies.as_ref()?.grace_left_ms(self.now_ms)?;
        Some(Duration::from_millis(left_ms))
    }
}

/// Returns what the replies of a session wait for in addition to the server's level.
pub(super) fn waits_of(session: &Session) -> Waits {
    Waits {
        disk: session.waits_for_disk,
        majority: session.waits_for_majority,
    }
}

/// Replaces all held replies by an error, and closes their connections.
#[cold]
fn refuse_held(io: &mut Io<'_>, text: &str) {
    let line = format!("-{text}\r\n");
    for id in io.held() {
        io.refuse_held(id, line.as_bytes());
    }
    // No reply is held any more.
    io.release(&[u64::MAX; reactor::WATERMARKS]);
}
