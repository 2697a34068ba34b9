//! The requests that a client has queued since MULTI. What they reach is found out at EXEC
//! ([`transaction`](crate::transaction)).

use protocol::{OwnedRequest, Request};

use crate::batch::ARGUMENTS_MAX;
use crate::command_index::CommandIndex;
use crate::flags::Flags;

/// What a queued request takes besides its bytes, about.
const REQUEST_BYTES: usize = size_of::<Queued>() + 64;

/// A transaction of more commands takes longer than a worker may be away from its other clients.
const COMMANDS_MAX: usize = 1024;

/// What one argument takes besides its bytes.
const ARGUMENT_BYTES: usize = 8;

/// A transaction that was begun.
pub struct Transaction {
    queue: Vec<Queued>,
    /// Nothing but keys is touched.
    is_about_data: bool,
    /// It changes the cluster, or asks about it, and nothing else.
    is_about_cluster: bool,
    /// There is a script among them.
    has_scripts: bool,
    arguments_count: usize,
    /// What any of the queued commands does.
    flags: Flags,
    /// A request was refused, so that EXEC will be.
    is_spoilt: bool,
    wire_bytes: usize,
    held_bytes: usize,
}

/// A request that waits for EXEC.
pub(crate) struct Queued {
    request: OwnedRequest,
    pub(crate) index: CommandIndex,
    /// What the command does.
    pub(crate) flags: Flags,
    /// Where its arguments start.
    pub(crate) first: usize,
}

/// What is kept, or counted, of the row of a queued request.
pub struct QueuedRow {
    pub(crate) index: CommandIndex,
    /// Where the arguments start.
    pub(crate) first: usize,
    pub(crate) flags: Flags,
    /// It touches nothing but keys.
    pub(crate) is_about_data: bool,
    /// It changes the cluster, or asks about it.
    pub(crate) is_about_cluster: bool,
    /// It is a script.
    pub(crate) is_script: bool,
}

impl Queued {
    pub(crate) fn request(&self) -> Request<'_> {
        self.request.request()
    }
}

impl Default for Transaction {
    fn default() -> Self {
        Self {
            queue: Vec::new(),
            is_about_data: true,
            is_about_cluster: true,
            has_scripts: false,
            arguments_count: 0,
            flags: Flags::NONE,
            is_spoilt: false,
            wire_bytes: 0,
            held_bytes: 0,
        }
    }
}

impl Transaction {
    /// The requests, oldest first.
    pub(crate) fn queue(&self) -> &[Queued] {
        &self.queue
    }

    /// Calls `each` with every request, oldest first.
    pub fn for_each_request(&self, mut each: impl FnMut(Request<'_>)) {
        for queued in &self.queue {
            each(queued.request());
        }
    }

    /// Whether EXEC will be refused.
    #[must_use]
    pub fn is_spoilt(&self) -> bool {
        self.is_spoilt
    }

    /// Has EXEC refused.
    pub(crate) fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// Whether one of the commands has all these flags.
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }

    /// Whether the commands touch keys and nothing else, so that they may run without their session.
    pub(crate) fn is_about_data(&self) -> bool {
        self.is_about_data
    }

    /// Whether the commands are about the cluster and nothing else: they hold no keys, and may wait for other nodes.
    pub(crate) fn is_about_cluster(&self) -> bool {
        self.is_about_cluster && !self.queue.is_empty()
    }

    /// Whether it may come to keys that its requests do not tell, and take long: there are scripts in
    /// it.
    pub(crate) fn has_scripts(&self) -> bool {
        self.has_scripts
    }

    /// Whether there are so many commands or arguments that it takes long.
    pub(crate) fn is_long(&self) -> bool {
        self.queue.len() > COMMANDS_MAX || self.arguments_count > ARGUMENTS_MAX
    }

    /// Bytes of all requests as they came.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    /// Bytes of memory held by the queue.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Adds a request of a command.
    pub fn push(&mut self, request: Request<'_>, row: QueuedRow) {
        self.flags = self.flags.with(row.flags);
        self.is_about_data &= row.is_about_data;
        self.is_about_cluster &= row.is_about_cluster;
        self.has_scripts |= row.is_script;
        self.arguments_count += request.len();
        self.wire_bytes += request.wire_bytes();
        self.held_bytes += request.wire_bytes() + request.len() * ARGUMENT_BYTES + REQUEST_BYTES;
        self.queue.push(Queued {
            request: OwnedRequest::from(request),
            index: row.index,
            flags: row.flags,
            first: row.first,
        });
    }
}
