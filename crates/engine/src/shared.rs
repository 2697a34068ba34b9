//! State that the engines of a server share. Each part has one owner that changes it; engines read
//! it.
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

/// State that every engine over one store reads, on any thread.
#[derive(Debug, Default)]
pub struct Shared {
    /// Configured limits that commands check.
    pub settings: Settings,
    /// What requests must wait for at present.
    pub gate: Gate,
    /// Which commands are refused at present.
    pub refusals: Refusals,
    /// What is observed about commands, and its thresholds.
    pub observer: Observer,
    /// Which hash slots this node serves, in cluster mode.
    pub hash_slots: HashSlots,
    /// Which users may do what.
    pub access: Access,
    /// When a database is to be emptied.
    pub delayed_flush: DelayedFlush,
    /// Scripts and functions.
    pub scripts: Arc<Scripts>,
}

impl Shared {
    /// Whether every request must be handled one by one, until the next check.
    #[inline]
    pub(crate) fn looks_at_each(&self) -> bool {
        !self.gate.is_open()
            || self.observer.looks_at_each()
            || self.refusals.concern_reads()
            || self.hash_slots.usage.is_on()
    }

    /// Whether every write must be handled one by one, until the next check.
    ///
    /// The gate is checked first. A thread that ends this server's office closes the gate, waits
    /// until no thread is inside the store, sets the refusals, and opens the gate. A thread that
    /// entered the store meanwhile has seen the gate closed, and a thread that sees it open sees
    /// the refusals. In the other order, the gate might open between the two checks, and a write
    /// might be accepted that goes to no log.
    #[inline]
    pub(crate) fn looks_at_writes(&self) -> bool {
        !self.gate.is_open() || self.refusals.are_any()
    }
}
