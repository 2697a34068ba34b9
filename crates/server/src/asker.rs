//! Whom a request is answered to that was offloaded, and waits elsewhere.

use std::sync::Arc;

use engine::{ClientRecord, CommandError};
use protocol::{Reply, ReplyBuffer, Resp};
use reactor::ConnectionId;

use crate::job::{Job, in_pieces};
use crate::link::Message;
use crate::node::Node;

/// Whom a request that waits is to be answered to.
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

    /// Whether the client counts as one that waits.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.client.set_flag(ClientRecord::BLOCKED, is_blocked);
    }

    /// Answers with what `write` writes, or an error.
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
