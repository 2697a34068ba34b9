//! Sizes and times of a log, and the levels of durability.

/// What is done with what is appended, besides keeping it in memory.
///
/// The order is that of what is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing is kept: no effects are stated.
    #[default]
    None = 0,
    /// Checkpoints alone: no effects are stated.
    Checkpoint = 1,
    /// In the hands of the system before the reply leaves. Synced now and then, nobody waits for it.
    Os = 2,
    /// As [`Level::Os`], and synced every half second. Who writes waits when the device is late.
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
    /// A segment is not begun to be written beyond this; a single block may be longer.
    pub segment_bytes: u64,
    /// The first segment takes so much of the device, and more as it is filled.
    pub segment_bytes_first: u64,
    /// Unit of memory; a power of two, at least 8.
    pub chunk_bytes: u64,
    /// Memory that is a mapped file's, where that can be had: a number of chunks, or 0 for none.
    pub ring_bytes: u64,
    /// One of so many bytes is tried where that many cannot be had: a number of chunks, or 0 for none.
    pub ring_bytes_min: u64,
    /// So much of the ring is made ready when the log is opened, a chunk at least; more as the log is written to.
    pub ring_bytes_first: u64,
    /// So much of a ring is put into segments at once, but no more than a quarter of a segment. Each time costs the core
    /// some ten microseconds or more before the device has begun, and only what writes wait for bounds it.
    pub piece_bytes: u64,
    /// A block of so many bytes of frames stands in its file as it does in the ring, so that it goes to the device without
    /// a copy, and so does every piece. Shorter ones are copied sooner than their last page is written by itself.
    pub in_place_bytes: u64,
    /// [`super::Log::has_room`] is `false` when so much is held.
    pub held_bytes_max: u64,
    /// So much is not left unsynced at any level, however recent: what is in use of memory then stays in the
    /// caches, and no sync takes long.
    pub unsynced_bytes_max: u64,
    /// Seed of the salts; none takes it from the system.
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
/// At [`Level::EverySecond`] a sync begins when the oldest write is so old.
pub(super) const SYNC_NS: u64 = 500 * NS_PER_MS;
/// At [`Level::EverySecond`] nobody writes while the oldest write that is not durable is so old.
pub(super) const LATE_NS: u64 = 900 * NS_PER_MS;
/// At lower levels a sync begins when the oldest write is so old: it bounds what is held in memory.
pub(super) const LAZY_SYNC_NS: u64 = 5_000 * NS_PER_MS;
/// How long to wait before a file is tried again after a fault.
pub(super) const HEAL_MS: u64 = 50;
/// At [`Level::Always`] a sync waits for such a share of what the last one took, until all but such a share are
/// there of those who could be.
pub(super) const GATHER_SHARE: u64 = 4;
/// And no longer than this.
pub(super) const GATHER_NS_MAX: u64 = NS_PER_MS;
/// How long the one who syncs waits at most before it looks again.
pub(super) const LOOK_MS: u64 = 250;
