//! Why a node leads nothing, though no entry of the control log says so: its server is about to stop, or an operator is
//! about to restart it. Each reason ends for itself: an order that comes to nothing does not take back another.
//!
//! | | the server stops | it is to be restarted |
//! |---|---|---|
//! | SIGTERM, SHUTDOWN | begins | |
//! | SHUTDOWN ABORT | ends | |
//! | LEAVE FOR-RESTART | | begins, for [`RESTART_WITHIN_MS`] |
//! | it was given up: nobody has taken over | | ends |
//! | UNDRAIN of this node, or an order to promote it | | ends |
//! | no restart has come | | ends |

/// A node that is to be restarted is, within this time. Otherwise whoever ordered that is gone or has changed his mind, and a
/// node that never leads would be missed at the next failover.
const RESTART_WITHIN_MS: u64 = 600_000;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The server is about to stop.
    Stop,
    /// It is to be restarted.
    Restart,
}

/// The reasons there are now.
#[derive(Debug, Default)]
pub(super) struct Retirement {
    stops: bool,
    restart_until_ms: Option<u64>,
}

impl Retirement {
    /// Whether there is a reason.
    pub(super) const fn is_on(&self) -> bool {
        self.stops || self.restart_until_ms.is_some()
    }

    pub(super) fn begin(&mut self, reason: Reason, now_ms: u64) {
        match reason {
            Reason::Stop => self.stops = true,
            Reason::Restart => {
                self.restart_until_ms = Some(now_ms.saturating_add(RESTART_WITHIN_MS));
            }
        }
    }

    /// Whether that reason was the last.
    pub(super) fn end(&mut self, reason: Reason) -> bool {
        let was_on = self.is_on();
        match reason {
            Reason::Stop => self.stops = false,
            Reason::Restart => self.restart_until_ms = None,
        }
        was_on && !self.is_on()
    }

    /// Whether no restart has come in time.
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
    fn a_restart_that_does_not_come_is_overdue_and_a_stop_is_not() {
        let mut retirement = Retirement::default();
        retirement.begin(Reason::Stop, 0);
        assert!(!retirement.is_overdue(u64::MAX));
        retirement.begin(Reason::Restart, 5);
        assert!(!retirement.is_overdue(RESTART_WITHIN_MS + 4));
        assert!(retirement.is_overdue(RESTART_WITHIN_MS + 5));
    }
}
