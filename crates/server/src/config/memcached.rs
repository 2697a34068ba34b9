//! Settings of the memcached port.

/// The memcached port. It is off while the port is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memcached {
    /// TCP port; 0 means none.
    pub port: u16,
    /// User of clients that have not logged in; empty means the default user, which may need a
    /// password.
    pub user: Vec<u8>,
    /// Maximum length of an item.
    pub item_bytes_max: usize,
}
