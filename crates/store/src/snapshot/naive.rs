//! The snapshot of a naive store: everything at once.

use std::sync::Arc;

use super::batch::{Batch, Held, Named, Origin};
use super::{Ending, SnapshotSink, Totals};
use crate::naive::{Data, Map};

/// Gives all records to `sink`.
pub(crate) fn save_maps(maps: &[Map], mut sink: Box<dyn SnapshotSink>) {
    let held = Arc::new(Held::default());
    let mut batch = Batch::new(&held, Origin::Scanner);
    for (database, map) in (0..).zip(maps) {
        for (key, cell) in map {
            let named = Named {
                database,
                key,
                deadline_unix_ms: cell.deadline_unix_ms,
                etag: cell.etag,
            };
            match &cell.data {
                Data::Integer(number) => batch.push_integer(named, *number),
                Data::Object(object) => batch.push_object(named, object),
                Data::Bytes { bytes, .. } => batch.push_bytes(named, bytes),
            }
        }
    }
    batch.count();
    let totals = Totals {
        generation: 0,
        records: batch.len() as u64,
        bytes: batch.content_bytes(),
        held_bytes_max: held.sum_max(),
    };
    let ending = if sink.take(batch).is_break() {
        Ending::Cancelled
    } else {
        Ending::Complete
    };
    sink.end(ending, &totals);
}
