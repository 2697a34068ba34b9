//! One running server: everything its workers share.

mod delayed_flush;
mod groups;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use access::Defaults;
use base::clock::Clock;
use engine::observer::AuditSink;
use engine::{
    ClientRecord, Counts, EngineCounters, Follower, Latencies, Push, ServerMemory, Table,
    Threshold, UseClock,
};
use protocol::Resp;
use reactor::{ConnectionId, Waker};
use store::{Handle, LfuTuning, Listener, Policy, Store};

use crate::allocator::{self, AllocatorMemory};
use crate::announcer::{self, Announcer};
use crate::audit::AuditWriter;
use crate::client_cache::ClientCache;
use crate::cluster_mode::state::ClusterMode;
use crate::config::{
    ApplyError, Change, Config, DurabilityLevel, EvictionPolicy, SharedConfig, system_reason,
};
use crate::counters::{Count, Sums};
use crate::daemon::Supervisor;
use crate::forward::Forward;
use crate::group::holder::Control;
use crate::group::view::View;
use crate::job::{Job, in_pieces};
use crate::keeping::wish::log_wish;
use crate::link::{Message, WorkerLink};
use crate::listeners::{Fault, Listeners};
use crate::log::Log;
use crate::mail::{Address, Letter};
use crate::migration::state::Migrations;
use crate::poll::poll;
use crate::replication::state::Replication;
use crate::tier::{self, Requester, TierInUse, Wakes};
use crate::tls;
use crate::{identity, limits, open_files, process};
use persistence::directory::DataDirectory;
use persistence::environment::Environment;
use persistence::running::Persistence;
use persistence::tail::Tail;

pub use groups::{Core, Keeping, Process, Sessions, Work};
pub(crate) use groups::{Describer, Managed};

/// Between two looks whether all workers have done something.
const LOOK: Duration = Duration::from_millis(1);

/// What the workers of one server share, in five groups.
pub struct Node {
    /// What everything works with.
    pub core: Core,
    /// Who is connected, and what of them others have to know.
    pub sessions: Sessions,
    /// Who does the work.
    pub work: Work,
    /// What is kept.
    pub keeping: Keeping,
    /// The process.
    pub process: Process,
    /// Who follows whom.
    pub replication: Replication,
    /// What the control group has decided, where there is one.
    pub group: Arc<View>,
    /// What keeps this node in its cluster.
    pub cluster_mode: ClusterMode,
    /// Hash slots on their way to or from other nodes.
    pub migrations: Migrations,
    /// What keeps this node in the control group.
    pub control: Control,
    /// For clients whose requests other nodes answer.
    pub forward: Forward,
}

/// What a client hears whose change of TLS cannot be made.
const TLS_REFUSED: &str = "Unable to update TLS configuration. Check server logs.";

/// The log's memory counts as no more than this part of `maxmemory`.
const LOG_PART_MAX: u64 = 4;

impl Wakes for Node {
    fn wake(&self, requester: Requester) {
        let workers = self.work.workers.get();
        if let Some(worker) = workers.and_then(|workers| workers.get(requester.worker)) {
            worker.post(match requester.connection {
                Some(connection) => Message::ValuesRead { connection },
                None => Message::KeysFree,
            });
        }
    }

    fn wake_all(&self) {
        for worker in self
            .work
            .workers
            .get()
            .into_iter()
            .flat_map(|all| all.iter())
        {
            worker.post(Message::KeysFree);
        }
    }
}

impl Node {
    /// A node over `store` that runs the commands of `table`, with nobody connected.
    #[must_use]
    pub fn new(
        table: &'static Table,
        store: Arc<Store>,
        config: Arc<SharedConfig>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let current = config.current();
        let log = Arc::new(Log::new(current.log_level, current.log_file.clone()));
        let env = Environment {
            log: Arc::<Log>::clone(&log),
            threads: usize::from(current.threads_count),
            redis_version: identity::redis_version(),
            ..Environment::new(table, Arc::clone(&store), Arc::clone(&clock))
        };
        let node = Self {
            sessions: Sessions::default(),
            work: Work::new(&clock),
            keeping: Keeping::default(),
            process: Process::new(&clock, Supervisor::find(current.supervised)),
            core: Core {
                store,
                shared: Arc::clone(&env.shared),
                config,
                log,
                clock,
                env: Arc::new(env),
            },
            replication: Replication::default(),
            group: Arc::default(),
            cluster_mode: ClusterMode::default(),
            migrations: Migrations::default(),
            control: Control::default(),
            forward: Forward::default(),
        };
        node.apply_limits(&current);
        // Told in the log; a server that is ranked otherwise serves as well.
        let _refused = node.rank(&current);
        if let Some(password) = &current.password {
            node.core
                .shared
                .access
                .users
                .set_default_password(Some(password));
        }
        node
    }

    /// Puts a CONFIG SET into force.
    ///
    /// # Errors
    /// When a part of it cannot be done; then nothing of it is.
    pub fn apply(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        if change.names.contains(&"dir") {
            self.keep_directory(change)?;
        }
        if change.names.contains(&"maxclients") {
            open_files::make_more_room(change.new)?;
        }
        let prepared = self.prepare_tls(change)?;
        self.change_rank(change)?;
        let changed = self.change_listeners(change, prepared).and_then(|()| {
            self.change_level(change)
                .inspect_err(|_| self.keep_listeners(change))
        });
        if let Err(error) = changed {
            self.keep_rank(change);
            return Err(error);
        }
        self.apply_limits(change.new);
        if change.names.contains(&"requirepass") {
            let password = change.new.password.as_deref();
            self.core.shared.access.users.set_default_password(password);
        }
        if change.names.contains(&"maxmemory-clients") {
            let bytes_max = limits::clients_bytes_max(change.new, process::usable_bytes());
            self.enforce_client_memory(bytes_max);
        }
        self.apply_durability(change.new);
        if let Some((tier, wanted)) = self.tier().zip(change.new.tier.as_ref()) {
            let around = (&*self.core.shared, &*self.core.log);
            tier.change(around, wanted, change.new);
        }
        self.replication.apply(self, change.new);
        self.cluster_mode.apply(self, change.new);
        if let Some(management) = &*self.management() {
            management.change(&self.core.shared, change.new);
        }
        self.core.log.set_level(change.new.log_level);
        Ok(())
    }

    /// Says what writes INFO; once, before anybody asks.
    pub(crate) fn set_describer(&self, describer: Describer) {
        let _already_set = self.process.describer.set(describer);
    }

    /// The sections of INFO asked for.
    pub(crate) fn describe(&self, store: &mut Handle, sections: &[String]) -> String {
        let describer = self.process.describer.get();
        describer.map_or_else(String::new, |describe| describe(self, store, sections))
    }

    /// The management port, while it is open.
    pub(crate) fn management(&self) -> MutexGuard<'_, Option<Box<dyn Managed>>> {
        let management = self.process.management.lock();
        management.unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the kernel rank the process otherwise, if that is what a change asks for.
    fn change_rank(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        let mut names = change.names.iter();
        let Some(name) = names.find(|name| name.starts_with("oom-score-adj")) else {
            return Ok(());
        };
        self.rank(change.new).map_err(|_| ApplyError {
            name,
            reason: "Failed to set current oom_score_adj. Check server logs.".to_owned(),
        })
    }

    /// Has the kernel rank the process as a configuration asks for, or tells the operator why not.
    fn rank(&self, config: &Config) -> io::Result<()> {
        self.process.oom_rank.apply(config).inspect_err(|error| {
            let cause = system_reason(error);
            self.core
                .log
                .warning(format_args!("Unable to write oom_score_adj: {cause}"));
        })
    }

    /// Has the kernel rank the process as before a change that failed.
    fn keep_rank(&self, change: &Change<'_>) {
        if (change.old.oom_score, change.old.oom_adjustment)
            != (change.new.oom_score, change.new.oom_adjustment)
        {
            // It was so a moment ago.
            let _as_before = self.process.oom_rank.apply(change.old);
        }
    }

    /// Whether a change has the log begun, which waits for the disk.
    pub(crate) fn begins_log(&self, change: &Change<'_>) -> bool {
        let (old, new) = (change.old.durability.level, change.new.durability.level);
        let has_none = |persistence: &Persistence| !persistence.log().state().has_log();
        old != new && new.has_log() && self.persistence().is_some_and(has_none)
    }

    /// Why the data cannot be kept at a level. A node in cluster mode and by itself is its own majority.
    pub(crate) fn refuses_level(&self, level: DurabilityLevel) -> Option<String> {
        let is_missing = level == DurabilityLevel::Quorum && !self.has_group();
        is_missing.then(|| "quorum takes a control group: without one nobody is fenced.".to_owned())
    }

    fn has_group(&self) -> bool {
        self.replication.fence.is_grouped() || self.core.shared.hash_slots.is_on()
    }

    /// Begins or ends the log, if that is what a change asks for.
    fn change_level(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        let (old, new) = (&change.old.durability, &change.new.durability);
        if let Some(reason) = self.refuses_level(new.level) {
            return Err(ApplyError {
                name: "durability",
                reason,
            });
        }
        if old.level.has_log() && !new.level.has_log() && self.has_group() {
            // As at the start: replicas follow by the log alone, and none is promoted without one.
            return Err(ApplyError {
                name: "durability",
                reason: "a node of a control group or of a cluster keeps a log on disk.".to_owned(),
            });
        }
        let persistence = self
            .persistence()
            .filter(|_| (old.level, old.sync) != (new.level, new.sync));
        let is_about_log = old.level.has_log() || new.level.has_log();
        if persistence.is_some() && is_about_log && self.core.shared.refusals.is_loading() {
            // The log is being read, and a checkpoint of what is there so far would replace the rest.
            return Err(ApplyError {
                name: "durability",
                reason: "Data is being loaded.".to_owned(),
            });
        }
        let changed = persistence.map_or(Ok(()), |it| it.change_log(&log_wish(new)));
        changed.map_err(|reason| ApplyError {
            name: "durability",
            reason,
        })
    }

    fn apply_durability(&self, config: &Config) {
        self.core.env.load_delay.set(config.key_load_delay);
        if let Some(persistence) = self.persistence() {
            let bytes = config.durability.checkpoint_buffer_bytes_max;
            let checkpointer = &persistence.checkpointer;
            checkpointer.set_buffer_limit(bytes);
            checkpointer.key_delay().set(config.key_save_delay);
            persistence.set_dir(&config.dir);
        }
        self.judge_writes(config);
    }

    /// Says what keeps the data; once.
    pub fn set_persistence(&self, persistence: Persistence) {
        let _already_set = self.keeping.persistence.set(persistence);
    }

    /// Opens the tier that the configuration asks for, if it does; once, and before there are any keys.
    ///
    /// # Errors
    /// Those of [`TierInUse::open`].
    pub(crate) fn open_tier(self: &Arc<Self>) -> io::Result<()> {
        let config = self.core.config.current();
        let Some(wanted) = &config.tier else {
            return Ok(());
        };
        let around = tier::Around {
            store: Arc::clone(&self.core.store),
            shared: Arc::clone(&self.core.shared),
            log: Arc::clone(&self.core.log),
            clock: Arc::clone(&self.core.clock),
            requests: Arc::<Self>::clone(self),
        };
        let tier = TierInUse::open(&around, wanted, &config)?;
        let _already_set = self.core.env.tier.set(Arc::clone(tier.segments()));
        let _already_set = self.keeping.tier.set(tier);
        Ok(())
    }

    /// The tier, if there is one.
    pub(crate) fn tier(&self) -> Option<&Arc<TierInUse>> {
        self.keeping.tier.get()
    }

    /// What keeps the data.
    #[must_use]
    pub fn persistence(&self) -> Option<&Persistence> {
        self.keeping.persistence.get()
    }

    /// Takes the directory of the data, for as long as what is returned lives. What keeps data has it otherwise, from here on or
    /// already.
    ///
    /// # Errors
    /// When another server has it, and what the system says.
    pub(crate) fn take_directory(&self) -> io::Result<Option<DataDirectory>> {
        if self.persistence().is_some_and(Persistence::has_directory) {
            return Ok(None);
        }
        let taken = DataDirectory::take(&self.core.config.current().dir);
        let taken = taken.map_err(io::Error::other)?;
        let Some(persistence) = self.persistence() else {
            return Ok(Some(taken));
        };
        let kept = persistence.keep_directory(taken);
        kept.map(|()| None).map_err(io::Error::other)
    }

    /// Refuses another working directory where data is kept in this one.
    fn keep_directory(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        let is_used = self.persistence().is_some_and(Persistence::has_directory);
        let reason = if change.new.dir == change.old.dir {
            return Ok(());
        } else if is_used {
            "Data is kept in the present one while the server runs."
        } else if self.begins_log(change) {
            "A log is begun in the present one: change this first."
        } else {
            return Ok(());
        };
        Err(ApplyError {
            name: "dir",
            reason: reason.to_owned(),
        })
    }

    /// Listens elsewhere, if that is what a change asks for.
    fn change_listeners(
        &self,
        change: &Change<'_>,
        prepared: Option<tls::Prepared>,
    ) -> Result<(), ApplyError> {
        let refuse = |(name, reason): (&'static str, &str), fault: Fault| {
            let cause = system_reason(&fault.cause);
            self.core
                .log
                .warning(format_args!("{}: {cause}", fault.what));
            ApplyError {
                name,
                reason: reason.to_owned(),
            }
        };
        let enforced = self.process.tls.enforce(prepared).map_err(|cause| {
            let what = "cannot make handshakes".to_owned();
            refuse(("tls-port", TLS_REFUSED), Fault { what, cause })
        });
        let porter = enforced?;
        let about = if change.names.contains(&"port") {
            ("port", "Unable to listen on this port. Check server logs.")
        } else if change.names.contains(&"tls-port") {
            (
                "tls-port",
                "Unable to listen on this port. Check server logs.",
            )
        } else if change.names.contains(&"bind") {
            ("bind", "Failed to bind to specified addresses.")
        } else {
            return Ok(());
        };
        let listeners = self.process.listeners.get();
        let changed = listeners.map(|listeners| listeners.change(change.new, porter.as_ref()));
        changed
            .unwrap_or(Ok(()))
            .map_err(|fault| refuse(about, fault))
    }

    /// Listens where it did before a change that failed.
    fn keep_listeners(&self, change: &Change<'_>) {
        let before = Change {
            old: change.new,
            new: change.old,
            names: change.names,
        };
        let prepared = self.prepare_tls(&before);
        // The operator was told; where it listened a moment ago there is room.
        let _kept = prepared.and_then(|prepared| self.change_listeners(&before, prepared));
    }

    /// Reads what encrypted connections need, if a change is about that.
    fn prepare_tls(&self, change: &Change<'_>) -> Result<Option<tls::Prepared>, ApplyError> {
        let (old, new) = (&change.old.tls, &change.new.tls);
        if old.rules == new.rules && (old.is_on() || !new.is_on()) {
            return Ok(None);
        }
        self.process
            .tls
            .prepare(&self.core.clock, new)
            .map_err(|error| {
                self.core.log.warning(format_args!("{error}"));
                let mut names = change.names.iter();
                let name = names.find(|name| name.starts_with("tls-"));
                ApplyError {
                    name: name.copied().unwrap_or("tls-port"),
                    reason: TLS_REFUSED.to_owned(),
                }
            })
    }

    /// Says where clients come in; once, before they do.
    pub(crate) fn set_listeners(&self, listeners: Listeners) {
        // Workers start once.
        let _already_set = self.process.listeners.set(listeners);
    }

    /// A way into the store whose events clients hear of (see [`Announcer::new`]).
    #[must_use]
    pub fn handle(&self, is_crowded: &Arc<AtomicBool>) -> Handle {
        let mut handle = self.core.store.handle();
        let Sessions {
            pubsub,
            event_channels,
            client_cache,
            ..
        } = &self.sessions;
        let announcer = Announcer::new(pubsub, event_channels, client_cache, is_crowded);
        handle.set_event_sink(Some(Box::new(announcer)));
        handle
    }

    /// Takes a client in that tracks keys, or what it asks for now.
    pub fn follow(&self, follower: &Arc<Follower>) {
        self.sessions.client_cache.follow(follower);
        self.want_events(&self.core.config.current());
    }

    /// Lets a client go that tracked keys.
    pub fn unfollow(&self, store: &mut Handle, follower: &Follower) {
        self.sessions
            .client_cache
            .unfollow(store, &self.tracking_listener(), follower);
        self.want_events(&self.core.config.current());
    }

    /// Has the store state the events that somebody wants.
    fn want_events(&self, config: &Config) {
        let _alone = self
            .sessions
            .wanting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut wanted = config.notifications.in_force();
        self.sessions.event_channels.set(config.notifications);
        if self.sessions.client_cache.has_prefixes() {
            wanted = wanted.and(announcer::CHANGES);
        }
        self.core.store.set_wanted_events(wanted);
    }

    /// Has the audit log written as the configuration says.
    fn apply_audit(&self, config: &Config) {
        let audit = &self.core.shared.observer.audit;
        let mut applied = self
            .process
            .audited
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *applied == config.audit {
            return;
        }
        applied.clone_from(&config.audit);
        let opened = config.audit.as_ref().map(|wanted| {
            let sink = AuditWriter::open(&wanted.file)?;
            let sink: Box<dyn AuditSink> = Box::new(sink);
            Ok::<_, io::Error>((wanted.filter.clone(), sink))
        });
        match opened.transpose() {
            Ok(rules) => audit.set(rules),
            Err(error) => self.core.log.warning(format_args!(
                "The audit log cannot be written: {}",
                system_reason(&error)
            )),
        }
    }

    fn apply_limits(&self, config: &Config) {
        let defaults = Defaults {
            all_channels: config.opens_channels,
        };
        self.core.shared.access.users.set_defaults(defaults);
        self.core
            .shared
            .access
            .denials
            .set_entries_max(config.denials_max);
        self.apply_audit(config);
        self.want_events(config);
        self.sessions
            .client_cache
            .set_keys_max(config.tracked_keys_max);
        let threshold_ms = &self.core.shared.scripts.running.threshold_ms;
        threshold_ms.store(config.busy_reply_ms, Ordering::Relaxed);
        let refuses_all = &self.core.shared.scripts.running.refuses_all;
        refuses_all.store(config.busy_refuses_all, Ordering::Relaxed);
        self.core
            .shared
            .settings
            .bulk_bytes_max
            .store(config.bulk_bytes_max, Ordering::Relaxed);
        let replies_bytes_max = limits::replies_bytes_max(&config.output_limits.normal);
        self.core
            .shared
            .settings
            .replies_bytes_max
            .store(replies_bytes_max, Ordering::Relaxed);
        self.core
            .shared
            .settings
            .compresses_dumps
            .store(config.compresses_dumps, Ordering::Relaxed);
        for ((threshold, ..), value) in Threshold::ALL.into_iter().zip(config.thresholds) {
            self.core.shared.settings.thresholds.set(threshold, value);
        }
        self.core.shared.observer.set_thresholds(&config.noticed);
        let slots = &self.core.shared.hash_slots;
        slots
            .usage
            .set_on(config.cluster.is_on && config.cluster.counts_usage);
        let policy = policy_of(config.eviction_policy);
        self.core.shared.settings.set_use_clock(match policy {
            Policy::AllKeysLfu | Policy::VolatileLfu => UseClock::Frequency,
            _ => UseClock::Recency,
        });
        let samples = u8::try_from(config.eviction_samples_count).unwrap_or(u8::MAX);
        self.core
            .store
            .set_memory_limit(config.memory_bytes_max, policy, samples);
        self.core.store.set_tenacity(config.eviction_tenacity);
        let moving = config.defragmentation.map(|own| {
            let percent = u64::from(own.idle_percent_min);
            (own.idle_bytes_min, percent)
        });
        self.core.store.set_moving(moving);
        self.core.store.set_lfu_tuning(LfuTuning {
            log_factor: u16::try_from(config.lfu_log_factor).unwrap_or(u16::MAX),
            decay_minutes: u16::try_from(config.lfu_decay_minutes).unwrap_or(u16::MAX),
        });
    }

    /// Says that so many bytes of data are being loaded. Until that [is over](Node::end_loading) clients
    /// get nothing that needs data.
    pub fn begin_loading(&self, total_bytes: u64) {
        self.core.env.begin_loading(total_bytes);
    }

    /// Says that all data is loaded.
    pub fn end_loading(&self) {
        self.core.env.end_loading();
    }

    /// Whether who connects is a user that has to say no password.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let default_user = self.core.shared.access.users.default_user();
        default_user.rules().needs_no_password()
    }

    /// Says how the workers are reached; called once, before they start.
    pub fn set_workers(&self, workers: Vec<WorkerLink>) {
        let workers: Arc<[WorkerLink]> = workers.into();
        self.sessions.pubsub.set_workers(Arc::clone(&workers));
        self.sessions.client_cache.set_workers(Arc::clone(&workers));
        let _already_set = self.work.workers.set(workers);
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> &[WorkerLink] {
        self.work.workers.get().map_or(&[], |workers| workers)
    }

    /// Leaves a message with every worker.
    pub fn broadcast(&self, message: &Message) {
        for worker in self.workers() {
            worker.post(message.clone());
        }
    }

    /// Says how requests reach the thread that runs what takes long, and what its engine counts.
    pub fn set_aside(&self, jobs: Sender<Job>, counters: Arc<EngineCounters>) {
        *self.jobs() = Some(jobs);
        let _already_set = self.work.aside_counters.set(counters);
    }

    /// Uses another log, or none, from now on, as the [owner of the log](persistence::log_owner) does. For tests with a
    /// log of their own.
    pub fn use_log(&self, log: Option<Arc<dyn Tail>>) {
        self.keeping.log_in_use.set(log, &self.core.env);
        self.broadcast(&Message::LogChanged);
    }

    /// The log in use is durable further than before, or a fault has begun or ended: lets workers see to
    /// what waits for that, and the operator know of the fault. For such a log.
    pub fn log_moved(&self) {
        self.keeping.log_in_use.look_for_fault(&self.core.env);
        self.wake_workers();
    }

    /// Has every worker let go what no longer waits for the log, and waits until all have, for so long at most.
    pub(crate) fn wait_for_release(&self, time: Duration) {
        let looked = Arc::new(());
        self.broadcast(&Message::LookAtLog(Arc::clone(&looked)));
        let have_all = || (Arc::strong_count(&looked) == 1).then_some(());
        let _in_time = poll(time, LOOK, have_all);
    }

    /// Has every worker look what it can go on with.
    pub(crate) fn wake_workers(&self) {
        for worker in self.workers() {
            worker.wake();
        }
        self.replication.log_moved(self);
    }

    /// Answers a client that waits, and lets it go on.
    pub(crate) fn answer(&self, client: &ClientRecord, reply: Vec<u8>) {
        // Before who ended the wait is answered, though its worker hears of it later.
        client.set_flag(ClientRecord::BLOCKED, false);
        if let Some(worker) = self.workers().get(client.worker) {
            worker.post(Message::Served {
                client: client.id,
                place: client.place,
                reply: in_pieces(&reply),
            });
        }
    }

    /// Ends the waits of all clients with an error, and their connections behind it.
    pub(crate) fn unblock_all(&self, text: &str) {
        for client in self.sessions.clients.all() {
            let Some(waiter) = client.waiter().filter(|waiter| waiter.claim()) else {
                continue;
            };
            let reply = waiter.subject.refusal(text);
            self.answer(&client, reply);
            if let Some(worker) = self.workers().get(client.worker) {
                client.set_flag(ClientRecord::KILLED, true);
                worker.post(Message::Kill {
                    client: client.id,
                    place: client.place,
                });
            }
        }
    }

    /// Whether there is a thread that runs what takes long.
    #[must_use]
    pub fn has_aside(&self) -> bool {
        self.jobs().is_some()
    }

    /// Offloads a request; whether there is anybody to run it.
    #[must_use]
    pub fn run_aside(&self, job: Job) -> bool {
        let jobs = self.jobs();
        jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Has a request of the server itself run beside the workers; nobody hears the reply.
    pub(crate) fn run_own(&self, request: impl Into<Box<[u8]>>) {
        let id = self.sessions.clients.next_id();
        let (peer, own) = (String::new(), String::new());
        let now_unix_ms = self.core.clock.now_unix_ms();
        let client = ClientRecord::new(id, peer, own, usize::MAX, -1, now_unix_ms);
        let _is_taken = self.run_aside(Job {
            request: request.into(),
            client: Arc::new(client),
            database: 0,
            resp: Resp::V2,
            transaction: None,
            watches: None,
            peer_is_local: true,
            is_of_server: true,
            aborted_stops: self.replication.aborted_stops(),
            connection: ConnectionId::NOBODY,
        });
    }

    /// Lets the thread that runs what takes long end.
    pub fn stop_aside(&self) {
        *self.jobs() = None;
    }

    fn jobs(&self) -> MutexGuard<'_, Option<Sender<Job>>> {
        self.work
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how the main thread is woken when the server stops; called once.
    pub fn set_main_waker(&self, waker: Waker) {
        let _already_set = self.process.main_waker.set(waker);
    }

    /// Asks all workers to stop; whether this call was the first to do so.
    pub fn stop(&self) -> bool {
        let first = !self.process.stopping.swap(true, Ordering::AcqRel);
        if first {
            self.control.stop();
            self.replication.stop();
            self.broadcast(&Message::Stop);
            if let Some(waker) = self.process.main_waker.get() {
                waker.wake();
            }
        }
        first
    }

    /// Whether the server is going down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.process.stopping.load(Ordering::Acquire)
    }

    /// Milliseconds since it started.
    #[must_use]
    pub fn uptime_ms(&self) -> u64 {
        self.uptime_ms_at(self.core.clock.monotonic_ns())
    }

    /// Milliseconds from its start to a reading of the monotonic clock.
    #[must_use]
    pub fn uptime_ms_at(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.process.started_ns) / 1_000_000
    }

    /// What the workers counted since the last CONFIG RESETSTAT.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.all_sums().since(&self.counted_before().1)
    }

    /// What the engines counted since the last CONFIG RESETSTAT.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.all_counts().since(&self.counted_before().0)
    }

    fn all_sums(&self) -> Sums {
        let mut sums = Sums::default();
        for worker in self.workers() {
            sums.add(&worker.counters);
        }
        sums
    }

    fn all_counts(&self) -> Counts {
        let mut counts = Counts::default();
        for engine in self.engines() {
            engine.add_to(&mut counts);
        }
        counts
    }

    fn engines(&self) -> impl Iterator<Item = &EngineCounters> {
        let workers = self.workers().iter().map(|one| &one.engine);
        let engines = workers.chain([&self.work.aside_counters]);
        engines.filter_map(|engine| engine.get().map(Arc::as_ref))
    }

    /// How long commands took since the last CONFIG RESETSTAT.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        self.all_latencies().since(&self.counted_before().2)
    }

    fn all_latencies(&self) -> Latencies {
        let mut latencies = Latencies::default();
        for engine in self.engines() {
            engine.add_latencies_to(&mut latencies);
        }
        latencies
    }

    fn counted_before(&self) -> MutexGuard<'_, (Counts, Sums, Latencies)> {
        self.work
            .counted_before
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was counted (CONFIG RESETSTAT).
    pub fn reset_counters(&self) {
        let counted = (self.all_counts(), self.all_sums(), self.all_latencies());
        *self.counted_before() = counted;
        for worker in self.workers() {
            worker.counters.forget_most();
        }
        self.keeping.saving.reset_counters();
        self.core.shared.hash_slots.usage.forget(|_| true);
        self.work.rates.reset();
    }

    /// Whoever sends HTTP can fill the log with nothing but that: it is told once a minute at most.
    fn tell_of_browsers(&self, uptime_ms: u64) {
        if let Some((count, address)) = self.core.shared.observer.browsers.take_news(uptime_ms) {
            let requests = if count == 1 { "A request" } else { "Requests" };
            self.core.log.warning(format_args!(
                "{requests} of HTTP ({count} since this was told last) came to a port of this server, the                  last from {address}. The connection was closed, and nothing behind POST or Host: was run.                  A page in a browser may try to send commands here (cross protocol scripting)."
            ));
        }
    }

    /// systemd waits for as long as the loading goes on.
    fn tell_of_loading(&self, uptime_ms: u64) {
        let progress = self.core.env.loading.progress();
        if progress.goes_on {
            let (bytes, percent) = (progress.loaded_bytes, progress.percent());
            self.process.supervisor.loading(uptime_ms, bytes, percent);
        }
    }

    /// What one worker does for all of them, `hz` times a second.
    pub fn upkeep(&self, now_unix_ms: u64) {
        let sums = self.all_sums();
        let sample = [
            self.all_counts().calls(),
            sums.of(Count::InputBytes),
            sums.of(Count::OutputBytes),
            sums.of(Count::Turns),
            sums.of(Count::BusyNs),
        ];
        let uptime_ms = self.uptime_ms();
        self.work.rates.sample(uptime_ms, sample);
        let held = self.core.store.held();
        self.work.rates.moving.note(uptime_ms, held.is_moving);
        self.work
            .rates
            .over_limit
            .note(uptime_ms, held.is_over_limit);
        self.tell_of_browsers(uptime_ms);
        self.tell_of_loading(uptime_ms);
        self.end_pause(now_unix_ms);
        self.flush_when_due(now_unix_ms);
        self.look_at_save_points(now_unix_ms);
        self.replication.upkeep(self);
        self.migrations.clean(self);
        self.note_peak();
        self.tell_held_bytes();
    }

    /// Tells the store what is held outside of it, which its limit counts.
    pub fn tell_held_bytes(&self) {
        let program_bytes = self.process.program_bytes.load(Ordering::Relaxed);
        let tier_bytes = self.tier().map_or(0, |tier| tier.segments().memory_bytes());
        let used_bytes = program_bytes + self.clients_held_bytes() + tier_bytes;
        // The log may have been opened with a higher limit: it is not to take all from the keys.
        let limit_bytes = self.core.config.current().memory_bytes_max;
        let log_bytes = self.log_memory_bytes().min(limit_bytes / LOG_PART_MAX);
        self.core.store.set_other_bytes(used_bytes + log_bytes);
        self.core
            .env
            .other_bytes
            .store(used_bytes, Ordering::Relaxed);
    }

    /// Bytes of the operation log's memory that do not count for `maxmemory`.
    pub fn uncounted_log_bytes(&self) -> u64 {
        match self.core.config.current().memory_bytes_max {
            0 => 0,
            limit_bytes => self
                .log_memory_bytes()
                .saturating_sub(limit_bytes / LOG_PART_MAX),
        }
    }

    /// Bytes of the operation log's memory (`mem_aof_buffer`); 0 without a log.
    fn log_memory_bytes(&self) -> u64 {
        let log = self.persistence().and_then(|it| it.log().log());
        log.map_or(0, |log| log.memory_bytes())
    }

    /// Has clients wait until a time; `writes_only` lets reads pass (CLIENT PAUSE).
    pub fn pause_clients(&self, until_unix_ms: u64, writes_only: bool) {
        let now_unix_ms = self.core.clock.now_unix_ms();
        let gate = &self.core.shared.gate;
        self.core
            .env
            .hold_removals_after(|| gate.pause(until_unix_ms, writes_only, now_unix_ms));
    }

    /// Lets them go on (CLIENT UNPAUSE).
    pub fn unpause_clients(&self) {
        let gate = &self.core.shared.gate;
        self.core.env.hold_removals_after(|| gate.unpause());
        self.broadcast(&Message::Resume);
    }

    /// Forgets a pause of clients that is over, so that commands need not ask for the time.
    pub fn end_pause(&self, now_unix_ms: u64) {
        let gate = &self.core.shared.gate;
        self.core
            .env
            .hold_removals_after(|| gate.end_pause(now_unix_ms));
    }

    /// Asks the worker of a client to close it because all clients together hold too much.
    pub fn evict(&self, client: &ClientRecord) {
        if let Some(worker) = self.workers().get(client.worker) {
            client.set_flag(ClientRecord::EVICTED, true);
            worker.post(Message::Evict {
                client: client.id,
                place: client.place,
                held_bytes: client.held_bytes.load(Ordering::Relaxed),
            });
        }
    }

    /// What the store tells of changes of tracked keys.
    #[must_use]
    pub fn tracking_listener(&self) -> Arc<dyn Listener> {
        Arc::<ClientCache>::clone(&self.sessions.client_cache)
    }

    /// Leaves a push with the worker of a client; a client for whose worker too much waits already is
    /// closed. Waits for nothing.
    pub fn push(&self, to: &ClientRecord, push: &Push) {
        if let Some(worker) = self.workers().get(to.worker) {
            let (id, place) = (to.id, to.place);
            worker.post_push(Letter {
                to: Address::Client { id, place },
                push: push.clone(),
            });
        }
    }

    /// What all clients hold, in bytes.
    #[must_use]
    pub fn clients_held_bytes(&self) -> u64 {
        let buffers = self.workers().iter();
        let buffers: u64 = buffers.map(|one| one.counters.client_bytes.get()).sum();
        buffers + limits::CLIENT_BYTES * (self.sessions.clients.len() as u64)
    }

    /// Remembers what the process held before the first client; called before the threads start, and once
    /// all of them run.
    pub fn note_startup_memory(&self) {
        let store_bytes = self.core.store.statistics().used_bytes;
        self.process.program_bytes.store(
            process::memory().private_bytes.saturating_sub(store_bytes),
            Ordering::Relaxed,
        );
        self.process
            .store_startup_bytes
            .store(store_bytes, Ordering::Relaxed);
    }

    /// Notes how much is held, if it is more than ever. Does not ask the system what is resident, which
    /// takes it a fraction of a millisecond.
    fn note_peak(&self) {
        let program = self.process.program_bytes.load(Ordering::Relaxed);
        let used = program + self.clients_held_bytes() + self.core.store.statistics().used_bytes;
        self.process.peak_bytes.fetch_max(used, Ordering::Relaxed);
    }

    /// What the server holds now.
    pub fn memory(&self) -> ServerMemory {
        let store = self.core.store.statistics();
        let program = self.process.program_bytes.load(Ordering::Relaxed);
        let clients = self.clients_held_bytes();
        let used = program + clients + store.used_bytes;
        let resident = process::memory().resident_bytes;
        let mapped = store.memory.index_bytes + store.memory.page_bytes;
        let slots = store.memory;
        // The store maps memory of its own; the rest is the allocator's.
        let allocator = match allocator::installed().memory() {
            Some(of) => AllocatorMemory {
                allocated: of.allocated + mapped + slots.slot_bytes,
                active: of.active + mapped + slots.slot_held_bytes,
                resident: of.resident + mapped + slots.slot_held_bytes,
                muzzy: of.muzzy,
            },
            None => AllocatorMemory {
                allocated: used,
                active: used + slots.slot_held_bytes.saturating_sub(slots.slot_bytes),
                resident,
                muzzy: 0,
            },
        };
        ServerMemory {
            resident,
            used,
            allocator,
            log: self.log_memory_bytes(),
            peak: self
                .process
                .peak_bytes
                .fetch_max(used, Ordering::Relaxed)
                .max(used),
            startup: program + self.process.store_startup_bytes.load(Ordering::Relaxed),
            clients,
            overhead: program + clients + store.memory.index_bytes.min(store.used_bytes),
        }
    }
}

/// The store's name of a policy.
fn policy_of(policy: EvictionPolicy) -> Policy {
    match policy {
        EvictionPolicy::NoEviction => Policy::NoEviction,
        EvictionPolicy::AllKeysLru => Policy::AllKeysLru,
        EvictionPolicy::AllKeysLfu => Policy::AllKeysLfu,
        EvictionPolicy::AllKeysRandom => Policy::AllKeysRandom,
        EvictionPolicy::VolatileLru => Policy::VolatileLru,
        EvictionPolicy::VolatileLfu => Policy::VolatileLfu,
        EvictionPolicy::VolatileRandom => Policy::VolatileRandom,
        EvictionPolicy::VolatileTtl => Policy::VolatileTtl,
    }
}

#[cfg(test)]
mod tests;
