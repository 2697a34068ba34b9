//! Events: what happened to a key, by name, for whoever watches the keyspace.
//!
//! An effect says how a change is repeated; an event says what clients call it ("lpush", "expired").
//! Command code states events beside effects, with the record still locked, so that those of one key
//! come in the order of its changes. Records that are new, that expire or are evicted, and keys that
//! are looked for in vain state theirs here. An event of a class that nobody asked for costs one load
//! and one predictable branch.

use base::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::fmt;

use crate::key::DatabaseId;
use crate::value::Cause;

/// Where events go.
///
/// One sink belongs to one [`crate::Handle`]; calls come from that handle's thread, most with the
/// key's bucket locked: a sink must not call back into the store and must not block.
pub trait EventSink: Send {
    /// Something happened to a key.
    fn event(&mut self, event: &Event<'_>);
}

/// Something that happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// What kind of thing happened: one class.
    pub class: EventClass,
    /// What happened, as clients call it.
    pub name: &'static str,
    /// Where.
    pub database: DatabaseId,
    /// To which key.
    pub key: &'a [u8],
}

/// A class of events, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClass(u64);

impl EventClass {
    /// No event at all.
    pub const NONE: Self = Self(0);
    /// What can happen to any value: deleted, renamed, given a deadline …
    pub const GENERIC: Self = Self(1 << 0);
    /// What happens to strings.
    pub const STRING: Self = Self(1 << 1);
    /// What happens to lists.
    pub const LIST: Self = Self(1 << 2);
    /// What happens to sets.
    pub const SET: Self = Self(1 << 3);
    /// What happens to hashes.
    pub const HASH: Self = Self(1 << 4);
    /// What happens to sorted sets.
    pub const SORTED_SET: Self = Self(1 << 5);
    /// A key's time came.
    pub const EXPIRED: Self = Self(1 << 6);
    /// A key went because memory was needed.
    pub const EVICTED: Self = Self(1 << 7);
    /// What happens to streams.
    pub const STREAM: Self = Self(1 << 8);
    /// A key was looked for that is not there.
    pub const KEY_MISS: Self = Self(1 << 9);
    /// What happens to values of types that are not built in.
    pub const MODULE: Self = Self(1 << 10);
    /// A key came that was not there.
    pub const NEW: Self = Self(1 << 11);

    /// Each class as one bit.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// These and others.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn has_all(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether one of `others` is among these.
    #[inline]
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

impl Event<'_> {
    /// The name of the event that nothing is left of a collection, or that a key was deleted.
    pub const DELETED: &'static str = "del";

    /// The name of the event that a key came that was not there.
    pub const CREATED: &'static str = "new";

    /// The name of the event that a key was looked for that is not there.
    pub const MISSED: &'static str = "keymiss";

    /// The class and name of a removal that nobody asked for.
    pub(crate) fn of_cause(cause: Cause) -> (EventClass, &'static str) {
        match cause {
            Cause::Expired => (EventClass::EXPIRED, "expired"),
            Cause::Evicted => (EventClass::EVICTED, "evicted"),
        }
    }
}

/// The classes that somebody wants, read by every thread.
#[derive(Debug, Default)]
pub(crate) struct Wanted(AtomicU64);

impl Wanted {
    /// Whether events of a class are wanted.
    #[inline]
    pub(crate) fn has(&self, class: EventClass) -> bool {
        EventClass(self.0.load(Ordering::Relaxed)).has(class)
    }

    /// Says which are.
    pub(crate) fn set(&self, classes: EventClass) {
        self.0.store(classes.0, Ordering::Relaxed);
    }
}

/// The sink of one thread, if it has one.
#[derive(Default)]
pub(crate) struct Outlet {
    sink: Cell<Option<Box<dyn EventSink>>>,
    /// Whether keys that are looked for in vain are no event.
    hides_misses: Cell<bool>,
}

impl Outlet {
    /// Installs or removes the sink.
    pub(crate) fn set(&self, sink: Option<Box<dyn EventSink>>) {
        self.sink.set(sink);
    }

    /// Says whether a key that is looked for in vain is no event; what held before.
    pub(crate) fn hide_misses(&self, on: bool) -> bool {
        self.hides_misses.replace(on)
    }

    /// Hands an event to the sink.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(&self, event: &Event<'_>) {
        if event.class == EventClass::KEY_MISS && self.hides_misses.get() {
            return;
        }
        if let Some(mut sink) = self.sink.take() {
            sink.event(event);
            self.sink.set(Some(sink));
        }
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outlet")
    }
}
