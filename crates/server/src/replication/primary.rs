//! The server that this node follows.

/// The server that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// Its name or address.
    pub host: String,
    /// The port on which it serves clients.
    pub port: u16,
}
