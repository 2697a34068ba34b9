//! The replica's side of the own link: adapts the node to the link to its primary and to the code
//! that applies the log.

use std::fmt;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::ShardId;
use durability::checkpoint::{Manifest, replace_manifest};
use durability::log::Log;
use engine::ServerPort;
use persistence::checkpointer::{CheckpointPin, Suspended};
use persistence::environment::Environment;
use persistence::recovery::Place;
use replication::replica::{OwnLog, State};

use super::super::applied_log::LogHome;
use super::super::applier::Applier;
use super::super::following::{Following, Link};
use super::super::link_dialing::{dial, identity_for};
use super::super::replica_link::ReplicaHome;
use super::super::session::{Conduit, Identity};
use super::super::terms::Terms;
use super::super::verify::Saying;
use super::both_ends::{tell, timeout_ms};
use super::log_on_disk::{own_log, place_of};
use crate::config::LoadsDirectly;
use crate::fence::Turn;
use crate::node::Node;
use crate::port::Port;
use crate::replica_reads::Standing;

/// Timeout of a connection to the primary.
const DIAL_TIME: Duration = Duration::from_secs(5);

/// The node, as the link to its primary sees it.
pub(super) struct AtReplica<'f> {
    pub(super) following: &'f Following,
    pub(super) node: Arc<Node>,
    pub(super) weak: Weak<Node>,
    pub(super) port: u16,
    /// Under a control group, the shard whose primary is followed.
    pub(super) shard: Option<ShardId>,
}

impl AtReplica<'_> {
    pub(super) fn applier(&self) -> Applier {
        let core = &self.node.core;
        let handle = self.node.handle(&Arc::default());
        let waiters = &self.node.sessions.waiters;
        Applier::new(core.env.table, handle, waiters, &core.shared)
    }
}

impl ReplicaHome for AtReplica<'_> {
    fn identity(&self, peer: IpAddr) -> io::Result<Identity> {
        identity_for(&self.node, peer)
    }

    fn dial(&self) -> io::Result<TcpStream> {
        let host = self.following.primary().host.as_str();
        dial(&self.node, host, self.port, DIAL_TIME)
    }

    fn connected(&self, conduit: Option<Arc<dyn Conduit>>) {
        match conduit {
            Some(conduit) => self.following.stop_with(Box::new(move || conduit.end())),
            None => self.following.forget_stop(),
        }
    }

    fn is_stopping(&self) -> bool {
        self.following.is_stopping() || self.node.is_stopping()
    }

    fn pause(&self, time: Duration) -> bool {
        self.following.pause(time) && !self.node.is_stopping()
    }

    fn timeout_ms(&self) -> u64 {
        timeout_ms(&self.weak)
    }

    fn now_ms(&self) -> u64 {
        self.node.core.clock.now_unix_ms()
    }

    fn note(&self, state: State, log: OwnLog, is_online: bool) {
        let link = match state {
            State::Off | State::BackOff { .. } => Link::Connect,
            State::Connecting => Link::Connecting,
            State::Attaching => Link::Handshake,
            State::Rewinding { .. } | State::Syncing { .. } => Link::Sync,
            State::Following if is_online => Link::Connected,
            State::Following => Link::Sync,
            State::Refused(_) => Link::Refused,
        };
        self.following.note_offset(log.appended, log.applied);
        let own = &self.node.replication.own;
        if link == Link::Connected {
            // This node's own replicas are answered in the term that it follows. They attach again
            // if the term has changed.
            let term = own.terms.lineage().last_number();
            own.links(&self.node).begin_term(term);
            // The permission of REPLICAOF was for this attachment only.
            let _used_up = self.following.take_discard();
        }
        if self.following.link() == link || link == Link::Refused {
            return;
        }
        if link == Link::Sync {
            own.links(&self.node).end_term();
        }
        self.following.set_link(link);
    }

    fn note_standing(&self, standing: Standing) {
        if self.applies_committed_only() {
            let node = &self.node;
            node.replication.note_standing(node, standing);
        }
    }

    fn accepts(&self, term: u64) -> bool {
        self.node.replication.fence.accept(term)
    }

    fn goes_on(&self) -> Result<(), String> {
        self.node.replication.take_log_for(&self.node, self.shard)
    }

    fn applies_committed_only(&self) -> bool {
        let fence = &self.node.replication.fence;
        fence.is_grouped() && fence.is_quorum()
    }

    fn note_committed(&self, committed: u64) {
        if committed > 0 {
            self.node.replication.note_certain(&self.node, true);
        }
    }

    fn heard(&self) {
        self.following.note_io();
    }

    fn take_over(&self) {
        self.node.replication.take_office(&self.node);
    }

    fn note_wanted(&self, number: u64, groups: Vec<u16>) {
        let verifier = &self.node.replication.own.verifier;
        verifier.note_wanted(number, groups);
    }

    fn take_sayings(&self) -> Vec<Saying> {
        self.node.replication.own.verifier.take_sayings()
    }

    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>) {
        tell(&self.weak, is_warning, line);
    }
}

impl LogHome for AtReplica<'_> {
    fn env(&self) -> &Arc<Environment> {
        &self.node.core.env
    }

    fn place(&self) -> Place {
        place_of(&self.node)
    }

    fn base(&self) -> Option<Manifest> {
        place_of(&self.node).manifest().ok().flatten()
    }

    fn log(&self) -> Result<Arc<Log>, String> {
        own_log(&self.node).ok_or_else(|| "there is no log on disk".to_owned())
    }

    fn replace(&self, manifest: &Manifest) -> Result<Arc<Log>, String> {
        let kept = self.node.persistence().ok_or("nothing is kept here")?;
        self.node.replication.own.pins.clear();
        let log = kept.log().replace(manifest)?;
        kept.checkpointer.note_clean(manifest.created_unix_ms);
        // Before any of the log is acknowledged.
        self.node.replication.take_log_for(&self.node, self.shard)?;
        Ok(log)
    }

    fn terms(&self) -> &Terms {
        &self.node.replication.own.terms
    }

    fn turn(&self, term: u64) -> Option<Turn<'_>> {
        self.node.replication.fence.turn(term)
    }

    fn notes_terms_early(&self) -> bool {
        self.applies_committed_only() || !self.keeps_data()
    }

    fn keeps_data(&self) -> bool {
        !self.node.keeping.keeps_log_alone()
    }

    fn is_of_another_shard(&self) -> bool {
        let of_log = self.node.replication.fence.shard_of_log();
        of_log.is_some() && of_log != self.shard
    }

    fn begin_log_at(&self, manifest: &Manifest) -> Result<(), String> {
        let kept = self.node.persistence().ok_or("nothing is kept here")?;
        let place = place_of(&self.node);
        kept.log()
            .make_durable()
            .and_then(|()| replace_manifest(&*place.disk, &place.directory, manifest))
            .and_then(|()| kept.log().in_force(manifest))
            .map_err(|error| crate::config::system_reason(&error))
    }

    fn applied(&self) -> u64 {
        self.node.replication.own.applied.load(Ordering::Acquire)
    }

    fn wants_disk(&self) -> bool {
        let fence = &self.node.replication.fence;
        fence.is_grouped() && fence.wants_disk()
    }

    fn note_certain(&self, is_certain: bool) {
        self.node.replication.note_certain(&self.node, is_certain);
    }

    fn note_applied(&self, sequence: u64) {
        let own = &self.node.replication.own;
        own.applied.store(sequence, Ordering::Release);
    }

    fn reach_point(&self, number: u64, sequence: u64) {
        let verifier = &self.node.replication.own.verifier;
        verifier.reach(&self.node.core.store, number, sequence);
    }

    fn note_settled(&self, sequence: u64) {
        let own = &self.node.replication.own;
        own.settled.store(sequence, Ordering::Release);
    }

    fn drops_data_early(&self) -> bool {
        let config = self.node.core.config.current();
        let is_wanted = config.replication.loads_directly == LoadsDirectly::Yes;
        is_wanted && !self.node.replication.fence.is_grouped()
    }

    fn pin_directory(&self, name: &str) -> Option<CheckpointPin> {
        let kept = self.node.persistence()?;
        Some(kept.checkpointer.pin_directory(name))
    }

    fn suspend_checkpoints(&self) -> Option<Suspended<'_>> {
        let kept = self.node.persistence()?;
        Some(kept.checkpointer.suspend())
    }

    fn is_store_broken(&self) -> &AtomicBool {
        &self.node.replication.own.is_store_broken
    }

    fn with_port(&self, act: &mut dyn FnMut(&mut dyn ServerPort)) {
        act(&mut Port::of_log(&self.node));
    }

    fn is_stopping(&self) -> bool {
        ReplicaHome::is_stopping(self)
    }

    fn note_sync(&self, total: u64, received: u64) {
        self.following.note_sync(total, received);
    }

    fn set_loading(&self, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.node.begin_loading(bytes),
            None => self.node.end_loading(),
        }
    }
}
