//! What clients ask of the server's replication and are told, and what a connection says of itself before it is given
//! the stream. The server decides.

/// How many replicas have something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// They can show it to readers.
    pub applied: usize,
    /// It is on their disks.
    pub durable: usize,
}

/// Which part a server has, as ROLE tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleReport {
    /// It takes writes.
    Primary {
        /// Where its stream is.
        offset: u64,
        /// Its replicas that are online: address, port and what they have.
        replicas: Vec<(String, u16, u64)>,
    },
    /// It follows another server.
    Replica {
        /// Whom.
        host: String,
        /// At which port.
        port: u16,
        /// `connect`, `connecting`, `handshake`, `sync` or `connected`.
        state: &'static str,
        /// What it has; -1 where that is not known.
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

/// Whom to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaOf {
    /// Nobody: the server is a primary.
    NoOne,
    /// This server.
    Primary {
        /// Its name or address.
        host: String,
        /// The port that it serves clients at.
        port: u16,
        /// Even if what it has is older or unrelated.
        forces: bool,
    },
}

/// What became of a REPLICAOF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// It is done, or on its way.
    Changed,
    /// It is that server's replica already.
    AlreadyTheirs,
}

/// What a node of a control group is to do less of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// It leads nothing and is not promoted.
    Drain,
    /// It may lead again, and stays.
    Undrain,
    /// It leaves as soon as nobody needs it.
    Leave,
}

/// What FAILOVER is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailoverOrder {
    /// To give up the one that is going on.
    Abort,
    /// To begin one.
    Begin {
        /// Which replica takes over; otherwise the first that has everything.
        to: Option<(String, i32)>,
        /// Takes over when the time is up, whether it has everything or not.
        forces: bool,
        /// How long writers may wait.
        timeout_ms: Option<u64>,
    },
}

/// What a connection said of itself with REPLCONF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaHello {
    /// The port at which it serves clients.
    pub listening_port: u16,
    /// The address at which it does; otherwise the one that it comes from.
    pub ip_address: Option<String>,
    /// It reads an RDB file whose length is not known at its beginning.
    pub reads_to_mark: bool,
    /// It takes another replication ID with `+CONTINUE`.
    pub takes_new_id: bool,
    /// Its version, if it said one.
    pub version: Option<String>,
    /// It wants the data and not the stream.
    pub only_rdb: bool,
    /// It wants functions and not the keys.
    pub only_functions: bool,
}

/// PSYNC or SYNC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// The history that it has, and the offset that it wants next; `None` for everything (`?`, SYNC).
    pub from: Option<(Vec<u8>, i64)>,
    /// It came as SYNC: there is no line before the data, and no acknowledgement after it.
    pub is_old: bool,
    /// The end of a failover: whoever is asked takes over.
    pub takes_over: bool,
    /// What the connection said before.
    pub hello: ReplicaHello,
}
