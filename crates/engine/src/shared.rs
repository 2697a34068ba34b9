//! What the engines of a server have in common. Each part belongs to whoever changes it; engines read.
//!
//! | part | changed by |
//! |---|---|
//! | settings | CONFIG SET |
//! | gate | what makes requests wait: CLIENT PAUSE, a full log, eviction, a change of role |
//! | refusals | persistence (loading, faults of the log and of saves) and replication (role, replicas) |
//! | observer | itself, by what engines report to it; its thresholds by CONFIG SET |
//! | hash slots | cluster mode |
//! | access | ACL and AUTH |
//! | delayed flush | MCFLUSH |
//! | scripts | SCRIPT, FUNCTION and EVAL |

use std::sync::Arc;

use access::Access;

use crate::delayed_flush::DelayedFlush;
use crate::gate::Gate;
use crate::hash_slots::HashSlots;
use crate::observer::Observer;
use crate::refusals::Refusals;
use crate::scripts::known::Scripts;
use crate::settings::Settings;

/// State that every engine over one store reads, whatever thread it is on.
#[derive(Debug, Default)]
pub struct Shared {
    /// Configured limits that commands check.
    pub settings: Settings,
    /// What requests have to wait for at present.
    pub gate: Gate,
    /// What is refused at present.
    pub refusals: Refusals,
    /// What is noticed about commands, and from when on.
    pub observer: Observer,
    /// Which hash slots are served here, in cluster mode.
    pub hash_slots: HashSlots,
    /// Who may do what.
    pub access: Access,
    /// When a database is to be emptied.
    pub delayed_flush: DelayedFlush,
    /// Scripts and functions.
    pub scripts: Arc<Scripts>,
}

impl Shared {
    /// Whether every request has to be looked at by itself, until it is asked again.
    #[inline]
    pub(crate) fn looks_at_each(&self) -> bool {
        !self.gate.is_open()
            || self.observer.looks_at_each()
            || self.refusals.concern_reads()
            || self.hash_slots.usage.is_on()
    }

    /// Whether every request that changes something has to be looked at by itself, until it is asked again.
    ///
    /// The gate is looked at first. Who ends an office closes it, waits until nobody is inside of the store, says what is
    /// refused, and opens it: whoever came inside meanwhile has seen it closed, and whoever sees it open sees the refusals.
    /// Otherwise the gate might open between the two looks, and a write be taken that goes to no log.
    #[inline]
    pub(crate) fn looks_at_writes(&self) -> bool {
        !self.gate.is_open() || self.refusals.are_any()
    }
}
