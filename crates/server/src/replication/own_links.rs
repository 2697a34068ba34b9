//! What a node knows of its own links.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use replication::TermId;

use super::link_tls::LinkTls;
use super::log_pins::LogPins;
use super::primary_link::PrimaryLinks;
use super::terms::Terms;
use super::verify::Verifier;
use crate::node::Node;

/// What a node knows of its own links.
#[derive(Default)]
pub(crate) struct OwnLinks {
    pub(super) node: OnceLock<Weak<Node>>,
    pub(super) id: Mutex<Option<TermId>>,
    pub(super) links: OnceLock<Arc<PrimaryLinks>>,
    pub(crate) terms: Terms,
    /// The port that is listened at.
    pub(super) listeners: Mutex<Option<u16>>,
    /// Held while a term is begun.
    pub(super) beginning: Mutex<()>,
    /// What links are encrypted with, or why that is not to be had.
    pub(super) tls: OnceLock<Result<Arc<LinkTls>, String>>,
    pub(super) pins: LogPins,
    /// Compares this node with others.
    pub(crate) verifier: Arc<Verifier>,
    /// When the first replica came.
    pub(super) began_unix_ms: OnceLock<u64>,
    /// Where this node follows: the store has what the log has below. Moves with the turn of a batch held.
    pub(super) applied: AtomicU64,
    /// And from here on nothing of the log is in the checkpoint that it was given.
    pub(super) settled: AtomicU64,
    /// Who ends below this is given everything: the data here has something that the log has not, of a full sync whose
    /// log had not come to its end when this node took the office.
    pub(super) whole_from: AtomicU64,
    pub(super) stop: Arc<AtomicBool>,
    /// This node follows by the own link: nobody but that appends to the log.
    pub(super) follows: AtomicBool,
    /// The highest generation that was met in frames of a primary.
    pub(super) generation: AtomicU64,
    /// See [`LogHome::is_store_broken`](super::applied_log::LogHome::is_store_broken).
    pub(super) is_store_broken: AtomicBool,
}
