//! Values out of memory that a request needs.
//!
//! If a write met an unreadable value after its first change, it would be half done. So a write has
//! all its values in memory before it begins, and is refused if one cannot be read.

use protocol::Request;
use store::{Key, Record, StoreError};

use super::Context;
use crate::error::CommandResult;
use crate::flags::{Flags, KeyAccess};
use crate::key_places as places;
use crate::spec::CommandSpec;

impl Context<'_> {
    /// Returns the keys whose values a request needs, as far as its arguments show.
    pub(crate) fn keys_with_values<'r>(
        &self,
        spec: &CommandSpec,
        request: Request<'r>,
    ) -> Vec<Key<'r>> {
        if spec.keys.is_empty() || !spec.needs_values {
            return Vec::new();
        }
        let database = self.session.database;
        let found = places::of(self.table, spec, &request).unwrap_or_default();
        let needed = found.into_iter().filter(|(_, access)| {
            let reads = [KeyAccess::RW, KeyAccess::RO, KeyAccess::ACCESS];
            reads.iter().any(|flag| access.has(*flag)) && !access.has(KeyAccess::NOT_KEY)
        });
        needed
            .filter_map(|(at, _)| Some(self.store.key(database, request.arg(at)?)))
            .collect()
    }

    /// Keeps the values that a write needs in memory until [`store::release_held_values`]. The
    /// caller calls this before the write begins, and holds either all its keys or none.
    ///
    /// # Errors
    /// If a value cannot be read.
    #[inline]
    pub(crate) fn hold_values(
        &mut self,
        spec: &CommandSpec,
        request: Request<'_>,
    ) -> CommandResult {
        let changes = spec.flags.has(Flags::WRITE) || spec.runs.is_some();
        if self.store.stubs() == 0 || !changes {
            return Ok(());
        }
        self.hold_each_value(spec, request)
    }

    #[cold]
    fn hold_each_value(&mut self, spec: &CommandSpec, request: Request<'_>) -> CommandResult {
        for key in self.keys_with_values(spec, request) {
            let holds = |record: Option<&Record<'_>>| record.is_none_or(Record::hold_value);
            if !self.store.inspect(&key, holds) {
                // The error below reports it.
                store::take_unreadable();
                return Err(StoreError::Unreadable.into());
            }
        }
        Ok(())
    }

    /// Returns a command's result, or an error if a value that it needed could not be read.
    #[inline]
    pub(crate) fn of_readable(&self, result: CommandResult) -> CommandResult {
        if self.store.stubs() > 0 && store::take_unreadable() {
            return Err(StoreError::Unreadable.into());
        }
        result
    }
}
