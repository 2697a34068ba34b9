//! What a client is sent without having asked: messages of channels, invalidations, what it monitors.
//!
//! A push is formatted once and shared by all who get it. The two protocols differ in one byte: what
//! is a push (`>`) in RESP3 is an array (`*`) in RESP2.

use std::sync::Arc;

use protocol::{Reply, ReplyBuffer, Resp};

/// One message, as its receivers get it; clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    bytes: Arc<[u8]>,
}

impl Push {
    /// What `write` writes, one reply in RESP3: [`Reply::push`], or something that is the same in both
    /// protocols, such as a status. Inside of a push only strings, numbers and arrays are the same.
    #[must_use]
    pub fn new(write: impl FnOnce(&mut Reply<'_>)) -> Self {
        let mut buffer = ReplyBuffer::new();
        write(&mut Reply::new(&mut buffer, Resp::V3));
        Self {
            bytes: Arc::from(buffer.as_slice()),
        }
    }

    /// How many bytes are sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends it to `buffer` in the protocol's `version`.
    pub fn append_to(&self, buffer: &mut ReplyBuffer, version: Resp) {
        match (version, &*self.bytes) {
            (Resp::V2, [b'>', rest @ ..]) => {
                buffer.push_slice(b"*");
                buffer.push_slice(rest);
            }
            (_, bytes) => buffer.push_slice(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_version(push: &Push, version: Resp) -> Vec<u8> {
        let mut buffer = ReplyBuffer::new();
        push.append_to(&mut buffer, version);
        buffer.to_vec()
    }

    #[test]
    fn a_push_is_an_array_in_resp2() {
        let push = Push::new(|reply| {
            reply.push(2);
            reply.bulk(b"message");
            reply.bulk(b">");
        });
        assert_eq!(
            in_version(&push, Resp::V3),
            b">2\r\n$7\r\nmessage\r\n$1\r\n>\r\n"
        );
        assert_eq!(
            in_version(&push, Resp::V2),
            b"*2\r\n$7\r\nmessage\r\n$1\r\n>\r\n"
        );
    }

    #[test]
    fn a_status_is_the_same_in_both() {
        let push = Push::new(|reply| reply.simple("line"));
        assert_eq!(in_version(&push, Resp::V2), b"+line\r\n");
        assert_eq!(in_version(&push, Resp::V3), b"+line\r\n");
    }
}
