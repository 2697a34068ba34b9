//! A sink that keeps everything in memory, for tests.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

use structures::Object;

use super::{Batch, Ending, SavedValue, SnapshotSink, Totals};
use crate::key::DatabaseId;

/// The records of a snapshot. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected(Arc<Mutex<State>>);

/// String, deadline and object of each key.
pub(crate) type Records = BTreeMap<(DatabaseId, Vec<u8>), (Vec<u8>, Option<u64>, Option<Object>)>;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) records: Records,
    pub(crate) ended: Option<(Ending, Totals)>,
}

impl Collected {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics in here")
    }

    /// Returns all records. The snapshot must be complete.
    pub(crate) fn complete(&self) -> Records {
        let state = self.state();
        let (ending, totals) = state.ended.expect("it ended");
        assert_eq!(ending, Ending::Complete);
        assert_eq!(totals.records, state.records.len() as u64);
        state.records.clone()
    }
}

impl SnapshotSink for Collected {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let mut state = self.state();
        for saved in batch.records() {
            let key = (saved.database, saved.key.to_vec());
            let object = match saved.value {
                SavedValue::Object(object) => Some(object.clone()),
                _ => None,
            };
            let value = (saved.value.to_vec(), saved.deadline_unix_ms, object);
            let twice = state.records.insert(key, value);
            assert!(twice.is_none(), "each record comes once");
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, totals: &Totals) {
        let before = self.state().ended.replace((ending, *totals));
        assert!(before.is_none(), "it ends once");
    }
}
