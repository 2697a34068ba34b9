//! The command table and what each command does.
#![forbid(unsafe_code)]
