//! A request whose long argument is received apart from the rest.
//!
//! ```text
//!   came:      *3 $3 SET $1 k $100000000  ░░░░░ the value's bytes ░░░░░  CR LF
//!                                          └──► the pages it will have
//!   decoded:   *3 $3 SET $1 k $0           CR LF
//! ```
//!
//! The argument's bytes go straight to where the store will keep them. Once they are there, an empty
//! argument stands in for them, the request is decoded like any other, and the command's
//! [`long_value`](crate::spec::CommandSpec::long_value) handler finds the value in the session.
//! Only for clients in no special state and for commands whose row says so; all other requests wait
//! in the query buffer.

use std::sync::atomic::AtomicU8;

use protocol::awaited_argument;
use store::{Handle, INCOMING_BYTES_MIN, Incoming, StoreError};

/// The longest beginning of a request that is kept for it.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The state of one.
#[derive(Debug)]
pub struct Arrival {
    /// The request up to the argument, with a stand-in's header.
    head: Vec<u8>,
    /// Where the argument stands.
    index: usize,
    value: Incoming,
}

/// The argument that a stand-in stands for, as far as it is to be shown.
#[derive(Debug)]
pub(crate) struct LongArgument {
    /// Where it stands.
    pub(crate) index: usize,
    /// Its first bytes.
    pub(crate) beginning: Vec<u8>,
    /// All of them.
    pub(crate) len: usize,
}

impl Arrival {
    /// Begins one if the incomplete request `input` is such a request and at least `needed` bytes
    /// long; takes all that came of it. `long_argument` says which argument of a command may be received apart.
    #[cold]
    pub(crate) fn begin(
        store: &Handle,
        input: &[u8],
        needed: usize,
        long_argument: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Option<Box<Self>> {
        if needed < INCOMING_BYTES_MIN {
            return None;
        }
        let awaited = awaited_argument(input)?;
        let argument = long_argument(awaited.name)?;
        let lacks_some = input.len() < awaited.start + awaited.len;
        if !lacks_some || awaited.index != argument || awaited.header_start > HEAD_BYTES_MAX {
            return None;
        }
        let mut value = store.incoming(awaited.len)?;
        value.write(&input[awaited.start..]).ok()?;
        let mut head = input[..awaited.header_start].to_vec();
        head.extend_from_slice(b"$0\r\n");
        let index = awaited.index;
        Some(Box::new(Self { head, index, value }))
    }

    /// Where the next bytes go; not empty as long as some are missing.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn room(&mut self) -> Result<&[AtomicU8], StoreError> {
        self.value.room()
    }

    /// Counts bytes that were written to the front of [`room`](Self::room).
    pub fn advance(&mut self, count: usize) {
        self.value.advance(count);
    }

    /// Once all bytes are there: the request to be decoded, up to the stand-in.
    pub fn take_head(&mut self) -> Option<Vec<u8>> {
        let is_complete = self.value.is_complete();
        is_complete.then(|| std::mem::take(&mut self.head))
    }

    /// Bytes of the argument that came.
    #[must_use]
    pub fn arrived_bytes(&self) -> usize {
        self.value.filled_bytes()
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.head.capacity() + self.value.held_bytes()
    }

    /// The argument as it can be shown, its first `bytes_max` bytes.
    pub(crate) fn shown(&self, bytes_max: usize) -> LongArgument {
        LongArgument {
            index: self.index,
            beginning: self.value.beginning(bytes_max),
            len: self.value.len(),
        }
    }

    /// The value.
    pub fn into_value(self) -> Incoming {
        self.value
    }
}
