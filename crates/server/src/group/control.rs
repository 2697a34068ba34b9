//! How this node takes part in the control group: from its files and its configuration to threads, and back.
//!
//! ```text
//!   look:    files ─► whether it is in a group; then nothing is written or shown            before clients are served
//!   prepare: name, number of starts; the group decides from here on (Duty)                  before replication begins
//!   begin:   in a group already, or begins one ─► Raft, thread "group"                      after it
//!            asks to be let in ─► thread "join" ─► as above
//! ```

use std::io;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cluster::control_log::RaftId;
use cluster::state::{FEATURE_LEVEL, FIRST_RAFT_ID, roles};
use cluster::{Entry, NodeRecord, Times};
use consensus::{Options, RaftLog};
use durability::disk::{Disk, SystemDisk};
use engine::CommandError;
use persistence::directory::DataDirectory;
use persistence::recovery::Place as DataPlace;
use replication::TermId;

use super::driver::{Driver, Event, Setup, post};
use super::duty::Duty;
use super::files::{Kept, KnownPeer, Place, directory_within, id_of};
use super::forming::Answer;
use super::holder::{SharedLog, TakesPart};
use super::links::{Links, Subject, spawn};
use super::unique;
use crate::config::{Config, LINK_PORT_DISTANCE};
use crate::node::Node;
use crate::replication::session::Session;

/// Events that wait for the thread.
const EVENTS_MAX: usize = 4_096;
/// How long a node is asked to let this one in, ...
const JOIN_TIME: Duration = Duration::from_secs(10);
/// ... and after how long it is asked again.
const JOIN_PAUSE: Duration = Duration::from_millis(300);
/// So often a joiner is sent on from one node to the next.
const HOPS_MAX: usize = 4;

/// What a node of a group has.
pub(crate) struct Part {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Where nothing else has taken the directory of the data.
    _taken: Option<DataDirectory>,
    kept: Mutex<Kept>,
    duty: Option<Arc<Duty>>,
    links: Arc<Links>,
    events: SyncSender<Event>,
    heard: Mutex<Option<Receiver<Event>>>,
    log: OnceLock<Arc<RaftLog<Links>>>,
}

/// What a node knows of itself that is in a group, or is to be.
pub(crate) struct Known(Kept);

/// Looks whether this node is in a group, or is to be: then it neither writes nor shows anything until the group says what
/// it is, since it may have been the primary and be it no more. Called before clients are served.
///
/// # Errors
/// Those of the system; a file that is damaged.
pub(crate) fn look(node: &Node) -> io::Result<Option<Known>> {
    let config = node.core.config.current();
    let place = DataPlace::within(&config.dir);
    let kept = Kept::read(&SystemDisk, &directory_within(&place.directory))?;
    let is_member = kept.as_ref().is_some_and(|kept| kept.raft_id.is_some());
    if !is_member && !config.group.is_wanted() {
        return Ok(None);
    }
    node.core.shared.refusals.set_read_only(true);
    node.core.shared.refusals.set_stale(true);
    Ok(Some(Known(kept.unwrap_or_else(|| Kept {
        id: unique::node_id(),
        ..Kept::default()
    }))))
}

/// Has the group decide from here on: nothing is written but in an office that it gave. Called when the data is loaded,
/// before replication begins.
///
/// # Errors
/// Those of the system; files that are damaged; a configuration that does not go together.
pub(crate) fn prepare(node: &Arc<Node>, Known(mut kept): Known) -> io::Result<Arc<Part>> {
    let config = node.core.config.current();
    let place = DataPlace::within(&config.dir);
    let (disk, directory): (Arc<dyn Disk>, _) =
        (Arc::new(SystemDisk), directory_within(&place.directory));
    check(node, &config)?;
    let taken = node.take_directory()?;
    kept.start_count += 1;
    kept.write(&*disk, &directory)?;
    if config.group.is_witness {
        node.replication.own.set_id(TermId(kept.id.0));
    }
    let (events, heard) = sync_channel(EVENTS_MAX);
    let asked = events.clone();
    let links = Links::new(node, Box::new(move |one| post(&asked, Event::Asked(one))));
    let duty = match config.group.is_witness {
        // It has no data to show, and takes none: that stays as it was begun.
        true => None,
        false => Some(Duty::begin(node, kept.id).map_err(io::Error::other)?),
    };
    let part = Part {
        disk,
        directory,
        _taken: taken,
        kept: Mutex::new(kept),
        duty,
        links,
        events,
        heard: Mutex::new(Some(heard)),
        log: OnceLock::new(),
    };
    let part = Arc::new(part);
    node.control.set(Arc::<Part>::clone(&part));
    Ok(part)
}

/// Takes part, or asks to be let in.
///
/// # Errors
/// Those of the system; a control log that is damaged.
pub(crate) fn begin(part: &Arc<Part>, node: &Arc<Node>) -> io::Result<()> {
    if node.replication.own.open(node).is_none() {
        return Err(io::Error::other(
            "the control group takes a port of links (repl-port), which cannot be had",
        ));
    }
    let config = node.core.config.current();
    let raft_id = lock(&part.kept).raft_id;
    match (raft_id, config.group.join.clone()) {
        (Some(raft_id), _) => part.take_part(node, raft_id),
        (None, Some((host, port))) => {
            let (part, weak) = (Arc::clone(part), Arc::downgrade(node));
            spawn("join", move || {
                if let Some(node) = weak.upgrade()
                    && let Err(error) = part.join(&node, &Place { host, port })
                {
                    let line = format!("This node cannot take part in the control group: {error}");
                    node.core.log.warning(format_args!("{line}"));
                }
            })
        }
        (None, None) => {
            part.keep(|kept| kept.raft_id = Some(FIRST_RAFT_ID))?;
            part.take_part(node, FIRST_RAFT_ID)
        }
    }
}

impl TakesPart for Part {
    fn serve(&self, session: Session, address: &str) {
        self.links.serve(session, address);
    }

    fn leave(&self, node: &[u8]) -> Result<(), CommandError> {
        let error = CommandError::fixed;
        if self.log.get().is_none() {
            return Err(error("ERR this server is in no control group"));
        }
        let node = std::str::from_utf8(node).ok().and_then(id_of);
        let node = node.ok_or_else(|| error("ERR a node is named by 40 digits"))?;
        post(&self.events, Event::Leave(node));
        Ok(())
    }

    fn log(&self) -> Option<SharedLog> {
        let log = Arc::clone(self.log.get()?);
        Some(log)
    }

    fn stop(&self) {
        // It looks up by itself, too.
        let _full = self.events.try_send(Event::Stop);
        self.links.stop();
        if let Some(log) = self.log.get() {
            log.stop();
        }
    }
}

/// Whether the configuration goes together.
fn check(node: &Node, config: &Config) -> io::Result<()> {
    let refuse = |what: &str| Err(io::Error::other(what.to_owned()));
    if config.replication.primary.is_some() {
        return refuse(
            "replicaof and a control group do not go together: the group says who is followed",
        );
    }
    let has_log = node
        .persistence()
        .is_some_and(|kept| kept.log().log().is_some());
    if !config.group.is_witness && !has_log {
        return refuse(
            "a node of a control group keeps a log on disk: durability os, everysec or always",
        );
    }
    Ok(())
}

impl Part {
    /// Keeps where others are, for the next start.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn keep_peers(&self, peers: Vec<KnownPeer>) -> io::Result<()> {
        let is_known = lock(&self.kept).peers == peers;
        match is_known {
            true => Ok(()),
            false => self.keep(|kept| kept.peers = peers),
        }
    }

    /// This node has left: the next start may join a group anew.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn forget_group(&self) -> io::Result<()> {
        self.links.stop();
        if let Some(log) = self.log.get() {
            log.stop();
        }
        self.keep(|kept| {
            kept.raft_id = None;
            kept.peers.clear();
        })
    }

    /// Changes what is kept; it is durable then.
    fn keep(&self, change: impl FnOnce(&mut Kept)) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        let mut changed = kept.clone();
        change(&mut changed);
        changed.write(&*self.disk, &self.directory)?;
        *kept = changed;
        Ok(())
    }

    /// Asks a node to let this one in, until it is in; then takes part.
    fn join(self: &Arc<Self>, node: &Arc<Node>, first: &Place) -> io::Result<()> {
        let record = self.record(node);
        if has_keys(node) {
            return Err(io::Error::other(
                "it has data of its own, which would be lost: start it with an empty directory, or let the others join it",
            ));
        }
        let mut told = String::new();
        while !node.is_stopping() {
            match self.ask_to_join(&record, first) {
                Ok((raft_id, peers)) => {
                    consensus::forget(&*self.disk, &self.directory)?;
                    self.keep(|kept| {
                        kept.raft_id = Some(raft_id);
                        kept.peers = peers;
                    })?;
                    node.core.log.notice(format_args!(
                        "This node has joined the control group, as member {raft_id}"
                    ));
                    return self.take_part(node, raft_id);
                }
                Err(reason) if reason != told => {
                    node.core.log.notice(format_args!(
                        "{}:{} does not let this node join yet: {reason}",
                        first.host, first.port
                    ));
                    told = reason;
                }
                Err(_) => {}
            }
            std::thread::sleep(JOIN_PAUSE);
        }
        Ok(())
    }

    /// Asks once, at that node and where that says; this node's number, and where the others are.
    fn ask_to_join(
        &self,
        record: &NodeRecord,
        first: &Place,
    ) -> Result<(RaftId, Vec<KnownPeer>), String> {
        let id = lock(&self.kept).id;
        let entry = Entry::Join {
            node: id,
            record: record.clone(),
        };
        let bytes = unique::proposal(entry).encode();
        let mut place = first.clone();
        for _ in 0..HOPS_MAX {
            let told = self
                .links
                .ask_once(&place, Subject::Join, bytes.clone(), JOIN_TIME)?;
            match Answer::decode(&told).map_err(|what| what.to_string())? {
                Answer::Accepted { raft_id, state } => {
                    return Ok((raft_id, super::forming::peers_of(&state, id)));
                }
                Answer::Elsewhere(there) => place = there,
                Answer::Refused(reason) => return Err(reason),
            }
        }
        Err("the nodes of the group send it from one to the other".to_owned())
    }

    /// Opens the control log, and begins to take part.
    fn take_part(self: &Arc<Self>, node: &Arc<Node>, raft_id: RaftId) -> io::Result<()> {
        let config = node.core.config.current();
        let times = Times::of(config.group.node_timeout_ms);
        let options = Options {
            id: raft_id,
            disk: Arc::clone(&self.disk),
            directory: self.directory.clone(),
            times,
        };
        let kept = lock(&self.kept).clone();
        for KnownPeer {
            node,
            raft_id,
            place,
        } in &kept.peers
        {
            self.links.set_place(*node, *raft_id, place);
        }
        let events = self.events.clone();
        let changed = Arc::new(move || post(&events, Event::StateChanged));
        let (log, runtime) = RaftLog::open(&options, Arc::clone(&self.links), changed)?;
        spawn("raft", move || runtime.run())?;
        let _first = self.log.set(Arc::clone(&log));
        if raft_id == FIRST_RAFT_ID {
            log.begin().map_err(io::Error::other)?;
        }
        let driver = Driver::new(Setup {
            part: Arc::clone(self),
            node: Arc::downgrade(node),
            own: kept.id,
            record: self.record(node),
            times,
            links: Arc::clone(&self.links),
            log,
            events: self.events.clone(),
            duty: self.duty.clone(),
            declines: config.group.declines,
            now_ms: node.core.clock.boottime_ms(),
        });
        let heard = lock(&self.heard).take();
        let heard = heard.ok_or_else(|| io::Error::other("it takes part already"))?;
        spawn("group", move || driver.run(&heard))
    }

    /// What this node says of itself.
    fn record(&self, node: &Node) -> NodeRecord {
        let config = node.core.config.current();
        let link_port = match config.replication.link_port {
            0 => config.port.saturating_add(LINK_PORT_DISTANCE),
            port => port,
        };
        let client_port = match config.replication.announce_port {
            0 => config.port,
            port => port,
        };
        NodeRecord {
            name: String::new(),
            host: host_of(&config),
            client_port,
            link_port,
            zone: config.availability_zone.clone(),
            roles: match config.group.is_witness {
                true => roles::WITNESS,
                false => roles::DATA,
            },
            start_count: lock(&self.kept).start_count,
            feature_level: FEATURE_LEVEL,
            hostname: config.cluster.announce_hostname.clone(),
            tls_port: config.tls.port,
        }
    }
}

/// Where others find this node: what it announces, where it listens, or the address that it would reach others from.
fn host_of(config: &Config) -> String {
    if let Some(host) = &config.replication.announce_host {
        return host.clone();
    }
    let is_one = |host: &&str| !host.contains('*') && *host != "0.0.0.0" && *host != "::";
    let bound = config.bind.iter().map(|one| one.host.as_str()).find(is_one);
    let reached = match &config.group.join {
        Some((host, port)) => local_address((host.as_str(), *port)),
        // Nothing is sent there: it is an address that documents use.
        None => local_address(("192.0.2.1", 9)),
    };
    match (bound, reached) {
        // Bound to this machine alone, nobody else reaches it.
        (Some(bound), Some(reached)) if bound.starts_with("127.") || bound == "::1" => {
            match reached.starts_with("127.") || config.bind.len() == 1 {
                true => bound.to_owned(),
                false => reached,
            }
        }
        (Some(bound), _) => bound.to_owned(),
        (None, Some(reached)) => reached,
        (None, None) => "127.0.0.1".to_owned(),
    }
}

fn local_address(to: (&str, u16)) -> Option<String> {
    for from in ["0.0.0.0:0", "[::]:0"] {
        let socket = UdpSocket::bind(from).ok()?;
        if socket.connect(to).is_ok() {
            return Some(socket.local_addr().ok()?.ip().to_string());
        }
    }
    None
}

fn has_keys(node: &Node) -> bool {
    let mut handle = node.core.store.handle();
    (0..node.core.store.databases()).any(|database| handle.len(database) > 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
