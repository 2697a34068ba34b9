//! The five groups of what a [`super::Node`] has.

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

/// What everything works with.
pub struct Core {
    /// The keyspace.
    pub store: Arc<Store>,
    /// What the engines have in common.
    pub shared: Arc<Shared>,
    /// Directives.
    pub config: Arc<SharedConfig>,
    /// Where lines for the operator go.
    pub log: Arc<Log>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What loading and writing data works in.
    pub env: Arc<Environment>,
}

/// Who is connected, and what of them others have to know.
#[derive(Default)]
pub struct Sessions {
    /// Who is connected.
    pub clients: Clients,
    /// Who is told of changes of which keys.
    pub client_cache: Arc<ClientCache>,
    /// Who is subscribed to what.
    pub pubsub: Arc<PubSub>,
    /// Those of them that wait for keys.
    pub waiters: Arc<Waiters>,
    /// To which channels events go.
    pub(crate) event_channels: Arc<Channels>,
    /// Held while it is found out which events are wanted.
    pub(super) wanting: Mutex<()>,
}

/// Who does the work, and how much.
pub struct Work {
    pub(super) workers: OnceLock<Arc<[WorkerLink]>>,
    /// How requests reach the thread that runs what takes long.
    pub(super) jobs: Mutex<Option<Sender<Job>>>,
    pub(super) aside_counters: OnceLock<Arc<EngineCounters>>,
    /// Where requests wait for other nodes.
    pub(crate) waiting: WaitingThreads,
    /// Between workers and those who save in the background.
    pub background: Arc<Scheduler>,
    /// Who moves pieces of collections together.
    pub(crate) defragmenter: Arc<Defragmenter>,
    /// Rates of the last moments.
    pub rates: Rates,
    /// What was counted up to the last CONFIG RESETSTAT.
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

/// What is kept.
#[derive(Default)]
pub struct Keeping {
    /// The log that effects go to, while there is one.
    pub log_in_use: Arc<LogInUse>,
    /// What is known of checkpoints.
    pub saving: Saving,
    pub(super) persistence: OnceLock<Persistence>,
    /// What keeps values out of memory.
    pub(super) tier: OnceLock<Arc<TierInUse>>,
    /// The log that is kept is a log alone: nothing of it is in the store.
    pub(crate) log_alone: AtomicBool,
}

impl Keeping {
    /// Whether this node keeps the log of a shard and none of its data: what it has in memory is nothing that anybody may be shown,
    /// given or make a checkpoint of.
    #[must_use]
    pub fn keeps_log_alone(&self) -> bool {
        self.log_alone.load(Ordering::Acquire)
    }
}

/// What writes the sections of INFO that are asked for. The node does not know the table of statistics, which reads all of
/// it.
pub(crate) type Describer = fn(&super::Node, &mut store::Handle, &[String]) -> String;

/// The management port, while it is open.
pub(crate) trait Managed: Send {
    /// Goes on as the configuration says now.
    fn change(&self, shared: &Shared, config: &Config);
}

/// The process: who it is, where it listens, what it holds, and how it ends.
pub struct Process {
    /// Identity of this run: 40 hexadecimal digits.
    pub run_id: String,
    /// When it started.
    pub started_unix_ms: u64,
    pub(super) started_ns: u64,
    /// Who waits for this process to be ready.
    pub supervisor: Supervisor,
    /// Where clients come in.
    pub(super) listeners: OnceLock<Listeners>,
    /// Encrypted connections.
    pub tls: TlsSetup,
    /// What it took at its start beside the store: code that was changed, stacks, heap.
    pub(super) program_bytes: AtomicU64,
    pub(super) store_startup_bytes: AtomicU64,
    pub(super) peak_bytes: AtomicU64,
    pub(super) stopping: AtomicBool,
    pub(super) main_waker: OnceLock<Waker>,
    pub(super) oom_rank: OomRank,
    /// What writes INFO.
    pub(super) describer: OnceLock<Describer>,
    /// The management port.
    pub(crate) management: Mutex<Option<Box<dyn Managed>>>,
    /// What the audit log is written by.
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
