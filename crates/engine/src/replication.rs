//! What clients ask of the server's replication and its answers, and what a connection announces
//! before it gets the stream. The server decides.

/// Number of replicas that have something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Replicas that can show it to readers.
    pub applied: usize,
    /// Replicas that have it on disk.
    pub durable: usize,
}

/// A server's role, as ROLE shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleReport {
    /// It takes writes.
    Primary {
        /// The offset of its stream.
        offset: u64,
        /// Its replicas that are online: address, port and offset.
        replicas: Vec<(String, u16, u64)>,
    },
    /// It follows another server.
    Replica {
        /// The address of that server.
        host: String,
        /// The port of that server.
        port: u16,
        /// `connect`, `connecting`, `handshake`, `sync` or `connected`.
        state: &'static str,
        /// Its offset; -1 if unknown.
        offset: i64,
    },
}

impl Default for RoleReport {
    fn default() -> Self {
        Self::Primary {
            offset: 0,
            replicas: Vec::new(),
        }
    }
}

/// Which server to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaOf {
    /// None: the server is a primary.
    NoOne,
    /// This server.
    Primary {
        /// Its name or address.
        host: String,
        /// Its port for clients.
        port: u16,
        /// Whether to follow it even if its data is older or unrelated.
        forces: bool,
    },
}

/// The result of a REPLICAOF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It is done, or in progress.
    Changed,
    /// The server is that server's replica already.
    AlreadyTheirs,
}

/// An order to a node of a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// It leads nothing and is not promoted.
    Drain,
    /// It may lead again, and stays.
    Undrain,
    /// It leaves as soon as it is no longer needed.
    Leave,
}

/// An order of FAILOVER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailoverOrder {
    /// Abort the failover in progress.
    Abort,
    /// Begin a failover.
    Begin {
        /// The replica that takes over; otherwise the first that has everything.
        to: Option<(String, i32)>,
        /// Whether the replica takes over at the timeout even if it lacks data.
        forces: bool,
        /// How long writes may wait.
        timeout_ms: Option<u64>,
    },
}

/// What a connection announced with REPLCONF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaHello {
    /// Its port for clients.
    pub listening_port: u16,
    /// Its address for clients; otherwise the address of the connection.
    pub ip_address: Option<String>,
    /// Whether it reads an RDB file whose length is not known in advance.
    pub reads_to_mark: bool,
    /// Whether it accepts another replication ID with `+CONTINUE`.
    pub takes_new_id: bool,
    /// Its version, if announced.
    pub version: Option<String>,
    /// Whether it wants the data and not the stream.
    pub only_rdb: bool,
    /// Whether it wants functions and not the keys.
    pub only_functions: bool,
}

/// PSYNC or SYNC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// The history that it has, and the next offset that it wants; `None` for everything (`?`,
    /// SYNC).
    pub from: Option<(Vec<u8>, i64)>,
    /// Whether it is SYNC: there is no line before the data, and no acknowledgement after it.
    pub is_old: bool,
    /// Whether it ends a failover: the receiver takes over.
    pub takes_over: bool,
    /// What the connection announced before.
    pub hello: ReplicaHello,
}
