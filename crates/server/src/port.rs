//! The interface of the server for commands: [`engine::ServerPort`] over a [`Node`].

use std::fmt::Write as _;
use std::sync::Arc;

use access::{Change as UserChange, User};
use engine::cluster::{ClusterOrder, ClusterSeen, Ordered};
use engine::port::ValuesAre;
use engine::slot_moves::{MoveAnswer, MoveOrder, SlotMove};
use engine::{
    AskServer, ClientFilter, ClientRecord, ClientsPort, ClusterPort, CommandError, ConfigPort,
    Copies, FailoverOrder, Followed, Follower, KillCount, Latencies, LogLevel, LogPosition,
    NO_TIER, NodeOrder, PersistencePort, ProcessPort, Promotion, PubSubPort, Published, Push,
    ReloadOptions, ReplicaOf, ReplicationPort, RoleReport, SaveKind, SaveRefusal, SaveStart,
    SaveTime, ServerMemory, Session, SharedChange, ShutdownRequest, SyncRequest, TierOrder,
    TierPort, Topic, TopicKind, TrackingPort, UsersPort, Waiter,
};
use protocol::Reply;
use reactor::ConnectionId;
use store::{Handle, Key, Locator};

use crate::allocator;
use crate::aside::Queue;
use crate::clients;
use crate::cluster_mode::ask_server;
use crate::config::{Change, ConfigError, Permission};
use crate::group::{directives, documents};
use crate::job::Job;
use crate::keeping::saving::SHUTDOWN_FAILED;
use crate::link::{Message, own_posts};
use crate::log::Level;
use crate::migration::fronts;
use crate::node::Node;
use crate::offloaded::Offloaded;
use crate::replication::role::Role;
use crate::statistics::{Sample, tier_status};
use crate::tier::Requester;
use crate::worker::deliveries::Deliveries;
use persistence::held_replies::LogView;
use persistence::tail::BEFORE_LOG;

/// The port of one worker.
pub struct Port<'a> {
    node: &'a Node,
    peer_is_local: bool,
    local: Option<Local<'a>>,
    /// State of an offloaded request, on the thread for these.
    offloaded: Option<Offloaded<'a>>,
    /// Whether it belongs to the applier of a primary's log.
    is_of_log: bool,
}

/// State for clients of the worker itself.
struct Local<'a> {
    deliveries: &'a mut Deliveries,
    connection: ConnectionId,
    /// Number of pushes that this thread had posted to its own worker at the last check.
    own_posts: u64,
    /// The log, if there is one.
    log: Option<LogView<'a>>,
}

impl<'a> Port<'a> {
    /// Makes the port for a client. `peer_is_local` says whether it uses loopback or a Unix socket.
    #[must_use]
    pub fn new(node: &'a Node, peer_is_local: bool) -> Self {
        Self {
            node,
            peer_is_local,
            local: None,
            offloaded: None,
            is_of_log: false,
        }
    }

    /// Makes the port for the applier of a primary's log.
    pub(crate) fn of_log(node: &'a Node) -> Self {
        Self {
            is_of_log: true,
            ..Self::new(node, true)
        }
    }

    /// Makes the port for a client whose request is offloaded.
    pub(crate) fn of_offloaded(
        node: &'a Arc<Node>,
        job: &Job,
        queue: &'a Queue,
        is_alone: bool,
    ) -> Self {
        Self {
            offloaded: Some(Offloaded::of(node, job, queue, is_alone)),
            ..Self::new(node, job.peer_is_local)
        }
    }

    /// Whether the offloaded request continues elsewhere and is answered from there.
    pub(crate) fn is_answered_later(&self) -> bool {
        self.offloaded
            .as_ref()
            .is_some_and(|it| it.is_answered_later)
    }

    /// Lets an offloaded request continue elsewhere, if it may. Returns whether it does.
    fn hand_over(&mut self, hand_over: impl FnOnce(&Offloaded<'_>) -> bool) -> bool {
        let offloaded = self.offloaded.as_mut();
        offloaded.is_some_and(|own| own.hand_over(hand_over))
    }

    /// Makes the port for a worker's own client.
    pub(crate) fn of_worker(
        node: &'a Node,
        peer_is_local: bool,
        (deliveries, connection): (&'a mut Deliveries, ConnectionId),
        log: Option<LogView<'a>>,
    ) -> Self {
        let local = Local {
            deliveries,
            connection,
            own_posts: own_posts(),
            log,
        };
        Self {
            local: Some(local),
            ..Self::new(node, peer_is_local)
        }
    }
}

impl TierPort for Port<'_> {
    fn have_values(&mut self, wanted: Vec<(Vec<u8>, Locator)>) -> ValuesAre {
        match (self.node.tier(), &self.local) {
            (Some(tier), Some(local)) => {
                let requester = Requester {
                    worker: local.deliveries.worker(),
                    connection: Some(local.connection),
                };
                tier.have_values(wanted, requester)
            }
            _ => ValuesAre::Here,
        }
    }

    fn read_ahead(&mut self, wanted: Vec<(Vec<u8>, Locator)>) {
        if let (Some(tier), Some(local)) = (self.node.tier(), &self.local) {
            tier.read_ahead(wanted, local.deliveries.worker());
        }
    }

    fn promotes(&self) -> Promotion {
        let tier = self.node.tier();
        tier.map_or_else(Promotion::default, |tier| tier.promotion())
    }

    fn demote(&mut self, store: &mut Handle, key: &Key<'_>) -> Result<bool, CommandError> {
        let tier = self.node.tier().ok_or(NO_TIER)?;
        tier.demote(store, key)
    }

    fn tier(
        &mut self,
        store: &mut Handle,
        order: TierOrder,
    ) -> Result<Vec<(&'static str, String)>, CommandError> {
        let tier = self.node.tier().ok_or(NO_TIER)?;
        match order {
            TierOrder::Status => Ok(tier_status(&Sample::take(self.node, store))),
            TierOrder::Drain => Ok(tier.drain(store.stubs())),
            TierOrder::Compact => tier.compact(store),
            TierOrder::Scrub => Ok(tier.scrub()),
        }
    }
}

impl ReplicationPort for Port<'_> {
    fn role(&mut self) -> RoleReport {
        self.node.replication.report(self.node)
    }

    fn is_replica(&self) -> bool {
        self.node.replication.follows()
    }

    fn replica_of(
        &mut self,
        session: &Session,
        order: &ReplicaOf,
    ) -> Result<Followed, CommandError> {
        self.node.replication.replica_of(self.node, session, order)
    }

    fn fail_over(&mut self, order: &FailoverOrder) -> Result<(), CommandError> {
        self.node.replication.fail_over(self.node, order)
    }

    fn admit_sync(&mut self, session: &Session, request: &SyncRequest) -> Result<(), CommandError> {
        self.node
            .replication
            .admit_sync(self.node, session, request)
    }

    fn order_node(&mut self, node: &[u8], order: NodeOrder) -> Result<(), CommandError> {
        if self.hand_over(|own| own.order_node(node, order)) {
            return Ok(());
        }
        self.node.control.order_node(node, order)
    }

    fn leave_for_restart(&mut self) -> Result<(), CommandError> {
        if self.hand_over(|own| own.leave_for_restart()) {
            return Ok(());
        }
        let given = self.node.control.leave_for_restart();
        self.node.control.restart_answered();
        given
    }

    fn verify_replicas(&mut self) -> Result<(), CommandError> {
        self.node.replication.verify_replicas()
    }

    fn differences(&mut self) -> Vec<String> {
        self.node.replication.own.verifier.report().keys
    }

    fn own_link(&mut self) -> Option<(u16, String)> {
        self.node.replication.own_link()
    }

    fn copies(&self, sequence: u64) -> Copies {
        self.node.replication.replicas.copies(sequence)
    }

    fn await_copies(&mut self, waiter: &Arc<Waiter>) {
        self.node.replication.await_copies(self.node, waiter);
    }
}

impl ClusterPort for Port<'_> {
    fn cluster(&mut self) -> Option<Arc<ClusterSeen>> {
        self.node.cluster_mode.seen(self.node)
    }

    fn order(&mut self, order: &ClusterOrder) -> Result<Ordered, CommandError> {
        if let ClusterOrder::SetSlot(slot, to) = order
            && let Some(ordered) = fronts::set_slot(self.node, *slot, to)
        {
            return ordered;
        }
        if self.hand_over(|own| own.order(order)) {
            return Ok(Ordered::Done);
        }
        self.node.cluster_mode.order(self.node, order)
    }

    fn move_slots(&mut self, order: &MoveOrder) -> Result<MoveAnswer, CommandError> {
        fronts::carry_out(self.node, order)
    }

    fn redeem(&mut self, token: &[u8]) -> Option<Arc<User>> {
        let now_ms = self.node.core.clock.monotonic_ms();
        let user = self.node.forward.redeem(token, now_ms)?;
        let user = self.node.core.shared.access.users.find(&user)?;
        user.rules().is_on().then_some(user)
    }

    fn is_leaving(&mut self, slot: u16) -> bool {
        self.node.migrations.leaving(slot).is_some()
    }

    fn slot_moves(&mut self) -> Vec<SlotMove> {
        fronts::shown(self.node)
    }

    fn ask_server(
        &mut self,
        ask: &AskServer<'_>,
    ) -> Result<Vec<Result<(), Vec<u8>>>, CommandError> {
        ask_server(ask, &*self.node.core.clock)
    }
}

impl ConfigPort for Port<'_> {
    fn config_get(&mut self, patterns: &[&[u8]], emit: &mut dyn FnMut(&[u8], &[u8])) {
        self.node.core.config.get(patterns, emit);
    }

    fn config_set(&mut self, pairs: &[(&[u8], &[u8])], may_wait: bool) -> Result<(), CommandError> {
        let (node, is_local) = (self.node, self.peer_is_local);
        if directives::is_wanted(node) && node.control.log().is_some() {
            let divided = node.core.config.divided(pairs, is_local);
            let divided = divided.map_err(as_reply)?;
            if !divided.shared.is_empty() {
                if !may_wait {
                    return Err(CommandError::Aside);
                }
                // A directive of this node may start a log, which needs every thread that enters
                // the store.
                if divided.own.is_empty()
                    && self.hand_over(|own| own.change_directives(&divided, is_local))
                {
                    return Ok(());
                }
                return directives::change_with_own(node, &divided, is_local);
            }
        }
        let mut apply = |change: &Change<'_>| node.apply(change);
        let set = if may_wait {
            node.core.config.set(pairs, is_local, &mut apply)
        } else {
            let is_slow = |change: &Change<'_>| node.begins_log(change);
            let config = &node.core.config;
            let set = config.set_unless_slow(pairs, is_local, &is_slow, &mut apply);
            set.ok_or(CommandError::Aside)?
        };
        set.map_err(as_reply)
    }

    fn shares_directives(&self, pairs: &[(&[u8], &[u8])]) -> bool {
        let node = self.node;
        let is_in_group = directives::is_wanted(node) && node.control.log().is_some();
        let divided = || node.core.config.divided(pairs, self.peer_is_local);
        is_in_group && divided().is_ok_and(|divided| !divided.shared.is_empty())
    }

    fn config_rewrite(&mut self, all: bool) -> Result<(), CommandError> {
        let users = self.node.configured_user_lines();
        self.node.core.config.rewrite(&users, all).map_err(as_reply)
    }

    fn debug_allowed(&self, _session: &Session) -> bool {
        match self.node.core.config.current().debug_command {
            Permission::No => false,
            Permission::Yes => true,
            Permission::Local => self.peer_is_local,
        }
    }
}

impl ClientsPort for Port<'_> {
    fn clients(&mut self, filter: &ClientFilter) -> String {
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let mut text = String::new();
        for client in self.node.sessions.clients.matching(filter, now_unix_ms) {
            let _ = writeln!(
                text,
                "{}",
                clients::describe(self.node.core.env.table, &client, now_unix_ms)
            );
        }
        text
    }

    fn client(&mut self, id: u64) -> Option<Arc<ClientRecord>> {
        self.node.sessions.clients.find(id)
    }

    fn answer(&mut self, client: &ClientRecord, reply: Vec<u8>) {
        self.node.answer(client, reply);
    }

    fn kill_clients(&mut self, session: &Session, filter: &ClientFilter) -> KillCount {
        kill_clients(self.node, session.client.id, filter)
    }

    fn push(&mut self, to: &ClientRecord, push: &Push) {
        self.node.push(to, push);
    }

    fn pause_clients(&mut self, until_unix_ms: u64, writes_only: bool) {
        self.node.pause_clients(until_unix_ms, writes_only);
    }

    fn unpause_clients(&mut self) {
        self.node.unpause_clients();
    }
}

/// Closes connections. If the caller's is among them, reports that, and leaves closing it to the
/// caller.
pub(crate) fn kill_clients(node: &Node, caller: u64, filter: &ClientFilter) -> KillCount {
    let mut count = KillCount::default();
    let now_unix_ms = node.core.clock.now_unix_ms();
    for client in node.sessions.clients.matching(filter, now_unix_ms) {
        count.clients += 1;
        if client.id == caller {
            count.caller = true;
        } else if client.has_flag(ClientRecord::REPLICA | ClientRecord::PRIMARY) {
            node.replication.kill(&client);
        } else if let Some(worker) = node.workers().get(client.worker) {
            client.set_flag(ClientRecord::KILLED, true);
            // From now on no other thread can serve its wait.
            let _waited = client.waiter().is_some_and(|waiter| waiter.claim());
            worker.post(Message::Kill {
                client: client.id,
                place: client.place,
            });
        }
    }
    count
}

impl UsersPort for Port<'_> {
    fn end_subscribers(&mut self, user: &Arc<User>) {
        let message = Message::RulesChanged {
            user: user.name().into(),
        };
        self.node.broadcast(&message);
    }

    fn load_users(&mut self) -> Result<Vec<UserChange>, CommandError> {
        self.node.load_users()
    }

    fn save_users(&mut self) -> Result<(), CommandError> {
        self.node.save_users()
    }

    fn shares_users(&self) -> bool {
        documents::is_wanted(self.node) && self.node.control.log().is_some()
    }

    fn change_shared(
        &mut self,
        change: &Arc<SharedChange>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        if self.hand_over(|own| own.change_shared(change)) {
            return Ok(());
        }
        documents::change(self.node, change, reply)
    }
}

impl PubSubPort for Port<'_> {
    fn publish(&mut self, kind: TopicKind, channel: &[u8], message: &[u8]) -> Published {
        let node = self.node;
        let mut published = node.sessions.pubsub.publish(kind, channel, message);
        let is_cluster = node.core.shared.hash_slots.is_on();
        let is_primary = node.replication.role() == Role::Primary;
        if is_cluster || node.group.is_there() {
            // Other rules decide what a member of a group may append, so messages are relayed
            // beside the log.
            if (is_cluster || is_primary)
                && let Some(group) = node.control.part()
            {
                group.relay(kind, channel, message);
            }
        } else {
            published.is_for_replicas = is_primary && !node.replication.replicas.is_empty();
        }
        // The log of a primary does not wait for subscribers.
        published.is_crowded &= !self.is_of_log;
        published
    }

    fn subscribe(
        &mut self,
        session: &mut Session,
        kind: TopicKind,
        name: &[u8],
        reply: &mut Reply<'_>,
    ) -> Topic {
        let Some(local) = &mut self.local else {
            // Only workers run this for real, for their own clients.
            let name = Arc::from(name);
            return Topic { kind, name };
        };
        let Local {
            deliveries,
            connection,
            ..
        } = local;
        deliveries.subscribe((session, *connection), kind, name, reply)
    }

    fn unsubscribe(&mut self, session: &mut Session, topic: &Topic, reply: &mut Reply<'_>) {
        if let Some(Local {
            deliveries,
            connection,
            ..
        }) = &mut self.local
        {
            deliveries.unsubscribe((session, *connection), topic, reply);
        }
    }

    fn catch_up(&mut self, session: &mut Session, reply: &mut Reply<'_>) {
        if let Some(local) = &mut self.local {
            let own_posts = own_posts();
            if std::mem::replace(&mut local.own_posts, own_posts) != own_posts {
                local.deliveries.catch_up(session, reply);
            }
        }
    }

    fn channels(&self, kind: TopicKind) -> Vec<Arc<[u8]>> {
        self.node.sessions.pubsub.channels(kind)
    }

    fn subscribers(&self, kind: TopicKind, channel: &[u8]) -> usize {
        self.node.sessions.pubsub.subscribers(kind, channel)
    }

    fn patterns_count(&self) -> usize {
        self.node.sessions.pubsub.patterns_count()
    }
}

impl TrackingPort for Port<'_> {
    fn follow(&mut self, follower: &Arc<Follower>) {
        self.node.follow(follower);
    }

    fn unfollow(&mut self, store: &mut Handle, follower: &Arc<Follower>) {
        self.node.unfollow(store, follower);
    }

    fn track(&mut self, store: &mut Handle, follower: &Arc<Follower>, keys: &[Key<'_>]) {
        let listener = &self.node.tracking_listener();
        self.node
            .sessions
            .client_cache
            .track(store, listener, follower, keys);
    }

    fn tell_flush(&mut self, store: &mut Handle) {
        let listener = &self.node.tracking_listener();
        self.node.sessions.client_cache.tell_flush(store, listener);
    }
}

impl PersistencePort for Port<'_> {
    fn flushed_all(&mut self) {
        self.node.flushed_all();
    }

    fn save(&mut self) -> Result<(), SaveRefusal> {
        self.node.save()
    }

    fn begin_save(&mut self, kind: SaveKind, time: SaveTime) -> Result<SaveStart, SaveRefusal> {
        self.node.begin_save(kind, time)
    }

    fn saves_at_shutdown(&self, request: ShutdownRequest) -> bool {
        let waits = !request.abort && !request.now && self.node.replication.delays_stop(self.node);
        waits || self.node.saves_at_shutdown(request)
    }

    fn has_quorum(&self) -> bool {
        let fence = &self.node.replication.fence;
        fence.is_grouped() && fence.is_quorum()
    }

    fn log_position(&mut self, _session: &Session) -> Option<LogPosition> {
        if let Some(local) = &self.local {
            return local.log.as_ref().map(LogView::position);
        }
        let log = self.node.keeping.log_in_use.get()?;
        Some(LogPosition {
            wrote: log.tail().max(BEFORE_LOG),
            durable: log.durable(),
            is_kept: log.is_kept(),
        })
    }

    fn log_durable(&self) -> u64 {
        let log = self
            .node
            .keeping
            .log_in_use
            .get()
            .filter(|log| log.is_kept());
        log.map_or(0, |log| log.durable())
    }

    fn request_log_sync(&mut self, up_to: u64) {
        if let Some(log) = self.node.keeping.log_in_use.get() {
            log.request_sync(up_to);
        }
    }

    fn reload(&mut self, options: ReloadOptions) -> Result<(), CommandError> {
        self.node.reload(options)
    }

    fn last_save_unix(&self) -> i64 {
        let unix_ms = self.node.last_save_unix_ms();
        i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX)
    }
}

impl ProcessPort for Port<'_> {
    fn info(&mut self, store: &mut Handle, sections: &[String]) -> String {
        store.tell_memory();
        self.node.describe(store, sections)
    }

    fn latencies(&mut self) -> Latencies {
        self.node.latencies()
    }

    fn reset_statistics(&mut self) {
        self.node.reset_counters();
        self.node.core.store.reset_statistics();
    }

    fn log_line(&mut self, level: LogLevel, text: &[u8]) {
        let level = match level {
            LogLevel::Debug => Level::Debug,
            LogLevel::Verbose => Level::Verbose,
            LogLevel::Notice => Level::Notice,
            LogLevel::Warning => Level::Warning,
        };
        let text = String::from_utf8_lossy(text);
        self.node.core.log.log(level, format_args!("{text}"));
    }

    fn shutdown(&mut self, request: ShutdownRequest) -> Result<(), CommandError> {
        if !request.abort {
            self.node
                .core
                .log
                .warning(format_args!("User requested shutdown..."));
        }
        let given_up = self.node.replication.aborted_stops();
        let offloaded = self.offloaded.as_mut();
        if !request.abort
            && offloaded
                .as_ref()
                .is_some_and(|it| it.aborted_stops != given_up)
        {
            // It was queued behind a shutdown that was aborted: the abort applied to all queued
            // ones.
            return Err(SHUTDOWN_FAILED);
        }
        // It may wait for replicas or for the disk, and counts as blocked meanwhile.
        let Some(own) = offloaded else {
            return self.node.shut_down(request);
        };
        own.asker.set_blocked(true);
        if own.hand_over(|own| own.stop(request)) {
            return Ok(());
        }
        let stopped = self.node.shut_down(request);
        own.asker.set_blocked(false);
        stopped
    }

    fn now_unix_us(&self) -> u64 {
        self.node.core.clock.now_unix_us()
    }

    fn sleep_seconds(&mut self, seconds: f64) {
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
    }

    fn rest(&mut self) {
        // A worker's turn may be needed for what the caller waits for, and all workers may sleep.
        if let Some(worker) = self.node.workers().first() {
            worker.wake();
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }

    fn extend_lease(&mut self, ms: u64) {
        let until_ms = self.node.core.clock.boottime_ms().saturating_add(ms);
        self.node.replication.set_lease(self.node, until_ms);
    }

    fn set_active_expire(&mut self, on: bool) {
        self.node.core.store.set_active_expire(on);
    }

    fn script_is_late(&mut self, is_news: bool) {
        if is_news {
            self.node
                .core
                .log
                .warning(format_args!("Slow script detected: still in execution."));
            // Clients that wait for its keys try again, and get the error.
            self.node.broadcast(&Message::KeysFree);
        }
        if let (Some(own), Some(text)) = (
            &self.offloaded,
            self.node.core.shared.scripts.running.busy(),
        ) {
            own.queue.refuse(self.node, text);
        }
    }

    fn memory(&mut self) -> ServerMemory {
        self.node.memory()
    }

    fn allocator_statistics(&mut self) -> String {
        allocator::installed().statistics()
    }

    fn purge_memory(&mut self, store: &mut Handle) {
        store.purge();
        self.node.work.defragmenter.ask();
        allocator::installed().purge();
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
pub(crate) fn as_reply(error: ConfigError) -> CommandError {
    CommandError::Bytes(error.as_bytes().to_vec())
}
