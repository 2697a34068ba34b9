//! Which stream the data is of, on a server that follows a Redis primary.
//!
//! A history and an offset: everything that the primary's stream says below it has been applied, and nothing that it says
//! from there on. It is read at each start from the log and the checkpoint, and asked for when a link is made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::Source;

/// The id that stands for none.
pub const NO_STREAM: [u8; 40] = [b'0'; 40];

/// Stands in the log where the data is only a part of what it should be.
pub const BROKEN: Source = Source {
    id: NO_STREAM,
    offset: 0,
    database: 0,
};

/// Stands in the log where a server takes writes that has followed another.
pub const OWN: Source = Source {
    offset: 1,
    ..BROKEN
};

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// The data is of this server's own making.
    #[default]
    Own,
    /// It is a part of somebody's data.
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
    /// The place in the stream, if the data is of one.
    #[must_use]
    pub fn get(&self) -> Option<Source> {
        match *self.state() {
            State::At(source) => Some(source),
            State::Own | State::Broken => None,
        }
    }

    /// Whether the data is only a part of what it should be: it counts for nothing.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        matches!(*self.state(), State::Broken)
    }

    /// Everything below this place is applied; or what the log says instead.
    pub fn set(&self, source: Source) {
        *self.state() = match source {
            OWN => State::Own,
            Source { id: NO_STREAM, .. } => State::Broken,
            _ => State::At(source),
        };
    }

    /// Says whether the log says so, too: not before all that the data is made of is kept.
    pub fn set_logged(&self, on: bool) {
        self.is_logged.store(on, Ordering::Relaxed);
    }

    /// The place in the stream as the log says it: what has to stand again behind the cut of a checkpoint, since the log
    /// before that goes. To be asked between two [batches](store::Store::batch_turn).
    #[must_use]
    pub fn logged(&self) -> Option<Source> {
        self.get()
            .filter(|_| self.is_logged.load(Ordering::Relaxed))
    }

    /// The data is of no stream any more: parts of it are missing.
    pub fn set_broken(&self) {
        *self.state() = State::Broken;
    }

    /// The data is this server's own from here on: it takes writes.
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
