//! This node's membership in the control group: from files and configuration to threads, and back.
//!
//! ```text
//!   look:    files ─► whether it is in a group; then nothing is written or shown            before clients are served
//!   prepare: name, number of starts; the group decides from here on (Duty)                  before replication begins
//!   begin:   in a group already, or begins one ─► Raft, thread "group"                      after it
//!            asks to be let in ─► thread "join" ─► as above
//!            in cluster mode and by itself ─► waits until it meets another node (see `meeting`)
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cluster::control_log::RaftId;
use cluster::state::FIRST_RAFT_ID;
use cluster::{ControlState, Entry, NodeId, NodeRecord, ShardId, Times};
use consensus::{Options, RaftLog};
use durability::disk::{Disk, SystemDisk};
use engine::cluster::ClusterSeen;
use engine::replication::NodeOrder;
use engine::{CommandError, TopicKind};
use persistence::directory::DataDirectory;
use persistence::log_alone;
use persistence::recovery::Place as DataPlace;
use persistence::seal::SealRecord;
use replication::TermId;

use super::driver::{Driver, Event, Setup, post};
use super::duty::Duty;
use super::files::{Kept, KnownPeer, Place, directory_within};
use super::forming::Answer;
use super::giving_way::Merging;
use super::holder::{Meeting, SharedLog, TakesPart};
use super::links::{Asked, Links, Subject, spawn};
use super::places::Places;
use super::reads::Reads;
use super::record::{is_bound_too_narrowly, is_nowhere, record};
use super::relay::{self, Relay};
use super::retirement::Reason;
use super::unique;
use super::{directives, documents, libraries};
use crate::config::{Config, Shares};
use crate::node::Node;
use crate::replication::session::Session;

/// Maximum number of events that wait for the thread.
const EVENTS_MAX: usize = 4_096;
/// Timeout of a request to join, ...
const JOIN_TIME: Duration = Duration::from_secs(10);
/// ... and pause before the next one.
const JOIN_PAUSE: Duration = Duration::from_millis(300);
/// How long the log's thread may take to end.
const LOG_END_TIME: Duration = Duration::from_secs(5);
/// Maximum number of nodes that a joiner is redirected to in a row.
const HOPS_MAX: usize = 4;

/// The state of a node in a group or a cluster.
pub(crate) struct Part {
    me: Weak<Self>,
    pub(super) node: Weak<Node>,
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Set if nothing else has locked the data directory.
    _taken: Option<DataDirectory>,
    kept: Mutex<Kept>,
    pub(super) links: Arc<Links>,
    pub(super) relay: Relay,
    pub(super) reads: Arc<Reads>,
    pub(super) places: Places,
    taking: Mutex<Taking>,
    /// Held while this node meets another one, or leaves: it is in one group at a time.
    pub(super) meeting: Mutex<()>,
    pub(super) merging: Merging,
}

/// This node's present membership.
#[derive(Default)]
struct Taking {
    /// Carries out the group's decisions. `None` for a witness without a copy of the log, and while
    /// there is no group.
    duty: Option<Arc<Duty>>,
    active: Option<Active>,
    /// Whether it has left its group, and is about to be by itself.
    is_ending: bool,
}

/// State while it is in a group.
struct Active {
    events: SyncSender<Event>,
    log: Arc<RaftLog<Links>>,
    /// Receives a message when the log's thread has ended.
    ended: Receiver<()>,
}

/// What a node knows of itself that is in a group, joins one, or is in cluster mode.
pub(crate) struct Known {
    kept: Kept,
    is_by_itself: bool,
}

/// Whether the node of a working directory is in a group, according to its files. Unreadable files
/// are reported by [`look`].
pub(crate) fn is_member(dir: &Path) -> bool {
    let directory = directory_within(&DataPlace::within(dir).directory);
    let kept = Kept::read(&SystemDisk, &directory).ok().flatten();
    kept.is_some_and(|kept| kept.raft_id.is_some())
}

/// Checks whether this node is or will be in a group. Then it refuses reads and writes until the
/// group decides its role, because it may have been the primary and be replaced. Called before
/// clients are served.
///
/// # Errors
/// Errors of the system, and a damaged file.
pub(crate) fn look(node: &Node) -> io::Result<Option<Known>> {
    let config = node.core.config.current();
    let place = DataPlace::within(&config.dir);
    let kept = Kept::read(&SystemDisk, &directory_within(&place.directory))?;
    let is_member = kept.as_ref().is_some_and(|kept| kept.raft_id.is_some());
    let is_wanted = is_member || config.group.is_wanted();
    if is_wanted {
        node.core.shared.refusals.set_read_only(true);
        node.core.shared.refusals.set_stale(true);
        if is_member && !config.group.is_witness && config.group.shares != Shares::NONE {
            node.replication.begin_to_await_group();
        }
    }
    let known = kept.unwrap_or_else(|| Kept {
        id: unique::node_id(),
        ..Kept::default()
    });
    Ok((is_wanted || config.cluster.is_on).then_some(Known {
        kept: known,
        is_by_itself: !is_wanted,
    }))
}

impl Known {
    /// The name of this node in its group, or `None` if it is in cluster mode and by itself.
    pub(crate) fn member(&self) -> Option<NodeId> {
        (!self.is_by_itself).then_some(self.kept.id)
    }
}

/// Puts this node under its group: from here on it writes only in an office that the group gave it.
/// Called when the data is loaded, before replication begins.
///
/// # Errors
/// Errors of the system, damaged files, and an inconsistent configuration.
pub(crate) fn prepare(node: &Arc<Node>, known: Known) -> io::Result<Arc<Part>> {
    let config = node.core.config.current();
    let place = DataPlace::within(&config.dir);
    let (disk, directory): (Arc<dyn Disk>, _) =
        (Arc::new(SystemDisk), directory_within(&place.directory));
    let Known {
        mut kept,
        is_by_itself,
    } = known;
    check(node, &config)?;
    let taken = node.take_directory()?;
    if !is_by_itself {
        kept.start_count += 1;
        kept.write(&*disk, &directory)?;
    }
    let part = Arc::new_cyclic(|part: &Weak<Part>| {
        let asked = Weak::clone(part);
        let handler = move |one: Asked| match asked.upgrade() {
            Some(part) => part.hear(one),
            None => drop(one),
        };
        Part {
            me: Weak::clone(part),
            node: Arc::downgrade(node),
            disk,
            directory,
            _taken: taken,
            kept: Mutex::new(kept),
            links: Links::new(node, Box::new(handler)),
            relay: Relay::new(Links::new(node, Box::new(drop))),
            reads: Reads::of(node),
            places: Places::default(),
            taking: Mutex::default(),
            meeting: Mutex::default(),
            merging: Merging::default(),
        }
    });
    if !is_by_itself {
        part.obey(node).map_err(io::Error::other)?;
    }
    node.control.set(Arc::<Part>::clone(&part));
    Ok(part)
}

/// Takes part, or asks to join.
///
/// # Errors
/// Errors of the system, and a damaged control log.
pub(crate) fn begin(part: &Arc<Part>, node: &Arc<Node>) -> io::Result<()> {
    let config = node.core.config.current();
    let has_port = node.replication.own.open(node).is_some();
    let raft_id = lock(&part.kept).raft_id;
    if raft_id.is_none() && !config.group.is_wanted() {
        // A node by itself needs no port until it meets another one.
        return Ok(());
    }
    if !has_port {
        return Err(io::Error::other(
            "the control group takes a port of links (repl-port), which cannot be had",
        ));
    }
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

    fn order_node(&self, node: &[u8], order: NodeOrder) -> Result<(), CommandError> {
        Self::order_node(self, node, order)
    }

    fn leave_for_restart(&self) -> Result<(), CommandError> {
        Self::leave_for_restart(self)
    }

    fn restart_answered(&self) {
        let _in_a_group = self.post(Event::RestartAnswered);
    }

    fn has_to_give(&self) -> bool {
        Self::has_to_give(self)
    }

    fn give_away(&self, time: Duration, goes_on: &dyn Fn() -> bool) -> bool {
        Self::give_away(self, Reason::Stop, time, goes_on)
    }

    fn keep_all(&self) {
        let _in_a_group = self.post(Event::Stay(Reason::Stop));
    }

    fn log(&self) -> Option<SharedLog> {
        let log = self.raft_log()?;
        Some(log)
    }

    fn member(&self) -> Option<NodeId> {
        let kept = lock(&self.kept);
        kept.raft_id.map(|_| kept.id)
    }

    fn configured(&self, config: &Config) {
        // The configuration comes into force only after all observers were notified.
        let record = self.record_by(config);
        let _in_a_group = self.post(Event::Configured(Box::new(record)));
    }

    fn meet(&self, meeting: &Meeting) -> Result<(), String> {
        let me = self.me.upgrade().ok_or("the server stops")?;
        me.meet_at(meeting)
    }

    fn set_destination(&self, shard: Option<ShardId>) {
        let _in_a_group = self.post(Event::Destination(shard));
    }

    fn hand_over(&self, primary: NodeId) -> Result<(), String> {
        let _known = self.post(Event::Summoned);
        self.ask_for_office(primary)
    }

    fn fail_over(&self, to: Option<(String, u16)>) -> Result<(), CommandError> {
        match self.post(Event::FailOver(to)) {
            true => Ok(()),
            false => Err(CommandError::fixed(
                "ERR this server does not take part in its control group yet",
            )),
        }
    }

    fn relay(&self, kind: TopicKind, channel: &[u8], message: &[u8]) {
        let node = self.node.upgrade();
        let Some(node) = node.filter(|node| node.group.is_there()) else {
            return;
        };
        let seen = node.group.get();
        self.relay
            .send(&seen.state, seen.own, kind, channel, message);
    }

    fn ask_for_token(&self, to: NodeId, user: &[u8], time: Duration) -> Result<Vec<u8>, String> {
        let node = self.node.upgrade().ok_or("the server stops")?;
        let seen = node.group.get();
        self.relay.ask_for_token(&seen.state, to, user, time)
    }

    fn show_links(&self, seen: &mut ClusterSeen) {
        Self::show_links(self, seen);
    }

    fn leave_for_good(&self) -> Result<(), String> {
        self.leave_cluster()
    }

    fn stop(&self) {
        let taking = lock(&self.taking);
        if let Some(active) = &taking.active {
            // The thread also checks by itself.
            let _full = active.events.try_send(Event::Stop);
        }
        self.links.stop();
        self.relay.stop();
        self.reads.stop();
        if let Some(active) = &taking.active {
            active.log.stop();
        }
    }
}

/// Checks that the configuration is consistent.
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
    let group = &config.group;
    if group.witness_log && !group.is_witness {
        return refuse("witness-log is for a witness: witness yes");
    }
    if group.keeps_log_alone() && config.cluster.is_on {
        return refuse("witness-log keeps the log of a group of one shard, not of a cluster");
    }
    if group.keeps_log() && !has_log {
        return refuse(
            "a node of a control group keeps a log on disk: durability os, everysec or always",
        );
    }
    match group.keeps_log_alone() && !node.keeping.keeps_log_alone() {
        true => begin_log_alone(node, config),
        false => Ok(()),
    }
}

/// Makes this node a log-only copy from here on, and marks its directory as such.
fn begin_log_alone(node: &Node, config: &Config) -> io::Result<()> {
    let place = DataPlace::within(&config.dir);
    // A promise that it made with data cannot be kept without data.
    let had_shard = SealRecord::read(&place)?.is_some_and(|known| known.shard.is_some());
    if has_keys(node) || had_shard {
        return Err(io::Error::other(
            "witness-log: the directory is of a node with data, and a copy of the log begins with an empty one",
        ));
    }
    log_alone::mark(&place)?;
    node.keeping.log_alone.store(true, Ordering::Release);
    Ok(())
}

impl Part {
    /// Handles a peer's question.
    fn hear(self: &Arc<Self>, asked: Asked) {
        match asked.subject {
            Subject::Meet => return self.hear_of_meeting(asked),
            Subject::Publish => return self.hear_of_message(asked),
            Subject::Places => return self.hear_of_places(asked),
            Subject::Forward => return self.hear_of_client(asked),
            Subject::Confirm | Subject::ReadIndex => return self.hear_of_read(asked),
            Subject::Merge => return self.hear_of_merge(asked),
            Subject::GiveWay => return self.hear_of_giving_way(asked),
            _ => {}
        }
        let events = self.events();
        match events {
            Some(events) => post(&events, Event::Asked(asked)),
            None => asked
                .reply
                .answer(Err("this node is in no control group".to_owned())),
        }
    }

    /// Handles another node's message for this node's subscribers.
    fn hear_of_message(&self, asked: Asked) {
        let Asked { bytes, reply, .. } = asked;
        if let (Some(node), Ok((kind, channel, message))) =
            (self.node.upgrade(), relay::decode(&bytes))
        {
            let _receivers = node.sessions.pubsub.publish(kind, channel, message);
        }
        reply.answer(Ok(Vec::new()));
    }

    /// Handles a question of a shard member that reads wait for.
    fn hear_of_read(&self, asked: Asked) {
        match self.node.upgrade() {
            Some(node) if asked.subject == Subject::Confirm => Reads::hear_of_round(&node, asked),
            Some(node) => self.reads.hear_of_read(&node, asked),
            None => drop(asked),
        }
    }

    /// The directory of its files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a weak reference, for holders that may outlive this.
    pub(super) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// This node's name and its number in Raft, or `None` if it is in no group.
    pub(super) fn names(&self) -> Option<(NodeId, RaftId)> {
        let kept = lock(&self.kept);
        kept.raft_id.map(|raft_id| (kept.id, raft_id))
    }

    /// Whether a node was in this node's group when the peers were last stored, or no peers were
    /// stored.
    pub(super) fn may_be_a_peer(&self, node: NodeId, raft_id: RaftId) -> bool {
        let kept = lock(&self.kept);
        let mut peers = kept.peers.iter();
        kept.peers.is_empty() || peers.any(|peer| peer.node == node && peer.raft_id == raft_id)
    }

    pub(super) fn raft_log(&self) -> Option<Arc<RaftLog<Links>>> {
        let taking = lock(&self.taking);
        Some(Arc::clone(&taking.active.as_ref()?.log))
    }

    /// Answers another node with a token that admits its client as a user.
    fn hear_of_client(&self, asked: Asked) {
        let Asked { bytes, reply, .. } = asked;
        let token = self.node.upgrade().and_then(|node| {
            let now_ms = node.core.clock.monotonic_ms();
            node.forward.issue(&bytes, now_ms)
        });
        reply.answer(match token {
            Some(token) => Ok(base::hex::text(&token).into_bytes()),
            None => Err("too many tokens are not used".to_owned()),
        });
    }

    fn events(&self) -> Option<SyncSender<Event>> {
        let taking = lock(&self.taking);
        Some(taking.active.as_ref()?.events.clone())
    }

    /// Queues an event for the thread. Returns false if this node is in no group.
    pub(super) fn post(&self, event: Event) -> bool {
        let events = self.events();
        let is_there = events.is_some();
        if let Some(events) = events {
            post(&events, event);
        }
        is_there
    }

    /// Puts this node under the group's decisions.
    fn obey(&self, node: &Arc<Node>) -> Result<(), String> {
        let id = lock(&self.kept).id;
        let shares_libraries = libraries::is_wanted(node);
        node.core
            .shared
            .refusals
            .set_shares_libraries(shares_libraries);
        let config = node.core.config.current();
        if !config.group.keeps_log() {
            // The node has no data to show and takes none: its refusals from the start stay.
            node.replication.own.set_id(TermId(id.0));
            return Ok(());
        }
        let duty = Duty::begin(node, id)?;
        lock(&self.taking).duty = Some(duty);
        Ok(())
    }

    /// Brings a node that was by itself into a group, with the name and number that `change`
    /// stores.
    pub(super) fn enter(
        self: &Arc<Self>,
        node: &Arc<Node>,
        change: impl FnOnce(&mut Kept),
    ) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        consensus::forget(&*self.disk, &self.directory).map_err(text)?;
        self.keep(change).map_err(text)?;
        let raft_id = lock(&self.kept).raft_id.ok_or("it has no number")?;
        self.obey(node)?;
        self.take_part(node, raft_id).map_err(text)
    }

    /// Stores the host at which another node reached this one.
    pub(super) fn note_host(&self, host: &str) -> io::Result<()> {
        let is_known = lock(&self.kept).host.is_some() || host.is_empty();
        match is_known {
            true => Ok(()),
            false => self.keep(|kept| kept.host = Some(host.to_owned())),
        }
    }

    /// Stores the addresses of other nodes for the next start.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn keep_peers(&self, peers: Vec<KnownPeer>) -> io::Result<()> {
        let is_known = lock(&self.kept).peers == peers;
        match is_known {
            true => Ok(()),
            false => self.keep(|kept| kept.peers = peers),
        }
    }

    /// Makes this node's questions to members name its group from here on.
    fn name_group(&self, kept: &Kept) {
        for links in [&*self.links, self.reads.links()] {
            links.set_group(kept.incarnation, kept.founder);
        }
    }

    /// Stores the founder of the group, and makes questions name it, once all nodes know that.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn note_founder(&self, state: &ControlState) -> io::Result<()> {
        let founder = told_founder(state);
        if founder.is_none() || lock(&self.kept).founder.is_some() {
            return Ok(());
        }
        self.keep(|kept| kept.founder = founder)?;
        let kept = lock(&self.kept).clone();
        self.name_group(&kept);
        Ok(())
    }

    /// Forgets the group that this node has left. It may then join a group again: in cluster mode
    /// once [`Part::note_end`] was called, otherwise after a restart.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn forget_group(&self) -> io::Result<()> {
        let active = {
            let mut taking = lock(&self.taking);
            taking.is_ending = true;
            taking.active.take()
        };
        self.links.retain(|_| false);
        self.relay.retain(|_| false);
        self.reads.links().retain(|_| false);
        if let Some(node) = self.node.upgrade() {
            node.control.documents.forget();
            node.core.shared.refusals.set_shares_libraries(false);
            node.core.shared.scripts.libraries.leave_group();
        }
        if let Some(active) = active {
            active.log.stop();
            // The thread must not write where another log may begin soon.
            let _ended = active.ended.recv_timeout(LOG_END_TIME);
        }
        self.keep(|kept| {
            kept.raft_id = None;
            kept.incarnation = 0;
            kept.founder = None;
            kept.peers.clear();
        })
    }

    /// Notes that the work after leaving is done.
    pub(super) fn note_end(&self) {
        lock(&self.taking).is_ending = false;
    }

    /// Whether this node is in no group, and the work after leaving one is done.
    pub(super) fn is_out(&self) -> bool {
        !self.is_ending() && self.member().is_none()
    }

    /// Whether it has left, and work remains to be done.
    pub(super) fn is_ending(&self) -> bool {
        lock(&self.taking).is_ending
    }

    /// Ends the group's control over this node.
    pub(super) fn obey_nobody(&self) {
        lock(&self.taking).duty = None;
    }

    /// Changes the stored state; it is durable when this returns.
    fn keep(&self, change: impl FnOnce(&mut Kept)) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        let mut changed = kept.clone();
        change(&mut changed);
        changed.write(&*self.disk, &self.directory)?;
        *kept = changed;
        Ok(())
    }

    /// Asks a node to let this one join until it has joined; then takes part.
    fn join(self: &Arc<Self>, node: &Arc<Node>, first: &Place) -> io::Result<()> {
        let id = lock(&self.kept).id;
        let record = self.record(node);
        if has_keys(node) {
            return Err(io::Error::other(
                "it has data of its own, which would be lost: start it with an empty directory, or let the others join it",
            ));
        }
        let libraries = libraries::names(node);
        if libraries::is_wanted(node)
            && !libraries.is_empty()
            && !node.core.config.current().group.adopts
        {
            return Err(io::Error::other(format!(
                "it has libraries of functions of its own, which would be lost ({}): start it with an empty directory, or with --adopt yes",
                libraries.join(", ")
            )));
        }
        let mut told = String::new();
        while !node.is_stopping() {
            match self.ask_to_join(id, &record, first) {
                Ok((raft_id, state)) => {
                    consensus::forget(&*self.disk, &self.directory)?;
                    self.keep(|kept| {
                        kept.raft_id = Some(raft_id);
                        kept.incarnation = state.incarnation;
                        kept.founder = told_founder(&state);
                        kept.peers = super::forming::peers_of(&state, id);
                    })?;
                    node.core.log.notice(format_args!(
                        "This node has joined the control group, as member {raft_id}"
                    ));
                    // This node's own control log begins with older states, which must not be
                    // served.
                    documents::take(node, &state);
                    libraries::take(node, &state);
                    directives::take(node, &state);
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

    /// Asks once, at that node and the nodes that it redirects to. Returns this node's number, and
    /// the group's state.
    pub(super) fn ask_to_join(
        &self,
        id: NodeId,
        record: &NodeRecord,
        first: &Place,
    ) -> Result<(RaftId, ControlState), String> {
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
                Answer::Accepted { raft_id, state } => return Ok((raft_id, *state)),
                Answer::Elsewhere(there) => place = there,
                Answer::Refused(reason) => return Err(reason),
            }
        }
        Err("the nodes of the group send it from one to the other".to_owned())
    }

    /// Opens the control log, and begins to take part.
    fn take_part(self: &Arc<Self>, node: &Arc<Node>, raft_id: RaftId) -> io::Result<()> {
        let config = node.core.config.current();
        let times = Times {
            recovery_ms: config.group.recovery_ms,
            ..Times::of(config.group.node_timeout_ms)
        };
        let least_ms = &node.control.node_timeout_ms_min;
        least_ms.store(times.node_timeout_ms_min(), Ordering::Relaxed);
        let options = Options {
            id: raft_id,
            disk: Arc::clone(&self.disk),
            directory: self.directory.clone(),
            times,
        };
        let kept = lock(&self.kept).clone();
        self.name_group(&kept);
        for KnownPeer {
            node,
            raft_id,
            place,
        } in &kept.peers
        {
            self.links.set_place(*node, *raft_id, place);
        }
        let (events, heard) = sync_channel(EVENTS_MAX);
        let told = events.clone();
        let changed = Arc::new(move || post(&told, Event::StateChanged));
        let (log, runtime) = RaftLog::open(&options, Arc::clone(&self.links), changed)?;
        let (ending, ended) = sync_channel(1);
        spawn("raft", move || {
            runtime.run();
            // An error means that no thread waits for it.
            let _alone = ending.send(());
        })?;
        let record = self.record(node);
        warn_of_address(node, &config, &record);
        let duty = {
            let mut taking = lock(&self.taking);
            taking.active = Some(Active {
                events: events.clone(),
                log: Arc::clone(&log),
                ended,
            });
            taking.duty.clone()
        };
        if raft_id == FIRST_RAFT_ID {
            log.begin().map_err(io::Error::other)?;
        }
        let driver = Driver::new(Setup {
            part: Arc::clone(self),
            node: Arc::downgrade(node),
            own: kept.id,
            record,
            times,
            links: Arc::clone(&self.links),
            log,
            events,
            duty,
            now_ms: node.core.clock.boottime_ms(),
        });
        spawn("group", move || driver.run(&heard))
    }

    /// Returns this node's record.
    pub(super) fn record(&self, node: &Node) -> NodeRecord {
        self.record_by(&node.core.config.current())
    }

    fn record_by(&self, config: &Config) -> NodeRecord {
        let kept = lock(&self.kept);
        record(config, kept.start_count, false, kept.host.as_deref())
    }
}

/// Returns the founder of a group, if all its nodes know that questions name it.
pub(super) fn told_founder(state: &ControlState) -> Option<NodeId> {
    let is_told = cluster::meeting::is_told_apart(state);
    is_told.then(|| cluster::meeting::founder(state)).flatten()
}

fn has_keys(node: &Node) -> bool {
    let mut handle = node.core.store.handle();
    (0..node.core.store.databases()).any(|database| handle.len(database) > 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Warns if other nodes cannot reach this node at its announced address, or clients are not served
/// there.
fn warn_of_address(node: &Node, config: &Config, record: &NodeRecord) {
    let fault = if is_bound_too_narrowly(config, record) {
        "and serves clients of this machine alone: see bind"
    } else if is_nowhere(config, record) {
        "where other machines do not find it: see replica-announce-ip"
    } else {
        return;
    };
    let host = &record.host;
    node.core
        .log
        .warning(format_args!("This node is announced at {host}, {fault}"));
}
