//! The control group in the server: what its decisions do to this node's log, role and replies.

pub mod duty;
