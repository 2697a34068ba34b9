//! Event loop, listeners and connections: bytes to and from sockets, nothing about what they mean.
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
//! Input is read into one buffer of the thread, replies of a turn are gathered in one arena of the
//! thread: an idle connection owns no buffer. Connections are named by [`ConnectionId`]s that are
//! recognised as stale after their connection is gone. [`Transport`] hides what carries the bytes. A service that reads files
//! while it serves has a [`Ring`] do so, whose completions wake its loop.
//!
//! `EventLoop` documents the order of things in a turn; `service` what a service may rely on.

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
