//! What a node knows of its own links.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use replication::TermId;

use super::primary_link::PrimaryLinks;
use super::terms::Terms;
use crate::node::Node;

/// What a node knows of its own links.
#[derive(Default)]
pub(crate) struct OwnLinks {
    pub(super) node: OnceLock<Weak<Node>>,
    pub(super) id: OnceLock<TermId>,
    pub(super) links: OnceLock<Arc<PrimaryLinks>>,
    pub(crate) terms: Terms,
    /// The port that is listened at.
    pub(super) listeners: Mutex<Option<u16>>,
    /// Held while a term is begun.
    pub(super) beginning: Mutex<()>,
    pub(super) stop: Arc<AtomicBool>,
    /// This node follows by the own link: nobody but that appends to the log.
    pub(super) follows: AtomicBool,
    /// The highest generation that was met in frames of a primary.
    pub(super) generation: AtomicU64,
    /// See [`LogHome::is_store_broken`](super::applied_log::LogHome::is_store_broken).
    pub(super) is_store_broken: AtomicBool,
}
