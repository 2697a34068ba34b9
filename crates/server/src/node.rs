//! One running server: everything its workers share.
//!
//! `groups` is what there is, and `parts` what comes to it at the start; `settings` and `changes` are how the configuration
//! is put into force, `workers` and `jobs` how others are reached.

mod changes;
mod counting;
mod delayed_flush;
mod events;
mod groups;
mod jobs;
mod memory;
mod parts;
mod pauses;
mod settings;
mod upkeep;
mod workers;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::clock::Clock;
use engine::Table;
use persistence::environment::Environment;
use reactor::Waker;
use store::Store;

use crate::cluster_mode::state::ClusterMode;
use crate::config::SharedConfig;
use crate::daemon::Supervisor;
use crate::forward::Forward;
use crate::group::holder::Control;
use crate::group::view::View;
use crate::identity;
use crate::link::Message;
use crate::log::Log;
use crate::migration::state::Migrations;
use crate::replication::state::Replication;
use crate::syslog::Syslog;

pub use groups::{Core, Keeping, Process, Sessions, Work};
pub(crate) use groups::{Describer, Managed};

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
        let syslog = current.syslog.clone().map(Syslog::without_waiting);
        let (syslog, fault) = match syslog.transpose() {
            Ok(syslog) => (syslog, None),
            Err(error) => (None, Some(error)),
        };
        let log = Log::new(current.log_level, current.log_file.clone()).with_syslog(syslog);
        let log = Arc::new(log);
        if let Some(error) = fault {
            log.warning(format_args!(
                "Nothing is sent to the machine's log: {error}"
            ));
        }
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

    /// Whether who connects is a user that has to say no password.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let default_user = self.core.shared.access.users.default_user();
        default_user.rules().needs_no_password()
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
}
