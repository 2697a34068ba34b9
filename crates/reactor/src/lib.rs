//! Event loop, listeners and connections: moves bytes to and from sockets, and does not interpret
//! them.
//!
//! ```text
//!   listeners (shared) --accept--> Balancer --least loaded--> worker's inbox
//!                                                                  |
//!   one thread per worker:   epoll --> EventLoop --received()--> Service (the server's sessions)
//!                                        ^   |                      |
//!                 Waker (any thread) ----+   +<-- output arena <----+   flushed once per turn
//! ```
//!
//! A worker thread owns one [`EventLoop`], which owns its connections and calls one [`Service`].
//! Input is read into one buffer of the thread, and the replies of a turn are collected in one
//! arena of the thread, so an idle connection owns no buffer. [`ConnectionId`]s name connections;
//! an id is recognised as stale after its connection is gone. [`Transport`] abstracts from what
//! carries the bytes. A service that reads files while it serves uses a [`Ring`], whose completions
//! wake its loop.
//!
//! `EventLoop` documents the order of steps in a turn; `service` documents the guarantees for a
//! service.

mod balancer;
mod connections;
mod detached;
mod event_loop;
mod holding;
mod in_process;
mod io;
mod listener;
mod loop_state;
mod outbox;
mod pending;
mod ring;
mod service;
pub mod signals;
mod transport;
mod waker;
pub mod workers;

pub use balancer::Balancer;
pub use connections::ConnectionId;
pub use detached::{Breaker, Detached};
pub use event_loop::{EventLoop, FLUSH_BYTES, Options, READ_BUFFER_BYTES};
pub use in_process::{InProcess, InProcessPeer, in_process_pair};
pub use io::Io;
pub use listener::{Listener, Porter, TcpOptions, UnixOptions};
pub use ring::{RING_DEPTH_MAX, Ring, RingRead, try_ring};
pub use service::{
    CloseReason, Departure, Endpoint, Filled, OutputArena, PeerInfo, PeerNames,
    REPLIES_BYTES_UNASKED, Received, Security, Service, Then, Ticket, Traffic, Verdict, WATERMARKS,
};
pub use transport::{Readiness, Source, Transport};
pub use waker::Waker;
