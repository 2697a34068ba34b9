//! Lists everything that a store holds, in order, for comparison with another store.

use store::{DatabaseId, Handle};
use structures::Object;

/// A record: database, key, value, deadline, object, etag.
pub(crate) type Record = (
    DatabaseId,
    Vec<u8>,
    Vec<u8>,
    Option<u64>,
    Option<Object>,
    u64,
);

/// Returns everything that is stored.
pub(crate) fn dump(handle: &mut Handle, now_unix_ms: u64) -> Vec<Record> {
    let dumped = dump_with(handle, now_unix_ms, |_| ());
    dumped.into_iter().map(|(record, ())| record).collect()
}

/// Returns everything that is stored, with what `of` returns for each record.
pub(crate) fn dump_with<R>(
    handle: &mut Handle,
    now_unix_ms: u64,
    of: impl Fn(&store::Record<'_>) -> R,
) -> Vec<(Record, R)> {
    handle.begin(now_unix_ms);
    let mut dumped = Vec::new();
    for database in 0..handle.store().databases() {
        let mut cursor = 0;
        loop {
            cursor = handle.scan(database, cursor, 1000, |record| {
                let found = (
                    database,
                    record.key().to_vec(),
                    record.to_vec(),
                    record.deadline_unix_ms(),
                    record.object().as_deref().cloned(),
                    record.etag(),
                );
                dumped.push((found, of(record)));
            });
            if cursor == 0 {
                break;
            }
        }
    }
    dumped.sort_by(|(one, _), (other, _)| (one.0, &one.1).cmp(&(other.0, &other.1)));
    dumped
}
