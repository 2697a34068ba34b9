//! What a client may have run at once, and what came of it.

/// What one client may do before the others have their turn.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Requests; one batch more at the most.
    pub requests_max: usize,
    /// Bytes of replies; one reply more at the most.
    pub reply_bytes_max: usize,
}

/// What [`Engine::run`](super::Engine::run) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of input that are done with.
    pub consumed: usize,
    /// How many bytes the rest must grow to before another call can do anything; 0 if unknown.
    pub needed: usize,
    /// How many requests were executed.
    pub executed: usize,
    /// How to go on.
    pub next: Next,
}

/// How a session goes on after [`Engine::run`](super::Engine::run).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call again when there is more input.
    Read,
    /// Complete requests may be left: call again after the others had their turn.
    Yield,
    /// What comes next of the request goes into [`Session::arrival`](crate::Session::arrival); call again with its
    /// [head](crate::arrival::Arrival::take_head) and what comes after it.
    Receive,
    /// The request in [`Session::aside`](crate::Session::aside) takes long: give it to an engine [aside](super::Engine::aside), and
    /// call again when its reply is sent.
    Aside,
    /// Too much of what was published is not delivered yet: call again when it is.
    Throttled,
    /// A key is held by an engine [aside](super::Engine::aside): call again, with the same input, when that
    /// is done with a request.
    Busy,
    /// The request waits for keys, as long as [`Session::wait`](crate::Session::wait) says: call again when it was answered
    /// ([`crate::ClientsPort::answer`]), or when it [gave up](super::Engine::give_up).
    Blocks,
    /// The keys are served by another node, or by none at present, and the client [forwards](crate::Session::forwards): call
    /// again, with the same input, if this node serves them since.
    Elsewhere,
    /// Clients are paused: call again, with the same input, when they no longer are.
    Paused,
    /// The log has no room: call again, with the same input, when it has.
    LogFull,
    /// Send the replies, then close.
    Close,
    /// Send the replies, then give the connection the stream that [`Session::sync`](crate::Session::sync) asks for.
    HandOver,
}
