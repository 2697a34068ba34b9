//! How much a client may run in one turn, and the result of the turn.

/// How much one client may run before other clients get their turn.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Maximum number of requests. It may be exceeded by one batch.
    pub requests_max: usize,
    /// Maximum bytes of replies. They may be exceeded by one reply.
    pub reply_bytes_max: usize,
}

/// The result of [`Engine::run`](super::Engine::run).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of input that are consumed.
    pub consumed: usize,
    /// Length to which the rest of the input must grow before another call can do anything; 0 if
    /// unknown.
    pub needed: usize,
    /// Number of requests executed.
    pub executed: usize,
    /// How to go on.
    pub next: Next,
}

/// How a session goes on after [`Engine::run`](super::Engine::run).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call again when there is more input.
    Read,
    /// Complete requests may be left: call again after the other clients had their turn.
    Yield,
    /// Receive the rest of the argument into [`Session::arrival`](crate::Session::arrival). Then
    /// call again with its [head](crate::arrival::Arrival::take_head) and the input after the
    /// argument.
    Receive,
    /// The request in [`Session::aside`](crate::Session::aside) takes long: give it to an [offload
    /// engine](super::Engine::aside), and call again after its reply is sent.
    Aside,
    /// Too many published messages are undelivered: call again after they are delivered.
    Throttled,
    /// An [offload engine](super::Engine::aside) holds a key: call again, with the same input,
    /// after it has completed a request.
    Busy,
    /// The request waits for keys, as long as [`Session::wait`](crate::Session::wait) says: call
    /// again after it was answered ([`crate::ClientsPort::answer`]) or [gave
    /// up](super::Engine::give_up).
    Blocks,
    /// The keys are served by another node, or by none at present, and the client
    /// [forwards](crate::Session::forwards): call again, with the same input, if this node serves
    /// them by then.
    Elsewhere,
    /// Clients are paused: call again, with the same input, after the pause.
    Paused,
    /// The log is full: call again, with the same input, when it has space.
    LogFull,
    /// Send the replies, then close.
    Close,
    /// Send the replies, then turn the connection over to the stream that
    /// [`Session::sync`](crate::Session::sync) asks for.
    HandOver,
}
