//! The operation log: what writes did, as bytes that come back in order and whole, or not at all.
//!
//! ```text
//!   directory  0000000000000000.log  0000000004000010.log  …      named by their first sequence
//!   segment    head │ block │ block │ …
//!   block      head │ frame │ frame │ …                           what was written at once
//!   frame      head │ effect, or a group of them │ sum            applied whole or not at all
//! ```
//!
//! A **sequence** is a place in the log: how many bytes of frames were ever written before it. It names
//! a frame, orders what happened and says how far something is durable.
//!
//! Invariants
//!  1. Frames follow each other without a gap, within a segment and from one to the next.
//!  2. A segment is read up to where the next one begins. What stands behind that place was never made
//!     durable, and was written again.
//!  3. Each block states what was durable when it was written. Damage below the highest such statement
//!     is refused; what is unreadable above it is the tail that a power cut left.
//!
//! The bytes are a paper: `docs/formats/log.md`.

#[allow(dead_code, reason = "what appends is being built")]
mod frame;
mod reader;
#[allow(dead_code, reason = "what appends is being built")]
mod segment;

pub use frame::{Effect, Effects, Frame};
pub use reader::{LogError, Reader, Shape, Tail};
pub use segment::VERSION;

#[cfg(test)]
mod tests;
