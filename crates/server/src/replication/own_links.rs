//! A node's state of its own links.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use replication::TermId;

use super::link_tls::LinkTls;
use super::log_pins::LogPins;
use super::primary_link::PrimaryLinks;
use super::terms::Terms;
use super::verify::Verifier;
use crate::node::Node;

/// A node's state of its own links.
#[derive(Default)]
pub(crate) struct OwnLinks {
    pub(super) node: OnceLock<Weak<Node>>,
    pub(super) id: Mutex<Option<TermId>>,
    pub(super) links: OnceLock<Arc<PrimaryLinks>>,
    pub(crate) terms: Terms,
    /// The port of the listeners.
    pub(super) listeners: Mutex<Option<u16>>,
    /// Held while a term begins.
    pub(super) beginning: Mutex<()>,
    /// TLS of links, or why it is not available.
    pub(super) tls: OnceLock<Result<Arc<LinkTls>, String>>,
    pub(super) pins: LogPins,
    /// Compares this node's data with that of other nodes.
    pub(crate) verifier: Arc<Verifier>,
    /// When the first replica connected.
    pub(super) began_unix_ms: OnceLock<u64>,
    /// On a replica: the store has the log below this sequence. Changes only while the batch turn
    /// is held.
    pub(super) applied: AtomicU64,
    /// On a replica: from this sequence on nothing of the log is in the checkpoint of its full
    /// sync.
    pub(super) settled: AtomicU64,
    /// A replica whose log ends below this gets a full sync: the data here contains effects that
    /// the log lacks, from a full sync whose log was not complete when this node took the office.
    pub(super) whole_from: AtomicU64,
    pub(super) stop: Arc<AtomicBool>,
    /// Whether this node follows over the own link: nothing else appends to the log.
    pub(super) follows: AtomicBool,
    /// The highest generation seen in a primary's frames.
    pub(super) generation: AtomicU64,
    /// See [`LogHome::is_store_broken`](super::applied_log::LogHome::is_store_broken).
    pub(super) is_store_broken: AtomicBool,
}
