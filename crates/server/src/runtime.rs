//! Start and stop of a server: from a configuration to listeners and worker threads, and back.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use base::clock::Clock;
use protocol::ReplyBuffer;
use reactor::Waker;
use reactor::signals::{Signal, Signals, Wakening};
use reactor::workers::available_cores;
use reactor::{Balancer, Endpoint, EventLoop, Listener, Porter};
use store::Store;

use crate::aside::Aside;
use crate::banner;
use crate::cli::{StartError, Startup};
use crate::config::{Config, SharedConfig, system_reason};
use crate::daemon::{self, PidFile, Supervisor};
use crate::defragmenter::Around;
use crate::group::control;
use crate::keeping::kept;
use crate::link::WorkerLink;
use crate::listeners::{self, Listeners};
#[cfg(feature = "http")]
use crate::management;
use crate::node::Node;
use crate::sentinel;
use crate::worker::{Arena, Worker};
use crate::{allocator, identity, open_files, program_pages, statistics};
use persistence::recovery::Target;
use persistence::running::OpenError;

/// The reason why a server could not start.
#[derive(Debug)]
pub struct RunError {
    what: String,
    cause: io::Error,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, system_reason(&self.cause))
    }
}

impl std::error::Error for RunError {}

fn because<S: Into<String>>(what: S) -> impl FnOnce(io::Error) -> RunError {
    move |cause| RunError {
        what: what.into(),
        cause,
    }
}

/// The worker threads of a server.
pub struct Workers {
    node: Arc<Node>,
    balancer: Arc<Balancer>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    aside: Aside,
    defragmenter: Option<JoinHandle<()>>,
}

impl Workers {
    /// Starts the workers that the configuration asks for. They accept from `listeners`.
    ///
    /// # Errors
    /// The process may have no more descriptors or threads.
    pub fn start(node: Arc<Node>, listeners: Vec<Listener>) -> io::Result<Self> {
        let count = usize::from(node.core.config.current().threads_count.max(1));
        let balancer = Balancer::new(count)?;
        node.set_workers(
            (0..count)
                .map(|worker| WorkerLink::new(balancer.waker(worker)))
                .collect(),
        );
        let listeners: Arc<[Listener]> = listeners.into();
        if !listeners.is_empty() {
            node.set_listeners(Listeners::new(
                Arc::clone(&balancer),
                Arc::clone(&listeners),
            ));
        }
        node.forward.set_balancer(&balancer);
        node.process.tls.start(&balancer)?;
        node.replication.set_node(&node);
        node.set_describer(statistics::info);
        let aside = Aside::start(&node)?;
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let thread = spawn_worker(&node, index, &balancer, &listeners);
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    node.stop();
                    node.stop_aside();
                    return Err(error);
                }
            }
        }
        // Without it, memory returns later.
        let defragmenter = node.work.defragmenter.start(around(&node));
        let defragmenter = defragmenter.unwrap_or_default();
        Ok(Self {
            node,
            balancer,
            threads,
            aside,
            defragmenter,
        })
    }

    /// Returns the balancer that spreads connections over the workers.
    #[must_use]
    pub fn balancer(&self) -> &Arc<Balancer> {
        &self.balancer
    }

    /// Asks the workers to stop and waits for them.
    ///
    /// # Errors
    /// A worker's loop failed.
    pub fn stop(self) -> io::Result<()> {
        #[cfg(feature = "http")]
        management::close(&self.node);
        self.node.stop();
        self.node.core.shared.scripts.running.stop();
        self.node.process.tls.stop();
        let mut outcome = Ok(());
        for thread in self.threads {
            let ended = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("worker panicked")));
            outcome = outcome.and(ended);
        }
        self.node.work.defragmenter.stop();
        if let Some(thread) = self.defragmenter {
            let _panicked = thread.join();
        }
        self.node.stop_aside();
        self.aside.join();
        self.node.work.waiting.join();
        if let Some(tier) = self.node.tier() {
            tier.stop();
        }
        if let Some(persistence) = self.node.persistence() {
            persistence.stop();
        }
        outcome
    }
}

/// Returns the environment of the defragmenter.
fn around(node: &Node) -> Around {
    Around {
        store: Arc::clone(&node.core.store),
        background: Arc::clone(&node.work.background),
        clock: Arc::clone(&node.core.clock),
    }
}

#[allow(clippy::disallowed_methods, reason = "worker threads are made here")]
fn spawn_worker(
    node: &Arc<Node>,
    index: usize,
    balancer: &Arc<Balancer>,
    listeners: &Arc<[Listener]>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (node, balancer, listeners) = (
        Arc::clone(node),
        Arc::clone(balancer),
        Arc::clone(listeners),
    );
    std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            // If that is refused, a worker waits longer for its core beside computing threads.
            let _refused = reactor::workers::ask_for_short_slices();
            let worker = Worker::new(Arc::clone(&node), index);
            let output = Arena::new(ReplyBuffer::with_capacity(0));
            let options = reactor::Options {
                spin: spin(&node.core.config.current(), available_cores()),
                ..reactor::Options::default()
            };
            let event_loop =
                EventLoop::new(worker, output, &balancer, index, &listeners, &options)?;
            // Only the loops that accept from them keep them open.
            drop(listeners);
            let ended = event_loop.run().map(drop);
            // A worker that ends stops the server, because its sessions are gone.
            node.stop();
            ended
        })
}

/// Returns how long workers may spin: not at all unless a core is left for everything else, such as
/// clients on the same machine and the kernel's part of the network.
fn spin(config: &Config, cores_count: usize) -> Duration {
    if usize::from(config.threads_count) < cores_count {
        Duration::from_micros(config.busy_poll_us.into())
    } else {
        Duration::ZERO
    }
}

/// Runs a server until it is asked to stop.
#[must_use]
pub fn run(mut startup: Startup) -> ExitCode {
    let log = match startup.enter() {
        Ok(log) => log,
        Err(error) => {
            refuse(&error);
            return ExitCode::FAILURE;
        }
    };
    open_files::make_room(&mut startup.settings, &log);
    let config = Arc::new(SharedConfig::new(startup.settings, startup.origin));
    let current = config.current();
    identity::say_redis_version(&current.redis_version);
    if current.daemonize
        && !Supervisor::find(current.supervised).is_there()
        && let Err(error) = daemon::daemonize()
    {
        complain(&RunError {
            what: "cannot become a daemon".into(),
            cause: error,
        });
        return ExitCode::FAILURE;
    }
    allocator::installed().begin();
    match serve(&config, &current, &startup.remarks, startup.recover_to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.warning(format_args!("{error}"));
            if !log.is_on_standard_output() {
                complain(&error);
            }
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr, reason = "there is no log yet")]
fn refuse(error: &StartError) {
    eprintln!("{error}");
}

#[allow(
    clippy::print_stderr,
    reason = "the place of last resort for an operator"
)]
fn complain(error: &RunError) {
    eprintln!("iolite: {error}");
}

fn serve(
    config: &Arc<SharedConfig>,
    current: &Config,
    remarks: &[String],
    target: Target,
) -> Result<(), RunError> {
    let cannot_rename = |reason: String| RunError {
        what: "cannot rename commands".into(),
        cause: io::Error::other(reason),
    };
    let table = commands::table().renamed(&current.renamed_commands);
    let table = table.map_err(cannot_rename)?;
    let signals = Signals::install().map_err(because("cannot listen for signals"))?;
    let clock: Arc<dyn Clock> = crate::planted::clock();
    let store = new_store(current).map_err(because("cannot reserve memory"))?;
    let node = Arc::new(Node::new(table, store, Arc::clone(config), clock));
    node.set_main_waker(signals.waker());
    let cannot_load_users = |reason: String| RunError {
        what: "cannot load the users".into(),
        cause: io::Error::other(reason),
    };
    node.load_users_at_start(current)
        .map_err(cannot_load_users)?;
    node.process.supervisor.introduce(&node.core.log);
    for remark in remarks {
        node.core.log.notice(format_args!("{remark}"));
    }
    let pid_file = write_pid_file(&node, current);
    let listeners = open_listeners(&node, current)?;
    let endpoints: Vec<Endpoint> = listeners.iter().map(|one| one.local().clone()).collect();
    let cannot_load = |error: OpenError| RunError {
        what: "cannot load the data".into(),
        cause: io::Error::other(error),
    };
    node.open_tier().map_err(because("cannot open the tier"))?;
    let persistence = kept::open(&node, target).map_err(cannot_load)?;
    if persistence.has_to_load(&kept::wanted(current)) {
        // Clients that connect meanwhile get the loading error.
        node.begin_loading(0);
    }
    node.set_persistence(persistence);
    let member = know_others(&node).map_err(because("cannot take part with others"))?;
    // Called once more below, with the threads' memory: a thread may serve a request before all
    // run.
    node.note_startup_memory();
    let workers = start_workers(&node, listeners)?;
    let came_meanwhile = match load(&node, &signals) {
        Loading::Done(came_meanwhile) => came_meanwhile,
        Loading::Failed(error) => {
            let _ended = workers.stop();
            return Err(cannot_load(error));
        }
        Loading::Stopped => stop_while_loading(&node, pid_file),
    };
    begin_replication(&node, member).map_err(because("cannot take part in the control group"))?;
    sentinel::open(&node).map_err(because("cannot answer clients of Sentinels"))?;
    let_go_of_the_start();
    announce(&node, current, &endpoints);
    wait(&node, &signals, came_meanwhile);
    node.process.supervisor.stopping();
    let ended = workers.stop().map_err(because("a worker failed"));
    if let Some(persistence) = node.persistence() {
        persistence.log().end();
    }
    drop(pid_file);
    node.core
        .log
        .warning(format_args!("Iolite is now ready to exit, bye bye..."));
    ended
}

/// Returns memory to the system that only the start needed.
fn let_go_of_the_start() {
    allocator::recall();
    allocator::settle();
    program_pages::let_go();
}

/// Finds out whether this node belongs to a cluster or a control group, before any client gets an
/// answer as from a node that does not.
fn know_others(node: &Node) -> io::Result<Option<control::Known>> {
    let known = control::look(node)?;
    let member = known.as_ref().and_then(control::Known::member);
    node.cluster_mode.begin(node, member)?;
    Ok(known)
}

/// Starts replication, as the configuration or the control group says.
fn begin_replication(node: &Arc<Node>, member: Option<control::Known>) -> io::Result<()> {
    let part = member.map(|known| control::prepare(node, known));
    let part = part.transpose()?;
    let level = node.core.config.current().durability.level;
    if let Some(reason) = node.refuses_level(level) {
        return Err(io::Error::other(format!("durability: {reason}")));
    }
    node.replication.begin(node);
    part.map_or(Ok(()), |part| control::begin(&part, node))
}

/// Makes an empty keyspace, as the configuration asks for it.
fn new_store(config: &Config) -> io::Result<Arc<Store>> {
    let databases = match config.cluster.is_on {
        true => config.cluster.databases_count,
        false => config.databases_count,
    };
    let store = Store::new(&store::Options {
        databases: u16::try_from(databases).unwrap_or(u16::MAX),
    })?;
    store.set_at_rest_of_lazy_free(allocator::settle);
    if config.cluster.is_on {
        store.count_hash_slots();
    }
    Ok(store)
}

/// Starts the workers, and opens what needs them.
fn start_workers(node: &Arc<Node>, listeners: Vec<Listener>) -> Result<Workers, RunError> {
    #[cfg(feature = "http")]
    management::keep_spans(node);
    let started = Workers::start(Arc::clone(node), listeners);
    let workers = started.map_err(because("cannot start worker threads"))?;
    node.note_startup_memory();
    #[cfg(feature = "http")]
    let workers = open_management(node, workers)?;
    Ok(workers)
}

/// Opens the management port, or stops the workers again.
#[cfg(feature = "http")]
fn open_management(node: &Arc<Node>, workers: Workers) -> Result<Workers, RunError> {
    match management::open(node, workers.balancer()) {
        Ok(()) => Ok(workers),
        Err(cause) => {
            let _ended = workers.stop();
            let port = node.core.config.current().http.port;
            Err(RunError {
                what: format!("cannot listen on the management port {port}"),
                cause,
            })
        }
    }
}

fn write_pid_file(node: &Node, config: &Config) -> Option<PidFile> {
    let pid_file = config.pid_file.as_deref().map(PidFile::write).transpose();
    pid_file.unwrap_or_else(|error| {
        node.core
            .log
            .warning(format_args!("Failed to write PID file: {error}"));
        None
    })
}

/// Ends the process during the loading: nothing was acknowledged, and the files are valid as after
/// a crash.
fn stop_while_loading(node: &Node, pid_file: Option<PidFile>) -> ! {
    drop(pid_file);
    node.core
        .log
        .warning(format_args!("Stopped while loading, exiting now."));
    std::process::exit(0)
}

/// How the loading ended.
enum Loading {
    /// Everything is loaded. A signal that arrived after clients were served already must still be
    /// handled.
    Done(Option<Signal>),
    Failed(OpenError),
    /// A stop was requested, which may be long before the end.
    Stopped,
}

impl Loading {
    fn ended(outcome: Result<(), OpenError>, signal: Option<Signal>) -> Self {
        match outcome {
            Ok(()) => Self::Done(signal),
            Err(error) => Self::Failed(error),
        }
    }
}

/// Loads the data.
fn load(node: &Arc<Node>, signals: &Signals) -> Loading {
    let load = |node: &Arc<Node>| {
        let wanted = kept::wanted(&node.core.config.current());
        node.persistence().map_or(Ok(()), |it| it.load(&wanted))
    };
    if !node.core.shared.refusals.is_loading() {
        return Loading::ended(load(node), None);
    }
    let (sender, loaded) = sync_channel(1);
    let (own, waker) = (Arc::clone(node), signals.waker());
    let load = move || {
        // Dropped after the sender, also at a panic.
        let _ring = RingAtEnd(waker);
        let sender = sender;
        // There is no receiver if the server stops.
        let _sent = sender.send(load(&own));
    };
    if let Err(error) = spawn_loader(load) {
        return Loading::Failed(OpenError::Thread(error));
    }
    let failed = || OpenError::Thread(io::Error::other("the loading thread failed"));
    loop {
        let signal = match signals.wait() {
            Ok(Wakening::Woken) => None,
            Ok(Wakening::Signal(signal)) => Some(signal),
            Err(_) => return Loading::Stopped,
        };
        let is_asked_to_stop = signal.is_some() || node.is_stopping();
        if is_asked_to_stop && node.core.shared.refusals.is_loading() {
            node.process.supervisor.stopping();
            return Loading::Stopped;
        }
        if is_asked_to_stop {
            // Clients are served before the thread has ended: what they were acknowledged must be
            // kept.
            let outcome = loaded.recv().unwrap_or_else(|_| Err(failed()));
            return Loading::ended(outcome, signal);
        }
        match loaded.try_recv() {
            Ok(outcome) => return Loading::ended(outcome, None),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Loading::Failed(failed()),
        }
    }
}

/// Wakes a thread when it is dropped.
struct RingAtEnd(Waker);

impl Drop for RingAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a thread that ends with the start"
)]
fn spawn_loader(load: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("loader".into())
        .spawn(load)
}

/// Opens the sockets that the configuration names, plain and encrypted ones.
fn open_listeners(node: &Arc<Node>, config: &Config) -> Result<Vec<Listener>, RunError> {
    let porter = open_tls(node, config)?;
    listeners::open(config, porter.as_ref()).map_err(|fault| RunError {
        what: fault.what,
        cause: fault.cause,
    })
}

/// Reads the files for encrypted connections, if there are any.
fn open_tls(node: &Arc<Node>, config: &Config) -> Result<Option<Arc<dyn Porter>>, RunError> {
    node.process.tls.join(node);
    let prepared = node.process.tls.prepare(&node.core.clock, &config.tls);
    let prepared = prepared.map_err(|error| RunError {
        what: "Failed to configure TLS".into(),
        cause: io::Error::other(error),
    })?;
    let enforced = node.process.tls.enforce(prepared);
    enforced.map_err(because("cannot make handshakes"))
}

fn announce(node: &Node, config: &Config, endpoints: &[Endpoint]) {
    banner::show(node, config, endpoints);
    node.core.log.notice(format_args!(
        "Iolite version={} (Redis {} commands), bits={}, pid={}, just started",
        identity::IOLITE_VERSION,
        identity::redis_version(),
        usize::BITS,
        std::process::id()
    ));
    banner::log(node, endpoints);
    let has = |tcp: bool| {
        endpoints
            .iter()
            .any(|endpoint| matches!(endpoint, Endpoint::Tcp(_)) == tcp)
    };
    for (is_there, kind) in [(has(true), "tcp"), (has(false), "unix")] {
        if is_there {
            node.core
                .log
                .notice(format_args!("Ready to accept connections {kind}"));
        }
    }
    node.process.supervisor.ready();
}

/// Sleeps until a signal, possibly an earlier one, or a command asks the server to stop.
fn wait(node: &Node, signals: &Signals, came_before: Option<Signal>) {
    if came_before.is_some_and(|signal| heed(node, signal)) {
        return;
    }
    while !node.is_stopping() {
        match signals.wait() {
            Ok(Wakening::Signal(signal)) if heed(node, signal) => return,
            Ok(_) => {}
            Err(error) => {
                node.core
                    .log
                    .warning(format_args!("Cannot wait for signals: {error}"));
                return;
            }
        }
    }
}

/// Shuts down as a signal asks for. Returns whether that succeeded.
fn heed(node: &Node, signal: Signal) -> bool {
    let durability = &node.core.config.current().durability;
    let (name, request) = match signal {
        Signal::Terminate => ("SIGTERM", durability.at_terminate),
        Signal::Interrupt => ("SIGINT", durability.at_interrupt),
    };
    node.core
        .log
        .warning(format_args!("Received {name} scheduling shutdown..."));
    let is_done = node.shut_down(request).is_ok();
    if !is_done {
        node.core.log.warning(format_args!(
            "{name} received but errors trying to shut down the server, check the logs for more \
             information"
        ));
    }
    is_done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn workers_spin_only_where_a_core_is_left() {
        let with = |threads_count, busy_poll_us| Config {
            threads_count,
            busy_poll_us,
            ..Settings::default().config()
        };
        assert_eq!(spin(&with(1, 50), 2), Duration::from_micros(50));
        assert_eq!(spin(&with(2, 50), 2), Duration::ZERO);
        assert_eq!(spin(&with(3, 50), 2), Duration::ZERO);
        assert_eq!(spin(&with(1, 0), 2), Duration::ZERO);
    }

    #[test]
    fn there_are_as_many_workers_as_cores_by_default() {
        let config = Settings::default().config();
        assert_eq!(usize::from(config.threads_count), available_cores());
        assert_eq!(spin(&config, available_cores()), Duration::ZERO);
    }
}
