//! Moving the pieces of objects, which lie in the memory of the process' allocator.
//!
//! [`crate::mover`] moves records; the parts of an object outside its record do not lie in the
//! store's chunks. Only the allocator knows which pieces lie badly. So a thread that goes through
//! all buckets asks it, piece by piece. It skips a bucket that is in use or held for long; the next
//! round looks again.
//!
//! A move is no change of the key: no effect, no event, no notification of observers, and a
//! snapshot need not save the record first. No thread follows the pointer in a record without
//! holding the bucket. The version of the bucket goes up all the same, because the words of a
//! record change.

use std::sync::Arc;

use base::sync::atomic::Ordering;
use structures::Relocation;

use crate::bucket::{Bucket, Link};
use crate::handle::Handle;
use crate::heap;
use crate::index::Index;
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::local::view_of;
use crate::shared::Shared;
use crate::store::Store;

/// Cost of looking at a bucket, in bytes moved.
const BUCKET_COST: u64 = 64;

/// Position of the hand that moves pieces of objects.
#[derive(Debug, Default)]
pub struct PieceHand {
    database: DatabaseId,
    bucket: u64,
    /// Number of objects of the bucket that are done.
    objects: usize,
    /// Number of pieces of the next object that are done.
    pieces: usize,
}

impl PieceHand {
    fn next_bucket(&mut self) {
        self.bucket += 1;
        (self.objects, self.pieces) = (0, 0);
    }
}

impl Store {
    /// Notes whether a thread moves pieces of objects ([`Handle::move_pieces`]), for status
    /// reports.
    pub fn set_moving_pieces(&self, on: bool) {
        if let Some(shared) = self.shared() {
            shared.mover.is_moving_pieces.store(on, Ordering::Relaxed);
        }
    }

    /// Whether enough memory is idle, compared with the memory in use, to be worth the work of
    /// moving ([`Store::set_moving`]): one rule for records and for pieces of objects.
    #[must_use]
    pub fn is_worth_moving(&self, idle_bytes: u64, used_bytes: u64) -> bool {
        self.shared()
            .is_some_and(|shared| shared.mover.is_worth(idle_bytes, used_bytes))
    }
}

impl Handle {
    /// Moves pieces of objects for which `wants_move` says that they lie badly, from the hand's
    /// position on, with about as much work as it takes to move `work_bytes`. Returns whether there
    /// is more before the hand is at the beginning again. `wants_move` is called with a bucket
    /// held: it must not use the store.
    pub fn move_pieces(
        &mut self,
        hand: &mut PieceHand,
        work_bytes: u64,
        wants_move: &mut dyn FnMut(*const u8) -> bool,
    ) -> bool {
        let way = self.indexed_mut();
        way.is_some_and(|way| way.move_pieces(hand, work_bytes, wants_move))
    }
}

impl Indexed {
    fn move_pieces(
        &mut self,
        hand: &mut PieceHand,
        work_bytes: u64,
        wants_move: &mut dyn FnMut(*const u8) -> bool,
    ) -> bool {
        let entered = self.enter();
        let databases = self.shared.databases.count();
        let mut work_left = work_bytes;
        while work_left > 0 && hand.database < databases {
            let index = self.seen.get(hand.database).map(Arc::clone);
            let buckets = index.as_ref().map_or(0, |index| index.state().buckets());
            if let Some(index) = index.filter(|_| hand.bucket < buckets) {
                match index.try_lock_number(hand.bucket) {
                    Some(home) => {
                        let mut moving = PieceMoving {
                            shared: &self.shared,
                            work_left,
                            wants_move,
                            has_moved: false,
                        };
                        moving.bucket(&index, home, hand);
                        work_left = moving.work_left;
                        home.unlock(moving.has_moved);
                    }
                    None => hand.next_bucket(),
                }
                work_left = work_left.saturating_sub(BUCKET_COST);
            } else {
                *hand = PieceHand {
                    database: hand.database + 1,
                    ..PieceHand::default()
                };
            }
        }
        let has_more = hand.database < databases;
        if !has_more {
            *hand = PieceHand::default();
        }
        if entered {
            self.leave();
        }
        has_more
    }
}

/// State for moving pieces of the objects in a bucket.
struct PieceMoving<'a> {
    shared: &'a Shared,
    work_left: u64,
    wants_move: &'a mut dyn FnMut(*const u8) -> bool,
    has_moved: bool,
}

impl PieceMoving<'_> {
    /// Moves pieces of the objects in the chain of `home`, as far as there is work left. The caller
    /// holds `home`.
    fn bucket(&mut self, index: &Index, home: &Bucket, hand: &mut PieceHand) {
        let (mut number, done) = (0, hand.objects);
        index.for_each(home, |spot| {
            if !spot.link.has(Link::LOCKED_READ) {
                return;
            }
            number += 1;
            if number <= done || number <= hand.objects || self.work_left == 0 {
                return;
            }
            match self.object(spot.link, hand.pieces) {
                Some(rest) => hand.pieces = rest,
                None => (hand.objects, hand.pieces) = (number, 0),
            }
        });
        if hand.objects >= number {
            hand.next_bucket();
        }
    }

    /// Moves pieces of the object that a link leads to, from one piece on. Returns the piece at
    /// which to continue, or `None` at the end.
    fn object(&mut self, link: Link, from: usize) -> Option<usize> {
        let view = view_of(self.shared, link)?;
        let mut relocation = Relocation::new(from, self.work_left, self.wants_move);
        // SAFETY: the caller holds the bucket, and uses the object through this alone.
        unsafe { heap::move_pieces(&view, &mut relocation) };
        self.work_left = relocation.work_left();
        let (moved, _) = relocation.counts();
        let mover = &self.shared.mover;
        let counter = match moved {
            0 => &mover.left,
            _ => &mover.moved,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.has_moved |= moved > 0;
        relocation.rest()
    }
}
