//! The thread that compacts parts of collections if they lie sparsely in the allocator's pages.
//!
//! ```text
//!   a second's rest ── little idle in pages that hold small pieces ──► rests on
//!                   ── much ──► rounds over all keys: pieces in sparse pages move, until little is left
//!                   ── a round gained little ──► rests until more is idle, or for a minute
//! ```
//!
//! When nine of ten keys are deleted, the rest of the collections keeps almost every page of the
//! allocator: one or two pieces in each. Records are compacted without this thread (the store's
//! mover, in ticks of workers), because they lie in the store's own memory. The other parts of
//! collections lie in the allocator's memory; the allocator says of each piece whether it lies
//! sparsely. A thread does this instead of the workers, because a thread that moves pieces must not
//! get back the memory that it has just freed: this thread has none of the allocator's caches.
//!
//! It is a background thread (`base::background`): it works in short slices, and takes only a small
//! share of a core that workers want. It rests during a checkpoint, because what the checkpoint
//! still has to write is shared and stays where it is. No thread waits for it, and it has no
//! visible effect except on memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::background::{BackgroundThread, Scheduler};
use base::clock::Clock;
use store::{Handle, PieceHand, Store};

use crate::allocator::{self, Allocator, SmallAllocations};
use crate::rest::Rest;

/// Interval between two checks for work.
const REST: Duration = Duration::from_secs(1);

/// Work between two points at which it can yield, as bytes moved: some tens of microseconds.
const STEP_BYTES: u64 = 16 << 10;

/// Its share, in thousandths, of each core that workers want.
const SHARE: u64 = 80;

/// Maximum number of successive rounds over all keys.
const ROUNDS_MAX: u32 = 6;

/// A round is futile if it frees less than the idle memory divided by this ...
const GAIN_PART: u64 = 8;

/// ... and then the next attempt waits until the idle memory has grown by this part, or for this
/// long.
const GROWTH_PART: u64 = 4;
const TRIES_AGAIN_NS: u64 = 60_000_000_000;

/// The environment of the thread.
pub(crate) struct Around {
    /// The keyspace.
    pub(crate) store: Arc<Store>,
    /// Scheduler between workers and background threads.
    pub(crate) background: Arc<Scheduler>,
    /// The clock.
    pub(crate) clock: Arc<dyn Clock>,
}

/// Control of the thread. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Defragmenter {
    rest: Rest,
    is_asked: AtomicBool,
}

impl Defragmenter {
    /// Starts the thread, or returns `None` if the allocator cannot say where pieces lie.
    ///
    /// # Errors
    /// The process may have no more threads.
    #[allow(clippy::disallowed_methods, reason = "the one thread of its kind")]
    pub(crate) fn start(self: &Arc<Self>, around: Around) -> io::Result<Option<JoinHandle<()>>> {
        let allocator = allocator::installed();
        if allocator.small().is_none() {
            return Ok(None);
        }
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("defragment".into());
        let thread = thread.spawn(move || {
            allocator.begin_moving();
            own.run(&around, allocator);
        })?;
        Ok(Some(thread))
    }

    /// Requests compaction however little memory is idle (MEMORY PURGE).
    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        self.rest.wake();
    }

    /// Stops the thread.
    pub(crate) fn stop(&self) {
        self.rest.end();
    }

    fn run(&self, around: &Around, allocator: &dyn Allocator) {
        let mut store = around.store.handle();
        let mut pause = Pause::default();
        while !self.rest.is_over() {
            self.rest.sleep(REST);
            let Some(before) = allocator.small() else {
                continue;
            };
            let now_ns = around.clock.monotonic_ns();
            let is_asked = self.is_asked.load(Ordering::Relaxed);
            let is_due = is_much(around, before) && pause.is_over(before.idle_bytes, now_ns);
            if (is_asked || is_due) && !is_saving(around) {
                self.is_asked.store(false, Ordering::Relaxed);
                allocator::recall();
                around.store.set_moving_pieces(true);
                self.rounds(around, &mut store, allocator, before, &mut pause);
                around.store.set_moving_pieces(false);
                // Memory that workers freed meanwhile may be all that keeps pages.
                allocator::recall();
            }
        }
    }

    /// Makes rounds over all keys, until little memory is idle or a round was futile.
    fn rounds(
        &self,
        around: &Around,
        store: &mut Handle,
        allocator: &dyn Allocator,
        mut before: SmallAllocations,
        pause: &mut Pause,
    ) {
        let scheduler = &around.background;
        let mut thread = scheduler.enter();
        scheduler.set_share(SHARE);
        for _ in 0..ROUNDS_MAX {
            if !self.round(around, store, allocator, &mut thread) {
                return;
            }
            let Some(now) = allocator.small() else {
                return;
            };
            if gain(before, now) < before.idle_bytes / GAIN_PART {
                pause.begin(now.idle_bytes, around.clock.monotonic_ns());
                return;
            }
            if !is_much(around, now) {
                return;
            }
            before = now;
        }
    }

    /// Visits all keys once. Returns whether it reached the end.
    fn round(
        &self,
        around: &Around,
        store: &mut Handle,
        allocator: &dyn Allocator,
        thread: &mut BackgroundThread<'_>,
    ) -> bool {
        let mut hand = PieceHand::default();
        let mut wants_move = |address| allocator.lies_sparsely(address);
        while store.move_pieces(&mut hand, STEP_BYTES, &mut wants_move) {
            if self.rest.is_over() || is_saving(around) {
                return false;
            }
            thread.pause();
        }
        true
    }
}

/// Whether a checkpoint is being made.
fn is_saving(around: &Around) -> bool {
    around.store.snapshot_progress().is_some()
}

/// Whether enough memory is idle to be worth the work.
fn is_much(around: &Around, small: SmallAllocations) -> bool {
    around
        .store
        .is_worth_moving(small.idle_bytes, small.used_bytes)
}

/// Returns how much idle memory a round has removed. Memory that clients freed meanwhile becomes
/// idle first. It must not make a round look futile, or compaction would pause after the last of a
/// million DELs.
fn gain(before: SmallAllocations, now: SmallAllocations) -> u64 {
    let freed_bytes = before.used_bytes.saturating_sub(now.used_bytes);
    let idle_bytes = before.idle_bytes.saturating_add(freed_bytes);
    idle_bytes.saturating_sub(now.idle_bytes)
}

/// Pause after a futile round.
#[derive(Debug, Default)]
struct Pause {
    /// Idle bytes at its begin, and the time of its begin.
    since: Option<(u64, u64)>,
}

impl Pause {
    fn begin(&mut self, idle_bytes: u64, now_ns: u64) {
        self.since = Some((idle_bytes, now_ns));
    }

    fn is_over(&mut self, idle_bytes: u64, now_ns: u64) -> bool {
        self.since.take_if(|(bytes, began_ns)| {
            idle_bytes > *bytes + *bytes / GROWTH_PART
                || now_ns.saturating_sub(*began_ns) >= TRIES_AGAIN_NS
        });
        self.since.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use base::clock::ManualClock;

    use super::*;
    use crate::allocator::AllocatorMemory;

    fn small(used_bytes: u64, idle_bytes: u64) -> SmallAllocations {
        SmallAllocations {
            used_bytes,
            idle_bytes,
        }
    }

    /// An allocator that reports prepared values, one after the other.
    struct Scripted(Mutex<Vec<SmallAllocations>>);

    impl Allocator for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn memory(&self) -> Option<AllocatorMemory> {
            None
        }

        fn small(&self) -> Option<SmallAllocations> {
            self.0.lock().unwrap().pop()
        }

        fn purge(&self) {}

        fn statistics(&self) -> String {
            String::new()
        }
    }

    /// Runs rounds with these values of idle memory, from `first` on. Returns the number of rounds,
    /// and whether it pauses now.
    fn rounds(first: SmallAllocations, mut after: Vec<SmallAllocations>) -> (usize, bool) {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_unix_ms(0));
        let around = Around {
            store: Store::new(&store::Options { databases: 1 }).unwrap(),
            background: Arc::new(Scheduler::of_machine(Arc::clone(&clock))),
            clock,
        };
        let count = after.len();
        after.reverse();
        let allocator = Scripted(Mutex::new(after));
        let (mut handle, mut pause) = (around.store.handle(), Pause::default());
        Defragmenter::default().rounds(&around, &mut handle, &allocator, first, &mut pause);
        let done = count - allocator.0.lock().unwrap().len();
        (done, pause.since.is_some())
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn rounds_go_on_until_little_lies_idle_or_one_was_in_vain() {
        let idle = |mib: u64| small(20 * MIB, mib * MIB);
        assert_eq!(rounds(idle(9), vec![idle(5), idle(1), idle(0)]), (2, false));
        assert_eq!(rounds(idle(9), vec![idle(5), idle(5), idle(0)]), (2, true));
    }

    #[test]
    fn what_is_deleted_during_a_round_does_not_make_it_vain() {
        let after = vec![small(10 * MIB, 9 * MIB), small(10 * MIB, MIB / 2)];
        assert_eq!(rounds(small(15 * MIB, 8 * MIB), after), (2, false));
    }

    #[test]
    fn what_was_in_vain_is_tried_again_when_more_lies_idle_or_later() {
        let mut pause = Pause::default();
        assert!(pause.is_over(1_000, 0));
        pause.begin(1_000, 0);
        assert!(!pause.is_over(1_250, 1));
        assert!(pause.is_over(1_251, 2));
        assert!(pause.is_over(1_000, 3), "it is over for good");
        pause.begin(1_000, 5);
        assert!(!pause.is_over(1_000, TRIES_AGAIN_NS + 4));
        assert!(pause.is_over(1_000, TRIES_AGAIN_NS + 5));
    }
}
