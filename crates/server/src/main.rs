//! The `iolite` binary: everything is in the library.

fn main() {}
