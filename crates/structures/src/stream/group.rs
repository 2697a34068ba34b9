//! A group of consumers: what it has read, and which entries wait for an acknowledgement.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::id::EntryId;
use super::id_map::IdMap;
use super::log::EntryLog;
use crate::memory::allocated;

/// Maximum count of entries read, because clients see it as a signed number.
const ENTRIES_READ_MAX: u64 = i64::MAX.unsigned_abs();
/// Bytes of a consumer beside its name: its place, and its part of a node.
const CONSUMER_BYTES: usize = size_of::<Option<Consumer>>() + 40;
/// Bytes of the two counts before a shared name.
const NAME_HEAD_BYTES: usize = 2 * size_of::<usize>();

/// A group of consumers.
#[derive(Clone, Debug)]
pub struct Group {
    last_delivered: EntryId,
    entries_read: Option<u64>,
    pending: IdMap<Delivery>,
    /// Bytes of the ids that are pending for its consumers.
    owned_bytes: usize,
    consumers: Vec<Option<Consumer>>,
    /// Indices of free places in `consumers`.
    free: Vec<u32>,
    by_name: BTreeMap<Arc<[u8]>, ConsumerNumber>,
    /// Bytes of the names.
    name_bytes: usize,
}

/// The number of a consumer, valid until the consumer is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerNumber(u32);

/// Which consumer got an entry, when, and how often.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    consumer: ConsumerNumber,
    delivered_unix_ms: u64,
    deliveries: u64,
}

/// A consumer, which shares the entries of a group with others.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Arc<[u8]>,
    pending: IdMap<()>,
    seen_unix_ms: u64,
    active_unix_ms: Option<u64>,
}

impl Consumer {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the number of entries that wait for its acknowledgement.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns when it last tried to read or claim.
    #[must_use]
    pub fn seen_unix_ms(&self) -> u64 {
        self.seen_unix_ms
    }

    /// Returns when it last got an entry, or `None` if it never did.
    #[must_use]
    pub fn active_unix_ms(&self) -> Option<u64> {
        self.active_unix_ms
    }
}

/// An entry that waits for an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a> {
    /// Id of the entry.
    pub id: EntryId,
    /// The consumer that got it.
    pub consumer: &'a Consumer,
    /// The number of that consumer.
    pub number: ConsumerNumber,
    /// Time of the last delivery.
    pub delivered_unix_ms: u64,
    /// Number of deliveries.
    pub deliveries: u64,
}

impl Group {
    pub(super) fn new(last_delivered: EntryId, entries_read: Option<u64>) -> Self {
        Self {
            last_delivered,
            entries_read,
            pending: IdMap::default(),
            owned_bytes: 0,
            consumers: Vec::new(),
            free: Vec::new(),
            by_name: BTreeMap::new(),
            name_bytes: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.pending.memory_bytes()
            + self.owned_bytes
            + self.consumers.len() * CONSUMER_BYTES
            + self.name_bytes
    }

    pub(super) fn allocations(&self) -> usize {
        // All consumers together have about as many pieces as the group, plus those that are not
        // full.
        2 * self.pending.allocations() + 4 * self.consumers.len()
    }

    /// Returns the id of the entry that was delivered last.
    #[must_use]
    pub fn last_delivered(&self) -> EntryId {
        self.last_delivered
    }

    /// Returns the number of entries that the group has read since the stream began, or `None` if
    /// it is unknown.
    #[must_use]
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// Sets the position from which the group reads.
    pub fn set_position(&mut self, last_delivered: EntryId, entries_read: Option<u64>) {
        self.last_delivered = last_delivered;
        self.entries_read = entries_read;
    }

    /// Raises the last delivered id if it is lower than `id`. Returns whether it was.
    pub fn raise_last_delivered(&mut self, id: EntryId) -> bool {
        let is_raised = id > self.last_delivered;
        if is_raised {
            self.last_delivered = id;
        }
        is_raised
    }

    /// Counts the entry `id` as read. It is the next after the last one that was read.
    pub fn advance(&mut self, id: EntryId, log: &EntryLog) {
        if id <= self.last_delivered {
            return;
        }
        match self.entries_read {
            Some(read) if !log.may_lack_from(id) => {
                self.entries_read = Some((read + 1).min(ENTRIES_READ_MAX));
            }
            _ if log.counters().entries_added > 0 => self.entries_read = log.added_up_to(id),
            _ => {}
        }
        self.last_delivered = id;
    }

    /// Returns the number of entries that the group has not read yet, or `None` if it is unknown.
    #[must_use]
    pub fn lag(&self, log: &EntryLog) -> Option<i64> {
        let added = log.counters().entries_added;
        if added == 0 {
            return Some(0);
        }
        let read = match self.entries_read {
            Some(read) if !log.may_lack_from(self.last_delivered) => read,
            _ => log.added_up_to(self.last_delivered)?,
        };
        Some(added.wrapping_sub(read).cast_signed())
    }

    /// Returns the number of consumers.
    #[must_use]
    pub fn consumers_count(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the consumers in the order of their names' bytes.
    pub fn consumers(&self) -> impl Iterator<Item = (ConsumerNumber, &Consumer)> {
        let numbered = |number: &ConsumerNumber| Some((*number, self.consumer(*number)?));
        self.by_name.values().filter_map(numbered)
    }

    /// Returns the number of the consumer with this name.
    #[must_use]
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerNumber> {
        self.by_name.get(name).copied()
    }

    /// Returns the consumer with this number.
    #[must_use]
    pub fn consumer(&self, number: ConsumerNumber) -> Option<&Consumer> {
        self.consumers.get(number.0 as usize)?.as_ref()
    }

    fn consumer_mut(&mut self, number: ConsumerNumber) -> Option<&mut Consumer> {
        self.consumers.get_mut(number.0 as usize)?.as_mut()
    }

    /// Adds a consumer that was seen at this time. Returns `None` if there is one with this name.
    pub fn create_consumer(&mut self, name: &[u8], seen_unix_ms: u64) -> Option<ConsumerNumber> {
        if self.by_name.contains_key(name) {
            return None;
        }
        let consumer = Consumer {
            name: name.into(),
            pending: IdMap::default(),
            seen_unix_ms,
            active_unix_ms: None,
        };
        self.name_bytes += allocated(NAME_HEAD_BYTES + name.len());
        let name = Arc::clone(&consumer.name);
        let number = match self.free.pop() {
            Some(free) => {
                self.consumers[free as usize] = Some(consumer);
                free
            }
            None => {
                self.consumers.push(Some(consumer));
                u32::try_from(self.consumers.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.by_name.insert(name, ConsumerNumber(number));
        Some(ConsumerNumber(number))
    }

    /// Records when a consumer was seen.
    pub fn set_seen(&mut self, number: ConsumerNumber, seen_unix_ms: u64) {
        if let Some(consumer) = self.consumer_mut(number) {
            consumer.seen_unix_ms = seen_unix_ms;
        }
    }

    /// Records when a consumer got an entry.
    pub fn set_active(&mut self, number: ConsumerNumber, active_unix_ms: Option<u64>) {
        if let Some(consumer) = self.consumer_mut(number) {
            consumer.active_unix_ms = active_unix_ms;
        }
    }

    /// Removes a consumer and its pending entries. Returns the number of these entries, or `None`
    /// if there is no such consumer.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.by_name.remove(name)?;
        let consumer = self.consumers[number.0 as usize].take()?;
        self.name_bytes -= allocated(NAME_HEAD_BYTES + name.len());
        self.owned_bytes -= consumer.pending.memory_bytes();
        self.free.push(number.0);
        for (id, ()) in consumer.pending.range(EntryId::MIN, EntryId::MAX) {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// Returns the number of entries that wait for an acknowledgement.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns the pending entries from `from` to `to`, both included, in order.
    pub fn pending(
        &self,
        from: EntryId,
        to: EntryId,
    ) -> impl DoubleEndedIterator<Item = Pending<'_>> {
        let found = self.pending.range(from, to);
        found.filter_map(|(id, delivery)| self.shown(id, delivery))
    }

    /// Returns those of one consumer.
    pub fn pending_of(
        &self,
        number: ConsumerNumber,
        from: EntryId,
        to: EntryId,
    ) -> impl Iterator<Item = Pending<'_>> {
        let consumer = self.consumer(number).into_iter();
        let ids = consumer.flat_map(move |consumer| consumer.pending.range(from, to));
        ids.filter_map(|(id, ())| self.pending_at(id))
    }

    /// Returns the pending entry with this id.
    #[must_use]
    pub fn pending_at(&self, id: EntryId) -> Option<Pending<'_>> {
        self.shown(id, self.pending.get(id)?)
    }

    fn shown(&self, id: EntryId, delivery: Delivery) -> Option<Pending<'_>> {
        Some(Pending {
            id,
            consumer: self.consumer(delivery.consumer)?,
            number: delivery.consumer,
            delivered_unix_ms: delivery.delivered_unix_ms,
            deliveries: delivery.deliveries,
        })
    }

    /// Makes an entry pending for a consumer, and no longer for the consumer that had it before.
    pub fn deliver(
        &mut self,
        id: EntryId,
        consumer: ConsumerNumber,
        delivered_unix_ms: u64,
        deliveries: u64,
    ) {
        if self.consumer(consumer).is_none() {
            return;
        }
        self.change_owned(consumer, |owned| owned.insert(id, ()));
        let delivery = Delivery {
            consumer,
            delivered_unix_ms,
            deliveries,
        };
        let Some(before) = self.pending.insert(id, delivery) else {
            return;
        };
        if before.consumer != consumer {
            self.change_owned(before.consumer, |owned| owned.remove(id));
        }
    }

    /// Removes an entry from the pending ones. Returns whether it was pending.
    pub fn acknowledge(&mut self, id: EntryId) -> bool {
        let Some(delivery) = self.pending.remove(id) else {
            return false;
        };
        self.change_owned(delivery.consumer, |owned| owned.remove(id));
        true
    }

    /// Changes what is pending for a consumer.
    fn change_owned<R>(
        &mut self,
        number: ConsumerNumber,
        change: impl FnOnce(&mut IdMap<()>) -> R,
    ) {
        let Some(consumer) = self.consumer_mut(number) else {
            return;
        };
        let before = consumer.pending.memory_bytes();
        change(&mut consumer.pending);
        let after = consumer.pending.memory_bytes();
        self.owned_bytes = self.owned_bytes - before + after;
    }
}

/// Compares what clients see, except when consumers were seen or active: the position, the
/// consumers, and the pending entries with their consumers.
impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        let (min, max) = (EntryId::MIN, EntryId::MAX);
        let row = |one: Pending<'_>| {
            (
                one.id,
                one.delivered_unix_ms,
                one.deliveries,
                one.consumer.name.clone(),
            )
        };
        self.last_delivered == other.last_delivered
            && self.entries_read == other.entries_read
            && self.by_name.keys().eq(other.by_name.keys())
            && self.pending.len() == other.pending.len()
            && self
                .pending(min, max)
                .map(row)
                .eq(other.pending(min, max).map(row))
    }
}
