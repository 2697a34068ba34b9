//! Clients that wait: for keys, for an offloaded request, for delivery of pushes, or for the end of
//! a pause. How their waits begin, and how they are answered or resumed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{ClientRecord, Wait};
use protocol::Reply;
use reactor::{ConnectionId, Io, Then};

use super::{Arena, Worker};
use crate::counters::bump;
use crate::job::{Answer, Piece};
use crate::port::Port;
use crate::replication::Watermarks;

impl Worker {
    /// Makes a client wait for keys.
    #[cold]
    pub(super) fn begin_wait(&mut self, id: ConnectionId) -> Then {
        let Some(connected) = self.sessions.get_mut(id) else {
            return Then::CloseNow;
        };
        if let Some(wait) = &connected.session.wait
            && let Some(timeout_ms) = wait.timeout_ms
        {
            let ticket = wait.waiter.ticket();
            let end = self
                .waits
                .add(&*self.node.core.clock, timeout_ms, ticket, id);
            connected.wait_end = Some(end);
        }
        let requests = &connected.session.client.requests;
        let counted = requests.load(Ordering::Relaxed);
        requests.store(counted.saturating_sub(1), Ordering::Relaxed);
        connected.owes_request = counted > 0;
        connected.begin_to_be_blocked();
        // Another thread may have answered it since, and has then already cleared the flag.
        if let Some(wait) = &connected.session.wait
            && !wait.waiter.waits()
        {
            let client = &connected.session.client;
            client.set_flag(ClientRecord::BLOCKED, false);
        }
        self.begin_disk_wait(id);
        Then::Pause
    }

    /// Makes a client wait for keys whose request was offloaded, unless it was answered meanwhile.
    pub(super) fn begin_wait_from_aside(&mut self, id: ConnectionId, timeout_ms: Option<u64>) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let session = &mut connected.session;
        let waiter = session.client.waiter().filter(|waiter| waiter.waits());
        if session.wait.is_none()
            && let Some(waiter) = waiter
        {
            session.wait = Some(Box::new(Wait {
                waiter,
                timeout_ms,
                log_end: None,
            }));
            self.begin_wait(id);
        }
    }

    /// Ends the wait of a client that is answered with `reply`.
    pub(super) fn end_wait(&mut self, id: ConnectionId, reply: &Answer) {
        if let Some(connected) = self.sessions.get_mut(id) {
            let head = reply.first().map_or(&[][..], Piece::as_slice);
            self.engine.end_answered_wait(&mut connected.session, head);
            self.forget_wait_end(id);
        }
    }

    /// Answers the clients whose waits for keys have reached their deadline.
    pub(super) fn end_overdue_waits(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        let node = Arc::clone(&self.node);
        let progress = Watermarks(&node);
        while let Some(id) = self.waits.take_over(&*self.node.core.clock) {
            let Some(connected) = self.sessions.get_mut(id) else {
                continue;
            };
            connected.wait_end = None;
            // Another thread may just have answered it.
            if let Some(reply) = self.engine.give_up(&mut connected.session, &progress) {
                self.forget_wait_end(id);
                self.answer(io, output, id, vec![Piece::Short(reply)]);
            }
        }
        let count = self.waits.len();
        self.counters.timeouts.set(count as u64);
    }

    /// Retries the waits for keys, if keys changed otherwise than by a command.
    pub(super) fn serve(&mut self) {
        self.engine.serve(&mut Port::new(&self.node, false));
    }

    /// Sends the reply of an offloaded request, and resumes its client.
    pub(super) fn answer(
        &mut self,
        io: &mut Io<'_>,
        output: &mut Arena,
        id: ConnectionId,
        reply: Answer,
    ) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let before = output.len_with_attachments();
        if let Some(client) = &mut connected.memcached {
            if !client.answer(&reply, output) {
                io.close(id);
            }
        } else {
            for piece in reply {
                match piece {
                    Piece::Short(bytes) => output.push_slice(&bytes),
                    Piece::Long(bytes) => output.attach(Box::new(bytes)),
                }
            }
        }
        let session = &mut connected.session;
        for push in std::mem::take(&mut session.held_pushes) {
            push.write(&mut Reply::new(&mut *output, session.resp));
        }
        let bytes = output.len_with_attachments() - before;
        bump(&session.client.output_bytes_total, bytes);
        io.address(id, output.len());
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let active_unix_ms = &connected.session.client.active_unix_ms;
        active_unix_ms.store(now_unix_ms, Ordering::Relaxed);
        connected.end_to_wait();
        self.buffers.runs_aside(connected, 0);
        io.resume(id);
    }

    /// Records up to which log sequence other threads appended for a client that is answered now.
    pub(super) fn note_answer(&mut self, id: ConnectionId, log_end: Option<u64>) {
        if let Some(log_end) = log_end
            && let Some(replies) = &mut self.held_replies
            && let Some(connected) = self.sessions.get_mut(id)
        {
            replies.answered(&mut connected.wrote, log_end);
        }
    }

    /// Resumes publishers that wait until their messages are delivered.
    pub(super) fn resume_throttled(&mut self, io: &mut Io<'_>) {
        for id in std::mem::take(&mut self.throttled) {
            if let Some(connected) = self.sessions.get_mut(id) {
                connected.end_to_wait();
                io.resume(id);
            }
        }
    }

    /// Resumes clients that wait for keys. Clients that wait for their own offloaded request have
    /// no input that could be processed before its reply is written.
    pub(super) fn resume_waiting(&mut self, io: &mut Io<'_>) {
        for id in std::mem::take(&mut self.waiting) {
            if let Some(connected) = self.sessions.get_mut(id) {
                connected.end_to_wait();
                io.resume(id);
            }
        }
    }

    /// Resumes a client, if it waits.
    pub(super) fn resume_one(&mut self, io: &mut Io<'_>, id: ConnectionId) {
        let Some(at) = self.waiting.iter().position(|one| *one == id) else {
            return;
        };
        self.waiting.swap_remove(at);
        if let Some(connected) = self.sessions.get_mut(id) {
            connected.end_to_wait();
            io.resume(id);
        }
    }

    /// Resumes clients that wait for the end of CLIENT PAUSE.
    pub(super) fn resume_paused(&mut self, io: &mut Io<'_>) {
        if self.paused_count == 0 {
            return;
        }
        self.paused_count = 0;
        for connected in self.sessions.iter_mut() {
            if std::mem::take(&mut connected.is_paused) {
                let client = &connected.session.client;
                client.set_flag(ClientRecord::BLOCKED, false);
                io.resume(connected.id);
            }
        }
    }

    /// Returns the remaining time of the pause, or `None` if no client waits here.
    pub(super) fn pause_left(&self) -> Option<Duration> {
        if self.paused_count == 0 {
            return None;
        }
        let gate = &self.node.core.shared.gate;
        let until_unix_ms = gate.paused_until_unix_ms();
        if until_unix_ms == 0 && (gate.changes_role() || gate.has_no_office()) {
            // The thread that ends such a pause notifies the workers.
            return None;
        }
        let left_ms = until_unix_ms.saturating_sub(self.node.core.clock.now_unix_ms());
        Some(Duration::from_millis(left_ms))
    }
}
