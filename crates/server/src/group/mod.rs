//! The control group in a server: which nodes there are, who is the primary, and how that changes by itself.
//!
//! ```text
//!   consensus (Raft) ──► control state ──► View ──► INFO, workers, whoever looks
//! ```

pub mod view;

pub use view::{Seen, View};
