//! TLS of own links; empty in a server that was built without TLS.

#[cfg(feature = "tls")]
pub(crate) use ::tls::{LinkStream, LinkTls};

/// Never created.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
pub(crate) enum LinkTls {}
