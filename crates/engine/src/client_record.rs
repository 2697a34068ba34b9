//! What other threads may read about a client (CLIENT LIST).

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access::{Permit, User};

use crate::waiting::Waiter;

/// What CLIENT LIST shows of a client. Its worker writes the record; any thread reads it. Each
/// field is read by itself, so a line may be slightly out of date.
#[derive(Debug)]
pub struct ClientRecord {
    /// Unique for the life of the server, never reused.
    pub id: u64,
    /// Peer address as `ip:port` or `path:0`.
    pub address: Box<str>,
    /// Our address of the connection.
    pub local_address: Box<str>,
    /// Number of the worker that owns the client.
    pub worker: usize,
    /// Number of the client's connection at that worker. Later connections reuse it.
    pub place: u32,
    /// File descriptor, for information only.
    pub fd: i32,
    /// When the client connected.
    pub connected_unix_ms: u64,
    /// When the client's last request began.
    pub active_unix_ms: AtomicU64,
    /// Selected database.
    pub database: AtomicU16,
    /// Protocol version: 2 or 3.
    pub resp: AtomicU8,
    /// Flags such as [`ClientRecord::NO_EVICT`].
    pub flags: AtomicU32,
    /// Index into the command table of the last command; `u16::MAX` before the first.
    pub last_command: AtomicU16,
    /// Number of requests queued since MULTI, plus one; 0 outside of a transaction.
    pub transaction: AtomicU32,
    /// Number of keys that the client watches.
    pub watched: AtomicU32,
    /// Memory that the queued requests and watched keys take, in bytes.
    pub transaction_bytes: AtomicU64,
    /// Id of the client that receives the invalidations: 0 for this client itself, -1 if it does
    /// not track keys.
    pub redirect: AtomicI64,
    /// Number of channels, patterns and shard channels the client is subscribed to.
    pub subscriptions: [AtomicU32; 3],
    /// Bytes waiting in its query buffer.
    pub query_bytes: AtomicU64,
    /// Bytes waiting to be sent.
    pub output_bytes: AtomicU64,
    /// Memory that both buffers take, in bytes.
    pub held_bytes: AtomicU64,
    /// Number of requests the client has sent.
    pub requests: AtomicU64,
    /// Bytes received from the client so far.
    pub input_bytes_total: AtomicU64,
    /// Bytes sent to the client so far.
    pub output_bytes_total: AtomicU64,
    /// The client's names, or `None` if it has set none.
    names: Mutex<Option<Box<ClientNames>>>,
    waiter: Mutex<Option<Arc<Waiter>>>,
    /// The client's user, or `None` for actions of the server itself.
    user: Mutex<Option<Arc<User>>>,
}

/// The names that a client gives itself.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: String,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: String,
}

/// Name of the user of a client that has not authenticated as another one.
const DEFAULT_USER: &str = "default";

impl ClientRecord {
    /// The local address of connections inside the process.
    pub const IN_PROCESS: &'static str = "in-process:0";

    /// Whether the client's requests come through the management port: a remote client uses a
    /// connection inside the process.
    #[must_use]
    pub fn came_by_http(&self) -> bool {
        &*self.local_address == Self::IN_PROCESS && &*self.address != Self::IN_PROCESS
    }

    /// CLIENT NO-EVICT ON.
    pub const NO_EVICT: u32 = 1;
    /// CLIENT NO-TOUCH ON.
    pub const NO_TOUCH: u32 = 2;
    /// CLIENT KILL: no further request of the client begins, and its worker will close it.
    pub const KILLED: u32 = 4;
    /// The worker was asked to close the client because all clients together hold too much memory.
    pub const EVICTED: u32 = 8;
    /// A request of the client waits for something, such as the end of CLIENT PAUSE.
    pub const BLOCKED: u32 = 16;
    /// The client is subscribed to something: the subscribers' limit applies to its unread output.
    pub const PUBSUB: u32 = 32;
    /// The client sees all commands (MONITOR): the subscribers' limit applies to its unread output.
    pub const MONITOR: u32 = 128;
    /// CLIENT TRACKING is on.
    pub const TRACKING: u32 = 1 << 20;
    /// The client that receives the invalidations is gone.
    pub const TRACKING_BROKEN: u32 = 1 << 21;
    /// The client is notified of all changes of keys with its prefixes.
    pub const TRACKING_BROADCAST: u32 = 1 << 22;
    /// The client is no longer connected.
    pub const GONE: u32 = 1 << 23;
    /// CLIENT CAPA REDIRECT.
    pub const REDIRECTS: u32 = 1 << 24;
    /// The client is a replica of this server (`S`).
    pub const REPLICA: u32 = 1 << 25;
    /// The client is the primary that this server follows (`M`).
    pub const PRIMARY: u32 = 1 << 26;
    /// READONLY: the client reads from replicas in a cluster (`r`).
    pub const READS_REPLICAS: u32 = 1 << 27;
    /// A key that the client watches was changed.
    pub const TOUCHED: u32 = 1 << 16;

    /// Returns a record for a client that has just connected.
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

    /// Returns the client's current names.
    #[must_use]
    pub fn names(&self) -> ClientNames {
        self.lock_names().as_deref().cloned().unwrap_or_default()
    }

    /// Changes the client's names.
    pub fn change_names(&self, change: impl FnOnce(&mut ClientNames)) {
        change(self.lock_names().get_or_insert_default());
    }

    /// Clears the client's name and keeps the library's.
    pub fn clear_name(&self) {
        if let Some(names) = &mut *self.lock_names() {
            names.name = String::new();
        }
    }

    fn lock_names(&self) -> MutexGuard<'_, Option<Box<ClientNames>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the user that the client authenticated as.
    #[must_use]
    pub fn user_name(&self) -> String {
        let user = self.user();
        user.map_or_else(
            || DEFAULT_USER.to_owned(),
            |user| String::from_utf8_lossy(user.name()).into_owned(),
        )
    }

    /// Returns the peer's address without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        let address = self.address.rsplit_once(':');
        address.map_or(&*self.address, |(host, _)| host)
    }

    /// Sets the client's user.
    pub fn set_user(&self, user: Arc<User>) {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(user);
    }

    /// Returns the client's user, or `None` for actions of the server itself.
    #[must_use]
    pub fn user(&self) -> Option<Arc<User>> {
        let user = self.user.lock();
        user.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what the client may do.
    pub(crate) fn permit(&self) -> Permit {
        self.user().map_or_else(Permit::unrestricted, Permit::new)
    }

    /// Returns what the client waits for, if anything. The wait may have just ended.
    pub fn waiter(&self) -> Option<Arc<Waiter>> {
        let waiter = self.waiter.lock();
        waiter.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets what the client waits for, and returns the previous value.
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

    /// The record's cost for an idle client. The worker's and the connection's tables add to it.
    #[test]
    fn the_record_of_an_idle_client_is_small() {
        // The `Arc` puts two counts before the record; the allocator's next size is half a
        // kilobyte.
        let record_bytes = size_of::<ClientRecord>() + 2 * size_of::<usize>();
        assert!(record_bytes <= 256, "{record_bytes} bytes");
    }
}
