//! What the linker does with symbols and line tables.
//!
//! A release binary has none: they would be a third of it. With `KEEP_SYMBOLS` set it has them, compressed, and the same
//! code at the same addresses; `objcopy` makes a file of them that debuggers and backtraces of the other one read.

#![allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=KEEP_SYMBOLS");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|known| known == value);
    if !is("CARGO_CFG_TARGET_OS", "linux") {
        return;
    }
    let is_stripped = is("PROFILE", "release") && env::var_os("KEEP_SYMBOLS").is_none();
    let argument = match is_stripped {
        true => "--strip-all",
        false => "--compress-debug-sections=zlib",
    };
    println!("cargo::rustc-link-arg-bins=-Wl,{argument}");
}
