//! The developer front door: `cargo xtask test`, `tidy`, `ci`.

fn main() {}
