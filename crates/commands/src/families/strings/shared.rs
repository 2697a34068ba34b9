//! What the commands of strings share: checks, replies, and effects.

use std::ops::Range;

use base::number::IntegerText;
use engine::error::{CommandError, CommandResult};
use engine::settings::Settings;
use engine::spec::{KeyAccess, KeySpec};
use protocol::Reply;
use store::{Deadline, Entry, EventClass, Record};

/// The key of a command that reads it.
pub(super) const READ_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];
/// The key of a command that overwrites it without reading it.
pub(super) const OVERWRITTEN_KEY: &[KeySpec] =
    &[KeySpec::one(1, KeyAccess::OW.with(KeyAccess::UPDATE))];
/// The key of a command that returns its previous value and changes it.
pub(super) const UPDATED_KEY: &[KeySpec] = &[KeySpec::one(
    1,
    KeyAccess::RW
        .with(KeyAccess::ACCESS)
        .with(KeyAccess::UPDATE),
)];

/// Length from which a value is sent by reference: as measured, copying costs less below 8 to 16
/// KiB and more above.
pub(super) const SHARED_BYTES_MIN: usize = 16 * 1024;

/// Refuses a key with another type than string; accepts an absent one.
#[inline]
pub(crate) fn check_string(record: Option<&Record<'_>>) -> CommandResult {
    match record {
        Some(record) if !record.is_string() => Err(CommandError::WrongType),
        _ => Ok(()),
    }
}

/// Writes a string, or null for an absent key.
#[inline(always)]
pub(crate) fn write_string(record: Option<&Record<'_>>, reply: &mut Reply<'_>) {
    match record {
        None => reply.null(),
        Some(record) => match record.integer() {
            Some(number) => reply.bulk_integer(number),
            None => write_part(record, 0..record.len(), reply),
        },
    }
}

/// Writes a part of a string, a long one by reference.
#[inline(always)]
pub(super) fn write_part(record: &Record<'_>, range: Range<usize>, reply: &mut Reply<'_>) {
    if range.len() >= SHARED_BYTES_MIN {
        return write_long_part(*record, range, reply);
    }
    reply.bulk_with(range.len(), |room| record.copy_to(range.start, room));
}

/// Does the same for a part that is better sent by reference than copied.
#[cold]
pub(super) fn write_long_part(record: Record<'_>, range: Range<usize>, reply: &mut Reply<'_>) {
    match record.pin(range.clone()) {
        Some(pin) => reply.bulk_shared(Box::new(pin)),
        None => reply.bulk_with(range.len(), |room| record.copy_to(range.start, room)),
    }
}

/// Whether a string equals `text`, byte for byte.
pub(super) fn is_equal(record: &Record<'_>, text: &[u8]) -> bool {
    if record.len() != text.len() {
        return false;
    }
    let mut rest = text;
    let mut equal = true;
    record.for_each_chunk(0..text.len(), |chunk| {
        match rest.split_at_checked(chunk.len()) {
            Some((same, behind)) => {
                equal &= same == chunk;
                rest = behind;
            }
            None => equal = false,
        }
    });
    equal
}

/// States that a key now holds `value`.
#[inline]
pub(crate) fn state_set(entry: &mut Entry<'_>, value: &[u8], deadline: Deadline) {
    state_set_with(entry, || value, deadline);
}

/// Does the same with a value that is made only if it is needed.
#[inline]
pub(super) fn state_set_with<V: AsRef<[u8]>>(
    entry: &mut Entry<'_>,
    value: impl FnOnce() -> V,
    deadline: Deadline,
) {
    let key = entry.key();
    entry.effect(|effect| {
        let value = value();
        let (key, value) = (key.bytes(), value.as_ref());
        match deadline {
            Deadline::Never => effect.command(&[b"SET", key, value]),
            Deadline::Keep => effect.command(&[b"SET", key, value, b"KEEPTTL"]),
            Deadline::At(unix_ms) => {
                let unix_ms = IntegerText::new_u64(unix_ms);
                effect.command(&[b"SET", key, value, b"PXAT", unix_ms.as_bytes()]);
            }
        }
    });
}

/// Raises the events of a string that was set, and of its deadline if it has one.
#[inline]
pub(crate) fn tell_set(entry: &mut Entry<'_>, deadline: Deadline) {
    entry.event(EventClass::STRING, "set");
    if matches!(deadline, Deadline::At(_)) {
        entry.event(EventClass::GENERIC, "expire");
    }
}

/// Refuses a string that would exceed the maximum length.
///
/// `end_bytes` is its length, `None` for a length that does not fit an integer.
pub(crate) fn check_length(end_bytes: Option<usize>, settings: &Settings) -> CommandResult {
    match end_bytes.map(u64::try_from) {
        Some(Ok(end_bytes)) if end_bytes <= settings.string_bytes_max() => Ok(()),
        _ => Err(store::StoreError::TooLarge.into()),
    }
}

/// Whether two positions from the end are in the wrong order. Most commands treat such a range as
/// empty before they look at the string, because both positions may be clamped to its beginning.
pub(crate) fn is_reversed(start: i64, end: i64) -> bool {
    start < 0 && end < 0 && start > end
}

/// Returns the part of `len` items between two inclusive positions, or `None` if it is empty.
/// Negative positions count from the end.
pub(crate) fn clamp_range(start: i64, end: i64, len: u64) -> Option<Range<u64>> {
    if len == 0 {
        return None;
    }
    let from_start = |position: i64| match u64::try_from(position) {
        Ok(position) => position,
        Err(_) => len.saturating_sub(position.unsigned_abs()),
    };
    let (first, last) = (from_start(start), from_start(end).min(len - 1));
    (first <= last).then(|| first..last + 1)
}

#[cfg(test)]
mod tests {
    use super::{clamp_range, is_reversed};

    #[test]
    fn ranges_are_clamped_as_redis_does() {
        assert_eq!(clamp_range(0, -1, 5), Some(0..5));
        assert_eq!(clamp_range(-3, -2, 5), Some(2..4));
        assert_eq!(clamp_range(1, 100, 5), Some(1..5));
        assert_eq!(clamp_range(5, 100, 5), None);
        assert_eq!(clamp_range(-100, 0, 5), Some(0..1));
        assert_eq!(clamp_range(-100, -200, 5), Some(0..1));
        assert!(is_reversed(-100, -200) && !is_reversed(-200, -100) && !is_reversed(2, 1));
        assert_eq!(clamp_range(0, -200, 5), Some(0..1));
        assert_eq!(clamp_range(i64::MIN, i64::MAX, 5), Some(0..5));
        assert_eq!(clamp_range(i64::MAX, i64::MIN, 5), None);
        assert_eq!(clamp_range(0, 0, 0), None);
    }
}
