//! Why a node leads nothing although no entry of the control log says so: its server is about to
//! stop, or an operator is about to restart it. The reasons are independent: cancelling one order
//! does not cancel the other. A node that is about to stop or restart follows no new primary,
//! because that primary would count on its copy. If the restart is delayed, the node follows until
//! it comes.
//!
//! | | the server stops | it is to be restarted |
//! |---|---|---|
//! | SIGTERM, SHUTDOWN | begins | |
//! | SHUTDOWN ABORT | ends | |
//! | LEAVE FOR-RESTART | | begins, for [`RESTART_WITHIN_MS`] |
//! | it was given up: nobody has taken over | | ends |
//! | UNDRAIN of this node, or an order to promote it | | ends |
//! | no restart has come | | ends |

/// Maximum time until an announced restart. Without it, the operator has left or changed plans, and
/// a node that never leads would be missing at the next failover.
const RESTART_WITHIN_MS: u64 = 600_000;

/// If a restart has not come this long after its order was answered, it is delayed.
const FOLLOW_AFTER_MS: u64 = 5_000;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The server is about to stop.
    Stop,
    /// It is about to be restarted.
    Restart,
}

/// The present reasons.
#[derive(Debug, Default)]
pub(super) struct Retirement {
    stops: bool,
    restart_until_ms: Option<u64>,
    /// Until when the restart may come at any moment; unlimited until its order is answered.
    imminent_until_ms: Option<u64>,
}

impl Retirement {
    /// Whether there is a reason.
    pub(super) const fn is_on(&self) -> bool {
        self.stops || self.restart_until_ms.is_some()
    }

    /// Whether this node follows a new primary.
    pub(super) const fn follows(&self) -> bool {
        !self.stops && self.imminent_until_ms.is_none()
    }

    /// Notes that the order to restart was answered.
    pub(super) fn answered(&mut self, now_ms: u64) {
        self.imminent_until_ms = self
            .imminent_until_ms
            .map(|_| now_ms.saturating_add(FOLLOW_AFTER_MS));
    }

    /// Whether the restart is delayed; true once.
    pub(super) fn is_late(&mut self, now_ms: u64) -> bool {
        let late = self
            .imminent_until_ms
            .take_if(|until_ms| now_ms >= *until_ms);
        late.is_some()
    }

    pub(super) fn begin(&mut self, reason: Reason, now_ms: u64) {
        match reason {
            Reason::Stop => self.stops = true,
            Reason::Restart => {
                self.restart_until_ms = Some(now_ms.saturating_add(RESTART_WITHIN_MS));
                self.imminent_until_ms = Some(u64::MAX);
            }
        }
    }

    /// Ends a reason, and returns whether it was the last.
    pub(super) fn end(&mut self, reason: Reason) -> bool {
        let was_on = self.is_on();
        match reason {
            Reason::Stop => self.stops = false,
            Reason::Restart => {
                self.restart_until_ms = None;
                self.imminent_until_ms = None;
            }
        }
        was_on && !self.is_on()
    }

    /// Whether the restart has not come in time.
    pub(super) fn is_overdue(&self, now_ms: u64) -> bool {
        self.restart_until_ms
            .is_some_and(|until_ms| now_ms >= until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_ends_leaves_the_other() {
        for (first, other) in [
            (Reason::Stop, Reason::Restart),
            (Reason::Restart, Reason::Stop),
        ] {
            let mut retirement = Retirement::default();
            assert!(!retirement.end(first), "there was none");
            retirement.begin(first, 5);
            retirement.begin(other, 6);
            assert!(!retirement.end(first) && retirement.is_on());
            assert!(retirement.end(other) && !retirement.is_on());
        }
    }

    #[test]
    fn who_is_to_be_restarted_follows_where_that_does_not_come_at_once_and_who_stops_does_not() {
        let mut retirement = Retirement::default();
        retirement.begin(Reason::Restart, 0);
        assert!(!retirement.is_late(FOLLOW_AFTER_MS), "it is not answered");
        retirement.answered(7);
        assert!(!retirement.is_late(FOLLOW_AFTER_MS + 6) && !retirement.follows());
        assert!(
            retirement.is_late(FOLLOW_AFTER_MS + 7) && !retirement.is_late(FOLLOW_AFTER_MS + 7)
        );
        assert!(retirement.follows() && retirement.is_on());
        retirement.begin(Reason::Stop, 0);
        assert!(!retirement.follows());
        assert!(!retirement.end(Reason::Stop) && retirement.follows());
    }

    #[test]
    fn a_restart_that_does_not_come_is_overdue_and_a_stop_is_not() {
        let mut retirement = Retirement::default();
        retirement.begin(Reason::Stop, 0);
        assert!(!retirement.is_overdue(u64::MAX));
        retirement.begin(Reason::Restart, 5);
        assert!(!retirement.is_overdue(RESTART_WITHIN_MS + 4));
        assert!(retirement.is_overdue(RESTART_WITHIN_MS + 5));
    }
}
