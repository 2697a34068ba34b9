//! What tests share: transcripts, the differential kit, clients, a running server. Never shipped.
#![forbid(unsafe_code)]
