//! The thread's reply buffer, in the form that the loop uses.

use std::ops::{Deref, DerefMut};

use base::shared_bytes::Attachment;
use protocol::ReplyBuffer;
use reactor::OutputArena;

/// A [`ReplyBuffer`] that the loop sends and clears.
pub struct Arena(ReplyBuffer);

impl Arena {
    /// Makes an arena over `buffer`.
    #[must_use]
    pub fn new(buffer: ReplyBuffer) -> Self {
        Self(buffer)
    }
}

impl Deref for Arena {
    type Target = ReplyBuffer;

    fn deref(&self) -> &ReplyBuffer {
        &self.0
    }
}

impl DerefMut for Arena {
    fn deref_mut(&mut self) -> &mut ReplyBuffer {
        &mut self.0
    }
}

impl OutputArena for Arena {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn len_with_attachments(&self) -> usize {
        self.0.len_with_attachments()
    }

    fn take_attachments(&mut self) -> Vec<Attachment> {
        self.0.take_attachments()
    }

    fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn shrink_to(&mut self, capacity_bytes: usize) {
        self.0.shrink_to(capacity_bytes);
    }
}
