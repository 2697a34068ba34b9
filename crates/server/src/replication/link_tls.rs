//! What own links are encrypted with; nothing in a server that was built without encrypted connections.

#[cfg(feature = "tls")]
pub(crate) use ::tls::{LinkStream, LinkTls};

/// Never made.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
pub(crate) enum LinkTls {}
