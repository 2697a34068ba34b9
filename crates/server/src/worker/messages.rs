//! Messages of other threads to a worker, and pushes to its clients.

use engine::ClientRecord;
use reactor::{ConnectionId, Io};

use super::stopping::Stopping;
use super::{Arena, Worker};
use crate::counters::Count;
use crate::link::Message;

impl Worker {
    pub(super) fn on_message(&mut self, io: &mut Io<'_>, output: &mut Arena, message: Message) {
        match message {
            Message::Kill { client, place } => {
                if let Some(id) = self.sessions.connection_of(client, place) {
                    io.close_after_flush(id);
                }
            }
            Message::Evict {
                client,
                place,
                held_bytes,
            } => {
                if let Some(id) = self.sessions.connection_of(client, place) {
                    self.evict(io, id, held_bytes);
                }
            }
            Message::MailDelivered => self.resume_throttled(io),
            Message::Resume => self.resume_paused(io),
            Message::Answer {
                connection,
                reply,
                log_end,
            } => {
                self.note_answer(connection, log_end);
                self.answer(io, output, connection, reply);
            }
            Message::Waits {
                connection,
                timeout_ms,
            } => self.begin_wait_from_aside(connection, timeout_ms),
            Message::Served {
                client,
                place,
                reply,
            } => {
                if let Some(id) = self.sessions.connection_of(client, place)
                    && !self.forward_waiter(id, &reply)
                {
                    self.end_wait(id, &reply);
                    let log_end = self.held_replies.as_ref().map(|it| it.log.tail());
                    self.note_answer(id, log_end);
                    self.answer(io, output, id, reply);
                }
            }
            Message::SlotsChanged => self.end_shard_subscriptions(io, output),
            Message::NotForwarded {
                client,
                serial,
                reason,
            } => self.not_forwarded(client, serial, &reason),
            Message::RulesChanged { user } => self.end_subscribers(io, &user),
            Message::KeysFree => {
                self.serve();
                self.resume_waiting(io);
            }
            Message::ValuesRead { connection } => self.resume_one(io, connection),
            Message::LogChanged => self.log_changed(io, output),
            Message::LookAtLog(_looked) => self.log_moved(io, output),
            Message::Stop => {
                self.stopping = Some(Stopping::begin(&self.sessions, io, self.now_ms));
            }
        }
    }

    /// Closes the clients of a user that are subscribed to channels that the user may no longer
    /// read.
    fn end_subscribers(&mut self, io: &mut Io<'_>, user: &[u8]) {
        for connected in self.sessions.iter_mut() {
            let session = &mut connected.session;
            let is_its = session.permit.user().name() == user;
            if let (true, Some(own)) = (is_its, &session.subscriptions)
                && !own.are_allowed(session.permit.rules())
            {
                session.client.set_flag(ClientRecord::KILLED, true);
                io.close_after_flush(connected.id);
            }
        }
    }

    /// Closes a client that held `held_bytes` when it was chosen, unless it has freed most of that
    /// since.
    fn evict(&mut self, io: &mut Io<'_>, id: ConnectionId, held_bytes: u64) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        if self.buffers.refresh(connected, io) < held_bytes / 2 {
            let client = &connected.session.client;
            client.set_flag(ClientRecord::EVICTED, false);
        } else if io.close(id) {
            self.counters.bump(Count::EvictedClients);
        }
    }

    /// Delivers pushes, and closes clients that missed one because too many were waiting.
    pub(super) fn deliver(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        if !self.deliveries.wait() {
            return;
        }
        self.deliveries.deliver(&mut self.sessions, io, output);
        for id in self.deliveries.take_missed(&self.sessions) {
            if io.close(id) {
                self.counters.bump(Count::OutputLimitCloses);
            }
        }
    }
}
