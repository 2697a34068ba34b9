//! What the directives say about the memcached port.

/// The memcached port; nothing of it is there while the port is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memcached {
    /// TCP port; 0 means none.
    pub port: u16,
    /// The user that its clients are without logging in; empty for the default user, who may need a password.
    pub user: Vec<u8>,
    /// The longest item.
    pub item_bytes_max: usize,
}
