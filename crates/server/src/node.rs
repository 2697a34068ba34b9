//! One running server: everything that its workers share.
//!
//! `groups` has the fields, and `parts` what is added to them at start. `settings` and `changes`
//! put the configuration into force. `workers` and `jobs` reach other threads.

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

/// The state that the workers of one server share, in groups.
pub struct Node {
    /// What every part works with.
    pub core: Core,
    /// The connected clients, and what others need to know about them.
    pub sessions: Sessions,
    /// The threads that do the work.
    pub work: Work,
    /// Persistence.
    pub keeping: Keeping,
    /// The process.
    pub process: Process,
    /// Replication.
    pub replication: Replication,
    /// The decisions of the control group, if there is one.
    pub group: Arc<View>,
    /// Membership of the cluster.
    pub cluster_mode: ClusterMode,
    /// Hash slots that move to or from other nodes.
    pub migrations: Migrations,
    /// Membership of the control group.
    pub control: Control,
    /// Forwarding of requests that other nodes answer.
    pub forward: Forward,
}

impl Node {
    /// Makes a node over `store` that runs the commands of `table`, without clients.
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
        // The log has the reason; a server with another rank works as well.
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

    /// Whether a new client is a user without having to send a password.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let default_user = self.core.shared.access.users.default_user();
        default_user.rules().needs_no_password()
    }

    /// Records that `total_bytes` of data are being loaded. Until [`Node::end_loading`], requests
    /// that need data are refused.
    pub fn begin_loading(&self, total_bytes: u64) {
        self.core.env.begin_loading(total_bytes);
    }

    /// Records that all data is loaded.
    pub fn end_loading(&self) {
        self.core.env.end_loading();
    }

    /// Sets the waker that wakes the main thread when the server stops; called once.
    pub fn set_main_waker(&self, waker: Waker) {
        let _already_set = self.process.main_waker.set(waker);
    }

    /// Asks all workers to stop. Returns whether this call was the first.
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

    /// Whether the server is shutting down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.process.stopping.load(Ordering::Acquire)
    }

    /// Returns the milliseconds since the start.
    #[must_use]
    pub fn uptime_ms(&self) -> u64 {
        self.uptime_ms_at(self.core.clock.monotonic_ns())
    }

    /// Returns the milliseconds from the start to a reading of the monotonic clock.
    #[must_use]
    pub fn uptime_ms_at(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.process.started_ns) / 1_000_000
    }
}
