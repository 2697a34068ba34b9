//! The values that a request needs of keys whose values lie out of memory.
//!
//! A write that met one which cannot be read when it had changed something would be done by half. So it has all of them
//! in memory before it begins, and is refused when one cannot be read.

use protocol::Request;
use store::{Key, Record, StoreError};

use super::Context;
use crate::error::CommandResult;
use crate::flags::{Flags, KeyAccess};
use crate::key_places as places;
use crate::spec::CommandSpec;

impl Context<'_> {
    /// The keys whose values a request needs, as far as its arguments tell.
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

    /// Has the values that a write needs stay in memory until [`store::release_held_values`]. To be called before it begins,
    /// by a thread that holds its keys or none.
    ///
    /// # Errors
    /// When one cannot be read.
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
                // Said here.
                store::take_unreadable();
                return Err(StoreError::Unreadable.into());
            }
        }
        Ok(())
    }

    /// What a command came to, unless a value that it needed could not be read.
    #[inline]
    pub(crate) fn of_readable(&self, result: CommandResult) -> CommandResult {
        if self.store.stubs() > 0 && store::take_unreadable() {
            return Err(StoreError::Unreadable.into());
        }
        result
    }
}
