//! The stream from which the data comes, on a server that follows a Redis primary.
//!
//! A history and an offset: everything in the primary's stream below it has been applied, and
//! nothing from there on. It is read from the log and the checkpoint at each start, and needed when
//! a link is made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::Source;

/// The id that means no stream.
pub const NO_STREAM: [u8; 40] = [b'0'; 40];

/// Logged where the data is incomplete.
pub const BROKEN: Source = Source {
    id: NO_STREAM,
    offset: 0,
    database: 0,
};

/// Logged where a server that followed another begins to take writes.
pub const OWN: Source = Source {
    offset: 1,
    ..BROKEN
};

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// The data is this server's own.
    #[default]
    Own,
    /// It is an incomplete part of another server's data.
    Broken,
    At(Source),
}

/// See the module.
#[derive(Debug, Default)]
pub struct FollowedStream {
    state: Mutex<State>,
    is_logged: AtomicBool,
}

impl FollowedStream {
    /// Returns the position in the stream, if the data comes from one.
    #[must_use]
    pub fn get(&self) -> Option<Source> {
        match *self.state() {
            State::At(source) => Some(source),
            State::Own | State::Broken => None,
        }
    }

    /// Whether the data is incomplete, and thus unusable.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(*self.state(), State::Broken)
    }

    /// Sets the position below which everything is applied, or the other state that the log states.
    pub fn set(&self, source: Source) {
        *self.state() = match source {
            OWN => State::Own,
            Source { id: NO_STREAM, .. } => State::Broken,
            _ => State::At(source),
        };
    }

    /// Sets whether the log states it, too: not before all of the data is kept.
    pub fn set_logged(&self, on: bool) {
        self.is_logged.store(on, Ordering::Relaxed);
    }

    /// Returns the position in the stream as the log states it. It must be stated again behind the
    /// cut of a checkpoint, because the log before that is removed. Call it between two
    /// [batches](store::Store::batch_turn).
    #[must_use]
    pub fn logged(&self) -> Option<Source> {
        self.get()
            .filter(|_| self.is_logged.load(Ordering::Relaxed))
    }

    /// Declares that the data belongs to no stream any more, because parts of it are missing.
    pub fn set_broken(&self) {
        *self.state() = State::Broken;
    }

    /// Declares the data this server's own from here on, because it takes writes.
    pub fn set_own(&self) {
        *self.state() = State::Own;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn data_is_of_one_stream_or_of_none() {
        let followed = FollowedStream::default();
        let source = Source {
            id: [b'a'; 40],
            offset: 5,
            database: 2,
        };
        assert_eq!((followed.get(), followed.is_broken()), (None, false));
        followed.set(source);
        assert_eq!(
            (followed.get(), followed.is_broken()),
            (Some(source), false)
        );
        assert_eq!(followed.logged(), None);
        followed.set_logged(true);
        assert_eq!(followed.logged(), Some(source));
        followed.set(BROKEN);
        assert_eq!(followed.logged(), None);
        assert_eq!((followed.get(), followed.is_broken()), (None, true));
        followed.set(OWN);
        assert_eq!((followed.get(), followed.is_broken()), (None, false));
    }
}
