//! The deadlines that one thread has armed.
//!
//! There is one wheel per index in which this thread armed deadlines. An index is known by its id,
//! not by its database, so that SWAPDB and FLUSHDB need not report: a wheel whose index is gone is
//! dropped.
//!
//! A deadline is armed when a record gets one that is earlier than the one it had. When an armed
//! time comes, the record is looked at: it may be gone, or have no deadline any more, or a later
//! one, which is then armed. So at any time each deadline has an armed time that is not later.
//!
//! Records that are removed before their deadline leave their armed time behind. A wheel with many
//! of those is replaced: the index is walked a few buckets per tick, and every deadline found is
//! armed in a new wheel; what is armed meanwhile is armed in both.

use crate::wheel::Wheel;

/// A wheel with fewer armed times than this is not replaced.
const REPLACE_FROM: usize = 4096;

/// Nothing is due at any time.
const NEVER: u64 = u64::MAX;

/// The deadlines that one thread armed.
#[derive(Debug)]
pub(crate) struct Deadlines {
    wheels: Vec<Armed>,
    /// Not later than any armed time; [`NEVER`] if nothing is armed.
    next_unix_ms: u64,
    /// Bytes of the wheels that were reported to the ledger.
    told_bytes: i64,
}

/// The wheel of an index.
#[derive(Debug)]
pub(crate) struct Armed {
    pub(crate) index_id: u64,
    pub(crate) wheel: Wheel,
    pub(crate) replacement: Option<Replacement>,
    /// Number of armed times that the wheel was made with: those of members of structures are
    /// counted nowhere else.
    pub(crate) begun_with: usize,
}

/// A wheel that is being filled from the index.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) wheel: Wheel,
    /// Where the walk continues.
    pub(crate) position: u64,
}

impl Armed {
    fn bytes(&self) -> usize {
        let replacement = self.replacement.as_ref();
        self.wheel.bytes() + replacement.map_or(0, |other| other.wheel.bytes())
    }

    /// Whether most armed times belong to records that are gone; `live` records are left.
    pub(crate) fn is_stale(&self, live: usize) -> bool {
        let needed = live.max(self.begun_with).saturating_mul(2);
        self.replacement.is_none() && self.wheel.len() > REPLACE_FROM.max(needed)
    }

    /// Begins to replace the wheel.
    pub(crate) fn begin_replacement(&mut self, now_unix_ms: u64) {
        self.replacement = Some(Replacement {
            wheel: Wheel::new(now_unix_ms),
            position: 0,
        });
    }

    /// Replaces the old wheel with the new one. Returns the old wheel, which takes long to drop.
    pub(crate) fn finish_replacement(&mut self) -> Option<Wheel> {
        let replacement = self.replacement.take()?;
        self.begun_with = replacement.wheel.len();
        Some(std::mem::replace(&mut self.wheel, replacement.wheel))
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            wheels: Vec::new(),
            next_unix_ms: NEVER,
            told_bytes: 0,
        }
    }
}

impl Deadlines {
    /// Returns when there is something to look at next, or `None`. The time is not later than the
    /// first deadline, and at most a little earlier if that is far ahead.
    #[inline]
    pub(crate) fn next_unix_ms(&self) -> Option<u64> {
        (self.next_unix_ms != NEVER).then_some(self.next_unix_ms)
    }

    /// Arms a look at the key of `hash` at a time.
    pub(crate) fn arm(
        &mut self,
        index_id: u64,
        hash: u64,
        deadline_unix_ms: u64,
        now_unix_ms: u64,
    ) {
        let known = self
            .wheels
            .iter()
            .position(|armed| armed.index_id == index_id);
        let at = known.unwrap_or_else(|| {
            self.wheels.push(Armed {
                index_id,
                wheel: Wheel::new(now_unix_ms),
                replacement: None,
                begun_with: 0,
            });
            self.wheels.len() - 1
        });
        self.next_unix_ms = self.next_unix_ms.min(deadline_unix_ms);
        let armed = &mut self.wheels[at];
        armed.wheel.arm(hash, deadline_unix_ms);
        if let Some(replacement) = &mut armed.replacement {
            replacement.wheel.arm(hash, deadline_unix_ms);
        }
    }

    /// Takes the wheels out, to work on them.
    pub(crate) fn take(&mut self) -> Vec<Armed> {
        std::mem::take(&mut self.wheels)
    }

    /// Returns the bytes by which the wheels grew since the last call.
    pub(crate) fn take_growth(&mut self) -> i64 {
        let bytes: usize = self.wheels.iter().map(Armed::bytes).sum();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let growth = bytes - self.told_bytes;
        self.told_bytes = bytes;
        growth
    }

    /// Number of times armed for an index, including those of records that are gone.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.wheels.iter().map(|armed| armed.wheel.len()).sum()
    }

    /// Puts the wheels from [`Deadlines::take`] back.
    pub(crate) fn put_back(&mut self, wheels: Vec<Armed>) {
        debug_assert!(self.wheels.is_empty(), "nothing is armed meanwhile");
        let due = wheels.iter().filter_map(|armed| armed.wheel.next_unix_ms());
        self.next_unix_ms = due.min().unwrap_or(NEVER);
        self.wheels = wheels;
    }
}
