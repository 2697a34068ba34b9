//! Event loop, listeners and connections: bytes to and from sockets, nothing about what they mean.
