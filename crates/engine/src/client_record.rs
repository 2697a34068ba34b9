//! What other threads may look at of a client (CLIENT LIST).

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access::{Permit, User};

use crate::waiting::Waiter;

/// What CLIENT LIST shows of a client. Written by its worker, read by any thread; every field by
/// itself, so a line may be a moment old.
#[derive(Debug)]
pub struct ClientRecord {
    /// Unique for the life of the server, never used again.
    pub id: u64,
    /// Peer address as `ip:port` or `path:0`.
    pub address: Box<str>,
    /// Our address of the connection.
    pub local_address: Box<str>,
    /// Number of the worker that owns it.
    pub worker: usize,
    /// Number of its connection at that worker, which is given to others later.
    pub place: u32,
    /// File descriptor, for information only.
    pub fd: i32,
    /// When it connected.
    pub connected_unix_ms: u64,
    /// When its last request began.
    pub active_unix_ms: AtomicU64,
    /// Selected database.
    pub database: AtomicU16,
    /// 2 or 3.
    pub resp: AtomicU8,
    /// [`ClientRecord::NO_EVICT`] and its kin.
    pub flags: AtomicU32,
    /// Index into the command table of the last command; `u16::MAX` before the first.
    pub last_command: AtomicU16,
    /// One more than the requests it queued since MULTI; 0 outside of a transaction.
    pub transaction: AtomicU32,
    /// How many keys it watches.
    pub watched: AtomicU32,
    /// Bytes of memory that these requests take.
    pub transaction_bytes: AtomicU64,
    /// Who is told of changes instead of it: 0 when it is itself, -1 when it tracks nothing.
    pub redirect: AtomicI64,
    /// To how many channels, patterns and shard channels it is subscribed.
    pub subscriptions: [AtomicU32; 3],
    /// Bytes waiting in its query buffer.
    pub query_bytes: AtomicU64,
    /// Bytes waiting to be sent.
    pub output_bytes: AtomicU64,
    /// Bytes of memory that both take.
    pub held_bytes: AtomicU64,
    /// Requests it sent so far.
    pub requests: AtomicU64,
    /// Bytes it sent and was sent so far.
    pub input_bytes_total: AtomicU64,
    /// Bytes it was sent so far.
    pub output_bytes_total: AtomicU64,
    /// Absent while it calls itself nothing.
    names: Mutex<Option<Box<ClientNames>>>,
    waiter: Mutex<Option<Arc<Waiter>>>,
    /// Whose it is; `None` for what the server does by itself.
    user: Mutex<Option<Arc<User>>>,
}

/// What a client calls itself.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: String,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: String,
}

/// The name of who authenticated as nobody else.
const DEFAULT_USER: &str = "default";

impl ClientRecord {
    /// The local address of connections inside the process.
    pub const IN_PROCESS: &'static str = "in-process:0";

    /// Whether its requests come through the management port: somebody elsewhere has a connection inside the process.
    #[must_use]
    pub fn came_by_http(&self) -> bool {
        &*self.local_address == Self::IN_PROCESS && &*self.address != Self::IN_PROCESS
    }

    /// CLIENT NO-EVICT ON.
    pub const NO_EVICT: u32 = 1;
    /// CLIENT NO-TOUCH ON.
    pub const NO_TOUCH: u32 = 2;
    /// CLIENT KILL: no request of it is begun any more; its worker will close it.
    pub const KILLED: u32 = 4;
    /// Its worker was asked to close it because all clients together hold too much.
    pub const EVICTED: u32 = 8;
    /// A request of it waits for something, such as the end of CLIENT PAUSE.
    pub const BLOCKED: u32 = 16;
    /// Subscribed to something: its unread output counts as a subscriber's.
    pub const PUBSUB: u32 = 32;
    /// It sees all commands (MONITOR); its unread output counts as a subscriber's.
    pub const MONITOR: u32 = 128;
    /// CLIENT TRACKING is on.
    pub const TRACKING: u32 = 1 << 20;
    /// Its invalidations go to a client that is gone.
    pub const TRACKING_BROKEN: u32 = 1 << 21;
    /// It is told of all changes of keys with its prefixes.
    pub const TRACKING_BROADCAST: u32 = 1 << 22;
    /// It is connected no more.
    pub const GONE: u32 = 1 << 23;
    /// CLIENT CAPA REDIRECT.
    pub const REDIRECTS: u32 = 1 << 24;
    /// It is a replica of ours (`S`).
    pub const REPLICA: u32 = 1 << 25;
    /// It is the primary that the server follows (`M`).
    pub const PRIMARY: u32 = 1 << 26;
    /// READONLY: it reads from replicas in a cluster (`r`).
    pub const READS_REPLICAS: u32 = 1 << 27;
    /// A key that it watches was changed.
    pub const TOUCHED: u32 = 1 << 16;

    /// A record for a client that has just connected.
    #[must_use]
    pub fn new(
        id: u64,
        address: String,
        local_address: String,
        worker: usize,
        fd: i32,
        now_unix_ms: u64,
    ) -> Self {
        Self {
            id,
            address: address.into_boxed_str(),
            local_address: local_address.into_boxed_str(),
            worker,
            place: 0,
            fd,
            connected_unix_ms: now_unix_ms,
            active_unix_ms: AtomicU64::new(now_unix_ms),
            database: AtomicU16::new(0),
            resp: AtomicU8::new(2),
            flags: AtomicU32::new(0),
            last_command: AtomicU16::new(u16::MAX),
            transaction: AtomicU32::new(0),
            watched: AtomicU32::new(0),
            transaction_bytes: AtomicU64::new(0),
            redirect: AtomicI64::new(-1),
            subscriptions: Default::default(),
            query_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            input_bytes_total: AtomicU64::new(0),
            output_bytes_total: AtomicU64::new(0),
            names: Mutex::default(),
            waiter: Mutex::default(),
            user: Mutex::default(),
        }
    }

    /// What it calls itself now.
    #[must_use]
    pub fn names(&self) -> ClientNames {
        self.lock_names().as_deref().cloned().unwrap_or_default()
    }

    /// Changes what it calls itself.
    pub fn change_names(&self, change: impl FnOnce(&mut ClientNames)) {
        change(self.lock_names().get_or_insert_default());
    }

    /// Calls itself nothing any more; the library stays.
    pub fn clear_name(&self) {
        if let Some(names) = &mut *self.lock_names() {
            names.name = String::new();
        }
    }

    fn lock_names(&self) -> MutexGuard<'_, Option<Box<ClientNames>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user it authenticated as.
    #[must_use]
    pub fn user_name(&self) -> String {
        let user = self.user();
        user.map_or_else(
            || DEFAULT_USER.to_owned(),
            |user| String::from_utf8_lossy(user.name()).into_owned(),
        )
    }

    /// Its peer's address without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        let address = self.address.rsplit_once(':');
        address.map_or(&*self.address, |(host, _)| host)
    }

    /// Says whose it is.
    pub fn set_user(&self, user: Arc<User>) {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(user);
    }

    /// Whose it is; `None` for what the server does by itself.
    #[must_use]
    pub fn user(&self) -> Option<Arc<User>> {
        let user = self.user.lock();
        user.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it may do.
    pub(crate) fn permit(&self) -> Permit {
        self.user().map_or_else(Permit::unrestricted, Permit::new)
    }

    /// What it waits for, if anything. The wait may have ended a moment ago.
    pub fn waiter(&self) -> Option<Arc<Waiter>> {
        let waiter = self.waiter.lock();
        waiter.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says what it waits for; what it did before.
    pub(crate) fn set_waiter(&self, waiter: Option<Arc<Waiter>>) -> Option<Arc<Waiter>> {
        let mut place = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, waiter)
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set_flag(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an idle client costs here; its worker's tables and its connection's come to it.
    #[test]
    fn the_record_of_an_idle_client_is_small() {
        // Two counts stand before it in its `Arc`; the next size that is allocated is half a kilobyte.
        let record_bytes = size_of::<ClientRecord>() + 2 * size_of::<usize>();
        assert!(record_bytes <= 256, "{record_bytes} bytes");
    }
}
