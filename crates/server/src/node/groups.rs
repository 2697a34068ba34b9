//! The groups of fields of a [`super::Node`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};

use base::background::Scheduler;
use base::clock::Clock;
use base::random::Prng;
use engine::{Counts, EngineCounters, Latencies, Shared, Waiters};
use persistence::environment::Environment;
use persistence::log_in_use::LogInUse;
use persistence::running::Persistence;
use reactor::Waker;
use store::Store;

use crate::announcer::Channels;
use crate::client_cache::ClientCache;
use crate::clients::Clients;
use crate::config::{AuditConfig, Config, SharedConfig};
use crate::counters::{Rates, Sums};
use crate::daemon::Supervisor;
use crate::defragmenter::Defragmenter;
use crate::job::Job;
use crate::keeping::records::Saving;
use crate::link::WorkerLink;
use crate::listeners::Listeners;
use crate::log::Log;
use crate::oom_score::OomRank;
use crate::pubsub::PubSub;
use crate::tier::TierInUse;
use crate::tls::TlsSetup;
use crate::waiting_threads::WaitingThreads;

/// What every part works with.
pub struct Core {
    /// The keyspace.
    pub store: Arc<Store>,
    /// State that the engines share.
    pub shared: Arc<Shared>,
    /// Directives.
    pub config: Arc<SharedConfig>,
    /// The server log.
    pub log: Arc<Log>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The environment for loading and writing data.
    pub env: Arc<Environment>,
}

/// The connected clients, and what others need to know about them.
#[derive(Default)]
pub struct Sessions {
    /// The connected clients.
    pub clients: Clients,
    /// The clients that are notified of changes, per key.
    pub client_cache: Arc<ClientCache>,
    /// The subscriptions.
    pub pubsub: Arc<PubSub>,
    /// The clients that wait for keys.
    pub waiters: Arc<Waiters>,
    /// The channels that keyspace events are published to.
    pub(crate) event_channels: Arc<Channels>,
    /// Held while the wanted events are determined.
    pub(super) wanting: Mutex<()>,
}

/// The threads that do the work, and how much they did.
pub struct Work {
    pub(super) workers: OnceLock<Arc<[WorkerLink]>>,
    /// Channel to the thread that runs offloaded requests.
    pub(super) jobs: Mutex<Option<Sender<Job>>>,
    pub(super) aside_counters: OnceLock<Arc<EngineCounters>>,
    /// Threads on which requests wait for other nodes.
    pub(crate) waiting: WaitingThreads,
    /// Scheduler between workers and background work.
    pub background: Arc<Scheduler>,
    /// The thread that compacts parts of collections.
    pub(crate) defragmenter: Arc<Defragmenter>,
    /// Rates of the recent past.
    pub rates: Rates,
    /// Counts at the last CONFIG RESETSTAT.
    pub(super) counted_before: Mutex<(Counts, Sums, Latencies)>,
}

impl Work {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            workers: OnceLock::new(),
            jobs: Mutex::default(),
            aside_counters: OnceLock::new(),
            waiting: WaitingThreads::default(),
            background: Arc::new(Scheduler::of_machine(Arc::clone(clock))),
            defragmenter: Arc::default(),
            rates: Rates::default(),
            counted_before: Mutex::default(),
        }
    }
}

/// Persistence.
#[derive(Default)]
pub struct Keeping {
    /// The log that effects are appended to, while there is one.
    pub log_in_use: Arc<LogInUse>,
    /// State of the checkpoints.
    pub saving: Saving,
    pub(super) persistence: OnceLock<Persistence>,
    /// The tier of cold values.
    pub(super) tier: OnceLock<Arc<TierInUse>>,
    /// Whether the log is a log-only copy: none of its data is in the store.
    pub(crate) log_alone: AtomicBool,
}

impl Keeping {
    /// Whether this node keeps the log of a shard and none of its data. Then the store's contents
    /// must not be shown, sent or saved as a checkpoint.
    #[must_use]
    pub fn keeps_log_alone(&self) -> bool {
        self.log_alone.load(Ordering::Acquire)
    }
}

/// Writes the requested sections of INFO. A function pointer, because the node does not know the
/// table of statistics, which reads all of the node.
pub(crate) type Describer = fn(&super::Node, &mut store::Handle, &[String]) -> String;

/// The management port, while it is open.
pub(crate) trait Managed: Send {
    /// Applies the present configuration.
    fn change(&self, shared: &Shared, config: &Config);
}

/// The process: its identity, listeners, memory and end.
pub struct Process {
    /// Identity of this run: 40 hexadecimal digits.
    pub run_id: String,
    /// Time of the start.
    pub started_unix_ms: u64,
    pub(super) started_ns: u64,
    /// The process manager that waits until this process is ready.
    pub supervisor: Supervisor,
    /// The listeners for clients.
    pub(super) listeners: OnceLock<Listeners>,
    /// TLS setup.
    pub tls: TlsSetup,
    /// Memory at start beside the store: modified code, stacks, heap.
    pub(super) program_bytes: AtomicU64,
    pub(super) store_startup_bytes: AtomicU64,
    pub(super) peak_bytes: AtomicU64,
    pub(super) stopping: AtomicBool,
    pub(super) main_waker: OnceLock<Waker>,
    pub(super) oom_rank: OomRank,
    /// The writer of INFO.
    pub(super) describer: OnceLock<Describer>,
    /// The management port.
    pub(crate) management: Mutex<Option<Box<dyn Managed>>>,
    /// The configuration that the audit log runs with.
    pub(super) audited: Mutex<Option<AuditConfig>>,
}

impl Process {
    pub(super) fn new(clock: &Arc<dyn Clock>, supervisor: Supervisor) -> Self {
        Self {
            run_id: Prng::from_os().hex_id(),
            started_unix_ms: clock.now_unix_ms(),
            started_ns: clock.monotonic_ns(),
            supervisor,
            listeners: OnceLock::new(),
            tls: TlsSetup::default(),
            program_bytes: AtomicU64::new(0),
            store_startup_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            main_waker: OnceLock::new(),
            oom_rank: OomRank::default(),
            describer: OnceLock::new(),
            management: Mutex::default(),
            audited: Mutex::default(),
        }
    }
}
