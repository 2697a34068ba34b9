//! Records the keys that a request reads, for clients with client caching.

use std::sync::Arc;

use protocol::Request;
use store::Key;

use super::Context;
use crate::key_places as places;
use crate::spec::{CommandSpec, Flags, Group};
use crate::tracking::Tracking;

impl Context<'_> {
    /// Records the keys that a request reads if its client tracks them.
    #[inline]
    pub fn track_reads(&mut self, spec: &CommandSpec, request: Request<'_>) {
        let tracking = self.session.tracking.as_deref();
        // For a script, the keys it reads count, not the keys it declares.
        let reads = spec.flags.has(Flags::READONLY) && spec.group != Group::Scripting;
        if reads && tracking.is_some_and(Tracking::tracks_reads) {
            self.track(spec, request);
        }
    }

    #[cold]
    fn track(&mut self, spec: &CommandSpec, request: Request<'_>) {
        let Some(tracking) = &self.session.tracking else {
            return;
        };
        let follower = Arc::clone(&tracking.follower);
        let database = self.session.database;
        let found = places::of(self.table, spec, &request).unwrap_or_default();
        let key = |(at, _)| Some(self.store.key(database, request.arg(at)?));
        let keys: Vec<Key<'_>> = found.into_iter().filter_map(key).collect();
        self.server.track(self.store, &follower, &keys);
    }
}
