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
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use base::random::fill_from_os;
use durability::checkpoint::Manifest;
use durability::log::{Control, Log, TermFrame};
use engine::ServerPort;
use persistence::checkpointer::Why;
use persistence::environment::Environment;
use persistence::recovery::Place;
use replication::attach::FullReason;
use replication::link::{self, Hello, Source};
use replication::primary::Stage;
use replication::replica::{OwnLog, State};
use replication::{PrimaryLog, TermId};

use super::applied_log::{AppliedLog, LogHome};
use super::applier::Applier;
use super::following::{Ended, Following, Link};
use super::listener::{Listeners, Reach};
use super::primary_link::{FullCopy, Kill, Observer, PrimaryHome, PrimaryLinks};
use super::replica_link::{self, ReplicaHome};
use super::replicas::{Ack, Attached, Kind, NewReplica, ReplicaState};
use super::session::{Conduit, Identity};
use super::terms::Terms;
use crate::node::Node;
use crate::port::Port;

/// The port of links lies so far above that of clients where none is configured.
const PORT_DISTANCE: u16 = 10_000;
/// How long a connection to the primary may take.
const DIAL_TIME: Duration = Duration::from_secs(5);
/// How often it is looked whether a term frame is on disk.
const LOOK: Duration = Duration::from_millis(1);
/// A checkpoint is sent to a replica as long as the log after it has no more bytes than this part of it, in hundredths.
const LOG_PERCENT_MAX: u64 = 150;
/// So much log behind a checkpoint is never a reason for a new one.
const LOG_BYTES_FREE: u64 = 16 << 20;

/// What a node knows of its own links.
#[derive(Default)]
pub(crate) struct OwnLinks {
    node: OnceLock<Weak<Node>>,
    id: OnceLock<TermId>,
    links: OnceLock<Arc<PrimaryLinks>>,
    pub(crate) terms: Terms,
    /// The port that is listened at.
    listeners: Mutex<Option<u16>>,
    /// Held while a term is begun.
    beginning: Mutex<()>,
    stop: Arc<AtomicBool>,
    /// This node follows by the own link: nobody but that appends to the log.
    follows: AtomicBool,
    /// The highest generation that was met in frames of a primary.
    generation: AtomicU64,
    /// See [`LogHome::is_store_broken`].
    is_store_broken: AtomicBool,
}

impl OwnLinks {
    /// Says which node it is of, when all that is kept is loaded.
    pub(crate) fn begin(&self, node: &Arc<Node>) {
        let _already_set = self.node.set(Arc::downgrade(node));
        self.read_terms(node);
        if self.terms.lineage().last().is_none() {
            return;
        }
        // A node that was in office begins another term before it is heard of again: it may have been replaced meanwhile.
        if !node.replication.follows() {
            self.begin_term(node);
        }
        // Its replicas come back without asking.
        let _port = self.offer();
    }

    fn read_terms(&self, node: &Node) {
        let Some(log) = own_log(node) else { return };
        let place = place_of(node);
        let manifest = place.manifest().ok().flatten();
        let known = manifest.map(|manifest| Terms::read_beside(&place, &manifest));
        self.terms.begin(known.unwrap_or_default(), log.oldest());
        self.terms.catch_up(&log);
    }

    /// This node's name among those that have links.
    fn id(&self) -> TermId {
        *self.id.get_or_init(|| {
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

    /// The port of the own link and this node's name, for a replica that asks; none where there is no log on disk.
    pub(crate) fn offer(&self) -> Option<(u16, String)> {
        let node = self.node.get()?.upgrade()?;
        own_log(&node)?;
        let mut listeners = lock(&self.listeners);
        if listeners.is_none() {
            *listeners = self.listen(&node);
        }
        let port = (*listeners)?;
        drop(listeners);
        Some((port, self.id().to_string()))
    }

    fn listen(&self, node: &Arc<Node>) -> Option<u16> {
        let config = node.core.config.current();
        let port = match config.replication.link_port {
            0 => config.port.checked_add(PORT_DISTANCE)?,
            port => port,
        };
        let is_secret = !secret_of_primary(node).is_empty();
        let reach = match is_secret && config.replication.links_in_plain {
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
                        Reach::Loopback => "this machine",
                        Reach::Everybody => "everybody who knows the secret, in plain text",
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

    /// A primary's reign begins: the first frame of it is in the log when this returns.
    pub(crate) fn begin_term(&self, node: &Arc<Node>) {
        let Some(log) = own_log(node) else { return };
        let _alone = lock(&self.beginning);
        self.terms.catch_up(&log);
        let lineage = self.terms.lineage();
        let before = lineage.last();
        let mut id = [0; 20];
        fill_from_os(&mut id);
        let mut appender = log.appender();
        appender.set_time(node.core.clock.now_unix_ms());
        appender.control(&Control::Term(TermFrame {
            number: lineage.last_number() + 1,
            id,
            previous: before.map_or([0; 20], |term| term.id.0),
            node: self.id().0,
            resp_offset: 0,
            flags: 0,
        }));
        // That it is with the system is seen to before anybody is answered in it.
        let _fault = log.write_out(appender.end());
        drop(appender);
        self.terms.catch_up(&log);
        let term = self.terms.lineage().last_number();
        self.links(node).begin_term(term);
        node.core
            .log
            .notice(format_args!("Term {term} of this log begins"));
    }

    /// The first term of a log that has none.
    fn begin_first_term(&self, node: &Arc<Node>) {
        if self.terms.lineage().last().is_none() {
            self.begin_term(node);
        }
    }

    /// This node has stopped following, and takes writes next.
    pub(crate) fn take_over(&self, node: &Arc<Node>) {
        if !self.follows.load(Ordering::Acquire) {
            return;
        }
        // Whatever is cut from now on is newer than what the primary's frames say.
        let _raised = node
            .core
            .store
            .raise_generation(self.generation.load(Ordering::Relaxed));
        self.begin_term(node);
        if let Some(kept) = node.persistence() {
            kept.log().take_back();
        }
        self.follows.store(false, Ordering::Release);
        // Whatever the store has is this node's data from now on.
        self.is_store_broken.store(false, Ordering::Release);
        if let Some(kept) = node.persistence() {
            // One of its own: what it was given is of another's generations.
            let _scheduled = kept.checkpointer.schedule(Why::Rewrite);
        }
    }

    /// Whether the log is a primary's, so that no checkpoint of this node's own goes on to it.
    pub(crate) fn holds_log(&self) -> bool {
        self.follows.load(Ordering::Acquire)
    }

    /// A checkpoint may be in force: keeps the terms beside it that its log has no more.
    pub(crate) fn checkpoint_ended(&self, node: &Node) {
        let place = place_of(node);
        if let (Some(log), Ok(Some(manifest))) = (own_log(node), place.manifest()) {
            self.terms.catch_up(&log);
            if let Err(error) = self.terms.write_beside(&place, &manifest) {
                let error = crate::config::system_reason(&error);
                node.core
                    .log
                    .warning(format_args!("The terms of the log are not kept: {error}"));
            }
        }
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
fn own_log(node: &Node) -> Option<Arc<Log>> {
    node.persistence().and_then(|kept| kept.log().log())
}

fn place_of(node: &Node) -> Place {
    Place::within(&node.core.config.current().dir)
}

/// What replicas have to know.
fn secret_of_primary(node: &Node) -> Vec<u8> {
    let config = node.core.config.current();
    let replication = &config.replication;
    let own = replication.link_secret.clone();
    own.or_else(|| config.password.clone()).unwrap_or_default()
}

/// What the primary wants to be known.
fn secret_of_replica(node: &Node) -> Vec<u8> {
    let replication = &node.core.config.current().replication;
    let own = replication.link_secret.clone();
    own.or_else(|| replication.password.clone())
        .unwrap_or_default()
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

    fn checkpoint(node: &Node, log: &Arc<Log>) -> Result<(Manifest, Source), String> {
        let place = place_of(node);
        let found = place.manifest().map_err(|fault| fault.to_string())?;
        let is_good = |manifest: &Manifest| {
            let most = manifest.bytes().saturating_mul(LOG_PERCENT_MAX) / 100;
            manifest.log_sequence.is_some_and(|from| {
                from >= log.oldest()
                    && log.tail_complete().saturating_sub(from) <= most.max(LOG_BYTES_FREE)
            })
        };
        let is_held = node.replication.own.holds_log();
        if let Some(manifest) = found.filter(|manifest| is_held || is_good(manifest)) {
            return Ok((manifest, Source::Checkpoint));
        }
        let kept = node.persistence().ok_or("nothing is kept")?;
        let ticket = kept.checkpointer.schedule(Why::Rewrite);
        let ticket = ticket.map_err(|_| "the server stops".to_owned())?;
        let outcome = kept.checkpointer.wait(ticket);
        outcome.result.map_err(|failure| failure.to_string())?;
        let made = place.manifest().map_err(|fault| fault.to_string())?;
        let made = made.ok_or("no checkpoint is in force")?;
        Ok((made, Source::NewCheckpoint))
    }
}

impl PrimaryHome for AtPrimary {
    fn identity(&self) -> Identity {
        let Ok(node) = self.node() else {
            return Identity::new(TermId::default(), b"", b"");
        };
        Identity::new(node.replication.own.id(), b"", &secret_of_primary(&node))
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
            None => own.begin_first_term(&node),
        }
        own.terms.catch_up(&log);
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
            oldest: log.oldest(),
            end,
            has_data: has_keys || is_more || first > 0,
            // A replica is given a checkpoint first, so that it has one to go on from.
            is_whole: false,
            lineage,
        })
    }

    fn full_copy(&self, reason: FullReason) -> Result<FullCopy, String> {
        let node = self.node()?;
        let log = own_log(&node).ok_or("there is no log on disk")?;
        node.replication
            .counts
            .full_syncs
            .fetch_add(1, Ordering::Relaxed);
        let (manifest, source) = Self::checkpoint(&node, &log)?;
        node.core.log.notice(format_args!(
            "A replica is given checkpoint {} and the log from {} on ({reason:?})",
            manifest.generation,
            manifest.log_sequence.unwrap_or(0)
        ));
        let place = place_of(&node);
        let terms = node
            .replication
            .own
            .terms
            .below(manifest.log_sequence.unwrap_or(0));
        Ok(FullCopy {
            disk: Arc::clone(&place.disk),
            directory: place.directory,
            terms,
            source,
            _pin: Box::new(log.pin("full sync", manifest.log_sequence.unwrap_or(0))),
            manifest,
        })
    }

    fn observe(&self, peer: &Hello, address: &str, kill: Kill) -> Box<dyn Observer> {
        let Ok(node) = self.node() else {
            return Box::new(Nobody);
        };
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
        Box::new(Watcher {
            node: Weak::clone(&self.node),
            attached: Mutex::new(attached),
        })
    }

    fn timeout_ms(&self) -> u64 {
        timeout_ms(&self.node)
    }

    fn now_ms(&self) -> u64 {
        self.node().map_or(0, |node| node.core.clock.now_unix_ms())
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
}

/// Says how far a replica is to who shows that.
struct Watcher {
    node: Weak<Node>,
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
        let now_ms = Weak::upgrade(&self.node).map_or(0, |node| node.core.clock.now_unix_ms());
        let ack = Ack {
            applied: ack.applied,
            durable: ack.durable,
            offset: ack.applied,
        };
        lock(&self.attached).ack(ack, now_ms);
    }

    fn sent(&self, sequence: u64) {
        lock(&self.attached).note_sent(sequence);
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
    let is_near = (primary.host.as_str(), primary.port)
        .to_socket_addrs()
        .is_ok_and(|mut all| all.all(|address| address.ip().is_loopback()));
    let is_open = is_near || is_secret && config.replication.links_in_plain;
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
        following,
        weak: Arc::downgrade(&node),
        node,
        port,
    };
    let own = &home.node.replication.own;
    let own_links = own.links(&home.node);
    own_links.end_term();
    let handle = home.node.handle(&Arc::default());
    let applier = Applier::new(
        home.node.core.env.table,
        handle,
        &home.node.sessions.waiters,
        &home.node.core.settings,
    );
    let ended = match AppliedLog::new(&home, applier) {
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

/// Takes the log from everybody who states effects to it: what is appended from here on comes from the primary.
fn lend_log(node: &Node) {
    let own = &node.replication.own;
    if !own.follows.swap(true, Ordering::AcqRel) {
        node.replication.stream.let_go(node);
    }
    let _log = node.persistence().and_then(|kept| kept.log().lend());
}

/// The node, as the link to its primary needs it.
struct AtReplica<'f> {
    following: &'f Following,
    node: Arc<Node>,
    weak: Weak<Node>,
    port: u16,
}

impl ReplicaHome for AtReplica<'_> {
    fn identity(&self) -> Identity {
        let config = self.node.core.config.current();
        let announced = config.replication.announce_host.clone().unwrap_or_default();
        let port = match config.replication.announce_port {
            0 => config.port,
            port => port,
        };
        let name = format!("{announced}:{port}");
        let secret = secret_of_replica(&self.node);
        Identity::new(self.node.replication.own.id(), name.as_bytes(), &secret)
    }

    fn dial(&self) -> io::Result<TcpStream> {
        let host = self.following.primary().host.as_str();
        let is_secret = !secret_of_replica(&self.node).is_empty();
        let in_plain = self.node.core.config.current().replication.links_in_plain;
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for address in (host, self.port).to_socket_addrs()? {
            let is_open = is_secret && in_plain;
            if !is_open && !address.ip().is_loopback() {
                return Err(io::Error::other(
                    "the own link to another machine takes a secret (cluster-secret or masterauth) and \
                     repl-link-plaintext yes",
                ));
            }
            match TcpStream::connect_timeout(&address, DIAL_TIME) {
                Ok(stream) => return Ok(stream),
                Err(error) => refused = error,
            }
        }
        Err(refused)
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

    fn heard(&self) {
        self.following.note_io();
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
        let log = kept.log().replace(manifest)?;
        kept.checkpointer.note_clean(manifest.created_unix_ms);
        Ok(log)
    }

    fn terms(&self) -> &Terms {
        &self.node.replication.own.terms
    }

    fn is_store_broken(&self) -> &AtomicBool {
        &self.node.replication.own.is_store_broken
    }

    fn with_port(&self, act: &mut dyn FnMut(&mut dyn ServerPort)) {
        act(&mut Port::new(&self.node, true));
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
