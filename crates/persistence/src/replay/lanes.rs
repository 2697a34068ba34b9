//! Replays with several threads: the keyspace is split into parts, with a lane for each.
//!
//! ```text
//!   commands ──► feed: name, key, hash ──► lane 0: packages of commands ──► a Replayer
//!                │                    └──► lane 1: …
//!                └─ of several lanes' keys, or of none: when all lanes are idle, here
//! ```
//!
//! One thread applies the commands about a key, in their order. Commands about keys of other lanes
//! may be applied sooner or later, which cannot be observed afterwards. The key alone determines
//! the lane, whatever the database, so that a command which moves a key to another database stays
//! in it.
//!
//! Memory is bounded: packages have about [`PACKAGE_BYTES`], or one longer command, and few of them
//! wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use durability::log::Parts;
use engine::{Flags, Found, Shared, Table};
use store::{DatabaseId, Store};

use super::{Origin, ReplayFault, Replayed, Replayer};

/// Length at which a package is handed over.
const PACKAGE_BYTES: usize = 64 * 1024;
/// Maximum number of waiting packages per lane.
const PACKAGES_WAITING: usize = 4;
/// Number of commands behind one without a lane that are also applied without lanes. Waiting until
/// all lanes are idle costs as much as some dozen commands; where such commands are frequent, lanes
/// do not pay off.
const ALONE_COUNT: usize = 256;

/// Minimum number of threads for lanes: with fewer, sorting commands and waiting for each other
/// costs what a second core could do.
const THREADS_MIN: usize = 3;

/// Applies the commands that `read` feeds, on `threads` threads including the calling one, which
/// reads; on the calling one alone if there are fewer than three. Returns the result of `read`, and
/// what was applied.
///
/// # Errors
/// The error of `read`, or else the first [`ReplayFault`] found; then the store holds some of what
/// was fed.
pub fn replay_in_parallel<R, E: From<ReplayFault>>(
    table: &'static Table,
    store: &Arc<Store>,
    like: &Shared,
    origin: Origin,
    threads: usize,
    read: impl FnOnce(&mut Feed) -> Result<R, E>,
) -> Result<(R, Replayed), E> {
    let desk = Arc::new(Desk::default());
    thread::scope(|scope| {
        let mut feed = Feed {
            table,
            own: Replayer::new(table, store, like, origin),
            lanes: Vec::new(),
            desk: Arc::clone(&desk),
            is_own_turn: true,
            alone_left: 0,
        };
        let lanes = if threads < THREADS_MIN {
            0
        } else {
            threads - 1
        };
        for number in 0..lanes {
            let (sender, packages) = sync_channel(PACKAGES_WAITING);
            let replayer = Replayer::new(table, store, like, origin);
            let desk = Arc::clone(&desk);
            let spawned = thread::Builder::new()
                .name(format!("replay-{number}"))
                .spawn_scoped(scope, move || work(replayer, &packages, &desk));
            // Fewer lanes do the same work.
            if spawned.is_ok() {
                feed.lanes.push(Lane {
                    sender,
                    package: Package::default(),
                });
            }
        }
        let answer = read(&mut feed)?;
        let replayed = feed.finish()?;
        Ok((answer, replayed))
    })
}

/// Takes commands and passes them to the lanes.
pub struct Feed {
    table: &'static Table,
    own: Replayer,
    lanes: Vec<Lane>,
    desk: Arc<Desk>,
    /// Whether all lanes are idle, and commands may wait in the feed's own replayer; otherwise none
    /// do.
    is_own_turn: bool,
    /// Number of commands that are still to be applied without lanes.
    alone_left: usize,
}

struct Lane {
    sender: SyncSender<Package>,
    package: Package,
}

/// A command in its original form.
#[derive(Clone, Copy)]
enum Form<'a> {
    /// As a client sends it.
    Request(&'a [u8]),
    /// As it is in the log.
    Parts(Parts<'a>),
}

/// Commands for one lane.
#[derive(Default)]
struct Package {
    /// Requests, or effects: the number of parts in 8 bytes and the parts as in the log.
    bytes: Vec<u8>,
    positions: Vec<u64>,
    runs: Vec<PackageRun>,
}

/// Commands about one database in the same form.
#[derive(Clone, Copy)]
struct PackageRun {
    database: DatabaseId,
    are_parts: bool,
    /// Their end in the package's bytes, and in its positions.
    bytes_end: usize,
    count_end: usize,
}

/// State shared by the lanes and the feed.
#[derive(Default)]
struct Desk {
    /// Number of packages that were handed over and not applied yet.
    under_way: Mutex<usize>,
    is_idle: Condvar,
    has_fault: AtomicBool,
    fault: Mutex<Option<ReplayFault>>,
    done: Mutex<Replayed>,
}

impl Feed {
    /// Takes a command, like [`Replayer::command`].
    ///
    /// # Errors
    /// The first known fault, of this command or an earlier one. Then nothing more may be fed.
    pub fn command(
        &mut self,
        position: u64,
        database: DatabaseId,
        request: &[u8],
    ) -> Result<(), ReplayFault> {
        self.take(position, database, Form::Request(request))
    }

    /// Takes an effect in the form of the log.
    ///
    /// # Errors
    /// As [`Feed::command`].
    pub fn effect(
        &mut self,
        position: u64,
        database: DatabaseId,
        parts: Parts<'_>,
    ) -> Result<(), ReplayFault> {
        self.take(position, database, Form::Parts(parts))
    }

    fn take(
        &mut self,
        position: u64,
        database: DatabaseId,
        form: Form<'_>,
    ) -> Result<(), ReplayFault> {
        if self.lanes.is_empty() {
            return self.take_alone(position, database, form);
        }
        match self.lane_of(form) {
            Some(at) if self.alone_left == 0 => self.hand(at, position, database, form),
            Some(_) => {
                self.alone_left -= 1;
                self.take_alone(position, database, form)
            }
            None if self.is_message(form) => Ok(()),
            None => {
                self.wait_for_lanes(position)?;
                self.alone_left = ALONE_COUNT;
                self.take_alone(position, database, form)
            }
        }
    }

    fn take_alone(
        &mut self,
        position: u64,
        database: DatabaseId,
        form: Form<'_>,
    ) -> Result<(), ReplayFault> {
        match form {
            Form::Request(request) => self.own.command(position, database, request),
            Form::Parts(parts) => self.own.effect(position, database, parts),
        }
    }

    /// Waits until all commands so far are applied.
    ///
    /// # Errors
    /// As [`Feed::command`].
    pub fn settle(&mut self) -> Result<(), ReplayFault> {
        self.wait_for_lanes(u64::MAX)?;
        self.own.flush().map(|_| ())
    }

    fn finish(mut self) -> Result<Replayed, ReplayFault> {
        self.settle()?;
        drop(self.lanes);
        let others = std::mem::take(&mut *lock(&self.desk.done));
        Ok(self.own.finish()?.and(others))
    }

    /// Returns the lane of all keys of a command, if they share one and the command touches nothing
    /// else.
    fn lane_of(&mut self, form: Form<'_>) -> Option<usize> {
        match form {
            Form::Request(request) => {
                let arguments = Arguments::new(request)?;
                self.lane_of_arguments(arguments.count, arguments)
            }
            Form::Parts(parts) => self.lane_of_arguments(parts.len(), parts),
        }
    }

    fn lane_of_arguments<'a>(
        &mut self,
        count: usize,
        mut arguments: impl Iterator<Item = &'a [u8]>,
    ) -> Option<usize> {
        let found: &Found = self.table.original().find(arguments.next()?)?;
        let mut keys = found.fixed_keys(count)?;
        let first = keys.next()?;
        let key = arguments.nth(first - 1)?;
        let lane = self.lane_of_key(key);
        let mut at = first;
        for more in keys {
            let key = arguments.nth(more - at - 1)?;
            if self.lane_of_key(key) != lane {
                return None;
            }
            at = more;
        }
        Some(lane)
    }

    /// Whether it publishes a message, which changes nothing: its subscribers received it when it
    /// first ran.
    fn is_message(&self, form: Form<'_>) -> bool {
        let Form::Parts(mut parts) = form else {
            return false;
        };
        let name = parts.next().unwrap_or_default();
        let found: Option<&Found> = self.table.original().find(name);
        found.is_some_and(|found| found.spec.flags.has(Flags::PUBSUB))
    }

    fn lane_of_key(&mut self, key: &[u8]) -> usize {
        let hash = self.own.engine.store().hash(key) >> 32;
        let lanes = self.lanes.len() as u64;
        usize::try_from((hash * lanes) >> 32).unwrap_or(0)
    }

    fn hand(
        &mut self,
        at: usize,
        position: u64,
        database: DatabaseId,
        form: Form<'_>,
    ) -> Result<(), ReplayFault> {
        if self.is_own_turn {
            self.own.flush()?;
            self.is_own_turn = false;
        }
        let lane = &mut self.lanes[at];
        lane.package.add(position, database, form);
        if lane.package.bytes.len() < PACKAGE_BYTES {
            return Ok(());
        }
        lane.send(&self.desk);
        self.desk.check()
    }

    /// Waits until the lanes have applied everything handed to them.
    fn wait_for_lanes(&mut self, position: u64) -> Result<(), ReplayFault> {
        if self.is_own_turn {
            return Ok(());
        }
        for lane in &mut self.lanes {
            if !lane.package.positions.is_empty() {
                lane.send(&self.desk);
            }
        }
        self.desk.wait();
        self.is_own_turn = true;
        self.desk.check()?;
        // Commands that a lane never got are lost.
        let is_lost = self
            .lanes
            .iter()
            .any(|lane| !lane.package.positions.is_empty());
        if is_lost {
            return Err(ReplayFault::Stopped { position });
        }
        Ok(())
    }
}

impl Lane {
    fn send(&mut self, desk: &Desk) {
        *lock(&desk.under_way) += 1;
        let package = std::mem::take(&mut self.package);
        if let Err(error) = self.sender.send(package) {
            let position = error.0.positions.first().copied();
            desk.end_package();
            desk.tell(ReplayFault::Stopped {
                position: position.unwrap_or(0),
            });
        }
    }
}

impl Package {
    fn add(&mut self, position: u64, database: DatabaseId, form: Form<'_>) {
        if self.bytes.is_empty() {
            self.bytes.reserve(PACKAGE_BYTES);
        }
        let are_parts = match form {
            Form::Request(request) => {
                self.bytes.extend_from_slice(request);
                false
            }
            Form::Parts(parts) => {
                self.bytes.extend_from_slice(&parts.len().to_le_bytes());
                parts.copy_to(&mut self.bytes, |_, _| {});
                true
            }
        };
        self.positions.push(position);
        let run = PackageRun {
            database,
            are_parts,
            bytes_end: self.bytes.len(),
            count_end: self.positions.len(),
        };
        match self.runs.last_mut() {
            Some(last) if (last.database, last.are_parts) == (database, are_parts) => *last = run,
            _ => self.runs.push(run),
        }
    }

    fn apply(&self, replayer: &mut Replayer) -> Result<(), ReplayFault> {
        let (mut bytes, mut count) = (0, 0);
        for run in &self.runs {
            let commands = &self.bytes[bytes..run.bytes_end];
            let positions = &self.positions[count..run.count_end];
            if run.are_parts {
                apply_effects(replayer, run.database, commands, positions)?;
            } else {
                replayer.batch(run.database, commands, &mut positions.to_vec())?;
            }
            (bytes, count) = (run.bytes_end, run.count_end);
        }
        replayer.flush().map(|_| ())
    }
}

/// Applies the effects of a package.
fn apply_effects(
    replayer: &mut Replayer,
    database: DatabaseId,
    mut effects: &[u8],
    positions: &[u64],
) -> Result<(), ReplayFault> {
    for &position in positions {
        let malformed = ReplayFault::Malformed { position };
        let Some((count, rest)) = effects.split_first_chunk() else {
            return Err(malformed);
        };
        let parts = Parts::of_copy(usize::from_le_bytes(*count), rest);
        replayer.effect(position, database, parts)?;
        effects = parts.behind().ok_or(malformed)?;
    }
    Ok(())
}

impl Desk {
    fn tell(&self, fault: ReplayFault) {
        let mut first = lock(&self.fault);
        let is_before = |known: &ReplayFault| known.position() <= fault.position();
        if !first.as_ref().is_some_and(is_before) {
            *first = Some(fault);
        }
        self.has_fault.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<(), ReplayFault> {
        if !self.has_fault.load(Ordering::Acquire) {
            return Ok(());
        }
        lock(&self.fault).clone().map_or(Ok(()), Err)
    }

    fn end_package(&self) {
        let mut under_way = lock(&self.under_way);
        *under_way -= 1;
        if *under_way == 0 {
            self.is_idle.notify_all();
        }
    }

    fn wait(&self) {
        let mut under_way = lock(&self.under_way);
        while *under_way > 0 {
            let waited = self.is_idle.wait(under_way);
            under_way = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Marks one package as applied when dropped, whatever the outcome.
struct Applying<'a> {
    desk: &'a Desk,
    position: u64,
}

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let position = self.position;
            self.desk.tell(ReplayFault::Stopped { position });
        }
        self.desk.end_package();
    }
}

/// Runs a lane. After a fault it skips all packages.
fn work(mut replayer: Replayer, packages: &Receiver<Package>, desk: &Desk) {
    for package in packages {
        let _applying = Applying {
            desk,
            position: package.positions.first().copied().unwrap_or(0),
        };
        if desk.has_fault.load(Ordering::Acquire) {
            continue;
        }
        if let Err(fault) = package.apply(&mut replayer) {
            desk.tell(fault);
        }
        // Before the package counts as applied, so that a thread that waits for the lanes finds it.
        let done = std::mem::take(&mut replayer.done);
        let mut all = lock(&desk.done);
        *all = std::mem::take(&mut *all).and(done);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The arguments of an encoded request, from its front; the iterator ends where the request is
/// malformed.
struct Arguments<'a> {
    count: usize,
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn new(request: &'a [u8]) -> Option<Self> {
        let (count, rest) = number_line(request, b'*')?;
        Some(Self { count, rest })
    }
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = number_line(self.rest, b'$')?;
        let (argument, rest) = rest.split_at_checked(length)?;
        self.rest = rest.strip_prefix(b"\r\n")?;
        Some(argument)
    }
}

/// Returns the number behind `mark` on the first line, and the bytes behind the line.
fn number_line(bytes: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    let digits = bytes.strip_prefix(&[mark])?;
    let mut number = 0_usize;
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                let digit = usize::from(byte - b'0');
                number = number.checked_mul(10)?.checked_add(digit)?;
            }
            b'\r' => return Some((number, digits.get(at..)?.strip_prefix(b"\r\n")?)),
            _ => return None,
        }
    }
    None
}
