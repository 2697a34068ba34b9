//! Bugs that tests plant in whole servers, to check that they find them. A server that is built
//! with the feature `planted` has the bug that its environment names.
//!
//! In a build for users, the test for a bug is a constant, and nothing is read from the
//! environment.

use std::cell::Cell;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A replica applies every frame twice.
    ApplyTwice,
    /// A replica does not apply the first frame after a link was interrupted.
    SkipAtReconnect,
}

base::planted!(Bug);

/// Environment variable that names the bug.
pub const VARIABLE: &str = "PLANTED_BUG";

/// Plants the bug that the environment names.
///
/// # Errors
/// The name is unknown.
#[cfg(feature = "planted")]
pub fn from_environment() -> Result<(), String> {
    let Ok(name) = std::env::var(VARIABLE) else {
        return Ok(());
    };
    match name.as_str() {
        "acknowledge-before-sync" => {
            durability::planted::plant_everywhere(durability::planted::Bug::AcknowledgedEarly);
        }
        "apply-twice" => plant_everywhere(Bug::ApplyTwice),
        "skip-at-reconnect" => plant_everywhere(Bug::SkipAtReconnect),
        _ => return Err(format!("{VARIABLE}: nothing is called {name}")),
    }
    Ok(())
}

/// Environment variable with the excess of the server's clock rate over the machine's, in parts per
/// million.
#[cfg(feature = "planted")]
const CLOCK_VARIABLE: &str = "PLANTED_CLOCK_PPM";

/// Returns the clock of a server.
#[cfg(not(feature = "planted"))]
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Returns the clock of a server, with another rate if the environment says so.
#[cfg(feature = "planted")]
pub(crate) fn clock() -> Arc<dyn Clock> {
    let text = std::env::var(CLOCK_VARIABLE).ok();
    let ppm = text.and_then(|text| text.parse::<i64>().ok());
    Arc::new(Drifting {
        real: SystemClock::new(),
        ppm: ppm.unwrap_or(0),
    })
}

/// A clock that counts leases at another rate. Its time of day is right.
#[cfg(feature = "planted")]
struct Drifting {
    real: SystemClock,
    ppm: i64,
}

#[cfg(feature = "planted")]
impl Clock for Drifting {
    fn now_unix_us(&self) -> u64 {
        self.real.now_unix_us()
    }

    fn monotonic_ns(&self) -> u64 {
        self.real.monotonic_ns()
    }

    fn boottime_ms(&self) -> u64 {
        let real_ms = i128::from(self.real.boottime_ms());
        let drifted_ms = real_ms + real_ms * i128::from(self.ppm) / 1_000_000;
        u64::try_from(drifted_ms).unwrap_or(0)
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.real.thread_cpu_ns()
    }
}

thread_local! {
    /// Whether this thread has just attached to a primary.
    static HAS_ATTACHED: Cell<bool> = const { Cell::new(false) };
}

/// Records that a replica attaches, on this thread.
#[inline]
pub(crate) fn note_attach() {
    if is_on(Bug::SkipAtReconnect) {
        HAS_ATTACHED.set(true);
    }
}

/// Whether the next frame is skipped.
#[inline]
pub(crate) fn skips_frame() -> bool {
    is_on(Bug::SkipAtReconnect) && HAS_ATTACHED.replace(false)
}
