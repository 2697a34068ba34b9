//! The own link in a server: where its two ends meet the node, its log, its data and who shows all that.
//!
//! ```text
//!   REPLCONF iolite-link 1 ──► OwnLinks::offer ──► the listeners, a first term
//!   link ──► PrimaryLinks ──► replicas (INFO, WAIT)          log, checkpoint in force ◄── persistence
//!   REPLICAOF ──► follow ──► replica_link ──► AppliedLog ──► log, store
//! ```
//!
//! It takes a log on disk at both ends. A node without one neither offers the link nor uses it: PSYNC serves there.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use base::random::fill_from_os;
use cluster::ShardId;
use durability::checkpoint::{History, Manifest, replace_manifest};
use durability::log::{Control, Log, Pin, TermFrame};
use engine::ServerPort;
use persistence::checkpointer::{CheckpointPin, Suspended, Why};
use persistence::environment::Environment;
use persistence::recovery::Place;
use replication::attach::FullReason;
use replication::link::{self, Digest, Hello, Message, Source};
use replication::primary::Stage;
use replication::replica::{OwnLog, State};
use replication::{PrimaryLog, TermId};
use store::Store;

use super::applied_log::{AppliedLog, LogHome};
use super::applier::Applier;
use super::following::{Authority, Ended, Following, Link, Primary};
use super::link_dialing::{dial, identity_for, secret_of_replica};
use super::link_keys;
use super::listener::{Listeners, Reach};
use super::own_links::OwnLinks;
use super::primary_link::{FullCopy, Kill, Observer, PrimaryHome, PrimaryLinks};
use super::replica_link::{self, ReplicaData as _, ReplicaHome};
use super::replicas::{Ack, Attached, Kind, NewReplica, ReplicaState};
use super::role::Role;
use super::session::{Conduit, Encryption, Identity, Session};
use super::terms::Terms;
use super::verify::{Saying, VerifyHome};
use crate::config::{LinkEncryption, LoadsDirectly};
use crate::fence::Turn;
use crate::node::Node;
use crate::port::Port;
use crate::replica_reads::Standing;

/// How long a connection to the primary may take.
const DIAL_TIME: Duration = Duration::from_secs(5);
/// How often it is looked whether a term frame is on disk.
const LOOK: Duration = Duration::from_millis(1);
/// A checkpoint is sent to a replica as long as the log after it has no more bytes than this part of it, in hundredths.
const LOG_PERCENT_MAX: u64 = 150;
/// So much log after a checkpoint is never a reason for a new one.
const LOG_BYTES_FREE: u64 = 16 << 20;

impl OwnLinks {
    /// Says which node it is of, when all that is kept is loaded.
    pub(crate) fn begin(&self, node: &Arc<Node>) {
        let _already_set = self.node.set(Arc::downgrade(node));
        if let Some(kept) = node.persistence() {
            self.terms.begin(kept.terms());
        }
        let is_grouped = node.replication.fence.is_grouped();
        if self.terms.lineage().last().is_none() && !is_grouped {
            return;
        }
        // A node that was in office begins another term before it is heard of again: it may have been replaced meanwhile.
        // Under a control group only that begins one. Who was told to take over meanwhile does so next.
        if node.replication.role() == Role::Primary && !is_grouped {
            self.begin_term(node, None);
        }
        // Its replicas come back without asking.
        let _port = self.offer();
    }

    /// Says how this node is called among those that have links, before there are any.
    pub(crate) fn set_id(&self, id: TermId) {
        *lock(&self.id) = Some(id);
    }

    /// The node that this is of, once it has begun.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }

    /// This node's name among those that have links.
    pub(crate) fn id(&self) -> TermId {
        *lock(&self.id).get_or_insert_with(|| {
            let mut id = TermId::default();
            fill_from_os(&mut id.0);
            id
        })
    }

    fn links(&self, node: &Arc<Node>) -> Arc<PrimaryLinks> {
        Arc::clone(self.links.get_or_init(|| {
            PrimaryLinks::new(Arc::new(AtPrimary {
                node: Arc::downgrade(node),
            }))
        }))
    }

    /// How a link with that peer is encrypted; none where it cannot be, and need not.
    pub(super) fn encryption(
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

    /// Links that were not let in.
    pub(crate) fn refused_count(&self) -> u64 {
        self.links.get().map_or(0, |links| links.refused_count())
    }

    /// The port of the own link and this node's name, for a replica that asks; none where there is no log on disk.
    pub(crate) fn offer(&self) -> Option<(u16, String)> {
        let node = self.node.get()?.upgrade()?;
        own_log(&node)?;
        let port = self.open(&node)?;
        Some((port, self.id().to_string()))
    }

    /// Opens the port of links, if it is not open yet; which it is.
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

    /// A primary's reign begins: the first frame of it is in the log when this returns. Under a control group the term has
    /// a number there.
    pub(crate) fn begin_term(&self, node: &Arc<Node>, number: Option<u64>) {
        let Some(log) = own_log(node) else { return };
        let _alone = lock(&self.beginning);
        let before_it = log.tail_complete();
        let lineage = self.terms.lineage();
        let before = lineage.last();
        let mut id = [0; 20];
        fill_from_os(&mut id);
        let mut appender = log.appender();
        appender.set_time(node.core.clock.now_unix_ms());
        appender.control(&Control::Term(TermFrame {
            number: number.unwrap_or_else(|| lineage.last_number() + 1),
            id,
            previous: before.map_or([0; 20], |term| term.id.0),
            node: self.id().0,
            resp_offset: 0,
            flags: 0,
        }));
        // That it is with the system is seen to before anybody is answered in it.
        let _fault = log.write_out(appender.end());
        drop(appender);
        self.terms.note_from(&log, before_it);
        self.note_other_history(node);
        let term = self.terms.lineage().last_number();
        self.links(node).begin_term(term);
        node.core
            .log
            .notice(format_args!("Term {term} of this log begins"));
    }

    /// The first term of a log that has none.
    fn begin_first_term(&self, node: &Arc<Node>) {
        if self.terms.lineage().last().is_none() {
            self.begin_term(node, None);
        }
    }

    /// Nobody states anything to the log any more.
    pub(super) fn lend(&self, node: &Arc<Node>) {
        if let Some(links) = self.links.get() {
            links.end_term();
        }
        lend_log(node);
    }

    /// This node has stopped following, and takes writes next. Under a control group the term has a number there.
    pub(crate) fn take_over(&self, node: &Arc<Node>, number: Option<u64>) {
        if !self.follows.load(Ordering::Acquire) {
            // It was started as a replica, and never met its primary: the term that its log ends in is that one's.
            if self.terms.lineage().last().is_some() {
                self.begin_term(node, number);
            }
            return;
        }
        if let Err(reason) = begin_missing_log(node)
            && let Some(kept) = node.persistence()
        {
            kept.log().give_up_missing(reason);
        }
        // The data is what the log says from the first write on. Half of a full sync is nobody's data, and what the disk has
        // is whole.
        if let Err(reason) = apply_rest(node) {
            node.core.log.warning(format_args!(
                "This node takes writes with less than its log has: {reason}"
            ));
        }
        // Whatever is cut from now on is newer than what the primary's frames say, and has the term that begins.
        let suspended = node.persistence().map(|kept| kept.checkpointer.suspend());
        let generation = self.generation.load(Ordering::Relaxed);
        while node.core.store.raise_generation(generation).is_err() && !node.is_stopping() {
            // Somebody else's snapshot ends soon.
            std::thread::sleep(LOOK);
        }
        self.begin_term(node, number);
        drop(suspended);
        if let Some(kept) = node.persistence() {
            kept.log().take_back();
        }
        node.replication.stream.set_foreign(false);
        self.follows.store(false, Ordering::Release);
        // Whatever the store has is this node's data from now on.
        self.is_store_broken.store(false, Ordering::Release);
    }

    /// Has everybody be given everything who ends where the data here has writes that are in no log: a term began before
    /// the log had all that the checkpoint below it has in part.
    fn note_other_history(&self, node: &Node) {
        let base = place_of(node).manifest().ok().flatten();
        if let Some(start) = base.and_then(|base| self.terms.other_history(&base)) {
            node.core.log.warning(format_args!(
                "A term began at sequence {start}, before the log had all that the checkpoint of the last full sync has: \
                 replicas that end there are given everything"
            ));
            self.whole_from.fetch_max(start + 1, Ordering::AcqRel);
        }
    }

    /// Whoever asks is given what this log has, as of a term: this node keeps the log alone and is sealed for it, so that nothing comes
    /// to it meanwhile.
    pub(super) fn hand_on(&self, node: &Arc<Node>, term: u64) {
        self.links(node).begin_term(term);
    }

    /// Where the log on disk begins; 0 without one.
    pub(crate) fn log_begins(&self, node: &Node) -> u64 {
        own_log(node).map_or(0, |log| log.oldest())
    }

    /// Where the log on disk ends: the term of its last frame, and the sequence; and up to where the data is.
    pub(crate) fn log_end(&self, node: &Node) -> (u64, u64, u64) {
        let Some(log) = own_log(node) else {
            return (0, 0, 0);
        };
        let sequence = log.tail_complete();
        let applied = match self.follows.load(Ordering::Acquire) {
            true => self.applied.load(Ordering::Acquire),
            false => sequence,
        };
        (self.terms.lineage().last_number(), sequence, applied)
    }

    /// Why no checkpoint may be made now, if so.
    pub(crate) fn refuses_checkpoints(&self) -> Option<String> {
        if !self.follows.load(Ordering::Acquire) {
            return None;
        }
        if self.is_store_broken.load(Ordering::Acquire) {
            return Some("what this replica has is not whole: a full sync is under way".to_owned());
        }
        let is_settled =
            self.applied.load(Ordering::Acquire) >= self.settled.load(Ordering::Acquire);
        (!is_settled).then(|| {
            "this replica has not applied yet what the checkpoint that it was given has in part"
                .to_owned()
        })
    }

    /// What the manifest of a checkpoint says that is cut now. Where this node follows, nothing is applied meanwhile, and
    /// the checkpoint has what the log has up to there, no more and no less.
    ///
    /// # Errors
    /// Why there can be no checkpoint of this cut.
    pub(crate) fn manifest_history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        let Some(sequence) = log_sequence else {
            return Ok(History::default());
        };
        if let Some(reason) = self.refuses_checkpoints() {
            return Err(reason);
        }
        let applied = self.applied.load(Ordering::Acquire);
        let cut_sequence = self.follows.load(Ordering::Acquire).then_some(applied);
        Ok(History {
            cut_sequence,
            terms: self.terms.below(cut_sequence.unwrap_or(sequence)),
            ..History::default()
        })
    }

    /// What is done now and again.
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
            // Without replicas there is nothing to compare with.
            let _begun = self.verify(&node);
        }
    }

    /// Asks a replica to take the office; whether there is a link to it.
    pub(super) fn ask_to_take_over(&self, name: &str, sequence: u64) -> bool {
        let links = self.links.get();
        links.is_some_and(|links| links.say(Some(name), &Message::Takeover { sequence }) > 0)
    }

    /// Begins to compare this node with its replicas.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn verify(&self, node: &Arc<Node>) -> Result<(), &'static str> {
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

/// The log on disk, if there is one.
pub(super) fn own_log(node: &Node) -> Option<Arc<Log>> {
    node.persistence().and_then(|kept| kept.log().log())
}

pub(super) fn place_of(node: &Node) -> Place {
    Place::within(&node.core.config.current().dir)
}

/// Up to where this primary counts its own log.
fn counted_end(node: &Node, log: &Log) -> u64 {
    match node.replication.fence.wants_disk() {
        true => log.durable(),
        false => log.written(),
    }
}

/// Up to where all copies of the data have the log, as far as this primary knows.
fn floor(node: &Node, log: &Log) -> Option<u64> {
    node.replication.fence.floor(counted_end(node, log))
}

/// A checkpoint as who keeps the log alone is given it: where the log begins, and the terms before that.
fn without_parts(manifest: Manifest) -> Manifest {
    Manifest {
        parts: Vec::new(),
        databases: Default::default(),
        libraries: Vec::new(),
        segments: Vec::new(),
        dictionaries: Vec::new(),
        ..manifest
    }
}

/// What replicas have to know.
fn secret_of_primary(node: &Node) -> Vec<u8> {
    let config = node.core.config.current();
    let replication = &config.replication;
    let own = replication.link_secret.clone();
    own.or_else(|| config.password.clone()).unwrap_or_default()
}

/// A checkpoint that is sent, and what keeps it.
struct PinnedCheckpoint {
    manifest: Manifest,
    source: Source,
    files: CheckpointPin,
    log_pin: Pin,
}

/// The node, as links to its replicas need it.
struct AtPrimary {
    node: Weak<Node>,
}

impl AtPrimary {
    fn node(&self) -> Result<Arc<Node>, String> {
        self.node
            .upgrade()
            .ok_or_else(|| "the server stops".to_owned())
    }

    /// A checkpoint that is less to send than a new one, or a new one, with what keeps its files and the log from it on.
    fn checkpoint(node: &Node, log: &Arc<Log>) -> Result<PinnedCheckpoint, String> {
        // What others have in their tier is nothing to a replica. Nor does one go on without a term: whoever lost its power
        // before it had the first one's frame would be taken for somebody with another history.
        let terms = &node.replication.own.terms;
        let has_values = |manifest: &Manifest| {
            manifest.segments.is_empty()
                && !manifest.history.terms.is_empty()
                && terms.other_history(manifest).is_none()
        };
        let is_good = |manifest: &Manifest| {
            let most = manifest.bytes().saturating_mul(LOG_PERCENT_MAX) / 100;
            manifest.log_sequence.is_some_and(|from| {
                log.tail_complete().saturating_sub(from) <= most.max(LOG_BYTES_FREE)
            })
        };
        let kept = node.persistence().ok_or("nothing is kept")?;
        let is_good = |manifest: &Manifest| has_values(manifest) && is_good(manifest);
        if let Some(found) = Self::pin(node, log)?.filter(|found| is_good(&found.manifest)) {
            return Ok(found);
        }
        let ticket = kept.checkpointer.schedule_with_values(Why::Rewrite);
        let ticket = ticket.map_err(|_| "the server stops".to_owned())?;
        let outcome = kept.checkpointer.wait(ticket);
        outcome.result.map_err(|failure| failure.to_string())?;
        let made =
            Self::pin(node, log)?.ok_or("no checkpoint is in force that the log goes on from")?;
        if !has_values(&made.manifest) {
            return Err(
                "another checkpoint has come into force, which lacks values or terms, or was made while a term began"
                    .to_owned(),
            );
        }
        Ok(PinnedCheckpoint {
            source: Source::NewCheckpoint,
            ..made
        })
    }

    /// The checkpoint from which the log of a copy of the log alone begins: the one in force, whose parts it is not given.
    ///
    /// # Errors
    /// Where not all copies of the data are known to have the log up to there.
    fn log_begin(node: &Node, log: &Arc<Log>) -> Result<PinnedCheckpoint, String> {
        let floor =
            floor(node, log).ok_or("not all copies of the data have said what they have")?;
        let found = match Self::pin(node, log)? {
            Some(found) if !found.manifest.history.terms.is_empty() => found,
            _ => Self::checkpoint(node, log)?,
        };
        let from = found.manifest.log_sequence.unwrap_or(u64::MAX);
        match floor >= from {
            true => Ok(found),
            false => Err(format!(
                "a copy of the log would begin at sequence {from}, and all copies of the data have it up to {floor} only"
            )),
        }
    }

    /// The checkpoint in force, if the log goes on from it.
    fn pin(node: &Node, log: &Arc<Log>) -> Result<Option<PinnedCheckpoint>, String> {
        let kept = node.persistence().ok_or("nothing is kept")?;
        let found = kept.checkpointer.pin().map_err(|fault| fault.to_string())?;
        Ok(found.and_then(|(manifest, files)| {
            let log_pin = log.pin("full sync", manifest.log_sequence?);
            (!log_pin.is_broken()).then_some(PinnedCheckpoint {
                manifest,
                source: Source::Checkpoint,
                files,
                log_pin,
            })
        }))
    }
}

impl PrimaryHome for AtPrimary {
    fn identity(&self, address: &str) -> Result<Identity, String> {
        let node = self.node()?;
        let peer = address.parse::<SocketAddr>().map(|peer| peer.ip());
        let own = &node.replication.own;
        Ok(Identity {
            encryption: own.encryption(&node, peer.ok())?,
            ..Identity::new(own.id(), b"", &secret_of_primary(&node))
        })
    }

    fn node_id(&self) -> TermId {
        self.node()
            .map_or_else(|_| TermId::default(), |node| node.replication.own.id())
    }

    fn log(&self) -> Option<Arc<Log>> {
        own_log(&*self.node().ok()?)
    }

    fn view(&self) -> Result<PrimaryLog, String> {
        let node = self.node()?;
        let own = &node.replication.own;
        let log = own_log(&node).ok_or("there is no log on disk")?;
        let following = node
            .replication
            .following()
            .filter(|_| node.replication.follows());
        match following {
            Some(one) if one.link() != Link::Connected => {
                return Err("this replica is not connected with its own primary".to_owned());
            }
            Some(_) => {}
            None if node.replication.fence.is_grouped() => {
                if node.replication.fence.office() == 0 && !node.keeping.keeps_log_alone() {
                    return Err("this node is not in office".to_owned());
                }
            }
            None => own.begin_first_term(&node),
        }
        let lineage = own.terms.lineage();
        let last = lineage.last().copied();
        let last = last.ok_or("no term is known")?;
        while log.durable() <= last.start {
            if node.is_stopping() {
                return Err("the server stops".to_owned());
            }
            if let Some(fault) = log.fault() {
                return Err(fault.to_string());
            }
            log.request_sync(log.tail_complete());
            std::thread::sleep(LOOK);
        }
        let end = log.tail_complete();
        let mut handle = node.core.store.handle();
        let has_keys = (0..node.core.store.databases()).any(|database| handle.len(database) > 0);
        // A log that is more than its terms changed something once.
        let first = lineage.terms().first().map_or(0, |term| term.start);
        let is_more = end.saturating_sub(first) > 256 * lineage.terms().len() as u64;
        Ok(PrimaryLog {
            oldest: log.oldest().max(own.whole_from.load(Ordering::Acquire)),
            end,
            has_data: has_keys || is_more || first > 0 || node.keeping.keeps_log_alone(),
            // A replica is given a checkpoint first, so that it has one to go on from.
            is_whole: false,
            lineage,
        })
    }

    fn full_copy(&self, reason: FullReason, is_log_only: bool) -> Result<FullCopy, String> {
        let node = self.node()?;
        let log = own_log(&node).ok_or("there is no log on disk")?;
        if node.keeping.keeps_log_alone() {
            return Err("this node keeps the log alone: it has no data to give".to_owned());
        }
        let PinnedCheckpoint {
            mut manifest,
            source,
            files,
            log_pin,
        } = match is_log_only {
            true => Self::log_begin(&node, &log)?,
            false => Self::checkpoint(&node, &log)?,
        };
        let from = manifest.log_sequence.unwrap_or(0);
        if is_log_only {
            manifest = without_parts(manifest);
            node.core.log.notice(format_args!(
                "A copy of the log alone is given it from {from} on ({reason:?})"
            ));
        } else {
            let counts = &node.replication.counts;
            counts.full_syncs.fetch_add(1, Ordering::Relaxed);
            node.core.log.notice(format_args!(
                "A replica is given checkpoint {} and the log from {from} on ({reason:?})",
                manifest.generation,
            ));
        }
        let place = place_of(&node);
        Ok(FullCopy {
            disk: Arc::clone(&place.disk),
            directory: place.directory,
            source,
            _pin: Box::new((files, log_pin)),
            manifest,
        })
    }

    fn floor(&self) -> Option<u64> {
        let node = self.node().ok()?;
        let log = own_log(&node)?;
        let floor = floor(&node, &log)?;
        let base = node.persistence()?.log().base_sequence();
        base.filter(|base| *base <= floor)
    }

    fn observe(&self, peer: &Hello, address: &str, kill: Kill) -> Box<dyn Observer> {
        let Ok(node) = self.node() else {
            return Box::new(Nobody);
        };
        if peer.features & link::LOG_ONLY != 0 {
            return Box::new(LogCopy {
                node: Weak::clone(&self.node),
                peer: peer.node,
                name: String::from_utf8_lossy(&peer.name).into_owned(),
            });
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = String::from_utf8_lossy(&peer.name);
        let (announced, port) = name.rsplit_once(':').unwrap_or(("", &name));
        let attached = node.replication.replicas.register(NewReplica {
            client: None,
            kind: Kind::Own,
            host: if announced.is_empty() {
                host
            } else {
                announced
            }
            .to_owned(),
            port: port.parse().unwrap_or(0),
        });
        attached.stop_with(kill);
        let shown = if announced.is_empty() {
            host
        } else {
            announced
        };
        Box::new(Watcher {
            node: Weak::clone(&self.node),
            peer: peer.node,
            name: format!("{shown}:{port}"),
            attached: Mutex::new(attached),
        })
    }

    fn serve_control(&self, session: Session, address: &str) -> bool {
        let node = self.node();
        node.is_ok_and(|node| node.control.serve(session, address))
    }

    fn serve_slots(&self, session: Session) {
        if let Ok(node) = self.node() {
            node.migrations.serve(&node, session);
        }
    }

    fn timeout_ms(&self) -> u64 {
        timeout_ms(&self.node)
    }

    fn committed(&self) -> u64 {
        self.node().map_or(0, |node| {
            let fence = &node.replication.fence;
            let log = own_log(&node).filter(|_| fence.is_grouped());
            log.map_or(0, |log| fence.committed(counted_end(&node, &log)))
        })
    }

    fn now_ms(&self) -> u64 {
        self.node().map_or(0, |node| node.core.clock.now_unix_ms())
    }

    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>) {
        tell(&self.node, is_warning, line);
    }
}

impl VerifyHome for AtPrimary {
    fn is_primary(&self) -> bool {
        self.node()
            .is_ok_and(|node| node.replication.role() == Role::Primary)
    }

    fn online_names(&self) -> Vec<String> {
        let Ok(node) = self.node() else {
            return Vec::new();
        };
        let all = node.replication.replicas.all().into_iter();
        let online = all.filter(|one| one.kind == Kind::Own && one.state().is_online());
        online
            .map(|one| format!("{}:{}", one.host, one.port))
            .collect()
    }

    fn broadcast(&self, message: &Message<'static>) {
        if let Ok(node) = self.node()
            && let Some(links) = node.replication.own.links.get()
        {
            links.say(None, message);
        }
    }

    fn store(&self) -> Option<Arc<Store>> {
        Some(Arc::clone(&self.node().ok()?.core.store))
    }

    fn log(&self) -> Option<Arc<Log>> {
        own_log(&*self.node().ok()?)
    }

    fn now_unix_ms(&self) -> u64 {
        PrimaryHome::now_ms(self)
    }

    fn is_stopping(&self) -> bool {
        self.node().map_or(true, |node| node.is_stopping())
    }

    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>) {
        tell(&self.node, is_warning, line);
    }
}

/// Nobody is told.
struct Nobody;

impl Observer for Nobody {
    fn stage(&self, _: Stage) {}
    fn acked(&self, _: &link::Ack) {}
    fn sent(&self, _: u64) {}
    fn digest(&self, _: &Digest<'_>) {}
    fn took_over(&self, _: u64) {}
    fn name(&self) -> &str {
        ""
    }
}

/// Counts a copy of the log alone. Nobody is shown it: clients find nothing there.
struct LogCopy {
    node: Weak<Node>,
    peer: TermId,
    name: String,
}

impl Observer for LogCopy {
    fn stage(&self, _: Stage) {}

    fn acked(&self, ack: &link::Ack) {
        if let Some(node) = Weak::upgrade(&self.node) {
            note_acked(&node, self.peer, &self.name, ack);
        }
    }

    fn sent(&self, _: u64) {}
    fn digest(&self, _: &Digest<'_>) {}
    fn took_over(&self, _: u64) {}

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LogCopy {
    fn drop(&mut self) {
        if let Some(node) = Weak::upgrade(&self.node) {
            node.replication.note_copy(&node, self.peer, 0, None);
        }
    }
}

/// A copy has the log up to there: it is kept from there on, and counts for a majority.
fn note_acked(node: &Node, peer: TermId, name: &str, ack: &link::Ack) {
    let replication = &node.replication;
    if let Some(log) = own_log(node) {
        replication.own.pins.note(name, &log, ack.durable);
    }
    let end = match replication.fence.wants_disk() {
        true => ack.durable,
        false => ack.appended,
    };
    replication.note_copy(node, peer, ack.term, Some(end));
}

/// Says how far a replica is to who shows that.
struct Watcher {
    node: Weak<Node>,
    peer: TermId,
    /// Where the replica serves its clients.
    name: String,
    attached: Mutex<Attached>,
}

impl Observer for Watcher {
    fn stage(&self, stage: Stage) {
        lock(&self.attached).set_state(match stage {
            Stage::Handshake => ReplicaState::Handshake,
            Stage::Waiting => ReplicaState::Waiting,
            Stage::Sending { .. } | Stage::Finishing { .. } => ReplicaState::Sending,
            Stage::Streaming => ReplicaState::Online,
            Stage::Recovery => ReplicaState::Recovery,
        });
    }

    fn acked(&self, ack: &link::Ack) {
        let node = Weak::upgrade(&self.node);
        if let Some(node) = &node {
            note_acked(node, self.peer, &self.name, ack);
        }
        let now_ms = node.map_or(0, |node| node.core.clock.now_unix_ms());
        let lag_ms = ack.lag_ms.into();
        let ack = Ack {
            applied: ack.applied,
            durable: ack.durable,
            offset: ack.applied,
        };
        let attached = lock(&self.attached);
        attached.note_behind(lag_ms);
        attached.ack(ack, now_ms);
    }

    fn sent(&self, sequence: u64) {
        lock(&self.attached).note_sent(sequence);
    }

    fn digest(&self, digest: &Digest<'_>) {
        if let Some(node) = Weak::upgrade(&self.node) {
            let verifier = &node.replication.own.verifier;
            verifier.answer(&self.name, digest.number, digest.state, digest.bytes);
        }
    }

    fn took_over(&self, sequence: u64) {
        let node = Weak::upgrade(&self.node);
        if let Some(failover) = node.and_then(|node| node.replication.failover()) {
            failover.note_answer(sequence);
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(node) = Weak::upgrade(&self.node) {
            let replication = &node.replication;
            replication.note_copy(&node, self.peer, 0, None);
        }
    }
}

fn timeout_ms(node: &Weak<Node>) -> u64 {
    let seconds = node
        .upgrade()
        .map_or(60, |node| node.core.config.current().replication.timeout_s);
    u64::from(seconds) * 1000
}

fn tell(node: &Weak<Node>, is_warning: bool, line: fmt::Arguments<'_>) {
    if let Some(node) = node.upgrade() {
        if is_warning {
            node.core.log.warning(line);
        } else {
            node.core.log.notice(line);
        }
    }
}

/// Whether this node could follow that primary by the own link: there is a log on disk to append to, and the way is open.
pub(super) fn can_follow(node: &Node, following: &Following) -> bool {
    let config = node.core.config.current();
    let is_secret = !secret_of_replica(node).is_empty();
    let primary = following.primary();
    let names = &node.replication.host_names;
    let is_near = names
        .resolve(&primary.host, primary.port, &node.core.log)
        .is_ok_and(|all| all.iter().all(|address| address.ip().is_loopback()));
    let is_open = is_near || is_secret || config.replication.links_by_certificate;
    if !is_open && own_log(node).is_some() {
        node.core.log.notice(format_args!(
            "The own link to {}:{} takes cluster-secret or masterauth: PSYNC is used instead",
            primary.host, primary.port
        ));
    }
    // A failover between nodes is done by the words of PSYNC.
    own_log(node).is_some() && is_open && !following.fails_over()
}

/// Follows a primary by the own link, at this port of its host, until that is to end.
pub(super) fn follow(following: &Following, port: u16) -> Ended {
    let Some(node) = following.node() else {
        return Ended::Again;
    };
    if own_log(&node).is_none() {
        following.refuse("the own link takes a log on disk here (durability os or above)");
        return Ended::Refused;
    }
    lend_log(&node);
    let home = AtReplica {
        shard: node.replication.fence.shard(),
        following,
        weak: Arc::downgrade(&node),
        node,
        port,
    };
    let own = &home.node.replication.own;
    let own_links = own.links(&home.node);
    own_links.end_term();
    let ended = match AppliedLog::new(&home, home.applier()) {
        Ok(mut data) => {
            let may_discard = following.forces() || following.may_discard();
            let ended = replica_link::follow(&home, &mut data, may_discard);
            own.generation
                .fetch_max(data.generation(), Ordering::Relaxed);
            ended
        }
        Err(reason) => {
            following.refuse(&reason);
            return Ended::Refused;
        }
    };
    match ended {
        replica_link::Ended::Stopped | replica_link::Ended::Unreachable => Ended::Again,
        replica_link::Ended::Refused(refusal) => {
            following.refuse(&refusal.to_string());
            Ended::Refused
        }
    }
}

/// Begins the log after the checkpoint of a full sync whose last step failed, on a full disk say. The data is loaded again
/// before it is anybody's.
///
/// # Errors
/// Why it cannot be begun yet: there is no log until it is.
pub(super) fn begin_missing_log(node: &Node) -> Result<(), String> {
    let Some(kept) = node.persistence() else {
        return Ok(());
    };
    if let Some(manifest) = kept.log().begin_missing()? {
        let own = &node.replication.own;
        own.terms.begin(&manifest.history.terms);
        own.is_store_broken.store(true, Ordering::Release);
    }
    Ok(())
}

/// Applies what the log has more than the store, before this node takes office; where the store has half of something else,
/// all that is on disk is loaded again. The log is lent.
pub(super) fn apply_rest(node: &Arc<Node>) -> Result<(), String> {
    let Some(log) = own_log(node) else {
        return Ok(());
    };
    let own = &node.replication.own;
    let is_broken = own.is_store_broken.load(Ordering::Acquire);
    if !is_broken && own.applied.load(Ordering::Acquire) >= log.tail() {
        return Ok(());
    }
    let (host, port) = (String::new(), 0);
    let now_unix_ms = node.core.clock.now_unix_ms();
    let nobody = Following::new(
        Arc::downgrade(node),
        Primary { host, port },
        Authority::default(),
        now_unix_ms,
    );
    let home = AtReplica {
        shard: node.replication.fence.shard(),
        following: &nobody,
        weak: Arc::downgrade(node),
        node: Arc::clone(node),
        port,
    };
    let mut data = AppliedLog::new(&home, home.applier())?;
    match is_broken {
        true => data.restore()?,
        false => data.apply(u64::MAX)?,
    }
    own.generation
        .fetch_max(data.generation(), Ordering::Relaxed);
    Ok(())
}

/// Takes the log from everybody who states effects to it: what is appended from here on comes from the primary.
fn lend_log(node: &Node) {
    let own = &node.replication.own;
    if own.follows.load(Ordering::Acquire) {
        return;
    }
    // A replica by PSYNC may be there before the primary is: no ping of its stream may stand where frames of the primary come.
    node.replication.stream.set_foreign(true);
    node.replication.stream.let_go(node);
    let log = node.persistence().and_then(|kept| kept.log().lend());
    if let Some(log) = log {
        // Before anybody cuts as a replica does.
        own.applied.store(log.tail(), Ordering::Release);
    }
    own.follows.store(true, Ordering::Release);
}

/// The node, as the link to its primary needs it.
struct AtReplica<'f> {
    following: &'f Following,
    node: Arc<Node>,
    weak: Weak<Node>,
    port: u16,
    /// Under a control group, the shard whose primary is followed.
    shard: Option<ShardId>,
}

impl AtReplica<'_> {
    fn applier(&self) -> Applier {
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
            // Its own replicas are answered in the term that it follows, again where that is another one.
            let term = own.terms.lineage().last_number();
            own.links(&self.node).begin_term(term);
            // What REPLICAOF allowed was for this attachment.
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
        // Before anything of it is acknowledged.
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
