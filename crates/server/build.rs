//! Has the linker compress the line tables that stay in the binary: 28 MB less. Debuggers and backtraces read them as
//! they are.

#![allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
