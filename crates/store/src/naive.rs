//! The obvious store: ordered maps behind one lock.
//!
//! It exists to prove the interface: whatever command code does through the five operations has to
//! work here as well, with nothing shared but the interface. It is the twin that the real index is
//! compared with in property tests. Nothing about it is fast.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use structures::{Object, Structure};

use crate::effect::{Effect, EffectSink, Source};
use crate::entry::Entry;
use crate::event::{Event, EventClass, Outlet, Wanted};
use crate::hasher::Hasher;
use crate::key::{DatabaseId, Key};
use crate::layout::Form;
use crate::listeners::{ChangeKind, KeyChange, Listener, Listeners, Teller};
use crate::owned::{Content, Owned};
use crate::record::Record;
use crate::scan::HeldLong;
use crate::snapshot::naive::save_maps;
use crate::snapshot::{SnapshotInProgress, SnapshotLimits, SnapshotSink, SnapshotStep};
use crate::value::{Cause, Deadline, EMBEDDED_BYTES_MAX, Encoding, StoreError, Use, next_etag};

pub(crate) type Map = BTreeMap<Vec<u8>, Cell>;

/// One value and its attributes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) data: Data,
    pub(crate) deadline_unix_ms: Option<u64>,
    pub(crate) etag: u64,
}

impl Cell {
    fn is_expired(&self, now_unix_ms: u64) -> bool {
        self.deadline_unix_ms.is_some_and(|at| at <= now_unix_ms)
    }

    /// Removes due members of a structure. Returns whether any are left.
    fn expire_members(&mut self, now_unix_ms: u64, visit: impl FnMut(&[u8])) -> bool {
        match &mut self.data {
            Data::Object(object) => {
                object.expire_members(now_unix_ms, usize::MAX, visit) == 0
                    || !object.is_to_be_removed()
            }
            Data::Integer(_) | Data::Bytes { .. } => true,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Integer(i64),
    Bytes {
        bytes: Vec<u8>,
        changed_in_place: bool,
    },
    Object(Object),
}

impl Data {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        match base::number::parse_i64(bytes) {
            Some(number) => Self::Integer(number),
            None => Self::Bytes {
                bytes: bytes.to_vec(),
                changed_in_place: false,
            },
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Integer(number) => number.to_string().into_bytes(),
            Self::Bytes { bytes, .. } => bytes.clone(),
            Self::Object(_) => Vec::new(),
        }
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Bytes { .. } | Self::Object(_) => None,
        }
    }

    pub(crate) fn object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            Self::Integer(_) | Self::Bytes { .. } => None,
        }
    }

    /// Returns the bytes for a change in place; an integer becomes its text first.
    fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, StoreError> {
        if let Self::Integer(number) = self {
            *self = Self::Bytes {
                bytes: number.to_string().into_bytes(),
                changed_in_place: false,
            };
        }
        match self {
            Self::Bytes {
                bytes,
                changed_in_place,
            } => {
                *changed_in_place = true;
                Ok(bytes)
            }
            Self::Integer(_) => unreachable!("turned into bytes above"),
            Self::Object(_) => Err(StoreError::WrongKind),
        }
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match self {
            Self::Integer(_) => Encoding::Integer,
            Self::Bytes {
                bytes,
                changed_in_place,
            } if *changed_in_place || bytes.len() > EMBEDDED_BYTES_MAX => Encoding::Raw,
            Self::Bytes { .. } => Encoding::Embedded,
            Self::Object(object) => Encoding::Object(object.encoding()),
        }
    }

    fn to_content(&self) -> Content {
        match self {
            Self::Integer(number) => Content::Integer(*number),
            Self::Bytes {
                bytes,
                changed_in_place,
            } => Content::Bytes {
                bytes: bytes.clone(),
                is_changed: *changed_in_place,
            },
            Self::Object(object) => Content::Object(Box::new(object.clone())),
        }
    }

    fn from_owned(owned: Owned) -> Self {
        match owned.content {
            Content::Integer(number) => Self::Integer(number),
            Content::Bytes { bytes, is_changed } => Self::Bytes {
                bytes,
                changed_in_place: is_changed,
            },
            Content::Object(object) => Self::Object(*object),
            Content::Blob(_) => Self::Bytes {
                bytes: owned.to_vec(),
                changed_in_place: true,
            },
        }
    }
}

/// The databases of a naive store, shared by its handles.
#[derive(Clone, Debug)]
pub(crate) struct Databases {
    maps: Arc<Mutex<Vec<Map>>>,
    wanted: Arc<Wanted>,
    listeners: Arc<Listeners>,
}

impl Databases {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            maps: Arc::new(Mutex::new(vec![Map::new(); count])),
            wanted: Arc::default(),
            listeners: Arc::default(),
        }
    }

    /// The events that have subscribers.
    pub(crate) fn wanted_events(&self) -> &Wanted {
        &self.wanted
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Map>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sinks of one thread.
pub(crate) struct Sinks {
    pub(crate) effects: Option<Box<dyn EffectSink>>,
    /// Number of effects stated, whether there was a sink or not.
    pub(crate) changes: u64,
    events: Outlet,
    wanted: Arc<Wanted>,
}

impl Sinks {
    fn event(&self, key: &Key<'_>, class: EventClass, name: &'static str) {
        if self.wanted.has(class) {
            self.events.tell(&Event {
                class,
                name,
                database: key.database(),
                key: key.bytes(),
            });
        }
    }
}

/// One thread's access to a naive store.
pub(crate) struct NaiveHandle {
    pub(crate) databases: Databases,
    pub(crate) hasher: Hasher,
    pub(crate) now_unix_ms: u64,
    pub(crate) sinks: Sinks,
    /// The databases while this thread has them for itself.
    pub(crate) held: Option<Vec<Map>>,
    teller: Teller,
}

impl NaiveHandle {
    pub(crate) fn new(databases: Databases, hasher: Hasher) -> Self {
        let wanted = Arc::clone(&databases.wanted);
        Self {
            databases,
            hasher,
            now_unix_ms: 0,
            sinks: Sinks {
                effects: None,
                changes: 0,
                events: Outlet::default(),
                wanted,
            },
            held: None,
            teller: Teller::default(),
        }
    }

    pub(crate) fn read<R>(
        &mut self,
        key: &Key<'_>,
        mut visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        let now = self.now_unix_ms;
        let is_expired = |map: &mut Map| {
            map.get(key.bytes())
                .is_some_and(|cell| cell.is_expired(now))
        };
        if self.with_map(key.database(), |map, _| is_expired(map)) {
            self.modify(key, |_| ());
        }
        self.with_map(key.database(), |map, sinks| {
            let live = map.get(key.bytes()).filter(|cell| !cell.is_expired(now));
            if live.is_none() {
                sinks.event(key, EventClass::KEY_MISS, Event::MISSED);
            }
            visit(live.map(|cell| Record::naive(key.bytes(), cell)).as_ref())
        })
    }

    /// Shows the records of several keys, up to the first that does not fit. This thread has the
    /// databases for itself.
    pub(crate) fn read_all<R>(
        &self,
        keys: &[Key<'_>],
        fits: impl Fn(&Record<'_>) -> bool,
        visit: impl FnOnce(&[Option<Record<'_>>]) -> R,
    ) -> R {
        let (maps, now) = (self.held.as_deref().unwrap_or_default(), self.now_unix_ms);
        let mut records = Vec::with_capacity(keys.len());
        for key in keys {
            let map = maps.get(usize::from(key.database()));
            let cell = map.and_then(|map| map.get(key.bytes()));
            let live = cell.filter(|cell| !cell.is_expired(now));
            let record = live.map(|cell| Record::naive(key.bytes(), cell));
            records.push(record);
            match record {
                Some(record) if !fits(&record) => break,
                Some(_) => {}
                None => self.event(key, EventClass::KEY_MISS, Event::MISSED),
            }
        }
        visit(&records)
    }

    pub(crate) fn modify<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut Entry<'_>) -> R,
    ) -> R {
        let now = self.now_unix_ms;
        let mut notes = Notes::default();
        let (answer, is_changed, is_present) = self.with_map(key.database(), |map, sinks| {
            let entry = NaiveEntry::open(*key, map, sinks, now, &mut notes);
            let before = entry.map.get(key.bytes()).cloned();
            let mut entry = Entry::naive(entry);
            let answer = change(&mut entry);
            drop(entry);
            let after = map.get(key.bytes());
            (answer, before.as_ref() != after, after.is_some())
        });
        if notes.expired {
            self.tell(key, ChangeKind::Expired);
        }
        if (is_changed && !notes.unnoticed) || notes.announced {
            let kind = if is_present {
                ChangeKind::Written
            } else {
                ChangeKind::Removed
            };
            self.tell(key, kind);
        }
        answer
    }

    /// Notifies the listeners of a key.
    fn tell(&mut self, key: &Key<'_>, kind: ChangeKind) {
        let change = KeyChange {
            key: key.bytes(),
            database: key.database(),
            kind,
            author: self.teller.author,
        };
        let listeners = &self.databases.listeners;
        listeners.tell(&mut self.teller, key.hash(), &change);
    }

    #[expect(clippy::needless_pass_by_ref_mut, reason = "the shape of the real one")]
    pub(crate) fn listen(&mut self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        self.databases.listeners.add(key, listener);
    }

    #[expect(clippy::needless_pass_by_ref_mut, reason = "the shape of the real one")]
    pub(crate) fn unlisten(&mut self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        self.databases.listeners.remove(key, listener);
    }

    pub(crate) fn teller(&self) -> &Teller {
        &self.teller
    }

    pub(crate) fn teller_mut(&mut self) -> &mut Teller {
        &mut self.teller
    }

    pub(crate) fn scan(
        &mut self,
        database: DatabaseId,
        cursor: u64,
        count: usize,
        _held_long: HeldLong,
        mut visit: impl FnMut(&Record<'_>),
    ) -> u64 {
        let now = self.now_unix_ms;
        let hasher = self.hasher.clone();
        self.with_map(database, |map, _| {
            let mut order: Vec<_> = map
                .iter()
                .map(|(key, cell)| (hasher.hash(key).reverse_bits(), key, cell))
                .collect();
            order.sort_by_key(|(position, ..)| *position);
            let mut visited = 0;
            let mut last = 0;
            for (position, key, cell) in order {
                if position < cursor {
                    continue;
                }
                // Keys with the same hash have the same position and are visited together.
                if visited >= count && position != last {
                    return position;
                }
                visited += 1;
                last = position;
                if !cell.is_expired(now) {
                    visit(&Record::naive(key, cell));
                }
            }
            0
        })
    }

    pub(crate) fn len(&mut self, database: DatabaseId) -> usize {
        self.with_map(database, |map, _| map.len())
    }

    pub(crate) fn deadlines_len(&mut self, database: DatabaseId) -> usize {
        self.with_map(database, |map, _| {
            map.values()
                .filter(|cell| cell.deadline_unix_ms.is_some())
                .count()
        })
    }

    pub(crate) fn random_key(&mut self, database: DatabaseId, random: u64) -> Option<Vec<u8>> {
        let now = self.now_unix_ms;
        self.with_map(database, |map, _| {
            let live: Vec<_> = map
                .iter()
                .filter(|(_, cell)| !cell.is_expired(now))
                .map(|(key, _)| key)
                .collect();
            let index = usize::try_from(random % live.len().max(1) as u64).ok()?;
            live.get(index).map(|key| (*key).clone())
        })
    }

    /// Gives `sink` all records at once.
    #[expect(
        clippy::unnecessary_wraps,
        clippy::needless_pass_by_ref_mut,
        reason = "the shape of the real one"
    )]
    pub(crate) fn begin_snapshot(
        &mut self,
        sink: Box<dyn SnapshotSink>,
        _: SnapshotLimits,
    ) -> Result<u64, SnapshotInProgress> {
        match &self.held {
            Some(held) => save_maps(held, sink),
            None => save_maps(&self.databases.lock(), sink),
        }
        Ok(0)
    }

    /// No snapshot is ever in progress here.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        clippy::unused_self,
        reason = "the shape of the real one"
    )]
    pub(crate) fn advance_snapshot(&mut self, _: usize) -> SnapshotStep {
        SnapshotStep::Idle
    }

    /// Empties a database. The caller has the store for itself.
    pub(crate) fn flush(&mut self, database: DatabaseId) -> usize {
        let before = self.present_listened(database);
        let count = self.with_map(database, |map, _| std::mem::take(map).len());
        self.tell_flushed(database, &before);
        count
    }

    /// Returns the keys of a database that have listeners, and whether they exist.
    fn present_listened(&mut self, database: DatabaseId) -> Vec<(u64, Box<[u8]>, bool)> {
        let keys = self.databases.listeners.keys_of(database);
        self.with_map(database, |map, _| {
            let with_presence = |(hash, key): (u64, Box<[u8]>)| {
                let is_present = map.contains_key(&*key);
                (hash, key, is_present)
            };
            keys.into_iter().map(with_presence).collect()
        })
    }

    /// Notifies the listeners of keys that existed before or do so now.
    fn tell_flushed(&mut self, database: DatabaseId, before: &[(u64, Box<[u8]>, bool)]) {
        let after = self.present_listened(database);
        for ((hash, key, was), (.., is)) in before.iter().zip(&after) {
            if *was || *is {
                let key = Key::with_hash(key, *hash, database);
                self.tell(&key, ChangeKind::Flushed);
            }
        }
    }

    /// Swaps two databases. The caller has the store for itself.
    pub(crate) fn swap(&mut self, one: DatabaseId, other: DatabaseId) {
        let before = [one, other].map(|database| self.present_listened(database));
        if let Some(held) = self.held.as_mut() {
            held.swap(usize::from(one), usize::from(other));
        }
        for (database, before) in [one, other].into_iter().zip(&before) {
            self.tell_flushed(database, before);
        }
    }

    /// Removes all expired records.
    pub(crate) fn tick(&mut self, now_unix_ms: u64) {
        self.now_unix_ms = now_unix_ms;
        let mut told = Vec::new();
        let databases = self.databases.clone();
        let mut maps = databases.lock();
        for (database, map) in (0..).zip(maps.iter_mut()) {
            map.retain(|key, cell| {
                cell.expire_members(now_unix_ms, |member| {
                    told.push((database, key.clone()));
                    if let Some(sink) = self.sinks.effects.as_deref_mut() {
                        sink.member_expired(database, key, member);
                    }
                })
            });
        }
        drop(maps);
        told.dedup();
        for (database, key) in told {
            let key = Key::with_hash(&key, self.hasher.hash(&key), database);
            self.tell(&key, ChangeKind::Written);
        }
    }

    /// The outlet for events.
    pub(crate) fn outlet(&self) -> &Outlet {
        &self.sinks.events
    }

    /// States an event of a key, if it has subscribers.
    pub(crate) fn event(&self, key: &Key<'_>, class: EventClass, name: &'static str) {
        self.sinks.event(key, class, name);
    }

    /// Whether this thread has all databases for itself.
    pub(crate) fn is_alone(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn group(&mut self, begins: bool) {
        match self.sinks.effects.as_deref_mut() {
            Some(sink) if begins => sink.group_begin(),
            Some(sink) => sink.group_end(),
            None => {}
        }
    }

    /// States the position in a followed stream that the group leads to.
    pub(crate) fn state_source(&mut self, source: &Source) {
        if let Some(sink) = self.sinks.effects.as_deref_mut() {
            sink.source(source);
        }
    }

    fn with_map<R>(
        &mut self,
        database: DatabaseId,
        body: impl FnOnce(&mut Map, &mut Sinks) -> R,
    ) -> R {
        let sinks = &mut self.sinks;
        match self.held.as_mut() {
            Some(held) => body(&mut held[usize::from(database)], sinks),
            None => body(&mut self.databases.lock()[usize::from(database)], sinks),
        }
    }
}

/// Runs `body` with all databases moved from the store into the naive handle that `handle_of`
/// returns.
pub(crate) fn alone<H, R>(
    handle: &mut H,
    handle_of: impl Fn(&mut H) -> Option<&mut NaiveHandle>,
    body: impl FnOnce(&mut H) -> R,
) -> R {
    let Some(databases) = handle_of(handle)
        .filter(|naive| naive.held.is_none())
        .map(|naive| naive.databases.clone())
    else {
        return body(handle);
    };
    let mut guard = databases.lock();
    if let Some(naive) = handle_of(handle) {
        naive.held = Some(std::mem::take(&mut *guard));
        naive.group(true);
    }
    let answer = body(handle);
    if let Some(naive) = handle_of(handle) {
        naive.group(false);
        *guard = naive.held.take().unwrap_or_default();
    }
    answer
}

/// What has to be reported about a visit of an entry.
#[derive(Debug, Default)]
struct Notes {
    /// Whether there was an expired record.
    expired: bool,
    /// Whether a change of the key was announced.
    announced: bool,
    /// Whether an effect was stated that is no change for clients.
    unnoticed: bool,
}

/// One key's place in a naive store.
pub(crate) struct NaiveEntry<'a> {
    key: Key<'a>,
    map: &'a mut Map,
    sinks: &'a mut Sinks,
    notes: &'a mut Notes,
    /// Whether the etag was raised.
    raised: bool,
    /// Whether a structure was lent for a change.
    changed_structure: bool,
    /// Whether a new cell is an event by itself.
    tells_new: bool,
}

impl<'a> NaiveEntry<'a> {
    fn open(
        key: Key<'a>,
        map: &'a mut Map,
        sinks: &'a mut Sinks,
        now_unix_ms: u64,
        notes: &'a mut Notes,
    ) -> Self {
        let entry = Self {
            key,
            map,
            sinks,
            notes,
            raised: false,
            changed_structure: false,
            tells_new: true,
        };
        let found = entry.map.get(key.bytes());
        if found.is_some_and(|cell| cell.is_expired(now_unix_ms)) {
            entry.map.remove(key.bytes());
            entry.notes.expired = true;
            if let Some(sink) = entry.sinks.effects.as_deref_mut() {
                sink.removed(key.database(), key.bytes(), Cause::Expired);
            }
            entry.event(EventClass::EXPIRED, "expired");
        }
        entry
    }

    pub(crate) fn key(&self) -> Key<'a> {
        self.key
    }

    pub(crate) fn record(&self) -> Option<Record<'_>> {
        self.map
            .get(self.key.bytes())
            .map(|cell| Record::naive(self.key.bytes(), cell))
    }

    pub(crate) fn is_present(&self) -> bool {
        self.map.contains_key(self.key.bytes())
    }

    pub(crate) fn set(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        self.replace(Data::from_bytes(value), deadline)
    }

    pub(crate) fn set_with_etag(
        &mut self,
        value: &[u8],
        deadline: Deadline,
        etag: u64,
    ) -> Result<(), StoreError> {
        self.set(value, deadline)?;
        self.set_etag(etag)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the shape of the real one")]
    pub(crate) fn set_etag(&mut self, etag: u64) -> Result<(), StoreError> {
        if let Some(cell) = self.map.get_mut(self.key.bytes()) {
            cell.etag = etag;
        }
        Ok(())
    }

    pub(crate) fn set_bytes(
        &mut self,
        value: &[u8],
        form: Form,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let data = Data::Bytes {
            bytes: value.to_vec(),
            changed_in_place: form == Form::ChangedBytes,
        };
        self.replace(data, deadline)
    }

    pub(crate) fn set_integer(&mut self, value: i64, deadline: Deadline) -> Result<(), StoreError> {
        self.replace(Data::Integer(value), deadline)
    }

    pub(crate) fn append(&mut self, tail: &[u8]) -> Result<usize, StoreError> {
        let bytes = self.bytes_mut()?;
        bytes.extend_from_slice(tail);
        Ok(bytes.len())
    }

    pub(crate) fn write_at(&mut self, offset: usize, data: &[u8]) -> Result<usize, StoreError> {
        let end = offset.checked_add(data.len()).ok_or(StoreError::TooLarge)?;
        let bytes = self.bytes_mut()?;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(data);
        Ok(bytes.len())
    }

    pub(crate) fn set_deadline(&mut self, deadline_unix_ms: Option<u64>) -> Result<(), StoreError> {
        if let Some(cell) = self.map.get_mut(self.key.bytes()) {
            cell.deadline_unix_ms = deadline_unix_ms;
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self) -> bool {
        self.map.remove(self.key.bytes()).is_some()
    }

    /// Use is not recorded here.
    #[expect(clippy::needless_pass_by_ref_mut, reason = "the shape of the real one")]
    pub(crate) fn touch(&mut self) {}

    /// Use is not recorded here.
    pub(crate) fn set_use(&self, _before: Use) {}

    pub(crate) fn take(&mut self) -> Option<Owned> {
        let owned = self.duplicate()?;
        self.remove();
        Some(owned)
    }

    pub(crate) fn duplicate(&self) -> Option<Owned> {
        let cell = self.map.get(self.key.bytes())?;
        Some(Owned {
            content: cell.data.to_content(),
            deadline_unix_ms: cell.deadline_unix_ms,
        })
    }

    pub(crate) fn put(&mut self, value: Owned) -> Result<(), StoreError> {
        let deadline = value.deadline_unix_ms.into();
        self.replace(Data::from_owned(value), deadline)
    }

    pub(crate) fn announce(&mut self) {
        self.notes.announced = true;
        if self.changed_structure
            && let Some(cell) = self.map.get_mut(self.key.bytes())
            && cell.etag != 0
            && !std::mem::replace(&mut self.raised, true)
        {
            cell.etag = next_etag(cell.etag);
        }
    }

    pub(crate) fn effect(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        self.announce();
        self.effect_elsewhere(state);
        let found = self.map.get(self.key.bytes());
        let etag = found.map_or(0, |cell| cell.etag);
        if self.changed_structure
            && etag != 0
            && let Some(sink) = self.sinks.effects.as_deref_mut()
        {
            sink.etag(self.key.database(), self.key.bytes(), etag);
        }
    }

    pub(crate) fn effect_elsewhere(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        self.sinks.changes += 1;
        self.state_effect(state);
    }

    pub(crate) fn effect_unnoticed(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        self.notes.unnoticed = true;
        self.state_effect(state);
    }

    fn state_effect(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        if let Some(sink) = self.sinks.effects.as_deref_mut() {
            state(&mut Effect::new(sink, self.key.database()));
        }
    }

    /// States an event, if it has subscribers.
    pub(crate) fn event(&self, class: EventClass, name: &'static str) {
        self.sinks.event(&self.key, class, name);
    }

    /// Nothing is counted here.
    pub(crate) fn note_expired_members(&self, _count: usize) {}

    /// States the event of a missing key; nothing is counted here.
    pub(crate) fn note_look(&self) {
        if !self.is_present() {
            self.event(EventClass::KEY_MISS, Event::MISSED);
        }
    }

    /// Leaves the event of a new cell to the caller.
    pub(crate) fn leave_new_unsaid(&mut self) {
        self.tells_new = false;
    }

    fn event_if_new(&self) {
        if self.tells_new && !self.is_present() {
            self.event(EventClass::NEW, Event::CREATED);
        }
    }

    pub(crate) fn change<S: Structure, R>(
        &mut self,
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<Option<R>, StoreError> {
        let Some(cell) = self.map.get_mut(self.key.bytes()) else {
            return Ok(None);
        };
        let Data::Object(object) = &mut cell.data else {
            return Err(StoreError::WrongKind);
        };
        let answer = change(S::of_mut(object).ok_or(StoreError::WrongKind)?);
        self.changed_structure = true;
        if object.is_to_be_removed() {
            self.remove();
        }
        Ok(Some(answer))
    }

    pub(crate) fn change_or_create<S: Structure, R>(
        &mut self,
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<R, StoreError> {
        if !self.is_present() {
            let empty = Data::Object(S::empty().into_object());
            self.replace(empty, Deadline::Never)?;
        }
        self.change(change)?.ok_or(StoreError::OutOfMemory)
    }

    fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, StoreError> {
        let empty = Data::Bytes {
            bytes: Vec::new(),
            changed_in_place: true,
        };
        self.event_if_new();
        let cell = self.map.entry(self.key.bytes().to_vec()).or_insert(Cell {
            data: empty,
            deadline_unix_ms: None,
            etag: 0,
        });
        // Another kind of value is refused before anything changes.
        let bytes = cell.data.bytes_mut()?;
        if cell.etag != 0 && !std::mem::replace(&mut self.raised, true) {
            cell.etag = next_etag(cell.etag);
        }
        Ok(bytes)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the shape of the real one")]
    fn replace(&mut self, data: Data, deadline: Deadline) -> Result<(), StoreError> {
        self.event_if_new();
        let found = self.map.get(self.key.bytes());
        let (deadline_unix_ms, etag) = match deadline {
            Deadline::Keep => found.map_or((None, 0), |cell| (cell.deadline_unix_ms, cell.etag)),
            Deadline::Never => (None, 0),
            Deadline::At(at) => (Some(at), 0),
        };
        let raises = etag != 0 && !std::mem::replace(&mut self.raised, true);
        let cell = Cell {
            data,
            deadline_unix_ms,
            etag: if raises { next_etag(etag) } else { etag },
        };
        self.map.insert(self.key.bytes().to_vec(), cell);
        Ok(())
    }
}
