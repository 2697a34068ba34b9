//! Records what requests took on a thread, and reports the notable ones.

use std::sync::atomic::Ordering;

use base::clock::Clock;

use crate::client_record::ClientRecord;
use crate::command_index::CommandIndex;
use crate::counters::EngineCounters;
use crate::observer::Observer;

/// Everything needed to record how long something took.
#[derive(Clone, Copy)]
pub struct Ledger<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    pub(crate) counters: &'a EngineCounters,
    pub(crate) observer: &'a Observer,
    /// Monotonic time at which the thread's turn began. Nothing in the turn took longer than the
    /// time since then, even if the machine's clock is changed.
    pub(super) turn_started_ns: u64,
}

impl Ledger<'_> {
    /// Records that a script called a command that took as long as another call of the same
    /// command.
    #[inline]
    pub(crate) fn enter_like(&self, ns: u64, index: CommandIndex) {
        let in_detail = self.observer.tracks_latency();
        self.counters.count_time(index, 1, ns, in_detail);
    }

    /// Records the first key of a sampled request.
    pub(super) fn note_key(&self, first: Option<&[u8]>, client: &ClientRecord, now_unix_ms: u64) {
        let key = first.map(|key| (key, hash_of(key)));
        let database = client.database.load(Ordering::Relaxed);
        self.observer
            .hot_keys
            .add(now_unix_ms / 1000, database, key);
    }

    /// Returns a time span, limited to the age of the turn. A measured span is longer if the
    /// machine's clock was changed meanwhile.
    #[cold]
    pub(super) fn believable(&self, span_ns: u64) -> u64 {
        let turn_ns = self
            .clock
            .monotonic_ns()
            .saturating_sub(self.turn_started_ns);
        span_ns.min(turn_ns)
    }
}

/// Returns a hash that distinguishes keys in a small table: FNV-1a.
fn hash_of(key: &[u8]) -> u64 {
    key.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
