//! Making room.

use crate::indexed::Indexed;
use crate::value::StoreError;

impl Indexed {
    /// Makes sure that `bytes` more may be held.
    #[inline]
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<(), StoreError> {
        let used = self.shared.ledger.used_bytes().saturating_add(bytes as u64);
        if self.shared.budget.over_bytes(used) == 0 {
            return Ok(());
        }
        Err(StoreError::OutOfMemory)
    }
}
