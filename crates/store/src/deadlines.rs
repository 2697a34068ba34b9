//! When which key stops existing, as far as one thread set the deadlines.
//!
//! One wheel per index that this thread armed deadlines of. An index is known by its id, not by its
//! database, so that SWAPDB and FLUSHDB need not tell: a wheel whose index is gone is dropped.
//!
//! A deadline is armed when a record gets one that is earlier than the one it had. When an armed
//! one comes due the record is looked at: it may be gone, have no deadline any more, or a later
//! one, which is armed then. So at any time each deadline has an armed time that is not later.

use crate::wheel::Wheel;

/// What one thread armed.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    wheels: Vec<Armed>,
}

/// The wheel of an index.
#[derive(Debug)]
pub(crate) struct Armed {
    pub(crate) index_id: u64,
    pub(crate) wheel: Wheel,
}

impl Deadlines {
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
            });
            self.wheels.len() - 1
        });
        self.wheels[at].wheel.arm(hash, deadline_unix_ms);
    }

    /// Takes the wheels out, to work on them.
    pub(crate) fn take(&mut self) -> Vec<Armed> {
        std::mem::take(&mut self.wheels)
    }

    /// Puts back what [`Deadlines::take`] gave.
    pub(crate) fn put_back(&mut self, wheels: Vec<Armed>) {
        debug_assert!(self.wheels.is_empty(), "nothing is armed meanwhile");
        self.wheels = wheels;
    }
}
