//! Which server is followed.

/// The server that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// Its name or address.
    pub host: String,
    /// The port that it serves clients at.
    pub port: u16,
}
