//! When which key stops existing, as far as one thread set the deadlines.
//!
//! One wheel per index that this thread armed deadlines of. An index is known by its id, not by its
//! database, so that SWAPDB and FLUSHDB need not tell: a wheel whose index is gone is dropped.
//!
//! A deadline is armed when a record gets one that is earlier than the one it had. When an armed
//! one comes due the record is looked at: it may be gone, have no deadline any more, or a later
//! one, which is armed then. So at any time each deadline has an armed time that is not later.
//!
//! Records that go before their time leave their armed time behind. A wheel with many of those is
//! replaced: the index is walked a few buckets per tick, and what has a deadline is armed in a new
//! wheel; what is armed meanwhile is armed in both.

use crate::wheel::Wheel;

/// A wheel is not replaced below so many armed times.
const REPLACE_FROM: usize = 4096;

/// Nothing is due at any time.
const NEVER: u64 = u64::MAX;

/// What one thread armed.
#[derive(Debug)]
pub(crate) struct Deadlines {
    wheels: Vec<Armed>,
    /// Not later than anything armed is due; [`NEVER`] where nothing is armed.
    next_unix_ms: u64,
    /// Bytes of the wheels that the ledger knows of.
    told_bytes: i64,
}

/// The wheel of an index.
#[derive(Debug)]
pub(crate) struct Armed {
    pub(crate) index_id: u64,
    pub(crate) wheel: Wheel,
    pub(crate) replacement: Option<Replacement>,
    /// Times that the wheel was made with: those of members of structures are counted nowhere else.
    pub(crate) begun_with: usize,
}

/// A wheel that is being filled from the index.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) wheel: Wheel,
    /// Where the walk goes on.
    pub(crate) position: u64,
}

impl Armed {
    fn bytes(&self) -> usize {
        let replacement = self.replacement.as_ref();
        self.wheel.bytes() + replacement.map_or(0, |other| other.wheel.bytes())
    }

    /// Whether most of what is armed belongs to records that are gone, `live` being left.
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

    /// Puts the new wheel in the place of the old; the old one, which takes long to drop.
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
    /// When there is something to look at next, if ever: not later than the first deadline, and a little earlier at
    /// most where that is far ahead.
    #[inline]
    pub(crate) fn next_unix_ms(&self) -> Option<u64> {
        (self.next_unix_ms != NEVER).then_some(self.next_unix_ms)
    }

    /// Asks for a look at the key of `hash` at a time.
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

    /// Bytes by which the wheels grew since this was asked last.
    pub(crate) fn take_growth(&mut self) -> i64 {
        let bytes: usize = self.wheels.iter().map(Armed::bytes).sum();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let growth = bytes - self.told_bytes;
        self.told_bytes = bytes;
        growth
    }

    /// Times armed for an index, those of records that are gone included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.wheels.iter().map(|armed| armed.wheel.len()).sum()
    }

    /// Puts back what [`Deadlines::take`] gave.
    pub(crate) fn put_back(&mut self, wheels: Vec<Armed>) {
        debug_assert!(self.wheels.is_empty(), "nothing is armed meanwhile");
        let due = wheels.iter().filter_map(|armed| armed.wheel.next_unix_ms());
        self.next_unix_ms = due.min().unwrap_or(NEVER);
        self.wheels = wheels;
    }
}
