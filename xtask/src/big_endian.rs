//! Runs the tests of the lower rooms on a big-endian processor.
//!
//! QEMU runs all tests of these rooms, compiled for s390x. If the toolchain has no standard library
//! for s390x, it is built once from the compiler's source of the same version (40 s on two cores).
//! Then, if a toolchain next to the pinned one has Miri, Miri interprets for the same processor
//! what it can in a few minutes, and also finds undefined behaviour. No toolchain is installed for
//! this.
//!
//! Everything that is fetched or built for this stays in `target/big-endian`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::{cargo, done, target_directory};
use crate::tools;
use crate::{debian, toolchain};

const TARGET: &str = "s390x-unknown-linux-gnu";
/// Name of `TARGET` in cargo's settings.
const TARGET_SETTING: &str = "CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU";
const LINKER: &str = "s390x-linux-gnu-gcc";
/// The C library of `TARGET`, from Debian's cross compiler.
const C_LIBRARY: &str = "/usr/s390x-linux-gnu";

/// Modules whose tests take seconds under Miri: buffers and requests of protocol, the bits of index
/// and records of store. Tests with threads, long values or growth take minutes each.
const MIRI_MODULES: [&str; 9] = [
    "buffer::",
    "inline::",
    "request::",
    "short::",
    "bucket::",
    "layout::",
    "overflow::",
    "policy::",
    "reservation::",
];
/// Number of cases of a property under Miri, which is some hundred times slower than the processor.
const MIRI_CASES: &str = "4";
/// Oldest usable version of QEMU. Older ones keep a table of every page of a reserved range, which
/// takes gigabytes for a store.
const QEMU_MAJOR_MIN: u32 = 9;

/// The rooms whose tests run under QEMU.
const ROOMS: [&str; 8] = [
    "base",
    "access",
    "protocol",
    "structures",
    "rdb",
    "store",
    "engine",
    "commands",
];

/// Runs the tests under QEMU, then under Miri those that take only minutes.
///
/// # Errors
/// What failed, or what is missing and how to get it.
pub fn run() -> Result<(), String> {
    with_emulator()?;
    match toolchain::sibling_with("cargo-miri")? {
        Some(programs) => with_miri(&programs),
        None => {
            println!("without Miri: no toolchain here has it");
            Ok(())
        }
    }
}

/// Runs the tests under Miri. `programs` is the directory of Miri and its compiler.
fn with_miri(programs: &Path) -> Result<(), String> {
    println!("with Miri of {}", programs.display());
    let mut test = Command::new(programs.join("cargo-miri"));
    test.args(["miri", "test", "--target", TARGET]);
    test.args(["-p", "protocol", "-p", "store", "--lib", "--"]);
    test.args(MIRI_MODULES);
    test.current_dir(crate::workspace_root());
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let mut path = vec![programs.to_path_buf()];
    path.extend(std::env::split_paths(&inherited));
    let path = std::env::join_paths(path).map_err(|error| error.to_string())?;
    test.env("PATH", path).env("CARGO", programs.join("cargo"));
    test.env("CARGO_TARGET_DIR", directory().join("miri"));
    // Tests use the machine's files and its clock.
    test.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    test.env("PROPTEST_CASES", MIRI_CASES);
    done(&mut test, "the tests under Miri")
}

/// Runs the tests under QEMU.
///
/// # Errors
/// As for [`run`].
pub fn with_emulator() -> Result<(), String> {
    println!("with QEMU");
    tools::S390X_COMPILER.ensure()?;
    let emulator = emulator()?;
    let mut test = cargo(&["test", "--target", TARGET, "--lib", "--tests"]);
    for room in ROOMS {
        test.args(["-p", room]);
    }
    test.env("CARGO_TARGET_DIR", directory().join("qemu"));
    test.env(format!("{TARGET_SETTING}_LINKER"), LINKER);
    test.env(format!("{TARGET_SETTING}_RUNNER"), emulator);
    test.env("QEMU_LD_PREFIX", C_LIBRARY);
    // Optimisation takes less time than it saves under an emulator.
    test.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    if let Some(sysroot) = sysroot()? {
        test.env("CARGO_ENCODED_RUSTFLAGS", option("--sysroot", &sysroot));
    }
    done(&mut test, "the tests under QEMU")
}

/// Returns a QEMU that is new enough: the machine's, or a fetched one.
fn emulator() -> Result<PathBuf, String> {
    let ours = directory().join("usr/bin/qemu-s390x");
    let there = ["qemu-s390x", "qemu-s390x-static"].map(PathBuf::from);
    if let Some(found) = there
        .into_iter()
        .chain([ours.clone()])
        .find(|program| qemu_major(program) >= Some(QEMU_MAJOR_MIN))
    {
        return Ok(found);
    }
    debian::unpack("qemu-user", &directory())
        .map_err(|error| format!("qemu-s390x {QEMU_MAJOR_MIN} or newer: {error}"))?;
    Ok(ours)
}

fn qemu_major(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_whitespace().nth(2)?;
    version.split('.').next()?.parse().ok()
}

/// Returns where the standard library for `TARGET` is, or `None` if the toolchain itself has one.
fn sysroot() -> Result<Option<PathBuf>, String> {
    if toolchain::has_target(TARGET) {
        return Ok(None);
    }
    let release = toolchain::fact("release")?;
    let sysroot = directory().join(format!("sysroot-{release}"));
    if !sysroot.exists() {
        build_standard_library(&release, &sysroot)?;
    }
    Ok(Some(sysroot))
}

fn build_standard_library(release: &str, sysroot: &Path) -> Result<(), String> {
    let library = directory().join(format!("usr/src/rustc-{release}/library"));
    if !library.exists() {
        debian::unpack(&format!("rust-src={release}*"), &directory())
            .map_err(|error| format!("standard library for {TARGET} of Rust {release}: {error}"))?;
    }
    let built = directory().join("library");
    let mut build = cargo(&["build", "--quiet", "--release", "--target", TARGET]);
    build.args(["-p", "sysroot"]).current_dir(&library);
    // The standard library uses unstable features, because it belongs to the compiler.
    build.env("RUSTC_BOOTSTRAP", "1");
    build.env("CARGO_TARGET_DIR", &built);
    build.env(format!("{TARGET_SETTING}_LINKER"), LINKER);
    build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    build.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    build.env("RUSTFLAGS", "-Zforce-unstable-if-unmarked");
    done(&mut build, "building the standard library")?;
    collect(&built.join(TARGET).join("release/deps"), sysroot)
        .map_err(|error| format!("{}: {error}", sysroot.display()))
}

/// Copies the compiled crates to the place where a compiler looks for them. The sysroot appears as
/// a whole or not at all.
fn collect(crates: &Path, sysroot: &Path) -> io::Result<()> {
    let unfinished = sysroot.with_extension("unfinished");
    let libraries = unfinished.join("lib/rustlib").join(TARGET).join("lib");
    fs::create_dir_all(&libraries)?;
    for entry in fs::read_dir(crates)? {
        let path = entry?.path();
        if let (Some("rlib"), Some(name)) =
            (path.extension().and_then(OsStr::to_str), path.file_name())
        {
            fs::copy(&path, libraries.join(name))?;
        }
    }
    fs::rename(unfinished, sysroot)
}

fn directory() -> PathBuf {
    target_directory().join("big-endian")
}

/// Returns `name=path` for a list of options that cargo does not split at blanks.
fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(name);
    option.push("=");
    option.push(path);
    option
}
