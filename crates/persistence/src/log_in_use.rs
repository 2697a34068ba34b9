//! The log to which effects go, and the threads that append them.
//!
//! ```text
//!   LogOwner ── set(log) ──► LogInUse: version + 1 ── host: look ──► each thread: LogUser::take_up
//!      ▲                                                                    │
//!      └──────────────── is_taken_up ◄──────────────────────────────────────┘
//! ```
//!
//! A thread that changes the store checks for another log only when it is notified, or before its
//! first change after it was idle. So the store's hot path checks nothing, and
//! [`LogInUse::is_taken_up`] says when nothing goes to the previous log any more.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{EffectSink, Handle};

use crate::environment::Environment;
use crate::tail::{Appended, Tail};

/// Interval of the checks whether all threads have taken up a log.
const LOOK: Duration = Duration::from_millis(1);

/// The log in use, if there is one.
#[derive(Default)]
pub struct LogInUse {
    log: Mutex<Option<Arc<dyn Tail>>>,
    is_there: AtomicBool,
    /// Why there is no log although one is wanted.
    missing: Mutex<Option<String>>,
    version: AtomicU64,
    users: Mutex<Vec<Arc<Taken>>>,
}

/// The log to which one thread appends its effects.
#[derive(Debug, Default)]
struct Taken {
    /// Version of the log that was taken up last.
    version: AtomicU64,
    /// Whether the thread is idle: it checks for another log before its next change.
    is_idle: AtomicBool,
}

/// A thread that changes the store, and appends effects to the log in use. While this lives, a log
/// counts as taken up only when this thread has taken it up.
pub struct LogUser {
    in_use: Arc<LogInUse>,
    taken: Arc<Taken>,
    appended: Appended,
}

/// The log to which a thread appends effects from now on.
pub enum TakenUp {
    /// The same as before.
    Same,
    /// This one.
    Log(Arc<dyn Tail>),
    /// None.
    Nothing,
}

impl LogUser {
    /// Takes up the log that is in use now, for a thread that changes the store through `handle`.
    pub fn take_up(&self, handle: &mut Handle) -> TakenUp {
        self.take_up_through(handle, |sink| sink)
    }

    /// Like [`LogUser::take_up`], with a layer between the store and the log.
    pub fn take_up_through(
        &self,
        handle: &mut Handle,
        through: impl FnOnce(Box<dyn EffectSink>) -> Box<dyn EffectSink>,
    ) -> TakenUp {
        let version = self.in_use.version();
        if version == self.taken.version.load(Ordering::Relaxed) {
            return TakenUp::Same;
        }
        let log = self.in_use.get();
        let sink = log.as_ref().map(|log| Arc::clone(log).sink(&self.appended));
        handle.set_sink(sink.map(through));
        self.take_up_version(version);
        log.map_or(TakenUp::Nothing, TakenUp::Log)
    }

    /// Lets go of the log until the thread's next change: while an idle thread has an appender, no
    /// other one can be the log's only appender.
    pub fn let_go(&self, handle: &mut Handle) {
        handle.set_sink(None);
        self.taken.version.store(u64::MAX, Ordering::SeqCst);
    }

    fn take_up_version(&self, version: u64) {
        self.taken.version.store(version, Ordering::SeqCst);
    }

    /// Whether another log is in use than the one taken up.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.in_use.version() != self.taken.version.load(Ordering::Relaxed)
    }

    /// Declares that the thread checks for another log before its next change. The thread must
    /// withdraw this before it checks.
    pub fn set_idle(&self, on: bool) {
        self.taken.is_idle.store(on, Ordering::SeqCst);
    }

    /// Returns where the thread's effects end.
    #[must_use]
    pub fn appended(&self) -> &Appended {
        &self.appended
    }
}

impl Drop for LogUser {
    fn drop(&mut self) {
        self.in_use
            .users()
            .retain(|user| !Arc::ptr_eq(user, &self.taken));
    }
}

impl fmt::Debug for LogUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogUser")
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl LogInUse {
    /// Returns the log, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<Arc<dyn Tail>> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.log).clone()
    }

    /// Returns how often the log was changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Returns why nothing can be kept in the log, or why there is none, if so.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.get()
            .map_or_else(|| lock(&self.missing).clone(), |log| log.fault())
    }

    /// Uses another log, or none, from now on. Threads take it up one by one, once they are
    /// notified; until then the previous log must stay open.
    pub fn set(&self, log: Option<Arc<dyn Tail>>, env: &Environment) {
        *lock(&self.missing) = None;
        {
            let mut own = lock(&self.log);
            self.is_there.store(log.is_some(), Ordering::Release);
            *own = log;
            self.version.fetch_add(1, Ordering::SeqCst);
        }
        env.shared.gate.set_log_full(false);
        env.shared.refusals.set_log_fault(None);
    }

    /// Sets why there is no log although one is wanted, or that none is wanted: writes are refused,
    /// or no longer.
    pub fn set_missing(&self, reason: Option<&str>, env: &Environment) {
        // In this order: a thread that reports the fault of a log that has just ended reads the
        // reason after that.
        *lock(&self.missing) = reason.map(str::to_owned);
        env.shared.refusals.set_log_fault(reason);
    }

    /// Checks whether a fault of the log has begun or ended: refuses writes, or no longer, and
    /// reports to the operator. Waits only for the operator's file, and only in that case.
    pub fn look_for_fault(&self, env: &Environment) {
        let mut now = self.fault();
        while (now.is_some() || env.shared.refusals.is_log_faulty())
            && note_fault(env, now.as_deref())
        {
            // A fault may have begun or ended meanwhile, and the thread that reported it may have
            // been here already.
            now = self.fault();
        }
    }

    /// Registers a thread that changes the store, and has taken up no log.
    #[must_use]
    pub fn join(self: &Arc<Self>) -> LogUser {
        let taken = Arc::<Taken>::default();
        self.users().push(Arc::clone(&taken));
        LogUser {
            in_use: Arc::clone(self),
            taken,
            appended: Appended::default(),
        }
    }

    /// Whether all threads that change the store append effects to the log in use.
    #[must_use]
    pub fn is_taken_up(&self) -> bool {
        let version = self.version();
        self.users().iter().all(|user| {
            // In this order: an idle thread checks after it has declared that it is idle no more.
            user.is_idle.load(Ordering::SeqCst) || user.version.load(Ordering::SeqCst) == version
        })
    }

    /// Waits until all threads append effects to the log in use, or the wait `is_given_up`; returns
    /// whether they do.
    pub fn wait_until_taken_up(&self, is_given_up: &dyn Fn() -> bool) -> bool {
        loop {
            if self.is_taken_up() {
                return true;
            }
            if is_given_up() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn users(&self) -> MutexGuard<'_, Vec<Arc<Taken>>> {
        lock(&self.users)
    }
}

/// Refuses writes for a fault of the log, or no longer, and reports to the operator; returns
/// whether that is new.
fn note_fault(env: &Environment, fault: Option<&str>) -> bool {
    let is_new = env.shared.refusals.set_log_fault(fault);
    match fault {
        _ if !is_new => {}
        Some(fault) => env.log.warning(format_args!(
            "The log cannot be written: {fault}. Commands that change data are refused until it can"
        )),
        None => env.log.notice(format_args!("The log can be written again")),
    }
    is_new
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use base::clock::ManualClock;
    use store::Store;

    use super::*;

    #[test]
    fn a_log_is_taken_up_when_nobody_states_effects_elsewhere() {
        let store = Store::new(&store::Options::default()).unwrap();
        let env = Environment::new(
            testkit::table(),
            Arc::clone(&store),
            Arc::new(ManualClock::at_unix_ms(1)),
        );
        let (in_use, mut handle) = (Arc::<LogInUse>::default(), store.handle());
        let (busy, idle, gone) = (in_use.join(), in_use.join(), in_use.join());
        idle.set_idle(true);
        assert!(in_use.is_taken_up());
        in_use.set(None, &env);
        drop(gone);
        assert!(!in_use.is_taken_up() && busy.is_late());
        assert!(matches!(busy.take_up(&mut handle), TakenUp::Nothing));
        assert!(matches!(busy.take_up(&mut handle), TakenUp::Same));
        assert!(
            in_use.is_taken_up(),
            "who is idle looks before it changes anything"
        );
        idle.set_idle(false);
        assert!(!in_use.is_taken_up());
        idle.take_up(&mut handle);
        assert!(in_use.is_taken_up());
    }

    /// Writes would be answered as if there were a log.
    #[test]
    fn a_log_that_is_missed_is_a_fault_until_another_is_used_or_none_is_wanted() {
        let store = Store::new(&store::Options::default()).unwrap();
        let env = Environment::new(
            testkit::table(),
            store,
            Arc::new(ManualClock::at_unix_ms(1)),
        );
        let (in_use, refusals) = (LogInUse::default(), &env.shared.refusals);
        in_use.set_missing(Some("no room"), &env);
        in_use.look_for_fault(&env);
        assert!(refusals.is_log_faulty());
        in_use.set_missing(None, &env);
        assert!(!refusals.is_log_faulty());
        in_use.set_missing(Some("no room"), &env);
        in_use.set(None, &env);
        assert!(!refusals.is_log_faulty());
    }
}
