//! A long value that is being received: its bytes go straight into the pages that it will have.
//!
//! Pages are taken as bytes come, so that a merely announced length costs nothing. Until it is put
//! under a key, the value belongs to its sender: the store's ledger does not count it.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use super::{Blob, Body, CHUNK_BYTES_SIGNED, PAGE_BYTES, reserve_exact};
use crate::owned::{Content, Owned};
use crate::slab::Slab;
use crate::value::StoreError;

/// Length of the shortest incoming value; shorter values are copied.
pub const INCOMING_BYTES_MIN: usize = 64 * 1024;

/// A value of known length whose first bytes have been received.
#[derive(Debug)]
pub struct Incoming {
    body: Body,
    len: usize,
    filled: usize,
}

impl Incoming {
    /// Creates a value of `len` bytes; `None` below [`INCOMING_BYTES_MIN`].
    pub(crate) fn new(slab: &Arc<Slab>, len: usize) -> Option<Self> {
        (len >= INCOMING_BYTES_MIN).then(|| Self {
            body: Body::new(slab),
            len,
            filled: 0,
        })
    }

    /// Final length of the value in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false, because no incoming value is short.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes received.
    #[must_use]
    pub fn filled_bytes(&self) -> usize {
        self.filled
    }

    /// Whether all bytes have been received.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.filled == self.len
    }

    /// Bytes of memory that the value takes so far.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.body.pages.len() * PAGE_BYTES + self.body.own_bytes()
    }

    /// Returns the place for the next bytes: at most 64 KiB, and not empty unless the value is
    /// complete. The bytes are atomic because readers of records may still look at the page through
    /// an offset from the time when it held slots.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] if no page is left.
    pub fn room(&mut self) -> Result<&[AtomicU8], StoreError> {
        let (index, within) = (self.filled / PAGE_BYTES, self.filled % PAGE_BYTES);
        if index == self.len / PAGE_BYTES {
            return self.room_in_tail(within);
        }
        if index == self.body.pages.len() {
            self.body
                .pages
                .try_reserve(1)
                .map_err(|_refused| StoreError::OutOfMemory)?;
            let page = self.body.take_page()?;
            self.body.slab.ledger().add(-CHUNK_BYTES_SIGNED);
            self.body.pages.push(page);
        }
        let page = self.body.pages[index];
        // SAFETY: the page was taken for this body, which no other thread knows.
        Ok(unsafe { self.body.slab.arena().chunk_room(page, within..PAGE_BYTES) })
    }

    fn room_in_tail(&mut self, within: usize) -> Result<&[AtomicU8], StoreError> {
        let len = self.len % PAGE_BYTES;
        let tail = &mut self.body.tail;
        if tail.len() < len {
            reserve_exact(tail, len)?;
            tail.resize(len, 0);
        }
        let rest = &mut tail[within..];
        // SAFETY: an atomic byte has the layout of a byte, and the slice is borrowed exclusively
        // for as long as the result lives.
        Ok(unsafe { &*(std::ptr::from_mut(rest) as *const [AtomicU8]) })
    }

    /// Counts the first `count` bytes of the last [`room`](Self::room) as received.
    pub fn advance(&mut self, count: usize) {
        self.filled = self.len.min(self.filled + count);
    }

    /// Copies as many of `bytes` as are missing. Returns their number.
    ///
    /// # Errors
    /// As [`room`](Self::room).
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, StoreError> {
        let mut rest = bytes;
        while !self.is_complete() && !rest.is_empty() {
            let room = self.room()?;
            let count = room.len().min(rest.len());
            for (place, &byte) in room.iter().zip(rest) {
                place.store(byte, std::sync::atomic::Ordering::Relaxed);
            }
            self.advance(count);
            rest = &rest[count..];
        }
        Ok(bytes.len() - rest.len())
    }

    /// Returns a copy of the first bytes, at most `count` of them. All of these must have been
    /// received.
    #[must_use]
    pub fn beginning(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count.min(self.filled)];
        let copied = self.body.copy_to(0, &mut bytes);
        bytes.truncate(copied);
        bytes
    }

    /// Returns the value, to be [put](crate::Entry::put) under a key; `None` if it is not complete.
    #[must_use]
    pub fn finish(mut self, deadline_unix_ms: Option<u64>) -> Option<Owned> {
        if !self.is_complete() {
            return None;
        }
        let empty = Body::new(&self.body.slab);
        let mut body = std::mem::replace(&mut self.body, empty);
        body.slab.ledger().add(pages_bytes(&body));
        body.account();
        Some(Owned {
            content: Content::Blob(Blob {
                body: Arc::new(body),
            }),
            deadline_unix_ms,
        })
    }
}

impl Drop for Incoming {
    /// Compensates for the bytes that the pages subtract from the ledger when they are given back.
    fn drop(&mut self) {
        self.body.slab.ledger().add(pages_bytes(&self.body));
    }
}

fn pages_bytes(body: &Body) -> i64 {
    i64::try_from(body.pages.len()).unwrap_or(0) * CHUNK_BYTES_SIGNED
}
