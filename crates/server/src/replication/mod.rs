//! Replication: the one owner of the node's role, and of everything that INFO, ROLE and WAIT show
//! of it.
//!
//! ```text
//!   REPLICAOF, FAILOVER ──► Replication ──► orders ──► the thread "follow": follows, takes over, fails over
//!                             │  role (one word)
//!                             ├─ following: whom, and how far ◄── written by that thread
//!                             ├─ replicas: who, and how far   ◄── written by a thread per link
//!                             └─ history: the names of the stream
//! ```
//!
//! Commands never wait here. Anything that takes time is an order to the thread. Until it is
//! carried out, writes wait at the gate.
//!
//! Invariants
//!  1. The role changes only by the table in [`role`], under one lock.
//!  2. After the reply of REPLICAOF no client's write is executed. Writes that were in progress are
//!     in the log before the thread follows any node.
//!  3. Nothing of the primary is applied after the thread's connection has ended, and the node
//!     becomes a primary only after that.

mod applied_log;
mod applier;
pub mod failover;
pub mod following;
pub mod history;
mod info;
mod link_dialing;
mod link_keys;
mod link_tls;
mod listener;
mod log_pins;
mod office;
mod own_link;
mod own_links;
mod primary;
mod primary_link;
mod redis_link;
mod redis_replica;
mod replica_link;
pub mod replicas;
pub mod role;
pub(crate) mod session;
mod shutdown;
pub(crate) mod state;
mod stop_wait;
pub(crate) mod stream;
mod sync_source;
mod terms;
mod thread;
mod verify;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use base::random::Prng;
use engine::{
    ClientRecord, CommandError, Copies, FailoverOrder, Followed, Progress, ReplicaOf, RoleReport,
    Session, SyncRequest, Waiter,
};

use reactor::Detached;
use replication::TermId;
use replication::transcode::Form;

use crate::config::{self, Config};
use crate::{link::Message, node::Node};
pub(crate) use applier::Applier;
use failover::Failover;
use following::{Authority, Following, Link, Primary};
use history::{History, ReplicationId};
pub(crate) use link_dialing::{dial, identity_for};
use role::{Event, Refused, Role};
pub(crate) use state::Done;
pub use state::{Counts, NewTerm, Replication};
use state::{OffsetOf, OnTerm, Order, Standing};
pub(crate) use stream::Frames;
pub use stream::Stream;

const FAILING_OVER: CommandError =
    CommandError::fixed("ERR REPLICAOF not allowed while failing over.");

const GROUPED: CommandError =
    CommandError::fixed("ERR REPLICAOF not allowed: a control group decides who is the primary");

const GROUPED_FORCE: CommandError = CommandError::fixed(
    "ERR FAILOVER FORCE and ABORT are not for a control group, which replaces a lost primary by itself",
);

/// The error for clients that were blocked when the node became a replica.
const UNBLOCKED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

impl Replication {
    /// Role of the node.
    #[inline]
    #[must_use]
    pub fn role(&self) -> Role {
        self.role.get()
    }

    /// Whether it follows another node, or tries to.
    #[inline]
    #[must_use]
    pub fn follows(&self) -> bool {
        self.role() == Role::Following
    }

    /// The primary that it follows, and how far it is.
    #[must_use]
    pub fn following(&self) -> Option<Arc<Following>> {
        self.standing().following.clone()
    }

    /// The failover that is in progress, if any.
    #[must_use]
    pub fn failover(&self) -> Option<Arc<Failover>> {
        self.standing().failover.clone()
    }

    /// The names of the stream.
    #[must_use]
    pub fn history(&self) -> History {
        *lock(&self.history)
    }

    /// Sets the names of the stream: those of the primary, or those found at a start.
    pub fn set_history(&self, history: History) {
        *lock(&self.history) = history;
    }

    /// Sets the function that writes a term into the log; once.
    pub fn on_term(&self, hook: OnTerm) {
        let _already_set = self.on_term.set(hook);
    }

    /// Sets the function that returns the stream's offset; once. Without one the offset is the end
    /// of the log.
    pub fn set_offset_of(&self, offset_of: OffsetOf) {
        let _already_set = self.offset_of.set(offset_of);
    }

    /// The offset of the stream, as clients see it.
    #[must_use]
    pub fn offset(&self, node: &Node) -> u64 {
        let followed = node.core.env.followed.get().filter(|_| self.follows());
        let followed = followed.map(|source| source.offset);
        match (followed, self.offset_of.get()) {
            (Some(followed), _) => followed,
            (None, Some(offset_of)) => offset_of(node),
            (None, None) => self.stream.offset().unwrap_or_else(|| log_end(node)),
        }
    }

    /// The offset to show. A replica by the own link that serves no stream has no log in use: it
    /// shows how far it has applied its primary's.
    pub(crate) fn shown_offset(&self, node: &Node) -> u64 {
        let offset = self.offset(node);
        let following = self.following().filter(|_| offset == 0 && self.follows());
        let applied = following.map(|following| following.offsets().1);
        applied.map_or(offset, |applied| u64::try_from(applied).unwrap_or(0))
    }

    /// Sets the node that this belongs to, before any client is served. A node whose configuration
    /// makes it a replica is one from here on; it follows once [`Replication::begin`] is called.
    pub(crate) fn set_node(&self, node: &Arc<Node>) {
        let _already_set = self.node.set(Arc::downgrade(node));
        let told = Arc::downgrade(node);
        self.replicas.on_moved(Box::new(move |()| {
            if let Some(node) = told.upgrade() {
                node.replication.replicas_moved(&node);
            }
        }));
        let asked = Arc::downgrade(node);
        self.replicas.on_wanted(Box::new(move |()| {
            if let Some(node) = asked.upgrade() {
                node.replication.ask_replicas(&node);
            }
        }));
        let configured = node.core.config.current().replication.primary.clone();
        if let Some((host, port)) = configured {
            let primary = Primary { host, port };
            let by = Authority::default();
            let mut standing = self.standing();
            let _of_a_primary = self.follow_locked(&mut standing, node, primary, by);
        }
        self.judge_replicas(node);
    }

    /// Holds writes and the removal of expired keys until [`Replication::begin`]. Called when all
    /// kept data is loaded, before clients are served. A term begins at the log's end as found at
    /// the start, and nothing may be appended there before it: a replica may have other frames at
    /// the same sequence, of the former term.
    pub(crate) fn hold_until_begun(&self, node: &Node) {
        if self.role() == Role::Primary {
            hold_writes(node);
        }
    }

    /// Lets the thread follow the primary of the configuration. Called when all kept data is
    /// loaded.
    pub(crate) fn begin(&self, node: &Arc<Node>) {
        if node.persistence().is_none() {
            self.stream.restore(node);
        }
        self.own.begin(node);
        if self.role() == Role::Primary {
            self.let_writes_go(node);
        }
        let mut standing = self.standing();
        standing.has_begun = true;
        if standing.order.is_some() {
            self.wake_thread(standing, node);
        }
    }

    /// Ends the thread, and the links of replicas.
    pub(crate) fn stop(&self) {
        let mut standing = self.standing();
        if let Some(following) = &standing.following {
            following.stop();
        }
        if let Some(failover) = &standing.failover {
            failover.abort();
        }
        standing.order = Some(Order::Stop);
        drop(standing);
        self.ordered.notify_all();
        self.replicas.stop(|_| true);
        self.own.stop();
        if let Some(node) = self.node.get().and_then(Weak::upgrade) {
            self.stream.save(&node);
        }
    }

    /// REPLICAOF.
    ///
    /// # Errors
    /// The error for the client. Nothing has changed then.
    pub(crate) fn replica_of(
        &self,
        node: &Node,
        session: &Session,
        order: &ReplicaOf,
    ) -> Result<Followed, CommandError> {
        if self.fence.is_grouped() {
            return Err(GROUPED);
        }
        let mut standing = self.standing();
        match order {
            ReplicaOf::NoOne => self.unfollow(standing, node, session),
            ReplicaOf::Primary { host, port, forces } => {
                let primary = Primary {
                    host: host.clone(),
                    port: *port,
                };
                let is_theirs = standing
                    .following
                    .as_ref()
                    .is_some_and(|one| *one.primary() == primary && !forces);
                if is_theirs && self.role() == Role::Following {
                    return Ok(Followed::AlreadyTheirs);
                }
                let by = Authority {
                    may_discard: true,
                    forces: *forces,
                    ..Authority::default()
                };
                let was = self.role();
                self.follow_locked(&mut standing, node, primary, by)?;
                self.wake_thread(standing, node);
                node.core.config.set_primary(Some((host.clone(), *port)));
                node.core.log.notice(format_args!(
                    "REPLICAOF {host}:{port} enabled (user request from '{}')",
                    shown(session)
                ));
                if was != Role::Following {
                    node.unblock_all(UNBLOCKED);
                }
                Ok(Followed::Changed)
            }
        }
    }

    /// Makes the node a replica. The order waits for the thread.
    fn follow_locked(
        &self,
        standing: &mut Standing,
        node: &Node,
        primary: Primary,
        by: Authority,
    ) -> Result<(), CommandError> {
        let before = self.role();
        let role = role::next(before, Event::Follow).map_err(|_| FAILING_OVER)?;
        if before == Role::Primary {
            self.stream.keep_names(self.history());
        }
        self.role.set(role);
        let refusals = &node.core.shared.refusals;
        refusals.set_read_only(true);
        node.core.store.set_follower(true);
        self.let_writes_go(node);
        if let Some(before) = standing.following.take() {
            before.stop();
        }
        let weak = self.node.get().cloned().unwrap_or_default();
        let now_unix_ms = node.core.clock.now_unix_ms();
        let following = Arc::new(Following::new(weak, primary, by, now_unix_ms));
        standing.following = Some(Arc::clone(&following));
        standing.order = Some(Order::Follow(following));
        Self::judge_link(node, standing, &node.core.config.current());
        Ok(())
    }

    /// REPLICAOF NO ONE: writes wait until the thread has taken over.
    fn unfollow(
        &self,
        standing: MutexGuard<'_, Standing>,
        node: &Node,
        session: &Session,
    ) -> Result<Followed, CommandError> {
        let before = self.role();
        let role = role::next(before, Event::Unfollow).map_err(|_| FAILING_OVER)?;
        if before == Role::Primary {
            return Ok(Followed::Changed);
        }
        let by = format!("user request from '{}'", shown(session));
        self.leave_primary(standing, node, role, &by);
        Ok(Followed::Changed)
    }

    /// Takes the office that the primary of this node's own link hands over.
    fn take_office(&self, node: &Node) {
        let standing = self.standing();
        let Ok(role) = role::next(self.role(), Event::Unfollow) else {
            return;
        };
        self.leave_primary(standing, node, role, "the primary handed over");
    }

    /// Stops following; writes wait until the thread has taken over.
    fn leave_primary(
        &self,
        mut standing: MutexGuard<'_, Standing>,
        node: &Node,
        role: Role,
        why: &str,
    ) {
        hold_writes(node);
        self.role.set(role);
        let refusals = &node.core.shared.refusals;
        refusals.set_read_only(false);
        refusals.set_stale(false);
        if let Some(following) = &standing.following {
            following.stop();
        }
        standing.order = Some(Order::TakeOver);
        self.wake_thread(standing, node);
        node.core.config.set_primary(None);
        let log = &node.core.log;
        log.notice(format_args!("MASTER MODE enabled ({why})"));
    }

    /// PSYNC … FAILOVER from the primary that this node follows: the primary hands over, and this
    /// node takes over.
    ///
    /// # Errors
    /// The error for the primary.
    fn take_over(
        &self,
        node: &Node,
        session: &Session,
        request: &SyncRequest,
    ) -> Result<(), CommandError> {
        if self.role() == Role::Primary {
            return Err(CommandError::fixed(
                "ERR PSYNC FAILOVER can't be sent to a master.",
            ));
        }
        let id = self.history().id;
        let asked = request.from.as_ref();
        if !asked.is_some_and(|(asked, _)| asked.eq_ignore_ascii_case(id.as_str().as_bytes())) {
            return Err(CommandError::fixed(
                "ERR PSYNC FAILOVER replid must match my replid.",
            ));
        }
        self.unfollow(self.standing(), node, session).map(drop)
    }

    /// Checks whether a connection may receive the stream.
    ///
    /// # Errors
    /// The error for the connection.
    pub(crate) fn admit_sync(
        &self,
        node: &Node,
        session: &Session,
        request: &SyncRequest,
    ) -> Result<(), CommandError> {
        if request.takes_over {
            self.take_over(node, session, request)?;
        }
        if self.role() == Role::FailingOver {
            return Err(CommandError::fixed(
                "NOMASTERLINK Can't SYNC while failing over",
            ));
        }
        let is_cut_off = |one: Arc<Following>| one.link() != Link::Connected;
        if self.follows() && self.following().is_some_and(is_cut_off) {
            return Err(CommandError::fixed(
                "NOMASTERLINK Can't SYNC while not connected with my master",
            ));
        }
        Ok(())
    }

    /// FAILOVER.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn fail_over(&self, node: &Node, order: &FailoverOrder) -> Result<(), CommandError> {
        if self.fence.is_grouped() {
            return fail_over_in_group(node, order);
        }
        let mut standing = self.standing();
        let FailoverOrder::Begin {
            to,
            forces,
            timeout_ms,
        } = order
        else {
            let failover = standing.failover.as_ref();
            failover.ok_or(engine::port::NO_FAILOVER)?.abort();
            return Ok(());
        };
        let role = role::next(self.role(), Event::FailOver).map_err(|refused| match refused {
            Refused::IsReplica => {
                CommandError::fixed("ERR FAILOVER is not valid when server is a replica.")
            }
            _ => CommandError::fixed("ERR FAILOVER already in progress."),
        })?;
        let now_unix_ms = node.core.clock.now_unix_ms();
        let failover = Failover::plan(
            &self.replicas,
            to.as_ref(),
            *forces,
            *timeout_ms,
            now_unix_ms,
        )?;
        hold_writes(node);
        self.role.set(role);
        let failover = Arc::new(failover);
        standing.failover = Some(Arc::clone(&failover));
        standing.order = Some(Order::FailOver(failover));
        self.wake_thread(standing, node);
        node.core.log.notice(format_args!("FAILOVER requested."));
        Ok(())
    }

    /// Notes that the replica has taken over: this node follows it from now on.
    pub(crate) fn handed_over(&self, node: &Node, primary: &Primary) {
        let mut standing = self.standing();
        let Ok(role) = role::next(self.role(), Event::HandedOver) else {
            return;
        };
        // The link goes on, and the failover is over.
        standing.failover = None;
        self.stream.keep_names(self.history());
        self.role.set(role);
        node.core.shared.refusals.set_read_only(true);
        node.core.store.set_follower(true);
        Self::judge_link(node, &standing, &node.core.config.current());
        drop(standing);
        node.core
            .config
            .set_primary(Some((primary.host.clone(), primary.port)));
        node.unblock_all(UNBLOCKED);
        self.let_writes_go(node);
    }

    /// Begins a term: the stream continues under another name from here on.
    fn begin_term(&self, node: &Node, followed: Option<u64>) {
        let next_offset = followed.unwrap_or_else(|| self.offset(node)) + 1;
        let mut term = TermId::default();
        Prng::from_os().fill(&mut term.0);
        let id = ReplicationId::of_term(term, Form::default());
        lock(&self.history).begin_term(id, next_offset);
        if let Some(on_term) = self.on_term.get() {
            on_term(node, &NewTerm { term, id });
        }
        node.core.log.notice(format_args!(
            "Setting secondary replication ID, valid up to offset: {next_offset}. New replication ID is {id}"
        ));
    }

    /// Releases the writes that waited for another role: the end of [`hold_writes`].
    fn let_writes_go(&self, node: &Node) {
        self.hands_over.store(false, Ordering::Relaxed);
        let gate = &node.core.shared.gate;
        self.let_reads_go(node);
        if gate.changes_role() {
            node.core
                .env
                .hold_removals_after(|| gate.set_changes_role(false));
            node.broadcast(&Message::Resume);
        }
    }

    /// Releases the reads that waited for an office.
    fn let_reads_go(&self, node: &Node) {
        let gate = &node.core.shared.gate;
        if gate.has_no_office() {
            gate.set_no_office(false);
            node.broadcast(&Message::Resume);
        }
    }

    /// Updates whether a replica's data may be old, and whether it may be shown then.
    pub(crate) fn judge_staleness(&self, node: &Node) {
        Self::judge_link(node, &self.standing(), &node.core.config.current());
    }

    /// Applies the changes of a CONFIG SET.
    pub(crate) fn apply(&self, node: &Node, config: &Config) {
        Self::judge_link(node, &self.standing(), config);
        self.judge_level(node, config);
        self.judge_replicas_by(node, &config.replication);
    }

    fn judge_link(node: &Node, standing: &Standing, config: &Config) {
        let is_down = |one: &Arc<Following>| one.link() != Link::Connected;
        let is_follower = node.core.shared.refusals.is_read_only();
        let following = standing.following.as_ref();
        let is_stale =
            is_follower && following.map_or_else(|| node.replication.is_sealed(), is_down);
        let has_uncommitted = &node.replication.has_uncommitted;
        if following.is_some_and(|one| !is_down(one)) {
            has_uncommitted.store(false, Ordering::Release);
        }
        // Writes that a majority does not have may be undone, so they must not be read.
        let shows_stale =
            config.replication.serves_stale && !has_uncommitted.load(Ordering::Acquire);
        node.core.shared.refusals.set_stale(
            is_stale && !shows_stale
                || node.replication.awaits_group()
                || node.keeping.keeps_log_alone(),
        );
    }

    /// Updates whether there are enough replicas for writes.
    pub(crate) fn judge_replicas(&self, node: &Node) {
        self.judge_replicas_by(node, &node.core.config.current().replication);
    }

    fn judge_replicas_by(&self, node: &Node, config: &config::Replication) {
        let (least, lag_s) = (config.replicas_min, config.replicas_lag_s_max);
        let wants_some = least > 0 && lag_s > 0 && !self.follows();
        let good = wants_some.then(|| {
            let now_unix_ms = node.core.clock.now_unix_ms();
            self.replicas
                .good_count(now_unix_ms, u64::from(lag_s) * 1000)
        });
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let is_few = good.is_some_and(|good| good < least);
        if node.core.shared.refusals.has_few_replicas() != is_few {
            node.core.shared.refusals.set_few_replicas(is_few);
        }
        self.bound_lag(node, config);
    }

    /// Holds writes while even the furthest replica lags more than allowed. Without an online
    /// replica the lag has no limit: `min-replicas-to-write` refuses writes then.
    fn bound_lag(&self, node: &Node, config: &config::Replication) {
        let Some(log) = node.persistence().and_then(|kept| kept.log().log()) else {
            return;
        };
        let lag_bytes_max = config.lag_bytes_max.filter(|_| !self.follows());
        let end_max =
            lag_bytes_max.and_then(|max| Some(self.replicas.furthest()?.saturating_add(max)));
        if log.set_end_max(end_max) {
            node.wake_workers();
        }
    }

    /// Called when replicas were added, were removed or acknowledged something.
    fn replicas_moved(&self, node: &Node) {
        self.judge_replicas(node);
        self.serve_waits(node);
        if let Some(failover) = self.failover() {
            failover.look_again();
        }
    }

    /// Called when more of the log is on disk.
    pub(crate) fn log_moved(&self, node: &Node) {
        if self.replicas.has_waits() {
            self.serve_waits(node);
        }
    }

    fn serve_waits(&self, node: &Node) {
        self.replicas
            .serve_waits(&Watermarks(node), &|client, reply| {
                node.answer(client, reply);
            });
    }

    /// Answers a request when replicas have what it waits for.
    pub(crate) fn await_copies(&self, node: &Node, waiter: &Arc<Waiter>) {
        self.replicas
            .wait(waiter, &Watermarks(node), &|client, reply| {
                node.answer(client, reply);
            });
    }

    /// Ends the link of a replica, or the link to the primary, which connects again (CLIENT KILL).
    pub(crate) fn kill(&self, client: &ClientRecord) {
        if client.has_flag(ClientRecord::PRIMARY)
            && let Some(following) = self.following()
        {
            following.break_off();
        }
        self.replicas
            .stop(|one| one.client.as_ref().is_some_and(|own| own.id == client.id));
    }

    /// REPLICATION VERIFY.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn verify_replicas(&self) -> Result<(), CommandError> {
        let node = self.node.get().and_then(Weak::upgrade);
        let node = node.ok_or(CommandError::fixed("ERR the server stops"))?;
        let begun = self.own.verify(&node);
        begun.map_err(CommandError::fixed)
    }

    /// Port and node name of the own link, if it is served.
    #[must_use]
    pub fn own_link(&self) -> Option<(u16, String)> {
        self.own.offer()
    }

    /// The end of the log on disk: the term of its last frame, its sequence, and the sequence up to
    /// which it is applied.
    #[must_use]
    pub(crate) fn log_end_on_disk(&self, node: &Node) -> (u64, u64, u64) {
        self.own.log_end(node)
    }

    /// Periodic work, `hz` times a second.
    pub(crate) fn upkeep(&self, node: &Node) {
        let has_replicas = !self.replicas.is_empty();
        if has_replicas || node.core.shared.refusals.has_few_replicas() {
            self.judge_replicas(node);
        }
        self.stream.upkeep(node, has_replicas);
        self.own.upkeep();
    }

    /// The node's role, as ROLE reports it.
    pub(crate) fn report(&self, node: &Node) -> RoleReport {
        if let Some(following) = self.following().filter(|_| self.follows()) {
            let Primary { host, port } = following.primary();
            let (_, applied) = following.offsets();
            return RoleReport::Replica {
                host: host.clone(),
                port: *port,
                state: following.link().word(),
                offset: if following.link() == Link::Connected {
                    applied
                } else {
                    -1
                },
            };
        }
        if self.is_out_of_office() {
            return RoleReport::Replica {
                host: String::new(),
                port: 0,
                state: Link::Connect.word(),
                offset: -1,
            };
        }
        let replicas = self.replicas.all().into_iter();
        let online = replicas.filter(|one| one.state().is_online());
        RoleReport::Primary {
            offset: self.offset(node),
            replicas: online
                .map(|one| (one.host.clone(), one.port, one.acked().offset))
                .collect(),
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        lock(&self.standing)
    }
}

impl fmt::Debug for Replication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replication")
            .field("role", &self.role())
            .finish_non_exhaustive()
    }
}

/// FAILOVER of a primary under a control group: it hands over to a replica, which the group
/// promotes.
fn fail_over_in_group(node: &Node, order: &FailoverOrder) -> Result<(), CommandError> {
    let FailoverOrder::Begin {
        to, forces: false, ..
    } = order
    else {
        return Err(GROUPED_FORCE);
    };
    if node.replication.role() != Role::Primary {
        return Err(CommandError::fixed(
            "ERR FAILOVER is not valid when server is a replica.",
        ));
    }
    let to = to
        .as_ref()
        .map(|(host, port)| Some((host.clone(), u16::try_from(*port).ok()?)));
    let no_such = CommandError::fixed("ERR FAILOVER target HOST and PORT is not a replica.");
    let to = match to {
        Some(None) => return Err(no_such),
        Some(to) => to,
        None => None,
    };
    let group = node.control.part().ok_or(GROUPED)?;
    group.fail_over(to)
}

/// Serves a connection as a replica.
pub(crate) fn serve(
    node: &Arc<Node>,
    client: Arc<ClientRecord>,
    request: SyncRequest,
    connection: Detached,
) {
    redis_replica::serve(node, client, request, connection);
}

/// The durable ends of the log here and at replicas.
pub(crate) struct Watermarks<'a>(pub(crate) &'a Node);

impl Progress for Watermarks<'_> {
    fn durable(&self) -> u64 {
        let log = self.0.keeping.log_in_use.get().filter(|log| log.is_kept());
        log.map_or(0, |log| log.durable())
    }

    fn copies(&self, sequence: u64) -> Copies {
        self.0.replication.replicas.copies(sequence)
    }
}

/// The end of the log, or 0 without one.
fn log_end(node: &Node) -> u64 {
    node.keeping.log_in_use.get().map_or(0, |log| log.tail())
}

/// The client that requested something, for the server log.
fn shown(session: &Session) -> String {
    let client = &session.client;
    format!("id={} addr={}", client.id, client.address)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds writes and the removal of expired keys for a change of role, until
/// [`Replication::let_writes_go`].
fn hold_writes(node: &Node) {
    let gate = &node.core.shared.gate;
    node.core
        .env
        .hold_removals_after(|| gate.set_changes_role(true));
}
