//! Effects: what a write did, stated as canonical commands.
//!
//! All changes leave the store through effects. Command code states the effect of a write while the
//! record is still locked, so that the order of effects is the order of the store for every key.
//! Effects are deterministic: absolute times, no random choice left. Deletions that no command
//! asked for (expiry, eviction) go through the same sink. Without a sink nothing is built: one
//! predictable branch.

use crate::key::DatabaseId;
use crate::value::Cause;

/// The destination of effects: the operation log, replicas, a test.
///
/// One sink belongs to one [`crate::Handle`]; calls come from that handle's thread, with the
/// record's bucket locked: a sink must not call back into the store and must not block.
pub trait EffectSink: Send {
    /// Takes a canonical command that, applied to `database`, repeats the change.
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]);

    /// Takes the removal of a record that no command asked for.
    fn removed(&mut self, database: DatabaseId, key: &[u8], cause: Cause);

    /// Takes the expiry of a member of the structure at a key (a field of a hash). The key is
    /// removed with its last member, without an effect of its own.
    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]);

    /// Takes the new etag of the structure at a key, which the effect just stated has changed.
    fn etag(&mut self, _database: DatabaseId, _key: &[u8], _etag: u64) {}

    /// Takes the generation that the next effects belong to: they are in every snapshot that began
    /// with a higher generation (see [`crate::Totals::generation`]) and in no other. So a snapshot
    /// and the effects from its own generation on make up the store.
    fn generation(&mut self, _generation: u64) {}

    /// As [`EffectSink::generation`], with the time that the write sees, in milliseconds since 1970
    /// UTC.
    fn stands(&mut self, generation: u64, _now_unix_ms: u64) {
        self.generation(generation);
    }

    /// Begins a group: the effects up to the matching [`EffectSink::group_end`] apply together or
    /// not at all.
    fn group_begin(&mut self) {}

    /// Ends the group that [`EffectSink::group_begin`] began.
    fn group_end(&mut self) {}

    /// Takes the position in a followed stream up to which the effects of the open group go. The
    /// last position in a group counts.
    fn source(&mut self, _source: &Source) {}
}

/// A position in the stream of a Redis primary that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the stream: 40 characters.
    pub id: [u8; 40],
    /// Number of its bytes that were applied.
    pub offset: u64,
    /// The database that the stream has selected there.
    pub database: DatabaseId,
}

/// The argument of a closure that states an effect; it knows the database already.
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
