//! A request whose long argument is received separately from the rest.
//!
//! ```text
//!   came:      *3 $3 SET $1 k $100000000  ░░░░░ the value's bytes ░░░░░  CR LF
//!                                          └──► the pages it will have
//!   decoded:   *3 $3 SET $1 k $0           CR LF
//! ```
//!
//! The argument's bytes are received directly into the memory where the store will keep them. When
//! they are complete, an empty argument takes their place and the request is decoded like any
//! other. The command's [`long_value`](crate::spec::CommandSpec::long_value) handler takes the
//! value from the session. This applies only to clients in no special state and to commands whose
//! row allows it. All other requests wait in the query buffer.

use std::sync::atomic::AtomicU8;

use protocol::awaited_argument;
use store::{Handle, INCOMING_BYTES_MIN, Incoming, StoreError};

/// Maximum length of the request's part before the argument, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The state of one bulk upload.
#[derive(Debug)]
pub struct Arrival {
    /// The request up to the argument, followed by the header of the empty argument.
    head: Vec<u8>,
    /// The argument's index in the request.
    index: usize,
    value: Incoming,
}

/// The part of a separately received argument that is shown (slow log, monitors).
#[derive(Debug)]
pub(crate) struct LongArgument {
    /// Its index in the request.
    pub(crate) index: usize,
    /// Its first bytes.
    pub(crate) beginning: Vec<u8>,
    /// Its full length in bytes.
    pub(crate) len: usize,
}

impl Arrival {
    /// Begins a bulk upload if the incomplete request `input` qualifies and is at least `needed`
    /// bytes long. Takes all of the argument's bytes that are in `input`. `long_argument` says
    /// which argument of a command may be received separately.
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

    /// Returns the memory for the next bytes. It is not empty until all bytes are there.
    ///
    /// # Errors
    /// If no memory is available.
    pub fn room(&mut self) -> Result<&[AtomicU8], StoreError> {
        self.value.room()
    }

    /// Counts bytes that the caller wrote to the front of [`room`](Self::room).
    pub fn advance(&mut self, count: usize) {
        self.value.advance(count);
    }

    /// Takes the request up to and including the empty argument, or returns `None` if bytes are
    /// missing.
    pub fn take_head(&mut self) -> Option<Vec<u8>> {
        let is_complete = self.value.is_complete();
        is_complete.then(|| std::mem::take(&mut self.head))
    }

    /// Returns the number of the argument's bytes received so far.
    #[must_use]
    pub fn arrived_bytes(&self) -> usize {
        self.value.filled_bytes()
    }

    /// Returns the memory held, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.head.capacity() + self.value.held_bytes()
    }

    /// Returns the argument for display, with at most its first `bytes_max` bytes.
    pub(crate) fn shown(&self, bytes_max: usize) -> LongArgument {
        LongArgument {
            index: self.index,
            beginning: self.value.beginning(bytes_max),
            len: self.value.len(),
        }
    }

    /// Returns the value.
    pub fn into_value(self) -> Incoming {
        self.value
    }
}
