//! Append-only files of Redis: as directories with a manifest, and single ones of older servers.

pub mod manifest;
pub mod reader;
