//! Facts about the Rust toolchain in use.

use std::path::PathBuf;
use std::process::Command;

/// Returns a line of `rustc -vV`: `release`, `host`, `LLVM version`.
///
/// # Errors
/// If the compiler does not run or has no such line.
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

/// Returns the directory of the toolchain's own programs, including LLVM's.
///
/// # Errors
/// If the compiler does not run.
pub(crate) fn programs() -> Result<PathBuf, String> {
    let host = fact("host")?;
    Ok(sysroot()?.join("lib/rustlib").join(host).join("bin"))
}

/// Returns the directory of programs of a toolchain that has `program`, among those installed next
/// to the one in use.
///
/// # Errors
/// If the compiler does not run.
pub(crate) fn sibling_with(program: &str) -> Result<Option<PathBuf>, String> {
    let own = sysroot()?;
    let toolchains = own.parent().and_then(|place| std::fs::read_dir(place).ok());
    let mut places: Vec<PathBuf> = toolchains
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|programs| programs.join(program).is_file())
        .collect();
    places.sort();
    Ok(places.into_iter().next())
}

/// Returns the path of clippy as a compiler.
#[must_use]
pub(crate) fn clippy_driver() -> PathBuf {
    let installed = sysroot().map(|place| place.join("bin/clippy-driver"));
    // If the toolchain's directory is unknown, clippy may still be in PATH.
    installed.unwrap_or_else(|_| PathBuf::from("clippy-driver"))
}

fn sysroot() -> Result<PathBuf, String> {
    Ok(PathBuf::from(rustc(&["--print", "sysroot"])?.trim_end()))
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
