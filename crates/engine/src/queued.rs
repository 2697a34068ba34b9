//! The requests that a client has queued since MULTI. EXEC determines which keys they reach
//! ([`transaction`](crate::transaction)).

use protocol::{OwnedRequest, Request};

use crate::batch::ARGUMENTS_MAX;
use crate::command_index::CommandIndex;
use crate::flags::Flags;

/// Approximate memory of a queued request besides its bytes.
const REQUEST_BYTES: usize = size_of::<Queued>() + 64;

/// Number of commands above which a transaction takes longer than a worker may neglect its other
/// clients.
const COMMANDS_MAX: usize = 1024;

/// Memory of one argument besides its bytes.
const ARGUMENT_BYTES: usize = 8;

/// A transaction that was begun.
pub struct Transaction {
    queue: Vec<Queued>,
    /// Whether the commands touch nothing but keys.
    is_about_data: bool,
    /// Whether the commands only change or query the cluster.
    is_about_cluster: bool,
    /// Whether a script is among them.
    has_scripts: bool,
    arguments_count: usize,
    /// Union of the flags of the queued commands.
    flags: Flags,
    /// Whether a request was refused, so that EXEC will be refused.
    is_spoilt: bool,
    wire_bytes: usize,
    held_bytes: usize,
}

/// A request that waits for EXEC.
pub(crate) struct Queued {
    request: OwnedRequest,
    pub(crate) index: CommandIndex,
    /// The command's flags.
    pub(crate) flags: Flags,
    /// Index of its first argument.
    pub(crate) first: usize,
}

/// What the queue keeps or counts of a request's row.
pub struct QueuedRow {
    pub(crate) index: CommandIndex,
    /// Index of the first argument.
    pub(crate) first: usize,
    pub(crate) flags: Flags,
    /// Whether the command touches nothing but keys.
    pub(crate) is_about_data: bool,
    /// Whether the command changes or queries the cluster.
    pub(crate) is_about_cluster: bool,
    /// Whether the command is a script.
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
    /// Returns the requests, oldest first.
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

    /// Causes EXEC to be refused.
    pub(crate) fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// Whether one of the commands has all these flags.
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }

    /// Whether the commands touch only keys, so that they may run without their session.
    pub(crate) fn is_about_data(&self) -> bool {
        self.is_about_data
    }

    /// Whether the commands are only about the cluster: they hold no keys, and may wait for other
    /// nodes.
    pub(crate) fn is_about_cluster(&self) -> bool {
        self.is_about_cluster && !self.queue.is_empty()
    }

    /// Whether scripts are among the commands: the transaction may reach keys that its requests do
    /// not name, and may take long.
    pub(crate) fn has_scripts(&self) -> bool {
        self.has_scripts
    }

    /// Whether the transaction takes long because of its number of commands or arguments.
    pub(crate) fn is_long(&self) -> bool {
        self.queue.len() > COMMANDS_MAX || self.arguments_count > ARGUMENTS_MAX
    }

    /// Returns the size of all requests as received, in bytes.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    /// Returns the memory that the queue holds, in bytes.
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
