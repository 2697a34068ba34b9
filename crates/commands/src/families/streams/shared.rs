//! What the commands of streams share: replies, consumers, and effects.

use base::number::IntegerText;
use engine::error::{CommandError, shown};
use engine::spec::{KeyAccess, KeySpec};
use protocol::Reply;
use store::{Effect, Key};
use structures::stream::{ConsumerNumber, Entry, EntryId, Group};

use crate::structure::write_element;

use super::ids::IdText;

/// The key of a command that reads it.
pub(super) const READ_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];
/// The key of a command that changes it.
pub(super) const CHANGED_KEY: &[KeySpec] =
    &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))];
/// The key of a command that removes from it.
pub(super) const CUT_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::DELETE))];

/// Maximum number of ids in one command of an effect.
pub(super) const STATED_IDS_MAX: usize = 512;

/// Converts a number that may exceed a reply's integers.
pub(super) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Writes an id.
#[inline]
pub(super) fn write_id(reply: &mut Reply<'_>, id: EntryId) {
    reply.bulk(IdText::new(id).as_bytes());
}

/// Writes an entry: its id, and its fields one after another.
#[inline]
pub(super) fn write_entry(reply: &mut Reply<'_>, entry: Entry<'_>) {
    reply.array(2);
    write_id(reply, entry.id);
    let fields = entry.fields();
    reply.array(2 * fields.len());
    for (name, value) in fields {
        write_element(reply, name);
        write_element(reply, value);
    }
}

/// Writes entries as an array.
pub(super) fn write_entries<'s>(
    reply: &mut Reply<'_>,
    entries: impl Iterator<Item = Entry<'s>>,
) -> usize {
    let slot = reply.begin_array();
    let mut count = 0;
    for entry in entries {
        write_entry(reply, entry);
        count += 1;
    }
    reply.end_array(slot, count);
    count
}

/// Returns the part of an argument that errors repeat.
pub(super) fn text_of(argument: &[u8]) -> &[u8] {
    shown(argument, usize::MAX)
}

/// Returns the error for a missing key or group.
pub(super) fn no_group(key: &Key<'_>, group: &[u8], behind: &str) -> CommandError {
    let text = [
        b"NOGROUP No such key '",
        text_of(key.bytes()),
        b"' or consumer group '",
        text_of(group),
        b"'",
        behind.as_bytes(),
    ];
    CommandError::Bytes(text.concat())
}

/// Returns the error for a missing group at an existing key.
pub(super) fn no_group_at(key: &[u8], group: &[u8]) -> CommandError {
    let text = [
        b"NOGROUP No such consumer group '",
        text_of(group),
        b"' for key name '",
        text_of(key),
        b"'",
    ];
    CommandError::Bytes(text.concat())
}

/// Returns the number of a consumer, which is created if it does not exist, and whether it was
/// created.
pub(super) fn consumer_of(
    group: &mut Group,
    name: &[u8],
    now_unix_ms: u64,
) -> (ConsumerNumber, bool) {
    let created = group.create_consumer(name, now_unix_ms);
    let number = created.or_else(|| group.find_consumer(name));
    // Exactly one of the two is present.
    let number = number.unwrap_or_default();
    group.set_seen(number, now_unix_ms);
    (number, created.is_some())
}

/// The event of a new consumer, created explicitly or by its first request.
pub(super) const CONSUMER_EVENT: &str = "xgroup-createconsumer";

/// States a new consumer.
pub(super) fn state_consumer(
    effect: &mut Effect<'_>,
    key: &Key<'_>,
    group: &[u8],
    consumer: &[u8],
) {
    effect.command(&[b"XGROUP", b"CREATECONSUMER", key.bytes(), group, consumer]);
}

/// Entries delivered to a consumer at one time.
pub(super) struct Delivered<'a> {
    pub(super) key: &'a Key<'a>,
    pub(super) group: &'a [u8],
    pub(super) consumer: &'a [u8],
    pub(super) unix_ms: u64,
    pub(super) last_delivered: EntryId,
}

impl Delivered<'_> {
    /// States that these entries were delivered, each with its delivery count.
    pub(super) fn state(&self, effect: &mut Effect<'_>, entries: &[(EntryId, u64)]) {
        let time = IntegerText::new_u64(self.unix_ms);
        let last = IdText::new(self.last_delivered);
        let alike = entries.chunk_by(|one, other| one.1 == other.1);
        for some in alike.flat_map(|alike| alike.chunks(STATED_IDS_MAX)) {
            let count = IntegerText::new_u64(some[0].1);
            let texts: Vec<IdText> = some.iter().map(|(id, _)| IdText::new(*id)).collect();
            let mut parts: Vec<&[u8]> =
                vec![b"XCLAIM", self.key.bytes(), self.group, self.consumer, b"0"];
            parts.extend(texts.iter().map(IdText::as_bytes));
            parts.extend([b"TIME", time.as_bytes(), b"RETRYCOUNT", count.as_bytes()]);
            parts.extend([&b"FORCE"[..], b"JUSTID", b"LASTID", last.as_bytes()]);
            effect.command(&parts);
        }
    }
}

/// States a command with a list of ids: XDEL, XACK.
pub(super) fn state_ids(effect: &mut Effect<'_>, head: &[&[u8]], ids: &[EntryId]) {
    for some in ids.chunks(STATED_IDS_MAX) {
        let texts: Vec<IdText> = some.iter().map(|id| IdText::new(*id)).collect();
        let ids = texts.iter().map(IdText::as_bytes);
        let parts: Vec<&[u8]> = head.iter().copied().chain(ids).collect();
        effect.command(&parts);
    }
}

/// The position of a group.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub(super) last_delivered: EntryId,
    pub(super) entries_read: Option<u64>,
}

impl Position {
    pub(super) fn of(group: &Group) -> Self {
        Self {
            last_delivered: group.last_delivered(),
            entries_read: group.entries_read(),
        }
    }

    /// States that the group of this name has this position.
    pub(super) fn state(self, effect: &mut Effect<'_>, key: &Key<'_>, group: &[u8]) {
        let last = IdText::new(self.last_delivered);
        let read = entries_read_text(self.entries_read);
        effect.command(&[
            b"XGROUP",
            b"SETID",
            key.bytes(),
            group,
            last.as_bytes(),
            b"ENTRIESREAD",
            read.as_bytes(),
        ]);
    }
}

/// Returns the number for ENTRIESREAD: the number of entries read, or -1 if unknown.
pub(super) fn entries_read_text(entries_read: Option<u64>) -> IntegerText {
    entries_read.map_or_else(|| IntegerText::new(-1), IntegerText::new_u64)
}
