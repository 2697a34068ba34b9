//! Pushes for the clients of one worker, left there by any thread.
//!
//! ```text
//!   any thread ── post ──► letters, at most MAIL_BYTES_MAX ── take ──► the worker's deliveries
//! ```
//!
//! Posting locks nothing but the box and never waits, so that it may be done with keys locked. A box
//! that is full takes no more: whoever was to get the letter is closed instead, for a client that
//! misses a push must notice. Long before, those who publish on purpose are asked to wait. What a
//! worker is asked to do (`node::Message`) goes another way and is never refused.
//!
//! What is taken counts until it is [delivered](Mail::delivered).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{Push, Topic};

/// So many bytes of pushes wait for one worker at most, and one push more.
const MAIL_BYTES_MAX: usize = 64 << 20;

/// From so many bytes on, publishers wait: what is delivered together is rarely more.
const CROWDED_BYTES: usize = 1 << 20;

/// What a letter costs beside its bytes.
const LETTER_BYTES: usize = size_of::<Letter>();

/// Who gets a letter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// One client.
    Client {
        /// Its id.
        id: u64,
        /// Its place at the worker.
        place: u32,
    },
    /// The worker's subscribers of a topic.
    Topic(Topic),
}

/// A push and who gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Who gets it.
    pub to: Address,
    /// What they are sent.
    pub push: Push,
}

impl Letter {
    /// What it counts for, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        LETTER_BYTES + self.push.len()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Mail {
    boxed: Mutex<Boxed>,
    waits: AtomicBool,
    /// Letters that are not delivered, those that were taken included.
    held_bytes: AtomicUsize,
    /// Somebody waits until it is no longer crowded.
    is_waited_for: AtomicBool,
}

/// What is in the box.
#[derive(Debug, Default)]
pub struct Boxed {
    /// Letters in the order in which they came.
    pub letters: Vec<Letter>,
    /// Who missed a letter, and has to be closed.
    pub missed: HashSet<Address>,
}

impl Mail {
    /// Leaves a letter; whether the worker has to be woken for it.
    #[must_use]
    pub fn post(&self, letter: Letter) -> bool {
        let mut boxed = self.lock();
        if self.held_bytes.load(Ordering::Relaxed) >= MAIL_BYTES_MAX {
            boxed.missed.insert(letter.to);
        } else {
            self.held_bytes
                .fetch_add(letter.held_bytes(), Ordering::SeqCst);
            boxed.letters.push(letter);
        }
        !self.waits.swap(true, Ordering::AcqRel)
    }

    /// Whether letters wait; those of the asking thread are seen for sure.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Takes all that is there.
    #[must_use]
    pub fn take(&self) -> Boxed {
        let mut boxed = self.lock();
        self.waits.store(false, Ordering::Release);
        std::mem::take(&mut boxed)
    }

    /// Letters that counted for so many bytes are delivered. Whether somebody waits for the room.
    #[must_use]
    pub fn delivered(&self, bytes: usize) -> bool {
        let before = self.held_bytes.fetch_sub(bytes, Ordering::SeqCst);
        before - bytes < CROWDED_BYTES / 2 && self.is_waited_for.swap(false, Ordering::SeqCst)
    }

    /// Whether so much waits that publishers should wait, too; [`Mail::delivered`] then says when to
    /// go on.
    #[inline]
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) >= CROWDED_BYTES && {
            // The other side lowers the number, then looks at the flag: one of the two sees it.
            self.is_waited_for.store(true, Ordering::SeqCst);
            self.held_bytes.load(Ordering::SeqCst) >= CROWDED_BYTES / 2
        }
    }

    fn lock(&self) -> MutexGuard<'_, Boxed> {
        self.boxed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(id: u64, bytes: usize) -> Letter {
        Letter {
            to: Address::Client { id, place: 0 },
            push: Push::new(|reply| reply.bulk(&vec![b'x'; bytes])),
        }
    }

    #[test]
    fn the_first_letter_wakes() {
        let mail = Mail::default();
        assert!(!mail.waits());
        assert!(mail.post(letter(1, 1)));
        assert!(!mail.post(letter(2, 1)));
        assert!(mail.waits());
        let taken = mail.take();
        assert_eq!(taken.letters, [letter(1, 1), letter(2, 1)]);
        assert!(!mail.waits());
        assert!(mail.post(letter(3, 1)));
    }

    #[test]
    fn who_misses_a_letter_is_noted_once() {
        let mail = Mail::default();
        let piece = letter(1, MAIL_BYTES_MAX / 2);
        let _ = mail.post(piece.clone());
        let _ = mail.post(piece.clone());
        assert!(mail.is_crowded());
        for _ in 0..3 {
            let _ = mail.post(letter(2, 1));
        }
        let taken = mail.take();
        assert_eq!(taken.letters.len(), 2);
        assert_eq!(
            Vec::from_iter(taken.missed),
            [Address::Client { id: 2, place: 0 }]
        );
        assert!(
            mail.post(letter(2, 1)),
            "nothing is delivered, so there is no room, but the worker is to know"
        );
        assert!(mail.take().letters.is_empty());
        assert!(!mail.delivered(piece.held_bytes()));
        assert!(mail.delivered(piece.held_bytes()), "somebody waited");
        assert!(!mail.is_crowded());
        let _ = mail.post(letter(2, 1));
        assert_eq!(mail.take().letters.len(), 1);
    }
}
