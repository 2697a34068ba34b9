//! What the Rust toolchain in use says about itself.

use std::path::PathBuf;
use std::process::Command;

/// A line of `rustc -vV`: `release`, `host`, `LLVM version`.
///
/// # Errors
/// When the compiler does not run or has no such line.
pub(crate) fn fact(name: &str) -> Result<String, String> {
    let text = rustc(&["-vV"])?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .map(str::to_owned)
        .ok_or_else(|| format!("rustc -vV has no line {name}"))
}

/// Whether there is a standard library for `target`.
#[must_use]
pub(crate) fn has_target(target: &str) -> bool {
    let directory = rustc(&["--print", "target-libdir", "--target", target]);
    directory.is_ok_and(|path| PathBuf::from(path.trim_end()).exists())
}

/// Where the toolchain keeps programs of its own, LLVM's among them.
///
/// # Errors
/// When the compiler does not run.
pub(crate) fn programs() -> Result<PathBuf, String> {
    let sysroot = rustc(&["--print", "sysroot"])?;
    let host = fact("host")?;
    let rustlib = PathBuf::from(sysroot.trim_end()).join("lib/rustlib");
    Ok(rustlib.join(host).join("bin"))
}

fn rustc(words: &[&str]) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("rustc {}: {error}", words.join(" "));
    let output = Command::new("rustc")
        .args(words)
        .current_dir(crate::workspace_root())
        .output()
        .map_err(|error| failed(&error))?;
    String::from_utf8(output.stdout).map_err(|error| failed(&error))
}
