//! FAILOVER: from the order to the replica that takes over.
//!
//! ```text
//!   waiting-for-sync ── a replica has everything, or time is up and it was forced ──► failover-in-progress
//!          │                                                                              │
//!          └── ABORT, time is up ──► no-failover ◄── it does not take over ───────────────┘
//! ```
//!
//! Writes wait until it has ended.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::CommandError;

use super::primary::Primary;
use super::replicas::{Replica, Replicas};

/// How often to check whether time is up.
const LOOK: Duration = Duration::from_millis(10);

/// See the module.
pub struct Failover {
    /// The requested target, or `None` for the first replica that has everything.
    to: Option<Primary>,
    pub(super) forces: bool,
    end_unix_ms: Option<u64>,
    in_progress: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_aborted: bool,
    /// Whether replicas may have moved since the last check.
    moved: bool,
    /// The answer of the own-link replica that was asked to take over.
    answer: Option<u64>,
    abort: Option<Box<dyn Fn() + Send>>,
}

/// Outcome of the wait for a replica.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This replica is asked to take over.
    Replica(Primary),
    /// No replica takes over, for this reason.
    GivenUp(&'static str),
}

impl Failover {
    /// Checks whether an order can be carried out.
    ///
    /// # Errors
    /// The error for the client.
    pub(super) fn plan(
        replicas: &Replicas,
        to: Option<&(String, i32)>,
        forces: bool,
        timeout_ms: Option<u64>,
        now_unix_ms: u64,
    ) -> Result<Self, CommandError> {
        let error = CommandError::fixed;
        if replicas.is_empty() {
            return Err(error("ERR FAILOVER requires connected replicas."));
        }
        if forces && (timeout_ms.is_none() || to.is_none()) {
            return Err(error(
                "ERR FAILOVER with force option requires both a timeout and target HOST and IP to be set.",
            ));
        }
        let to = match to {
            None => None,
            Some((host, port)) => {
                let all = replicas.all().into_iter();
                let is_it = |one: &Arc<Replica>| one.host == *host && i32::from(one.port) == *port;
                let mut found = all.filter(is_it).peekable();
                if found.peek().is_none() {
                    return Err(error("ERR FAILOVER target HOST and PORT is not a replica."));
                }
                if !found.any(|one| one.state().is_online()) {
                    return Err(error("ERR FAILOVER target replica is not online."));
                }
                Some(Primary {
                    host: host.clone(),
                    port: u16::try_from(*port).unwrap_or(0),
                })
            }
        };
        Ok(Self {
            to,
            forces,
            end_unix_ms: timeout_ms.map(|ms| now_unix_ms.saturating_add(ms)),
            in_progress: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The value that INFO shows as `master_failover_state`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.in_progress.load(Ordering::Relaxed) {
            "failover-in-progress"
        } else {
            "waiting-for-sync"
        }
    }

    /// Cancels the failover.
    pub(super) fn abort(&self) {
        let mut state = self.state();
        state.is_aborted = true;
        if let Some(abort) = &state.abort {
            abort();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Sets how work in progress is ended on cancellation. Calls `abort` at once if the failover is
    /// cancelled already.
    pub(super) fn abort_with(&self, abort: Box<dyn Fn() + Send>) {
        let mut state = self.state();
        let is_aborted = state.is_aborted;
        let abort = state.abort.insert(abort);
        if is_aborted {
            abort();
        }
    }

    /// Notes that replicas may have moved.
    pub(super) fn look_again(&self) {
        self.state().moved = true;
        self.changed.notify_all();
    }

    /// Notes the answer of a replica that was asked to take over: the end of the log if it does, 0
    /// if it does not.
    pub(super) fn note_answer(&self, sequence: u64) {
        self.state().answer = Some(sequence);
        self.changed.notify_all();
    }

    /// Waits for the answer of a replica that was asked to take over. Returns `None` if none comes
    /// in time or its link is gone: the replica may have taken over or not.
    pub(super) fn wait_for_answer(
        &self,
        time: Duration,
        is_there: impl Fn() -> bool,
    ) -> Option<u64> {
        let mut waited = Duration::ZERO;
        let mut state = self.state();
        while state.answer.is_none() && waited < time && is_there() {
            let looked = self.changed.wait_timeout(state, LOOK);
            state = looked.unwrap_or_else(PoisonError::into_inner).0;
            waited += LOOK;
        }
        state.answer
    }

    /// Waits for a replica that has applied the log up to its end.
    pub(super) fn wait_for_replica(
        &self,
        replicas: &Replicas,
        end: u64,
        now_unix_ms: impl Fn() -> u64,
    ) -> Verdict {
        let mut state = self.state();
        loop {
            if state.is_aborted {
                return Verdict::GivenUp("Failover manually aborted");
            }
            state.moved = false;
            drop(state);
            let all = replicas.all();
            let asked = |one: &&Arc<Replica>| {
                let is_it = |to: &Primary| one.host == to.host && one.port == to.port;
                one.state().is_online() && self.to.as_ref().is_none_or(is_it)
            };
            let ready = all.iter().filter(asked).find(|one| {
                // Without a log `end` is 0: nothing was ever written.
                one.acked().applied >= end
            });
            let is_late = self.end_unix_ms.is_some_and(|end| now_unix_ms() >= end);
            let target = match (ready, &self.to) {
                (Some(replica), _) => Some(Primary {
                    host: replica.host.clone(),
                    port: replica.port,
                }),
                (None, Some(to)) if is_late && self.forces => Some(to.clone()),
                (None, _) if is_late => {
                    return Verdict::GivenUp("Replica never caught up before timeout");
                }
                _ => None,
            };
            if let Some(primary) = target {
                self.in_progress.store(true, Ordering::Relaxed);
                return Verdict::Replica(primary);
            }
            let waited = self
                .changed
                .wait_timeout_while(self.state(), LOOK, |state| {
                    !state.moved && !state.is_aborted
                });
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failover")
            .field("state", &self.word())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::super::replicas::{Ack, Kind, NewReplica, ReplicaState};
    use super::*;

    fn replicas() -> (Arc<Replicas>, super::super::replicas::Attached) {
        let replicas = Arc::<Replicas>::default();
        let attached = replicas.register(NewReplica {
            client: None,
            kind: Kind::Redis,
            host: "10.0.0.1".to_owned(),
            port: 7,
        });
        (replicas, attached)
    }

    fn refusal(
        replicas: &Replicas,
        to: Option<&(String, i32)>,
        forces: bool,
        timeout_ms: Option<u64>,
    ) -> String {
        let planned = Failover::plan(replicas, to, forces, timeout_ms, 0);
        String::from_utf8(planned.unwrap_err().text().into_owned()).unwrap()
    }

    #[test]
    fn what_cannot_end_well_is_not_begun() {
        let none = Replicas::default();
        assert!(refusal(&none, None, false, None).contains("requires connected replicas"));
        let (replicas, attached) = replicas();
        let (it, other) = (("10.0.0.1".to_owned(), 7), ("10.0.0.1".to_owned(), 8));
        assert!(refusal(&replicas, None, true, Some(1)).contains("with force option"));
        assert!(refusal(&replicas, Some(&it), true, None).contains("with force option"));
        assert!(refusal(&replicas, Some(&other), false, None).contains("is not a replica"));
        assert!(refusal(&replicas, Some(&it), false, None).contains("is not online"));
        attached.set_state(ReplicaState::Online);
        assert!(Failover::plan(&replicas, Some(&it), false, None, 0).is_ok());
    }

    #[test]
    fn the_replica_that_has_everything_takes_over() {
        let (replicas, attached) = replicas();
        attached.set_state(ReplicaState::Online);
        let plan = |forces, timeout_ms| {
            let to = ("10.0.0.1".to_owned(), 7);
            Failover::plan(&replicas, Some(&to), forces, timeout_ms, 0).unwrap()
        };
        let it = Primary {
            host: "10.0.0.1".to_owned(),
            port: 7,
        };
        let late = plan(false, Some(5)).wait_for_replica(&replicas, 10, || 5);
        assert_eq!(
            late,
            Verdict::GivenUp("Replica never caught up before timeout")
        );
        let forced = plan(true, Some(5)).wait_for_replica(&replicas, 10, || 5);
        assert_eq!(forced, Verdict::Replica(it.clone()));
        let aborted = plan(false, None);
        aborted.abort();
        let verdict = aborted.wait_for_replica(&replicas, 10, || 5);
        assert_eq!(verdict, Verdict::GivenUp("Failover manually aborted"));
        let ack = Ack {
            applied: 10,
            ..Ack::default()
        };
        attached.ack(ack, 1);
        let failover = plan(false, None);
        assert_eq!(failover.word(), "waiting-for-sync");
        let verdict = failover.wait_for_replica(&replicas, 10, || 5);
        assert_eq!(verdict, Verdict::Replica(it));
        assert_eq!(failover.word(), "failover-in-progress");
    }
}
