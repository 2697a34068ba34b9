//! Pushes for the clients of one worker, left there by any thread.
//!
//! ```text
//!   any thread ── post ──► letters, at most MAIL_BYTES_MAX ── take, once a turn ──► the worker
//! ```
//!
//! Posting locks nothing but the box and never waits, so that it may be done with keys locked. A box
//! that is full takes no more: whoever was to get the letter has to be closed instead, for a client
//! that misses a push must notice. What a worker is asked to do (`node::Message`) goes another way and
//! is never refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use commands::Push;

/// So many bytes of pushes wait for one worker at most, and one push more.
const MAIL_BYTES_MAX: usize = 64 << 20;

/// What a letter costs beside its bytes.
const LETTER_BYTES: usize = size_of::<Letter>();

/// A push and who gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Id of the client.
    pub client: u64,
    /// Its place at the worker.
    pub place: u32,
    /// What it is sent.
    pub push: Push,
}

/// Whether a letter was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// As the first one since the box was emptied: the worker has to be woken.
    First,
    /// Behind others.
    Behind,
    /// No: the box is full.
    Refused,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Mail {
    boxed: Mutex<Boxed>,
    waits: AtomicBool,
}

#[derive(Debug, Default)]
struct Boxed {
    letters: Vec<Letter>,
    bytes: usize,
}

impl Mail {
    /// Leaves a letter.
    pub fn post(&self, letter: Letter) -> Posted {
        let mut boxed = self.lock();
        if boxed.bytes >= MAIL_BYTES_MAX {
            return Posted::Refused;
        }
        boxed.bytes += LETTER_BYTES + letter.push.len();
        boxed.letters.push(letter);
        self.waits.store(true, Ordering::Release);
        if boxed.letters.len() == 1 {
            Posted::First
        } else {
            Posted::Behind
        }
    }

    /// Whether letters wait; those of the asking thread are seen for sure.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Takes all letters, in the order in which they came.
    #[must_use]
    pub fn take(&self) -> Vec<Letter> {
        let mut boxed = self.lock();
        self.waits.store(false, Ordering::Release);
        boxed.bytes = 0;
        std::mem::take(&mut boxed.letters)
    }

    fn lock(&self) -> MutexGuard<'_, Boxed> {
        self.boxed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(client: u64, bytes: usize) -> Letter {
        Letter {
            client,
            place: 0,
            push: Push::new(|reply| reply.bulk(&vec![b'x'; bytes])),
        }
    }

    #[test]
    fn the_first_letter_wakes() {
        let mail = Mail::default();
        assert!(!mail.waits());
        assert_eq!(mail.post(letter(1, 1)), Posted::First);
        assert_eq!(mail.post(letter(2, 1)), Posted::Behind);
        assert!(mail.waits());
        let clients: Vec<_> = mail.take().iter().map(|letter| letter.client).collect();
        assert_eq!(clients, [1, 2]);
        assert!(!mail.waits());
        assert_eq!(mail.post(letter(3, 1)), Posted::First);
    }

    #[test]
    fn a_full_box_refuses() {
        let mail = Mail::default();
        let piece = MAIL_BYTES_MAX / 2;
        assert_ne!(mail.post(letter(1, piece)), Posted::Refused);
        assert_ne!(mail.post(letter(1, piece)), Posted::Refused);
        assert_eq!(mail.post(letter(1, 1)), Posted::Refused);
        assert_eq!(mail.take().len(), 2);
        assert_eq!(mail.post(letter(1, 1)), Posted::First);
    }
}
