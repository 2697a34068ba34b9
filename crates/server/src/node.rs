//! One running server: everything its workers share.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use access::Defaults;
use base::clock::Clock;
use base::courtesy::Courtesy;
use base::random::Prng;
use engine::observer::AuditSink;
use engine::{
    ClientRecord, Counts, EngineCounters, Follower, Latencies, Push, ServerMemory, Settings, Table,
    Threshold, UseClock, Waiters,
};
use reactor::{ConnectionId, Waker};
use store::{Handle, LfuTuning, Listener, Policy, Store};

use crate::allocator::{self, AllocatorMemory};
use crate::announcer::{self, Announcer, Channels};
use crate::aside::{Answer, Job, in_pieces};
use crate::audit::AuditWriter;
use crate::clients::Clients;
use crate::config::{
    ApplyError, AuditConfig, Change, Config, EvictionPolicy, SharedConfig, system_reason,
};
use crate::counters::{Count, Rates, Sums, WorkerCounters};
use crate::daemon::Supervisor;
use crate::doors::{Doors, Fault};
use crate::exchange::Exchange;
use crate::keeping::kept;
use crate::keeping::saving::Saving;
use crate::log::Log;
use crate::mail::{Address, Letter, Mail};
use crate::oom_score::OomRank;
use crate::replication::Replication;
use crate::secret::{self, Secret};
use crate::tracker::Tracker;
use crate::{identity, limits, open_files, process};
use persistence::environment::Environment;
use persistence::log_in_use::LogInUse;
use persistence::running::Persistence;
use persistence::tail::Tail;

/// What the workers of one server share.
pub struct Node {
    /// The keyspace.
    pub store: Arc<Store>,
    /// Limits that commands check.
    pub settings: Arc<Settings>,
    /// Directives.
    pub config: Arc<SharedConfig>,
    /// Where lines for the operator go.
    pub log: Arc<Log>,
    /// Who waits for this process to be ready.
    pub supervisor: Supervisor,
    /// Who is connected.
    pub clients: Clients,
    /// Who is told of changes of which keys.
    pub tracker: Arc<Tracker>,
    /// Who is subscribed to what.
    pub exchange: Arc<Exchange>,
    /// Those of them that wait for keys.
    pub waiters: Arc<Waiters>,
    /// To which channels events go.
    pub(crate) event_channels: Arc<Channels>,
    /// Held while it is found out which events are wanted.
    wanting: Mutex<()>,
    /// The log, while there is one.
    pub log_in_use: Arc<LogInUse>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Between workers and those who save in the background.
    pub background: Arc<Courtesy>,
    /// What loading and writing data works in.
    pub env: Arc<Environment>,
    /// What is known of checkpoints.
    pub saving: Saving,
    persistence: OnceLock<Persistence>,
    /// Rates of the last moments.
    pub rates: Rates,
    /// Identity of this run: 40 hexadecimal digits.
    pub run_id: String,
    /// Who follows whom.
    pub replication: Replication,
    /// When it started.
    pub started_unix_ms: u64,
    workers: OnceLock<Arc<[WorkerLink]>>,
    jobs: Mutex<Option<Sender<Job>>>,
    aside_counters: OnceLock<Arc<EngineCounters>>,
    started_ns: u64,
    /// What the process took at its start beside the store: code that was changed, stacks, heap.
    doors: OnceLock<Doors>,
    /// Encrypted connections.
    pub secret: Secret,
    program_bytes: AtomicU64,
    store_startup_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    stopping: AtomicBool,
    main_waker: OnceLock<Waker>,
    oom_rank: OomRank,
    /// What was counted up to the last CONFIG RESETSTAT.
    /// What the audit log is written by.
    audited: Mutex<Option<AuditConfig>>,
    counted_before: Mutex<(Counts, Sums, Latencies)>,
}

/// What a client hears whose change of TLS cannot be made.
const SECRET_REFUSED: &str = "Unable to update TLS configuration. Check server logs.";

/// How the rest of the server reaches one worker.
pub struct WorkerLink {
    /// What it counts.
    pub counters: Arc<WorkerCounters>,
    /// What its engine counts, once it runs.
    pub engine: OnceLock<Arc<EngineCounters>>,
    /// Pushes for its clients.
    pub mail: Mail,
    mailbox: Mutex<Vec<Message>>,
    waker: Waker,
}

thread_local! {
    /// Where the link to the worker that runs on this thread is; 0 on other threads.
    static OWN_LINK: Cell<usize> = const { Cell::new(0) };
    /// How many pushes this thread left with the worker that runs on it.
    static OWN_POSTS: Cell<u64> = const { Cell::new(0) };
}

/// How many pushes the calling thread left with the worker that runs on it.
#[must_use]
pub(crate) fn own_posts() -> u64 {
    OWN_POSTS.get()
}

/// What a worker can be asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Close this client once what it is owed is sent.
    Kill {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
    },
    /// Close this client at once: all clients together hold too much.
    Evict {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
        /// What it held when it was chosen.
        held_bytes: u64,
    },
    /// Clients may go on that wait because too much of what they published was not delivered.
    MailDelivered,
    /// Paused clients may go on.
    Resume,
    /// A request that ran aside is done.
    Answer {
        /// Where its reply goes.
        connection: ConnectionId,
        /// The reply.
        reply: Answer,
        /// Up to where it appended to the log, if it did.
        log_end: Option<u64>,
    },
    /// A request that ran aside waits for keys.
    Waits {
        /// Whose request it is.
        connection: ConnectionId,
        /// How long it waits at most.
        timeout_ms: Option<u64>,
    },
    /// A client that waited for keys has its answer.
    Served {
        /// Its id.
        client: u64,
        /// Its place at the worker.
        place: u32,
        /// What it is sent.
        reply: Answer,
    },
    /// Clients of a user may be subscribed to what it may hear no more: those are closed.
    RulesChanged {
        /// The user's name.
        user: Box<[u8]>,
    },
    /// Keys that were held for long are free: who waits may try again.
    KeysFree,
    /// Another log is in use, or none.
    LogChanged,
    /// Flush what can be flushed and stop.
    Stop,
}

impl WorkerLink {
    /// A link to a worker that is woken by `waker`.
    #[must_use]
    pub fn new(waker: Waker) -> Self {
        Self {
            counters: Arc::default(),
            engine: OnceLock::new(),
            mail: Mail::default(),
            mailbox: Mutex::default(),
            waker,
        }
    }

    /// Leaves a message and wakes the worker.
    pub fn post(&self, message: Message) {
        self.mailbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(message);
        self.waker.wake();
    }

    /// Says that the worker runs on the calling thread, which then needs not be woken by itself.
    pub fn own(&self) {
        OWN_LINK.set(std::ptr::from_ref(self).addr());
    }

    /// Leaves a push. Waits for nothing.
    pub fn post_push(&self, letter: Letter) {
        let wakes = self.mail.post(letter);
        if OWN_LINK.get() == std::ptr::from_ref(self).addr() {
            // A worker takes its mail at the end of every turn.
            OWN_POSTS.set(OWN_POSTS.get() + 1);
        } else if wakes {
            self.waker.wake();
        }
    }

    /// Takes the messages that wait.
    #[must_use]
    pub fn take_messages(&self) -> Vec<Message> {
        std::mem::take(&mut *self.mailbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The log's memory counts as no more than this part of `maxmemory`.
const LOG_PART_MAX: u64 = 4;

impl Node {
    /// A node over `store` that runs the commands of `table`, with nobody connected.
    #[must_use]
    pub fn new(
        table: &'static Table,
        store: Arc<Store>,
        config: Arc<SharedConfig>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut random = Prng::from_os();
        let current = config.current();
        let log = Arc::new(Log::new(current.log_level, current.log_file.clone()));
        let env = Environment {
            log: Arc::<Log>::clone(&log),
            threads: usize::from(current.threads_count),
            redis_version: identity::redis_version(),
            ..Environment::new(table, Arc::clone(&store), Arc::clone(&clock))
        };
        let node = Self {
            log,
            supervisor: Supervisor::find(current.supervised),
            store,
            settings: Arc::clone(&env.settings),
            env: Arc::new(env),
            config,
            clients: Clients::default(),
            exchange: Arc::default(),
            waiters: Arc::default(),
            event_channels: Arc::default(),
            wanting: Mutex::default(),
            log_in_use: Arc::default(),
            tracker: Arc::default(),
            saving: Saving::default(),
            persistence: OnceLock::new(),
            rates: Rates::default(),
            run_id: random.hex_id(),
            replication: Replication::default(),
            started_unix_ms: clock.now_unix_ms(),
            workers: OnceLock::new(),
            jobs: Mutex::default(),
            aside_counters: OnceLock::new(),
            started_ns: clock.monotonic_ns(),
            doors: OnceLock::new(),
            secret: Secret::default(),
            program_bytes: AtomicU64::new(0),
            store_startup_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            main_waker: OnceLock::new(),
            oom_rank: OomRank::default(),
            audited: Mutex::default(),
            counted_before: Mutex::default(),
            background: Arc::new(Courtesy::of_machine(Arc::clone(&clock))),
            clock,
        };
        node.apply_limits(&current);
        // Told in the log; a server that is ranked otherwise serves as well.
        let _refused = node.rank(&current);
        if let Some(password) = &current.password {
            node.settings.users.set_default_password(Some(password));
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
        let secret = self.prepare_secret(change)?;
        self.change_rank(change)?;
        let changed = self.change_doors(change, secret).and_then(|()| {
            self.change_level(change)
                .inspect_err(|_| self.keep_doors(change))
        });
        if let Err(error) = changed {
            self.keep_rank(change);
            return Err(error);
        }
        self.apply_limits(change.new);
        if change.names.contains(&"requirepass") {
            let password = change.new.password.as_deref();
            self.settings.users.set_default_password(password);
        }
        if change.names.contains(&"maxmemory-clients") {
            let bytes_max = limits::clients_bytes_max(change.new, process::usable_bytes());
            limits::enforce_client_memory(self, bytes_max);
        }
        self.apply_durability(change.new);
        self.replication.apply(self, change.new);
        self.log.set_level(change.new.log_level);
        Ok(())
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
        self.oom_rank.apply(config).inspect_err(|error| {
            let cause = system_reason(error);
            self.log
                .warning(format_args!("Unable to write oom_score_adj: {cause}"));
        })
    }

    /// Has the kernel rank the process as before a change that failed.
    fn keep_rank(&self, change: &Change<'_>) {
        if (change.old.oom_score, change.old.oom_adjustment)
            != (change.new.oom_score, change.new.oom_adjustment)
        {
            // It was so a moment ago.
            let _as_before = self.oom_rank.apply(change.old);
        }
    }

    /// Whether a change has the log begun, which waits for the disk.
    pub(crate) fn begins_log(&self, change: &Change<'_>) -> bool {
        let (old, new) = (change.old.durability.level, change.new.durability.level);
        let has_none = |persistence: &Persistence| !persistence.log().state().has_log();
        old != new && new.has_log() && self.persistence().is_some_and(has_none)
    }

    /// Begins or ends the log, if that is what a change asks for.
    fn change_level(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        let (old, new) = (&change.old.durability, &change.new.durability);
        let persistence = self.persistence().filter(|_| old.level != new.level);
        let is_about_log = old.level.has_log() || new.level.has_log();
        if persistence.is_some() && is_about_log && self.settings.refusals.is_loading() {
            // The log is being read, and a checkpoint of what is there so far would replace the rest.
            return Err(ApplyError {
                name: "durability",
                reason: "Data is being loaded.".to_owned(),
            });
        }
        let changed = persistence.map_or(Ok(()), |it| it.change_log(&kept::log_wish(new)));
        changed.map_err(|reason| ApplyError {
            name: "durability",
            reason,
        })
    }

    fn apply_durability(&self, config: &Config) {
        self.env.load_delay.set(config.key_load_delay);
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
        let _already_set = self.persistence.set(persistence);
    }

    /// What keeps the data.
    #[must_use]
    pub fn persistence(&self) -> Option<&Persistence> {
        self.persistence.get()
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
    fn change_doors(
        &self,
        change: &Change<'_>,
        secret: Option<secret::Prepared>,
    ) -> Result<(), ApplyError> {
        let refuse = |(name, reason): (&'static str, &str), fault: Fault| {
            let cause = system_reason(&fault.cause);
            self.log.warning(format_args!("{}: {cause}", fault.what));
            ApplyError {
                name,
                reason: reason.to_owned(),
            }
        };
        let enforced = self.secret.enforce(secret).map_err(|cause| {
            let what = "cannot make handshakes".to_owned();
            refuse(("tls-port", SECRET_REFUSED), Fault { what, cause })
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
        let doors = self.doors.get();
        let changed = doors.map(|doors| doors.change(change.new, porter.as_ref()));
        changed
            .unwrap_or(Ok(()))
            .map_err(|fault| refuse(about, fault))
    }

    /// Listens where it did before a change that failed.
    fn keep_doors(&self, change: &Change<'_>) {
        let before = Change {
            old: change.new,
            new: change.old,
            names: change.names,
        };
        let secret = self.prepare_secret(&before);
        // The operator was told; where it listened a moment ago there is room.
        let _kept = secret.and_then(|secret| self.change_doors(&before, secret));
    }

    /// Reads what encrypted connections need, if a change is about that.
    fn prepare_secret(&self, change: &Change<'_>) -> Result<Option<secret::Prepared>, ApplyError> {
        let (old, new) = (&change.old.tls, &change.new.tls);
        if old.rules == new.rules && (old.is_on() || !new.is_on()) {
            return Ok(None);
        }
        self.secret.prepare(&self.clock, new).map_err(|error| {
            self.log.warning(format_args!("{error}"));
            let mut names = change.names.iter();
            let name = names.find(|name| name.starts_with("tls-"));
            ApplyError {
                name: name.copied().unwrap_or("tls-port"),
                reason: SECRET_REFUSED.to_owned(),
            }
        })
    }

    /// Says where clients come in; once, before they do.
    pub(crate) fn set_doors(&self, doors: Doors) {
        // Workers start once.
        let _already_set = self.doors.set(doors);
    }

    /// A way into the store whose events clients hear of (see [`Announcer::new`]).
    #[must_use]
    pub fn handle(&self, is_crowded: &Arc<AtomicBool>) -> Handle {
        let mut handle = self.store.handle();
        let announcer = Announcer::new(self, is_crowded);
        handle.set_event_sink(Some(Box::new(announcer)));
        handle
    }

    /// Takes a client in that tracks keys, or what it asks for now.
    pub fn follow(&self, follower: &Arc<Follower>) {
        self.tracker.follow(follower);
        self.want_events(&self.config.current());
    }

    /// Lets a client go that tracked keys.
    pub fn unfollow(&self, store: &mut Handle, follower: &Follower) {
        self.tracker
            .unfollow(store, &self.tracking_listener(), follower);
        self.want_events(&self.config.current());
    }

    /// Has the store state the events that somebody wants.
    fn want_events(&self, config: &Config) {
        let _alone = self.wanting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = config.notifications.in_force();
        self.event_channels.set(config.notifications);
        if self.tracker.has_prefixes() {
            wanted = wanted.and(announcer::CHANGES);
        }
        self.store.set_wanted_events(wanted);
    }

    /// Has the audit log written as the configuration says.
    fn apply_audit(&self, config: &Config) {
        let audit = &self.settings.observer.audit;
        let mut applied = self.audited.lock().unwrap_or_else(PoisonError::into_inner);
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
            Err(error) => self.log.warning(format_args!(
                "The audit log cannot be written: {}",
                system_reason(&error)
            )),
        }
    }

    fn apply_limits(&self, config: &Config) {
        let defaults = Defaults {
            all_channels: config.opens_channels,
        };
        self.settings.users.set_defaults(defaults);
        self.settings.denials.set_entries_max(config.denials_max);
        self.apply_audit(config);
        self.want_events(config);
        self.tracker.set_keys_max(config.tracked_keys_max);
        let threshold_ms = &self.settings.scripts.running.threshold_ms;
        threshold_ms.store(config.busy_reply_ms, Ordering::Relaxed);
        let refuses_all = &self.settings.scripts.running.refuses_all;
        refuses_all.store(config.busy_refuses_all, Ordering::Relaxed);
        self.settings
            .bulk_bytes_max
            .store(config.bulk_bytes_max, Ordering::Relaxed);
        let replies_bytes_max = limits::replies_bytes_max(&config.output_limits.normal);
        self.settings
            .replies_bytes_max
            .store(replies_bytes_max, Ordering::Relaxed);
        self.settings
            .compresses_dumps
            .store(config.compresses_dumps, Ordering::Relaxed);
        for ((threshold, ..), value) in Threshold::ALL.into_iter().zip(config.thresholds) {
            self.settings.thresholds.set(threshold, value);
        }
        self.settings.observer.set_thresholds(&config.noticed);
        let policy = policy_of(config.eviction_policy);
        self.settings.set_use_clock(match policy {
            Policy::AllKeysLfu | Policy::VolatileLfu => UseClock::Frequency,
            _ => UseClock::Recency,
        });
        let samples = u8::try_from(config.eviction_samples_count).unwrap_or(u8::MAX);
        self.store
            .set_memory_limit(config.memory_bytes_max, policy, samples);
        self.store.set_tenacity(config.eviction_tenacity);
        let moving = config.defragmentation.map(|own| {
            let percent = u64::from(own.idle_percent_min);
            (own.idle_bytes_min, percent)
        });
        self.store.set_moving(moving);
        self.store.set_lfu_tuning(LfuTuning {
            log_factor: u16::try_from(config.lfu_log_factor).unwrap_or(u16::MAX),
            decay_minutes: u16::try_from(config.lfu_decay_minutes).unwrap_or(u16::MAX),
        });
    }

    /// Says that so many bytes of data are being loaded. Until that [is over](Node::end_loading) clients
    /// get nothing that needs data.
    pub fn begin_loading(&self, total_bytes: u64) {
        self.env.begin_loading(total_bytes);
    }

    /// Says that all data is loaded.
    pub fn end_loading(&self) {
        self.env.end_loading();
    }

    /// Whether who connects is a user that has to say no password.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let default_user = self.settings.users.default_user();
        default_user.rules().needs_no_password()
    }

    /// Says how the workers are reached; called once, before they start.
    pub fn set_workers(&self, workers: Vec<WorkerLink>) {
        let workers: Arc<[WorkerLink]> = workers.into();
        self.exchange.set_workers(Arc::clone(&workers));
        self.tracker.set_workers(Arc::clone(&workers));
        let _already_set = self.workers.set(workers);
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> &[WorkerLink] {
        self.workers.get().map_or(&[], |workers| workers)
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
        let _already_set = self.aside_counters.set(counters);
    }

    /// Uses another log, or none, from now on, as the [owner of the log](persistence::log_owner) does. For tests with a
    /// log of their own.
    pub fn use_log(&self, log: Option<Arc<dyn Tail>>) {
        self.log_in_use.set(log, &self.env);
        self.broadcast(&Message::LogChanged);
    }

    /// The log in use is durable further than before, or a fault has begun or ended: lets workers see to
    /// what waits for that, and the operator know of the fault. For such a log.
    pub fn log_moved(&self) {
        self.log_in_use.look_for_fault(&self.env);
        self.wake_workers();
    }

    /// Has every worker look what it can go on with.
    pub(crate) fn wake_workers(&self) {
        for worker in self.workers() {
            worker.waker.wake();
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
        for client in self.clients.all() {
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

    /// Has a request run aside; whether there is anybody to do so.
    #[must_use]
    pub fn run_aside(&self, job: Job) -> bool {
        let jobs = self.jobs();
        jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Lets the thread that runs what takes long end.
    pub fn stop_aside(&self) {
        *self.jobs() = None;
    }

    fn jobs(&self) -> MutexGuard<'_, Option<Sender<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how the main thread is woken when the server stops; called once.
    pub fn set_main_waker(&self, waker: Waker) {
        let _already_set = self.main_waker.set(waker);
    }

    /// Asks all workers to stop; whether this call was the first to do so.
    pub fn stop(&self) -> bool {
        let first = !self.stopping.swap(true, Ordering::AcqRel);
        if first {
            self.replication.stop();
            self.broadcast(&Message::Stop);
            if let Some(waker) = self.main_waker.get() {
                waker.wake();
            }
        }
        first
    }

    /// Whether the server is going down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Milliseconds since it started.
    #[must_use]
    pub fn uptime_ms(&self) -> u64 {
        self.uptime_ms_at(self.clock.monotonic_ns())
    }

    /// Milliseconds from its start to a reading of the monotonic clock.
    #[must_use]
    pub fn uptime_ms_at(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.started_ns) / 1_000_000
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
        let engines = workers.chain([&self.aside_counters]);
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
        self.counted_before
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
        self.saving.reset_counters();
        self.rates.reset();
    }

    /// Whoever sends HTTP can fill the log with nothing but that: it is told once a minute at most.
    fn tell_of_browsers(&self, uptime_ms: u64) {
        if let Some((count, address)) = self.settings.observer.browsers.take_news(uptime_ms) {
            let requests = if count == 1 { "A request" } else { "Requests" };
            self.log.warning(format_args!(
                "{requests} of HTTP ({count} since this was told last) came to a port of this server, the                  last from {address}. The connection was closed, and nothing behind POST or Host: was run.                  A page in a browser may try to send commands here (cross protocol scripting)."
            ));
        }
    }

    /// systemd waits for as long as the loading goes on.
    fn tell_of_loading(&self, uptime_ms: u64) {
        let progress = self.env.loading.progress();
        if progress.goes_on {
            let (bytes, percent) = (progress.loaded_bytes, progress.percent());
            self.supervisor.loading(uptime_ms, bytes, percent);
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
        self.rates.sample(uptime_ms, sample);
        let held = self.store.held();
        self.rates.moving.note(uptime_ms, held.is_moving);
        self.rates.over_limit.note(uptime_ms, held.is_over_limit);
        self.tell_of_browsers(uptime_ms);
        self.tell_of_loading(uptime_ms);
        self.end_pause(now_unix_ms);
        self.look_at_save_points(now_unix_ms);
        self.replication.upkeep(self);
        self.note_peak();
        self.tell_held_bytes();
    }

    /// Tells the store what is held outside of it, which its limit counts.
    pub fn tell_held_bytes(&self) {
        let program_bytes = self.program_bytes.load(Ordering::Relaxed);
        let used_bytes = program_bytes + self.clients_held_bytes();
        // The log may have been opened with a higher limit: it is not to take all from the keys.
        let limit_bytes = self.config.current().memory_bytes_max;
        let log_bytes = self.log_memory_bytes().min(limit_bytes / LOG_PART_MAX);
        self.store.set_other_bytes(used_bytes + log_bytes);
        self.env.other_bytes.store(used_bytes, Ordering::Relaxed);
    }

    /// Bytes of the operation log's memory that do not count for `maxmemory`.
    pub fn uncounted_log_bytes(&self) -> u64 {
        match self.config.current().memory_bytes_max {
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
        let now_unix_ms = self.clock.now_unix_ms();
        let gate = &self.settings.gate;
        self.env
            .hold_removals_after(|| gate.pause(until_unix_ms, writes_only, now_unix_ms));
    }

    /// Lets them go on (CLIENT UNPAUSE).
    pub fn unpause_clients(&self) {
        let gate = &self.settings.gate;
        self.env.hold_removals_after(|| gate.unpause());
        self.broadcast(&Message::Resume);
    }

    /// Forgets a pause of clients that is over, so that commands need not ask for the time.
    pub fn end_pause(&self, now_unix_ms: u64) {
        let gate = &self.settings.gate;
        self.env.hold_removals_after(|| gate.end_pause(now_unix_ms));
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
        Arc::<Tracker>::clone(&self.tracker)
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
        buffers + limits::CLIENT_BYTES * (self.clients.len() as u64)
    }

    /// Remembers what the process held before the first client; called before the threads start, and once
    /// all of them run.
    pub fn note_startup_memory(&self) {
        let store_bytes = self.store.statistics().used_bytes;
        self.program_bytes.store(
            process::memory().private_bytes.saturating_sub(store_bytes),
            Ordering::Relaxed,
        );
        self.store_startup_bytes
            .store(store_bytes, Ordering::Relaxed);
    }

    /// Notes how much is held, if it is more than ever. Does not ask the system what is resident, which
    /// takes it a fraction of a millisecond.
    fn note_peak(&self) {
        let program = self.program_bytes.load(Ordering::Relaxed);
        let used = program + self.clients_held_bytes() + self.store.statistics().used_bytes;
        self.peak_bytes.fetch_max(used, Ordering::Relaxed);
    }

    /// What the server holds now.
    pub fn memory(&self) -> ServerMemory {
        let store = self.store.statistics();
        let program = self.program_bytes.load(Ordering::Relaxed);
        let clients = self.clients_held_bytes();
        let used = program + clients + store.used_bytes;
        let resident = process::memory().resident_bytes;
        let mapped = store.memory.index_bytes + store.memory.long_value_bytes;
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
            peak: self.peak_bytes.fetch_max(used, Ordering::Relaxed).max(used),
            startup: program + self.store_startup_bytes.load(Ordering::Relaxed),
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
