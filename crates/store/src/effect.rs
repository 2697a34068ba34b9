//! The one exit of changes: what a write did, stated as canonical commands.
//!
//! Command code states the effect of a write while the record is still locked, so that the order of
//! effects is the order of the store for every key. Effects are deterministic: absolute times, no
//! random choice left. Deletions that no command asked for (expiry, eviction) leave through the same
//! sink. With no sink installed nothing is built: one predictable branch.

use crate::key::DatabaseId;
use crate::value::Cause;

/// Where effects go: the operation log, replicas, a test.
///
/// One sink belongs to one [`crate::Handle`]; calls come from that handle's thread, with the record's
/// bucket locked: a sink must not call back into the store and must not block.
pub trait EffectSink: Send {
    /// One canonical command that, applied to `database`, repeats the change.
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]);

    /// A record went away without being asked to.
    fn removed(&mut self, database: DatabaseId, key: &[u8], cause: Cause);

    /// A member of the structure at a key (a field of a hash) went away because its time came. The key
    /// goes with the last one, without a word of its own.
    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]);

    /// The structure at a key was changed by what was just stated, and its etag is this number now.
    fn etag(&mut self, _database: DatabaseId, _key: &[u8], _etag: u64) {}

    /// What is stated next belongs to this generation: to every snapshot that began with a higher one
    /// (see [`crate::Totals::generation`]) and to no other. So a snapshot and the effects from its own
    /// generation on make up the store.
    fn generation(&mut self, _generation: u64) {}

    /// As [`EffectSink::generation`], with the time that the write sees, in milliseconds since 1970 UTC.
    fn stands(&mut self, generation: u64, _now_unix_ms: u64) {
        self.generation(generation);
    }

    /// The effects up to the matching [`EffectSink::group_end`] apply together or not at all.
    fn group_begin(&mut self) {}

    /// Ends what [`EffectSink::group_begin`] began.
    fn group_end(&mut self) {}

    /// The effects of the open group are what a followed stream says up to this place. The last one said in a group
    /// counts.
    fn source(&mut self, _source: &Source) {}
}

/// A place in the stream of a Redis primary that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the stream: 40 characters.
    pub id: [u8; 40],
    /// Bytes of it that were applied.
    pub offset: u64,
    /// The database that it has selected there.
    pub database: DatabaseId,
}

/// Handed to the closure that states an effect; knows the database already.
pub struct Effect<'a> {
    sink: &'a mut dyn EffectSink,
    database: DatabaseId,
}

impl<'a> Effect<'a> {
    pub(crate) fn new(sink: &'a mut dyn EffectSink, database: DatabaseId) -> Self {
        Self { sink, database }
    }

    /// States one canonical command, its name first.
    pub fn command(&mut self, parts: &[&[u8]]) {
        self.sink.command(self.database, parts);
    }
}
