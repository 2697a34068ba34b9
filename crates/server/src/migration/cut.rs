//! The records of some hash slots as of the cut, as commands that recreate them.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::number::IntegerText;
use rdb::dump;
use store::{Batch, Ending, Record, Saved, SavedValue, SnapshotSink, Totals};

use super::filter::Slots;
use super::wire;

/// Output of the cut that is to be sent. The thread that drives the scanner takes it.
#[derive(Default)]
pub(super) struct Copied {
    pub(super) bytes: Vec<u8>,
    pub(super) keys: u64,
    pub(super) ending: Option<Ending>,
    /// Whether a value could not be read.
    pub(super) is_unreadable: bool,
}

/// See the module documentation.
pub(super) struct CutSink {
    slots: Slots,
    copied: Arc<Mutex<Copied>>,
    scratch: Vec<u8>,
}

impl CutSink {
    pub(super) fn new(slots: Slots, copied: &Arc<Mutex<Copied>>) -> Self {
        Self {
            slots,
            copied: Arc::clone(copied),
            scratch: Vec::new(),
        }
    }
}

pub(super) fn lock(copied: &Mutex<Copied>) -> MutexGuard<'_, Copied> {
    copied.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SnapshotSink for CutSink {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let mut copied = lock(&self.copied);
        for saved in batch.records() {
            if !self.slots.has(saved.key) {
                continue;
            }
            if !put(&saved, &mut self.scratch, &mut copied.bytes) {
                copied.is_unreadable = true;
                return ControlFlow::Break(());
            }
            copied.keys += 1;
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, _totals: &Totals) {
        lock(&self.copied).ending = Some(ending);
    }
}

/// Appends the commands that recreate a record. Returns false if its value cannot be read.
pub(super) fn put(saved: &Saved<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
    let at = saved.deadline_unix_ms.map(IntegerText::new_u64);
    let text = |out: &mut Vec<u8>, value: &[u8]| match &at {
        Some(at) => {
            let parts = [&b"SET"[..], saved.key, value, b"PXAT", at.as_bytes()];
            wire::put_command(out, saved.database, parts);
        }
        None => wire::put_command(out, saved.database, [&b"SET"[..], saved.key, value]),
    };
    match &saved.value {
        SavedValue::Integer(number) => text(out, IntegerText::new(*number).as_bytes()),
        SavedValue::Bytes(bytes) => text(out, bytes),
        SavedValue::Blob(blob) => text(out, &blob.to_vec()),
        SavedValue::Unreadable => return false,
        SavedValue::Object(object) => {
            scratch.clear();
            dump::write_object(object, scratch);
            let at = IntegerText::new_u64(saved.deadline_unix_ms.unwrap_or(0));
            let parts = [
                &b"RESTORE"[..],
                saved.key,
                at.as_bytes(),
                scratch,
                b"ABSTTL",
                b"REPLACE",
            ];
            wire::put_command(out, saved.database, parts);
            scratch.shrink_to(1 << 20);
        }
    }
    if saved.etag != 0 {
        let etag = IntegerText::new_u64(saved.etag);
        let parts = [&b"SETETAG"[..], saved.key, etag.as_bytes()];
        wire::put_command(out, saved.database, parts);
    }
    true
}

/// As [`put`], for a record in the store. Returns false if its value cannot be read here.
pub(super) fn put_record(
    record: &Record<'_>,
    database: u16,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    if record.is_cold() {
        return false;
    }
    let (object, text) = (record.object(), record.to_vec());
    let value = match &object {
        Some(object) => SavedValue::Object(object),
        None => SavedValue::Bytes(&text),
    };
    let saved = Saved {
        database,
        key: record.key(),
        deadline_unix_ms: record.deadline_unix_ms(),
        etag: record.etag(),
        value,
    };
    put(&saved, scratch, out)
}
