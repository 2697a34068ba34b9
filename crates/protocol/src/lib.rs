//! RESP2, RESP3 and inline commands: bytes in, requests out; replies in, bytes out.
#![forbid(unsafe_code)]
