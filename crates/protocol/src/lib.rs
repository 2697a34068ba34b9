//! RESP2, RESP3 and inline commands: bytes in, requests out; replies in, bytes out.
//!
//! ```text
//!   input bytes ── Decoder ──> Batch of Request (views)      Reply ──> ReplyBuffer (bytes)
//!                  what a server reads                       what a server writes
//!
//!   arguments ── encode_request ──> bytes                    bytes ── decode_value ──> Value
//!                  what a client writes                      what a client reads
//! ```
//!
//! This room performs no I/O, knows no command and keeps no key. Decoding copies no argument of a
//! RESP request: a [`Request`] points into the caller's input. [`Limits`] names every limit. No
//! input, however hostile, causes a panic or makes the decoder hold more than a small multiple of
//! the received bytes.
#![forbid(unsafe_code)]

mod awaited;
mod buffer;
mod decoder;
mod error;
mod frame;
mod inline;
mod limits;
mod reply;
mod request;
mod short;
mod value;

pub use awaited::{AwaitedArgument, awaited_argument};
pub use base::words::{UnbalancedQuotes, split as split_line};
pub use buffer::ReplyBuffer;
pub use decoder::{Decoded, Decoder};
pub use error::ProtocolError;
pub use limits::Limits;
pub use reply::{Deferred, Reply, Resp};
pub use request::{Batch, NameKey, OwnedRequest, Request, RequestIter, Requests, Run, Runs};
pub use value::{Double, Value, ValueError, decode_value, encode_arguments, encode_request};
