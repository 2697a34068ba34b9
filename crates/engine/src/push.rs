//! What a client receives without a request: messages of channels, invalidations, monitored
//! commands.
//!
//! A push is formatted once and shared by all its receivers. The two protocols differ in one byte:
//! a push (`>`) in RESP3 is an array (`*`) in RESP2.

use std::sync::Arc;

use protocol::{Reply, ReplyBuffer, Resp};

/// One push; clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    bytes: Arc<[u8]>,
}

impl Push {
    /// Returns the push that `write` writes as one RESP3 reply: a [`Reply::push`], or a reply that
    /// is the same in both protocols, such as a status. Inside a push, only strings, numbers and
    /// arrays are the same.
    #[must_use]
    pub fn new(write: impl FnOnce(&mut Reply<'_>)) -> Self {
        let mut buffer = ReplyBuffer::new();
        write(&mut Reply::new(&mut buffer, Resp::V3));
        Self {
            bytes: Arc::from(buffer.as_slice()),
        }
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the push is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes the push in the protocol version of `reply`.
    pub fn write(&self, reply: &mut Reply<'_>) {
        let (first, rest) = self.in_version(reply.version());
        reply.raw(first);
        reply.raw(rest);
    }

    /// Returns the bytes of several pushes, concatenated, in the protocol `version`. The bytes of a
    /// single one are shared if possible.
    #[must_use]
    pub fn join<'p>(pushes: impl Iterator<Item = &'p Self> + Clone, version: Resp) -> Arc<[u8]> {
        let mut all = pushes.clone();
        if let (Some(only), None) = (all.next(), all.next())
            && only.in_version(version).0.is_empty()
        {
            return Arc::clone(&only.bytes);
        }
        let mut joined = Vec::with_capacity(pushes.clone().map(Self::len).sum());
        for push in pushes {
            let (first, rest) = push.in_version(version);
            joined.extend_from_slice(first);
            joined.extend_from_slice(rest);
        }
        joined.into()
    }

    /// Returns the replacement of the first bytes, and the rest.
    fn in_version(&self, version: Resp) -> (&'static [u8], &[u8]) {
        match (version, &*self.bytes) {
            (Resp::V2, [b'>', rest @ ..]) => (b"*", rest),
            (_, bytes) => (b"", bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_version(push: &Push, version: Resp) -> Vec<u8> {
        let mut buffer = ReplyBuffer::new();
        push.write(&mut Reply::new(&mut buffer, version));
        let joined = Push::join([push].into_iter(), version);
        assert_eq!(&*joined, buffer.as_slice());
        let twice = Push::join([push, push].into_iter(), version);
        assert_eq!(*twice, [&*joined, &*joined].concat());
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
