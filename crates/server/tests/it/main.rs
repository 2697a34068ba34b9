//! Tests of the whole server: the built binary, or all rooms in one process.

mod transcripts;
