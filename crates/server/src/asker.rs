//! Whom a request is answered to that was offloaded, and waits elsewhere.

use std::sync::Arc;

use engine::{ClientRecord, CommandError};
use reactor::ConnectionId;

use crate::job::{Job, in_pieces};
use crate::link::Message;
use crate::node::Node;

/// Whom a request that waits is to be answered to.
#[derive(Clone)]
pub(crate) struct Asker {
    client: Arc<ClientRecord>,
    connection: ConnectionId,
}

impl Asker {
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            client: Arc::clone(&job.client),
            connection: job.connection,
        }
    }

    /// Whether the client counts as one that waits.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.client.set_flag(ClientRecord::BLOCKED, is_blocked);
    }

    /// Answers with a reply as it is sent, or an error.
    pub(crate) fn answer(&self, node: &Node, reply: &Result<Vec<u8>, CommandError>) {
        self.set_blocked(false);
        let Some(worker) = node.workers().get(self.client.worker) else {
            return;
        };
        let reply = match reply {
            Ok(reply) => in_pieces(reply),
            Err(error) => {
                node.count_error(error);
                in_pieces(&[b"-", &*error.text(), b"\r\n"].concat())
            }
        };
        worker.post(Message::Answer {
            connection: self.connection,
            reply,
            log_end: None,
        });
    }
}
