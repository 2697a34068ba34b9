//! Events: what happened to a key, by name, for observers of the keyspace.
//!
//! An effect says how a change is repeated; an event says what clients call it ("lpush",
//! "expired"). Command code states events beside effects, with the record still locked, so that the
//! events of one key come in the order of its changes. This crate itself states the events of new,
//! expired and evicted records, and of look-ups of missing keys. An event of a class without
//! subscribers costs one load and one predictable branch.

use base::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::fmt;

use crate::key::DatabaseId;
use crate::value::Cause;

/// The destination of events.
///
/// One sink belongs to one [`crate::Handle`]; calls come from that handle's thread, most with the
/// key's bucket locked: a sink must not call back into the store and must not block.
pub trait EventSink: Send {
    /// Takes an event of a key.
    fn event(&mut self, event: &Event<'_>);
}

/// Something that happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Kind of event: one class.
    pub class: EventClass,
    /// Name of the event for clients.
    pub name: &'static str,
    /// The key's database.
    pub database: DatabaseId,
    /// The key.
    pub key: &'a [u8],
}

/// A class of events, or a set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClass(u64);

impl EventClass {
    /// No event at all.
    pub const NONE: Self = Self(0);
    /// Events that any value can have: deleted, renamed, given a deadline …
    pub const GENERIC: Self = Self(1 << 0);
    /// Events of strings.
    pub const STRING: Self = Self(1 << 1);
    /// Events of lists.
    pub const LIST: Self = Self(1 << 2);
    /// Events of sets.
    pub const SET: Self = Self(1 << 3);
    /// Events of hashes.
    pub const HASH: Self = Self(1 << 4);
    /// Events of sorted sets.
    pub const SORTED_SET: Self = Self(1 << 5);
    /// A key expired.
    pub const EXPIRED: Self = Self(1 << 6);
    /// A key was evicted because memory was needed.
    pub const EVICTED: Self = Self(1 << 7);
    /// Events of streams.
    pub const STREAM: Self = Self(1 << 8);
    /// A look-up of a missing key.
    pub const KEY_MISS: Self = Self(1 << 9);
    /// Events of values of types that are not built in.
    pub const MODULE: Self = Self(1 << 10);
    /// A key was created.
    pub const NEW: Self = Self(1 << 11);

    /// The classes as bits, one per class.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns these classes and others.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether all of `others` are among these.
    #[must_use]
    pub const fn has_all(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether any of `others` is among these.
    #[inline]
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

impl Event<'_> {
    /// Name of the event that a collection has become empty, or that a key was deleted.
    pub const DELETED: &'static str = "del";

    /// Name of the event that a key was created.
    pub const CREATED: &'static str = "new";

    /// Name of the event that a missing key was looked up.
    pub const MISSED: &'static str = "keymiss";

    /// Returns the class and name of a removal that no command asked for.
    pub(crate) fn of_cause(cause: Cause) -> (EventClass, &'static str) {
        match cause {
            Cause::Expired => (EventClass::EXPIRED, "expired"),
            Cause::Evicted => (EventClass::EVICTED, "evicted"),
        }
    }
}

/// The classes that have subscribers, read by every thread.
#[derive(Debug, Default)]
pub(crate) struct Wanted(AtomicU64);

impl Wanted {
    /// Whether events of a class are wanted.
    #[inline]
    pub(crate) fn has(&self, class: EventClass) -> bool {
        EventClass(self.0.load(Ordering::Relaxed)).has(class)
    }

    /// Sets the wanted classes.
    pub(crate) fn set(&self, classes: EventClass) {
        self.0.store(classes.0, Ordering::Relaxed);
    }
}

/// The sink of one thread, if it has one.
#[derive(Default)]
pub(crate) struct Outlet {
    sink: Cell<Option<Box<dyn EventSink>>>,
    /// Whether look-ups of missing keys are no events.
    hides_misses: Cell<bool>,
}

impl Outlet {
    /// Installs or removes the sink.
    pub(crate) fn set(&self, sink: Option<Box<dyn EventSink>>) {
        self.sink.set(sink);
    }

    /// Sets whether a look-up of a missing key is no event. Returns the previous setting.
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
