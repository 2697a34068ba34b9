//! Mistakes that tests plant in whole servers, to see that they find them. A server that is built with the feature `planted`
//! makes the one that its environment names.
//!
//! In a build for users the question whether one is on is a constant, and nothing is read from the environment.

use std::cell::Cell;

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A replica applies every frame twice.
    ApplyTwice,
    /// A replica does not apply the first frame that comes after a link broke.
    SkipAtReconnect,
}

base::planted!(Bug);

/// What the environment calls the mistake that a server is to make.
pub const VARIABLE: &str = "PLANTED_BUG";

/// Plants what the environment names.
///
/// # Errors
/// A name that is none.
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

thread_local! {
    /// This thread has just attached to a primary.
    static HAS_ATTACHED: Cell<bool> = const { Cell::new(false) };
}

/// A replica attaches, on this thread.
#[inline]
pub(crate) fn note_attach() {
    if is_on(Bug::SkipAtReconnect) {
        HAS_ATTACHED.set(true);
    }
}

/// Whether the frame that is next is not applied.
#[inline]
pub(crate) fn skips_frame() -> bool {
    is_on(Bug::SkipAtReconnect) && HAS_ATTACHED.replace(false)
}
