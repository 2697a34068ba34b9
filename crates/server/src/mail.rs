//! Pushes for the clients of one worker, which any thread can post.
//!
//! ```text
//!   any thread ── post ──► letters, at most MAIL_BYTES_MAX ── take ──► the worker's deliveries
//! ```
//!
//! Posting locks only the box and never blocks, so that it can be done with keys locked. A full box
//! accepts no more letters: the receiver of the letter is closed instead, because a client that
//! misses a push must notice. Long before that, publishers are asked to wait. Requests to a worker
//! (`node::Message`) take another way and are never refused.
//!
//! Taken letters count until they are [delivered](Mail::delivered).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{Push, Topic};

/// Maximum number of bytes of pushes that wait for one worker; the last push may exceed it.
const MAIL_BYTES_MAX: usize = 64 << 20;

/// Bytes from which on publishers wait: what is delivered together is rarely more.
const CROWDED_BYTES: usize = 1 << 20;

/// Cost of a letter besides its bytes.
const LETTER_BYTES: usize = size_of::<Letter>();

/// Receiver of a letter.
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

/// A push and its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The receiver.
    pub to: Address,
    /// The push.
    pub push: Push,
}

impl Letter {
    /// Returns its cost in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        LETTER_BYTES + self.push.len()
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Mail {
    boxed: Mutex<Boxed>,
    waits: AtomicBool,
    /// Bytes of undelivered letters, including taken ones.
    held_bytes: AtomicUsize,
    /// Whether a publisher waits until the box is no longer crowded.
    is_waited_for: AtomicBool,
}

/// Contents of the box.
#[derive(Debug, Default)]
pub struct Boxed {
    /// Letters in the order in which they were posted.
    pub letters: Vec<Letter>,
    /// Receivers that missed a letter and must be closed.
    pub missed: HashSet<Address>,
}

impl Mail {
    /// Posts a letter. Returns whether the worker must be woken for it.
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

    /// Whether letters wait. Letters that the calling thread posted are always seen.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Takes the contents of the box.
    #[must_use]
    pub fn take(&self) -> Boxed {
        let mut boxed = self.lock();
        self.waits.store(false, Ordering::Release);
        std::mem::take(&mut boxed)
    }

    /// Records that letters of so many bytes were delivered. Returns whether publishers wait for
    /// that and can continue.
    #[must_use]
    pub fn delivered(&self, bytes: usize) -> bool {
        let before = self.held_bytes.fetch_sub(bytes, Ordering::SeqCst);
        before - bytes < CROWDED_BYTES / 2 && self.is_waited_for.swap(false, Ordering::SeqCst)
    }

    /// Whether so much waits that publishers should wait, too. Then a later [`Mail::delivered`]
    /// returns `true` when they can continue.
    #[inline]
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) >= CROWDED_BYTES && {
            // The other side lowers the number, then reads the flag: one of the two sees the
            // other's change.
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
