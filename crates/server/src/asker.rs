//! The client of an offloaded request that waits elsewhere for its result.

use std::sync::Arc;

use engine::{ClientRecord, CommandError};
use protocol::{Reply, ReplyBuffer, Resp};
use reactor::ConnectionId;

use crate::job::{Job, in_pieces};
use crate::link::Message;
use crate::node::Node;

/// The client that waits for the reply of an offloaded request.
#[derive(Clone)]
pub(crate) struct Asker {
    client: Arc<ClientRecord>,
    connection: ConnectionId,
    resp: Resp,
}

impl Asker {
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            client: Arc::clone(&job.client),
            connection: job.connection,
            resp: job.resp,
        }
    }

    /// Sets whether the client counts as blocked.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.client.set_flag(ClientRecord::BLOCKED, is_blocked);
    }

    /// Answers with the reply that `write` writes, or with the error that it returns.
    pub(crate) fn answer(
        &self,
        node: &Node,
        write: impl FnOnce(&mut Reply<'_>) -> Result<(), CommandError>,
    ) {
        self.set_blocked(false);
        let Some(worker) = node.workers().get(self.client.worker) else {
            return;
        };
        let mut buffer = ReplyBuffer::default();
        let mut reply = Reply::new(&mut buffer, self.resp);
        if let Err(error) = write(&mut reply) {
            node.count_error(&error);
            reply.rollback(0);
            reply.error_bytes(&error.text());
        }
        worker.post(Message::Answer {
            connection: self.connection,
            reply: in_pieces(&buffer.to_vec()),
            log_end: None,
        });
    }
}
