//! Sizes and times of a log, and the levels of durability.

/// Durability of appended frames, besides their copy in memory.
///
/// Levels are ordered by what they promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing is kept: no effects are logged.
    #[default]
    None = 0,
    /// Only checkpoints: no effects are logged.
    Checkpoint = 1,
    /// With the system before the reply leaves. Synced now and then; no write waits for it.
    Os = 2,
    /// Like [`Level::Os`], and synced every half second. Writes wait when the device is late.
    EverySecond = 3,
    /// Durable before the reply leaves.
    Always = 4,
}

impl Level {
    pub(super) fn of(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Checkpoint,
            2 => Self::Os,
            3 => Self::EverySecond,
            _ => Self::Always,
        }
    }

    /// Whether there is a log at this level.
    #[must_use]
    pub fn logs(self) -> bool {
        self >= Self::Os
    }
}

/// Sizes of a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length beyond which no further block is begun in a segment. A single block may be longer.
    pub segment_bytes: u64,
    /// Space that the first segment takes on the device; it takes more as it is filled.
    pub segment_bytes_first: u64,
    /// Unit of memory; a power of two, at least 8.
    pub chunk_bytes: u64,
    /// Memory in a mapped file, where supported: a multiple of the chunk size, or 0 for none.
    pub ring_bytes: u64,
    /// Length of the ring that is tried if `ring_bytes` is impossible: a multiple of the chunk
    /// size, or 0 for none.
    pub ring_bytes_min: u64,
    /// Part of the ring that is made ready when the log is opened, at least one chunk; more as the
    /// log is written.
    pub ring_bytes_first: u64,
    /// Bytes of a ring that are put into segments at once, at most a quarter of a segment. Each
    /// time costs the core some ten microseconds or more before the device begins; the size is
    /// bounded only by what writes wait for.
    pub piece_bytes: u64,
    /// A block of at least this many bytes of frames has the same page alignment in its file as in
    /// the ring, so that it goes to the device without a copy; so does every piece. A copy of a
    /// shorter block costs less than a write of its last page by itself.
    pub in_place_bytes: u64,
    /// Held bytes at which [`super::Log::has_room`] becomes `false`.
    pub held_bytes_max: u64,
    /// Maximum number of unsynced bytes at any level, however recent: the memory in use then stays
    /// in the caches, and no sync takes long.
    pub unsynced_bytes_max: u64,
    /// Seed of the salts; `None` takes it from the system.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 128 << 20,
            segment_bytes_first: 4 << 20,
            chunk_bytes: 1 << 20,
            ring_bytes: 0,
            ring_bytes_min: 0,
            ring_bytes_first: 8 << 20,
            piece_bytes: 2 << 20,
            in_place_bytes: 512 << 10,
            held_bytes_max: 256 << 20,
            unsynced_bytes_max: 8 << 20,
            seed: None,
        }
    }
}

const NS_PER_MS: u64 = 1_000_000;
/// At [`Level::EverySecond`] a sync begins when the oldest unsynced write is this old.
pub(super) const SYNC_NS: u64 = 500 * NS_PER_MS;
/// At [`Level::EverySecond`] no write begins while the oldest write that is not durable is older
/// than this.
pub(super) const LATE_NS: u64 = 900 * NS_PER_MS;
/// At lower levels a sync begins when the oldest unsynced write is this old, which bounds the
/// memory held.
pub(super) const LAZY_SYNC_NS: u64 = 5_000 * NS_PER_MS;
/// Delay before a file is tried again after a fault.
pub(super) const HEAL_MS: u64 = 50;
/// At [`Level::Always`] a sync waits for at most this fraction of the last one's duration, until
/// all but this fraction of the expected bytes have been appended.
pub(super) const GATHER_SHARE: u64 = 4;
/// Upper limit of that wait.
pub(super) const GATHER_NS_MAX: u64 = NS_PER_MS;
/// Maximum time that the syncing thread sleeps before it checks again.
pub(super) const LOOK_MS: u64 = 250;
