//! The operation log: the effects of writes, as bytes that come back in order and whole, or not at
//! all.
//!
//! ```text
//!   directory  0000000000000000.log  0000000004000010.log  …      named by their first sequence
//!   segment    head │ block │ block │ …
//!   block      head │ frame │ frame │ …                           what was written at once
//!   frame      head │ effect, or a group of them                  applied whole or not at all
//! ```
//!
//! A **sequence** is a position in the log: the number of bytes of frames ever written before it.
//! It identifies a frame, orders effects and says how far the log is durable.
//!
//! Invariants
//!  1. The sequences of frames follow each other without a gap, within a segment and from one to the next.
//!  2. A segment is read up to the sequence at which the next one begins. Bytes behind that
//!     position were never made durable, and were written again into the next segment.
//!  3. Each block states what was durable when it was written. Damage below the highest such
//!     statement is refused. Unreadable bytes above it are the tail that a power cut left.
//!
//! The byte format is described in `docs/formats/log.md`.
//!
//! ```text
//!   threads ── Appender ──► memory ── write_out ──► segment ── sync_step ──► durable
//!              claim a place,         whoever needs it,        one at a time,
//!              copy a frame           one at a time            owns the watermark
//! ```
//!
//! If the memory is a mapped ring, its bytes are with the system at once: then the thread that
//! syncs writes, too.
//!
//! Replication uses the same log at both ends; this room knows nothing of peers.
//!
//! ```text
//!   primary   on_appended ─► arm ─► Cursor::read ─► bytes of frames ─► (link)
//!             pin keeps the files that a replica needs, up to a limit
//!   replica   (link) ─► Follower::append_frames ─► write_out ─► tail(): appended, durable(): durable
//!             Cursor::read from what was applied last ─► frames() ─► effects and controls
//! ```
//!
//! A sender arms its [`Waker`], reads with one [`Cursor`] for each replica until all are at the
//! tail, and sleeps. A cursor that was lapped, or that found damage, means a full sync. A replica
//! has one [`Follower`] and no [`Appender`]. It asks [`Log::has_room`] before it appends, and
//! truncates its log where its history departs from that of its primary. A primary without files
//! has a log [in memory](Log::in_memory). Terms and the like are [`Control`]s among the effects.
//!
//! No thread waits for a device in order to append. Frames stay in memory until they are durable,
//! so that the frames of a failed segment can be written again into another one.

mod appender;
mod backlog;
mod builder;
mod control;
mod cursor;
mod durable_end;
mod fault;
mod follower;
mod frame;
mod growth;
mod locks;
mod memory;
mod open_log;
mod options;
mod pins;
mod place;
mod reader;
mod remainder;
mod ring;
mod segment;
mod syncer;
mod wakers;
mod writer;

pub use appender::Appender;
pub use control::{Control, SlotRanges, SourceFrame, TermFrame};
pub use cursor::{Cursor, READ_BYTES_MAX, Read};
pub use fault::LogFault;
pub use follower::{AppendError, Follower, TruncateError};
pub use frame::{Effect, Effects, Frame, Parts, frame_bytes, frames};
pub use open_log::Log;
pub use options::{Level, Options};
pub use pins::{Pin, PinState};
pub use reader::{LogError, Reader, Shape, Tail, bound, has_file_of, remove_from};
pub use ring::{ring_end, salvage};
pub use segment::VERSION;
pub use wakers::Waker;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(test, shuttle, not(loom)))]
mod models;
