//! Streams: entries in order of their ids, and groups of consumers that share the entries.
//!
//! ```text
//!   Stream ─ EntryLog ─ sealed  BTreeMap: id of a block's first entry ─ Block
//!          │          └ tail    the Block that grows
//!          └ groups     name ─ Group ─ pending     IdMap: id ─ consumer, time, deliveries
//!                                    └ consumers   name ─ Consumer ─ ids pending for it
//! ```
//!
//! Entries are appended to the tail, which is sealed when it reaches the configured length
//! ([`StreamLimits`]). Trimming drops whole blocks and then the head of one. A copy shares the
//! blocks, and the pieces of what is pending. A client that changes a group reads entries of the
//! [`EntryLog`] meanwhile, so a change of a group gets both.
//!
//! Two streams are equal if clients see the same, apart from the times at which consumers were
//! seen.
//!
//! Invariants
//!  1. Every change updates `memory_bytes` of the log and of all groups.
//!  2. No id is above the log's last id; ids of entries ascend.
//!  3. An entry that is pending in a group is pending for exactly one of its consumers.

use std::collections::BTreeMap;

use crate::compact::{CompactKind, OneBuffer};
use crate::kind::Encoding;
use crate::memory::allocated;
use crate::relocation::Relocation;

mod block;
mod entry;
mod group;
mod id;
mod id_map;
mod log;
mod range;
#[cfg(test)]
mod tests;
mod varint;

pub use entry::{Entry, Fields};
pub use group::{Consumer, ConsumerNumber, Group, Pending};
pub use id::EntryId;
pub use log::{
    BadCounters, Counters, ENTRY_BYTES_MAX, EntryLog, Refused, StreamLimits, Trim, TrimTo,
};
pub use range::{Backwards, Range};

/// A stream. See the module documentation.
#[derive(Clone, Debug)]
pub struct Stream {
    inner: Box<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    log: EntryLog,
    groups: BTreeMap<Box<[u8]>, Box<Group>>,
    /// Bytes of the groups, including their names.
    groups_bytes: usize,
    /// Number of allocations of the groups.
    groups_allocations: usize,
}

/// Bytes of a group in the map besides its name: its part of a node.
const GROUP_BYTES: usize = 48 + allocated(size_of::<Group>());

impl Stream {
    /// Creates a stream without entries and groups.
    #[must_use]
    pub fn new() -> Self {
        Self {
            inner: Box::default(),
        }
    }

    /// Returns `None`: a stream is never a single buffer.
    #[inline]
    #[allow(clippy::needless_pass_by_ref_mut, reason = "as the other structures")]
    pub(crate) fn take_buffer(&mut self) -> Option<(CompactKind, OneBuffer)> {
        None
    }

    /// Returns an empty stream: no stream is in a buffer.
    #[inline]
    pub(crate) fn from_buffer(_: CompactKind, _: OneBuffer) -> Self {
        Self::new()
    }

    /// Returns the number of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.log.len()
    }

    /// Whether it has no entries. A stream without entries is a valid value.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the answer of OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        Encoding::Stream
    }

    /// Returns the bytes it takes beyond itself. O(1).
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        allocated(size_of::<Inner>()) + self.inner.log.memory_bytes() + self.inner.groups_bytes
    }

    /// Moves the pieces it consists of, as far as the relocation allows. Does not move groups.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        if relocation.is_one_next() {
            relocation.boxed(&mut self.inner, Inner::default);
        }
        self.inner.log.move_pieces(relocation);
    }

    /// Returns the approximate number of pieces of memory it consists of. O(1).
    #[must_use]
    pub fn allocations(&self) -> usize {
        1 + self.inner.log.allocations() + self.inner.groups_allocations
    }

    /// Returns its entries.
    #[inline]
    #[must_use]
    pub fn log(&self) -> &EntryLog {
        &self.inner.log
    }

    /// Returns its entries for a change.
    #[inline]
    #[must_use]
    pub fn log_mut(&mut self) -> &mut EntryLog {
        &mut self.inner.log
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn groups_count(&self) -> usize {
        self.inner.groups.len()
    }

    /// Returns the groups in the order of their names' bytes.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        self.inner
            .groups
            .iter()
            .map(|(name, group)| (&**name, &**group))
    }

    /// Returns the group with this name.
    #[must_use]
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.inner.groups.get(name).map(|group| &**group)
    }

    /// Adds a group without consumers. Returns whether there was none with this name.
    pub fn create_group(
        &mut self,
        name: &[u8],
        last_delivered: EntryId,
        entries_read: Option<u64>,
    ) -> bool {
        if self.inner.groups.contains_key(name) {
            return false;
        }
        let group = Box::new(Group::new(last_delivered, entries_read));
        self.inner.groups_bytes += GROUP_BYTES + allocated(name.len()) + group.memory_bytes();
        self.inner.groups_allocations += 2 + group.allocations();
        self.inner.groups.insert(name.into(), group);
        true
    }

    /// Removes a group. Returns whether it existed.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.inner.groups.remove(name) else {
            return false;
        };
        self.inner.groups_bytes -= GROUP_BYTES + allocated(name.len()) + group.memory_bytes();
        self.inner.groups_allocations -= 2 + group.allocations();
        true
    }

    /// Calls `change` with a group and the entries. Returns `None` if there is no group with this
    /// name.
    pub fn change_group<R>(
        &mut self,
        name: &[u8],
        change: impl FnOnce(&mut Group, &EntryLog) -> R,
    ) -> Option<R> {
        let inner = &mut *self.inner;
        let group = inner.groups.get_mut(name)?;
        let (bytes, allocations) = (group.memory_bytes(), group.allocations());
        let answer = change(group, &inner.log);
        inner.groups_bytes = inner.groups_bytes + group.memory_bytes() - bytes;
        inner.groups_allocations = inner.groups_allocations + group.allocations() - allocations;
        Some(answer)
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        self.inner.log == other.inner.log && self.inner.groups == other.inner.groups
    }
}
