//! The thread that demotes values, and maintains the segments.
//!
//! ```text
//!   memory below the mark ── rests
//!   above                 ── copies a batch, writes it, exchanges records for stubs; again
//!   above the limit       ── requests that need memory wait meanwhile
//!   nothing may go, full  ── `maxmemory-policy` holds as without a tier
//!   drained (TIER DRAIN)  ── brings all values back, as far as memory allows, and moves none
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use persistence::places::locator_of;
use store::{DemotionHand, Handle, Victim};
use tier::{Entry, Tier, TierFault};

use super::tuning::Tuning;
use super::values::Values;
use super::{Around, compact};
use crate::rest::Rest;

/// Interval between two checks of the used memory if there is nothing to do.
const REST: Duration = Duration::from_millis(5);

/// Bytes that are copied and written in one batch.
const BATCH_BYTES: usize = 1 << 20;

/// Distance below the mark, in percent of the limit, down to which demotion continues.
const DOWN_PERCENT: u64 = 5;

/// Number of rounds over all keys without a value to demote after which there is none.
const ROUNDS_IN_VAIN: u32 = 3;

/// Time until the next attempt after that.
const TRIES_AGAIN: Duration = Duration::from_millis(200);

/// In a full tier, use of a segment, in percent, below which it is compacted.
const FULL_COMPACT_PERCENT: u64 = 95;

/// Names of the states in INFO.
const STATES: [&str; 6] = ["ok", "full", "idle", "failed", "draining", "drained"];
const OK: u8 = 0;
const FULL: u8 = 1;
/// No value in memory can be demoted.
const NOTHING_LEFT: u8 = 2;
const FAILED: u8 = 3;
/// Values are coming back.
const DRAINING: u8 = 4;
/// All values have come back.
const DRAINED: u8 = 5;

/// Keys that are visited in one step of draining.
const DRAIN_KEYS: usize = 256;

/// See the module documentation.
pub(super) struct Demoter {
    tier: Arc<Tier>,
    values: Arc<Values>,
    tuning: Arc<Tuning>,
    state: AtomicU8,
    drains: AtomicBool,
    /// Start of the present write; 0 means none.
    writes_since_ns: AtomicU64,
    rest: Rest,
}

impl Demoter {
    pub(super) fn new(tier: &Arc<Tier>, values: &Arc<Values>, tuning: &Arc<Tuning>) -> Self {
        Self {
            tier: Arc::clone(tier),
            values: Arc::clone(values),
            tuning: Arc::clone(tuning),
            state: AtomicU8::new(OK),
            drains: AtomicBool::new(false),
            writes_since_ns: AtomicU64::new(0),
            rest: Rest::default(),
        }
    }

    /// Returns the state, as INFO names it.
    pub(super) fn state(&self) -> &'static str {
        STATES
            .get(usize::from(self.state.load(Ordering::Relaxed)))
            .copied()
            .unwrap_or("ok")
    }

    /// Starts to bring all values back, and stops demotion.
    pub(super) fn drain(&self) {
        self.drains.store(true, Ordering::Relaxed);
        self.rest.wake();
    }

    /// Stops the thread.
    pub(super) fn stop(&self) {
        self.rest.end();
    }

    /// Demotes or drains, and compacts, until it is stopped.
    pub(super) fn run(&self, around: &Around) {
        let mut store = around.store.handle();
        let mut hand = DemotionHand::default();
        while !self.rest.is_over() {
            let time = match self.drains.load(Ordering::Relaxed) {
                true => self.bring_back(around, &mut store),
                false => self.make_room(around, &mut store, &mut hand),
            };
            self.tidy(around, &mut store);
            self.rest.sleep(time);
        }
        // No thread frees memory any more, so threads that load data must not wait for it.
        around.store.set_cold_room(false);
        around.shared.gate.set_memory_full(false);
        around.requests.wake_all();
    }

    /// Demotes values until less memory is used than the mark, or no value can be demoted. Returns
    /// how long to rest.
    fn make_room(&self, around: &Around, store: &mut Handle, hand: &mut DemotionHand) -> Duration {
        let (used, limit) = around.store.used_and_limit_bytes();
        let tuned = self.tuning.now();
        let mark = limit / 100 * tuned.at_percent;
        if limit == 0 || used <= mark {
            self.set_state(around, OK);
            self.hold(around, false);
            return REST;
        }
        let goal = limit / 100 * tuned.at_percent.saturating_sub(DOWN_PERCENT);
        let (mut in_vain, mut limits) = (0, tuned.limits);
        let is_wanted = || !self.drains.load(Ordering::Relaxed);
        while !self.rest.is_over() && is_wanted() {
            let (used, limit) = around.store.used_and_limit_bytes();
            if used <= goal {
                break;
            }
            let is_failing = self.state.load(Ordering::Relaxed) != OK;
            self.hold(around, used > limit && !is_failing);
            store.begin(around.clock.now_unix_ms());
            let mut victims = Vec::new();
            let has_more = store.collect_victims(hand, &limits, BATCH_BYTES, &mut victims);
            victims.retain(|victim| self.values.comes_back_as_it_is(victim));
            let now_ns = around.clock.monotonic_ns().max(1);
            self.writes_since_ns.store(now_ns, Ordering::Relaxed);
            let written = self.write(store, &victims);
            self.writes_since_ns.store(0, Ordering::Relaxed);
            match written {
                Ok(0) if has_more => {}
                Ok(0) => {
                    in_vain += 1;
                    limits.takes_used = in_vain + 1 >= ROUNDS_IN_VAIN;
                    if in_vain >= ROUNDS_IN_VAIN {
                        self.set_state(around, NOTHING_LEFT);
                        self.hold(around, false);
                        return TRIES_AGAIN;
                    }
                }
                Ok(_) => {
                    in_vain = 0;
                    self.set_state(around, OK);
                }
                Err(TierFault::Full) if self.frees_room(around, store) => {}
                Err(fault) => {
                    self.fail(around, &fault);
                    self.hold(around, false);
                    return TRIES_AGAIN;
                }
            }
            self.tick(around, store);
        }
        self.hold(around, false);
        REST
    }

    /// Lets requests that need memory continue if the present write has taken at least `time`.
    /// Called by another thread.
    pub(super) fn give_up_after(&self, time: Duration, around: &Around) {
        let since_ns = self.writes_since_ns.load(Ordering::Relaxed);
        let taken_ns = around.clock.monotonic_ns().saturating_sub(since_ns);
        let is_stalled = since_ns > 0 && u128::from(taken_ns) >= time.as_nanos();
        if is_stalled && self.state.load(Ordering::Relaxed) == OK {
            let seconds = time.as_secs();
            around.log.warning(format_args!(
                "Values stay in memory: the device of the tier has not written for {seconds} s"
            ));
            self.set_state(around, FAILED);
            self.hold(around, false);
        }
    }

    /// Brings values back into memory as far as it permits. Returns how long to rest.
    fn bring_back(&self, around: &Around, store: &mut Handle) -> Duration {
        self.hold(around, false);
        for database in 0..around.store.databases() {
            let mut cursor = 0;
            loop {
                if self.rest.is_over() {
                    return REST;
                }
                let left = store.stubs() > 0;
                self.set_state(around, if left { DRAINING } else { DRAINED });
                let (used, limit) = around.store.used_and_limit_bytes();
                if !left || limit > 0 && used >= limit {
                    // Requests that need memory are still refused, or cause eviction, as without a
                    // tier.
                    return TRIES_AGAIN;
                }
                cursor = self.bring_some_back(store, database, cursor);
                self.tick(around, store);
                if cursor == 0 {
                    break;
                }
            }
        }
        // Unreadable values do not become readable at once, so a retry waits.
        match store.stubs() {
            0 => REST,
            _ => TRIES_AGAIN,
        }
    }

    /// Brings back the cold values among some keys of a database. Returns the next cursor.
    fn bring_some_back(&self, store: &mut Handle, database: u16, cursor: u64) -> u64 {
        let mut cold = Vec::new();
        let next = store.scan(database, cursor, DRAIN_KEYS, |record| {
            if record.is_cold() {
                cold.push(record.key().to_vec());
            }
        });
        for name in cold {
            let key = store.key(database, &name);
            // A value that cannot be read stays cold. A value without space in memory is tried
            // again.
            let _stays = store.modify(&key, |entry| entry.promote());
        }
        next
    }

    /// Writes copies of values, and replaces their records by stubs. Returns the number of stubs.
    pub(super) fn write(&self, store: &mut Handle, victims: &[Victim]) -> Result<u64, TierFault> {
        let entries: Vec<_> = victims.iter().map(entry_of).collect();
        let places = self.tier.append_all(&entries)?;
        let mut count = 0;
        for (victim, place) in victims.iter().zip(places) {
            let locator = locator_of(place, victim.kind);
            if locator.is_some_and(|locator| store.swap_cold(victim, locator)) {
                count += 1;
            } else {
                self.tier.forget(place);
            }
        }
        self.values
            .figures
            .demoted
            .fetch_add(count, Ordering::Relaxed);
        Ok(count)
    }

    /// Frees space in a full tier, even from well-filled segments. Returns whether that succeeded.
    fn frees_room(&self, around: &Around, store: &mut Handle) -> bool {
        if self.tier.remove_dead() > 0 {
            return true;
        }
        let slot = self.tier.next_to_compact(FULL_COMPACT_PERCENT);
        let moved = slot.map(|slot| compact(&self.tier, store, slot));
        if let Some(Err(fault)) = &moved
            && fault.is_damage()
        {
            around.log.warning(format_args!(
                "A segment of the tier is left as it is: {fault}"
            ));
        }
        self.tier.remove_dead() > 0
    }

    /// Removes segments that are not named any more, and compacts sparse ones.
    fn tidy(&self, around: &Around, store: &mut Handle) {
        self.tier.remove_dead();
        if let Some(slot) = self
            .tier
            .next_to_compact(self.tuning.now().compact_below_percent)
            && let Err(fault) = compact(&self.tier, store, slot)
            && fault.is_damage()
        {
            around.log.warning(format_args!(
                "A segment of the tier is left as it is: {fault}"
            ));
        }
        self.tier.remove_dead();
    }

    /// Lets the store publish this handle's counts, as every thread with a handle must.
    fn tick(&self, around: &Around, store: &mut Handle) {
        store.enter();
        store.tick(around.clock.now_unix_ms());
        store.leave();
    }

    fn fail(&self, around: &Around, fault: &TierFault) {
        let state = if matches!(fault, TierFault::Full) {
            FULL
        } else {
            FAILED
        };
        if self.state.load(Ordering::Relaxed) != state {
            around
                .log
                .warning(format_args!("Values stay in memory: {fault}"));
        }
        self.set_state(around, state);
    }

    /// Sets the state. If no more can be demoted, `maxmemory-policy` applies.
    fn set_state(&self, around: &Around, state: u8) {
        self.state.store(state, Ordering::Relaxed);
        around.store.set_cold_room(state == OK);
    }

    /// Pauses or resumes requests that need memory.
    fn hold(&self, around: &Around, on: bool) {
        let gate = &around.shared.gate;
        if gate.is_memory_full() != on {
            gate.set_memory_full(on);
            if !on {
                around.requests.wake_all();
            }
        }
    }
}

fn entry_of(victim: &Victim) -> Entry<'_> {
    Entry {
        kind: victim.kind.number(),
        keyspace: victim.index,
        key: &victim.key,
        body: &victim.body,
    }
}
