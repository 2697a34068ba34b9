//! What a node does for its links for its whole life: its name, its port, the encryption of links,
//! and upkeep.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::random::fill_from_os;
use replication::TermId;
use replication::link::Message;

use super::super::link_keys;
use super::super::listener::{Listeners, Reach};
use super::super::own_links::OwnLinks;
use super::super::primary_link::PrimaryLinks;
use super::super::role::Role;
use super::super::session::Encryption;
use super::at_primary::{AtPrimary, secret_of_primary};
use super::both_ends::lock;
use super::log_on_disk::own_log;
use crate::config::LinkEncryption;
use crate::node::Node;

impl OwnLinks {
    /// Sets the node that this belongs to. Called when all kept data is loaded.
    pub(crate) fn begin(&self, node: &Arc<Node>) {
        let _already_set = self.node.set(Arc::downgrade(node));
        if let Some(kept) = node.persistence() {
            self.terms.begin(kept.terms());
        }
        let is_grouped = node.replication.fence.is_grouped();
        if self.terms.lineage().last().is_none() && !is_grouped {
            return;
        }
        // A node that was in office begins another term before it serves again: it may have been
        // replaced meanwhile. Under a control group only the group begins one. A node that was
        // ordered to take over meanwhile does so next.
        if node.replication.role() == Role::Primary && !is_grouped {
            self.begin_term(node, None);
        }
        // Its replicas reconnect without asking for the port.
        let _port = self.offer();
    }

    /// Sets this node's ID for links, before there are any.
    pub(crate) fn set_id(&self, id: TermId) {
        *lock(&self.id) = Some(id);
    }

    /// The node that this belongs to, once it has begun.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }

    /// This node's ID for links.
    pub(crate) fn id(&self) -> TermId {
        *lock(&self.id).get_or_insert_with(|| {
            let mut id = TermId::default();
            fill_from_os(&mut id.0);
            id
        })
    }

    pub(super) fn links(&self, node: &Arc<Node>) -> Arc<PrimaryLinks> {
        Arc::clone(self.links.get_or_init(|| {
            PrimaryLinks::new(Arc::new(AtPrimary {
                node: Arc::downgrade(node),
            }))
        }))
    }

    /// Returns how a link with that peer is encrypted, or `None` if TLS is not available and not
    /// required.
    pub(in super::super) fn encryption(
        &self,
        node: &Node,
        peer: Option<IpAddr>,
    ) -> Result<Option<Encryption>, String> {
        let config = node.core.config.current();
        let replication = &config.replication;
        let by_certificate = replication.links_by_certificate;
        let is_near = peer.is_some_and(|peer| peer.to_canonical().is_loopback());
        let is_wanted = by_certificate
            || match replication.link_encryption {
                LinkEncryption::All => true,
                LinkEncryption::Remote => !is_near,
                LinkEncryption::Nothing => false,
            };
        let load = || link_keys::load(by_certificate, &config.tls.rules).map(Arc::new);
        match self.tls.get_or_init(load) {
            Ok(tls) => Ok(Some(Encryption {
                tls: Arc::clone(tls),
                is_wanted,
                by_certificate,
            })),
            Err(_) if !is_wanted => Ok(None),
            Err(reason) => Err(reason.clone()),
        }
    }

    /// Number of refused links.
    pub(crate) fn refused_count(&self) -> u64 {
        self.links.get().map_or(0, |links| links.refused_count())
    }

    /// Returns the port of the own link and this node's ID, for a replica that asks, or `None` if
    /// there is no log on disk.
    pub(crate) fn offer(&self) -> Option<(u16, String)> {
        let node = self.node.get()?.upgrade()?;
        own_log(&node)?;
        let port = self.open(&node)?;
        Some((port, self.id().to_string()))
    }

    /// Opens the port of links, if it is not open yet. Returns the port.
    pub(crate) fn open(&self, node: &Arc<Node>) -> Option<u16> {
        let mut listeners = lock(&self.listeners);
        if listeners.is_none() {
            *listeners = self.listen(node);
        }
        *listeners
    }

    fn listen(&self, node: &Arc<Node>) -> Option<u16> {
        let config = node.core.config.current();
        let port = config.link_port();
        let is_secret = !secret_of_primary(node).is_empty();
        let reach = match is_secret || config.replication.links_by_certificate {
            true => Reach::Everybody,
            false => Reach::Loopback,
        };
        let opened = Listeners::open(port, reach).and_then(|listeners| {
            let port = listeners.port;
            listeners.serve(self.links(node), Arc::clone(&self.stop))?;
            Ok(port)
        });
        match opened {
            Ok(port) => {
                node.core.log.notice(format_args!(
                    "Replication links are served at port {port}, for {}",
                    match reach {
                        Reach::Loopback =>
                            "this machine: there is no secret (cluster-secret, or requirepass) for others",
                        Reach::Everybody if config.replication.links_by_certificate =>
                            "everybody who has a certificate, encrypted",
                        Reach::Everybody
                            if config.replication.link_encryption == LinkEncryption::Nothing =>
                            "everybody who knows the secret, in plain text",
                        Reach::Everybody => "everybody who knows the secret, encrypted",
                    }
                ));
                Some(port)
            }
            Err(error) => {
                let error = crate::config::system_reason(&error);
                node.core.log.warning(format_args!(
                    "Replication links cannot be served at port {port} (repl-port): {error}"
                ));
                None
            }
        }
    }

    /// Periodic work.
    pub(crate) fn upkeep(&self) {
        let Some(links) = self.links.get() else {
            return;
        };
        links.upkeep();
        let Some(node) = self.node.get().and_then(Weak::upgrade) else {
            return;
        };
        let interval_s = node.core.config.current().replication.verify_interval_s;
        let now_unix_ms = node.core.clock.now_unix_ms();
        let began_unix_ms = *self.began_unix_ms.get_or_init(|| now_unix_ms);
        let report = self.verifier.report();
        let last_unix_ms = report.ended_unix_ms.max(began_unix_ms);
        if interval_s > 0
            && now_unix_ms.saturating_sub(last_unix_ms) >= u64::from(interval_s) * 1000
        {
            // An error means that there are no replicas to compare with.
            let _begun = self.verify(&node);
        }
    }

    /// Asks a replica to take the office. Returns whether there is a link to it.
    pub(in super::super) fn ask_to_take_over(&self, name: &str, sequence: u64) -> bool {
        let links = self.links.get();
        links.is_some_and(|links| links.say(Some(name), &Message::Takeover { sequence }) > 0)
    }

    /// Begins to compare this node with its replicas.
    ///
    /// # Errors
    /// Why it cannot begin.
    pub(in super::super) fn verify(&self, node: &Arc<Node>) -> Result<(), &'static str> {
        let node = Arc::downgrade(node);
        self.verifier.begin(Arc::new(AtPrimary { node }))
    }

    /// Ends all links.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(links) = self.links.get() {
            links.stop();
        }
    }
}

impl fmt::Debug for OwnLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnLinks").finish_non_exhaustive()
    }
}
