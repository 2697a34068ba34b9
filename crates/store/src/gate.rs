//! The global gate: one thread has the store for itself.
//!
//! Every thread marks when it is inside (a batch of commands, a round of housekeeping). A thread
//! that wants the store for itself shuts the gate and waits until no thread is inside; threads that
//! come meanwhile wait outside. Threads that sleep are outside and are not waited for.
//!
//! Entering is on the path of every batch; shutting the gate is rare. So the rare side bears the
//! cost: entering is a store, a load and no locked instruction, and the thread that shuts the gate
//! has the system run a barrier on all cores that run this process. If that is not available,
//! entering pays for a fence.
//!
//! Why it works: a member stores `inside` and then loads `shut`; the requester stores `shut` and
//! then loads every `inside`. With a full barrier between the two on both sides at least one of
//! them sees the other's store. The system's barrier stands for the missing ones.

use base::sync::atomic::{AtomicBool, Ordering, fence};
use base::sync::{CachePadded, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::compiler_fence;

use crate::wait::Wait;

/// The gate of a store.
#[derive(Debug)]
pub(crate) struct Gate {
    shut: CachePadded<AtomicBool>,
    members: Mutex<Vec<Arc<Member>>>,
    /// Held by the thread that has, or waits to have, the store for itself.
    turn: Mutex<()>,
    /// Whether the system runs barriers for this process.
    asymmetric: bool,
}

/// A thread that may be inside.
#[derive(Debug, Default)]
pub(crate) struct Member {
    inside: CachePadded<AtomicBool>,
}

impl Gate {
    /// Creates an open gate without members.
    pub(crate) fn new() -> Self {
        Self {
            shut: CachePadded::new(AtomicBool::new(false)),
            members: Mutex::new(Vec::new()),
            turn: Mutex::new(()),
            asymmetric: barrier::register(),
        }
    }

    /// Creates a member, outside.
    pub(crate) fn join(&self) -> Arc<Member> {
        let member = Arc::new(Member::default());
        lock(&self.members).push(Arc::clone(&member));
        member
    }

    /// Removes a member, which must be outside.
    pub(crate) fn part(&self, member: &Arc<Member>) {
        lock(&self.members).retain(|other| !Arc::ptr_eq(other, member));
    }

    /// Goes inside; waits while another thread has the store for itself.
    #[inline]
    pub(crate) fn enter(&self, member: &Member) {
        debug_assert!(!member.inside.load(Ordering::Relaxed), "inside already");
        member.inside.store(true, Ordering::Relaxed);
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        if self.shut.load(Ordering::Acquire) {
            self.enter_later(member);
        }
    }

    #[cold]
    fn enter_later(&self, member: &Member) {
        loop {
            member.inside.store(false, Ordering::Release);
            let mut wait = Wait::default();
            while self.shut.load(Ordering::Acquire) {
                wait.pause();
            }
            member.inside.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.shut.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Goes inside while the caller has the store for itself, and stays inside afterwards.
    pub(crate) fn enter_alone(&self, member: &Member) {
        debug_assert!(self.shut.load(Ordering::Relaxed), "alone");
        member.inside.store(true, Ordering::Relaxed);
    }

    /// Goes outside.
    #[inline]
    pub(crate) fn leave(&self, member: &Member) {
        member.inside.store(false, Ordering::Release);
    }

    /// Runs `body` while no thread has the store for itself; other threads come and go. The caller
    /// is outside, because a thread that has the store for itself may wait for it.
    pub(crate) fn while_nobody_is_alone<R>(&self, body: impl FnOnce() -> R) -> R {
        let turn = lock(&self.turn);
        let answer = body();
        drop(turn);
        answer
    }

    /// Runs `body` while no thread is inside. The caller must be outside: otherwise two threads
    /// that wanted the store for themselves would wait for each other.
    pub(crate) fn alone<R>(&self, body: impl FnOnce() -> R) -> R {
        let turn = lock(&self.turn);
        self.shut.store(true, Ordering::Relaxed);
        let open = Open(self);
        if self.asymmetric {
            barrier::run();
        }
        fence(Ordering::SeqCst);
        // A thread that joins later does so after this lock was released, and finds the gate shut.
        let members = lock(&self.members).clone();
        for member in members {
            let mut wait = Wait::default();
            while member.inside.load(Ordering::Acquire) {
                wait.pause();
            }
        }
        let answer = body();
        drop(open);
        drop(turn);
        answer
    }
}

/// Opens the gate when dropped.
struct Open<'g>(&'g Gate);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.shut.store(false, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Barriers on all cores that run this process.
#[cfg(all(target_os = "linux", not(any(miri, loom, shuttle))))]
mod barrier {
    /// Asks the system to keep barriers ready. Returns whether it can.
    pub(super) fn register() -> bool {
        call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0
    }

    /// Runs one barrier.
    pub(super) fn run() {
        let answer = call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        assert!(answer == 0, "a registered barrier cannot fail");
    }

    fn call(command: libc::c_int) -> libc::c_long {
        // SAFETY: these two commands of membarrier take no pointer and touch no memory of this
        // process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }
}

/// No barriers on this target: entering pays for a fence.
#[cfg(not(all(target_os = "linux", not(any(miri, loom, shuttle)))))]
mod barrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run() {}
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Two words that are only changed together, by a thread that has the store for itself.
    #[test]
    fn who_is_inside_never_sees_a_half_done_step() {
        let gate = Gate::new();
        let pair = (AtomicU64::new(0), AtomicU64::new(0));
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let member = gate.join();
                    for _ in 0..rounds {
                        gate.enter(&member);
                        let first = pair.0.load(Ordering::Relaxed);
                        let second = pair.1.load(Ordering::Relaxed);
                        gate.leave(&member);
                        assert_eq!(first, second);
                    }
                    gate.part(&member);
                });
                scope.spawn(|| {
                    for _ in 0..rounds / 10 {
                        gate.alone(|| {
                            pair.0.fetch_add(1, Ordering::Relaxed);
                            pair.1.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(pair.0.into_inner(), 2 * (rounds / 10));
    }

    #[test]
    fn a_panic_inside_opens_the_gate_again() {
        let gate = Gate::new();
        let alone = std::panic::AssertUnwindSafe(|| gate.alone(|| panic!("meant")));
        assert!(std::panic::catch_unwind(alone).is_err());
        let member = gate.join();
        gate.enter(&member);
        gate.leave(&member);
        assert_eq!(gate.alone(|| 5), 5);
    }
}
