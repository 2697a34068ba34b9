//! Encrypted connections: handshakes, transports, certificates.
//!
//! ```text
//!   listener --accepted--> Handshakes (threads of their own) --Stream--> Balancer --> a worker's loop
//!                            |  ServerConfig of this moment                 recv: socket -> records -> bytes
//!                            +--> Attendant (who, why)                      send: bytes -> records -> socket
//! ```
//!
//! The only room that names a crypto library. A [`Stream`] is a transport of the reactor: the
//! worker that serves a connection encrypts and decrypts its bytes, in buffers of the thread, so an
//! idle connection owns no buffer. A handshake costs a thousand times as much as a request, so
//! handshakes run on threads of their own at a low priority ([`Handshakes`]).
//!
//! The server's certificate, key, authorities and rules are read from files into a [`Server`] at
//! once, whole or not at all. New handshakes use the newest configuration; connections keep the one
//! that they began with.
#![forbid(unsafe_code)]

mod certificate;
mod ciphers;
mod client;
mod der;
mod error;
mod files;
mod handshakes;
mod key;
mod link;
#[cfg(feature = "tokio")]
mod outgoing;
mod pem;
mod server;
mod sessions;
mod stream;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod testing;

pub use certificate::{Certificate, describe};
pub use client::{Client, ClientOptions, ClientStream};
pub use error::{HandshakeError, SetupError};
pub use handshakes::{Attendant, Figures, Handshakes, Refused};
pub use link::{LinkStream, LinkTls};
#[cfg(feature = "tokio")]
pub use outgoing::{Outgoing, OutgoingError, Untrusted};
pub use server::{ClientAuth, Server, ServerOptions};
pub use stream::{Handshake, Side, Stream};
