//! The processor that is packaged for: that of this machine, or arm64. For arm64, Debian's
//! compilers build and QEMU runs the programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{Outcome, output, run};
use crate::tools;

/// Where the kernel is configured to run programs through an emulator.
const EMULATED: &str = "/proc/sys/fs/binfmt_misc";
/// The C library of arm64, from Debian's compiler.
const ARM64_C_LIBRARY: &str = "/usr/aarch64-linux-gnu";
const ARM64_EMULATOR: &str = "qemu-aarch64-static";
/// The first bytes of programs for arm64, and the mask of the bits that count.
const ARM64_MAGIC: &str =
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
const ARM64_MASK: &str =
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Rust's name of it.
    pub(super) arch: &'static str,
}

impl Target {
    /// 64-bit Intel and AMD.
    pub const AMD64: Self = Self { arch: "x86_64" };
    /// 64-bit Arm.
    pub const ARM64: Self = Self { arch: "aarch64" };

    /// Returns the processor of this machine.
    pub fn own() -> Self {
        Self {
            arch: std::env::consts::ARCH,
        }
    }

    pub(super) fn is_own(self) -> bool {
        self == Self::own()
    }

    /// Returns the name that Debian packages and images use.
    pub(super) fn deb_arch(self) -> &'static str {
        match self.arch {
            "aarch64" => "arm64",
            _ => "amd64",
        }
    }

    /// Returns Rust's name of the target with the C library `gnu` or `musl`.
    pub(super) fn triple(self, c_library: &str) -> String {
        format!("{}-unknown-linux-{c_library}", self.arch)
    }

    /// Returns a directory below `target/` for one processor's packages.
    pub(super) fn directory(self, name: &str) -> PathBuf {
        let name = match self.is_own() {
            true => name.to_owned(),
            false => format!("{name}-{}", self.deb_arch()),
        };
        crate::parts::target_directory().join(name)
    }

    /// Installs the programs that build for it and run its programs.
    pub(super) fn ensure(self) -> Outcome<()> {
        match self.is_own() {
            true => tools::CPP_COMPILER.ensure(),
            false => tools::ARM64_COMPILER.ensure(),
        }
    }

    /// Returns the name of a compiler or binutils program for it: `gcc`, `g++`, `objcopy`.
    pub(super) fn tool(self, name: &str) -> String {
        match self.is_own() {
            true => name.to_owned(),
            false => format!("{}-linux-gnu-{name}", self.arch),
        }
    }

    /// Returns a command that runs a program built for it, on this machine.
    pub(super) fn command(self, program: &Path) -> Command {
        if self.is_own() {
            return Command::new(program);
        }
        let mut command = Command::new(ARM64_EMULATOR);
        command.args(["-L", ARM64_C_LIBRARY]).arg(program);
        command
    }

    /// Returns the files that a program is loaded with, each with its path on the target. They come
    /// from this machine or from the compiler's C library.
    pub(super) fn libraries(self, program: &Path) -> Outcome<Vec<(PathBuf, PathBuf)>> {
        if self.is_own() {
            let text = output(Command::new("ldd").arg(program))?;
            let words = text.lines().flat_map(str::split_whitespace);
            let paths = words.filter(|word| word.starts_with('/'));
            return Ok(paths.map(|path| (path.into(), path.into())).collect());
        }
        let headers = output(Command::new(self.tool("objdump")).arg("-p").arg(program))?;
        let from = Path::new(ARM64_C_LIBRARY).join("lib");
        let place = |name: &str| (from.join(name), Path::new("/lib").join(name));
        let mut libraries: Vec<_> = needed(&headers).map(place).collect();
        libraries.push(place("ld-linux-aarch64.so.1"));
        libraries.sort();
        libraries.dedup();
        Ok(libraries)
    }

    /// Makes the kernel run its programs wherever they lie, so that packages can be installed and
    /// run as on such a machine.
    pub(super) fn run_in_roots(self) -> Outcome<()> {
        if self.is_own() {
            return Ok(());
        }
        let place = Path::new(EMULATED);
        if !place.join("register").exists() {
            let mount = ["-t", "binfmt_misc", "binfmt_misc", EMULATED];
            run(Command::new("mount").args(mount))?;
        }
        let name = "qemu-aarch64";
        if place.join(name).exists() {
            return Ok(());
        }
        let emulator = output(Command::new("which").arg(ARM64_EMULATOR))?;
        // F: the kernel opens the emulator now, so that roots need no copy of it.
        let line = format!(
            ":{name}:M::{ARM64_MAGIC}:{ARM64_MASK}:{}:OCF",
            emulator.trim()
        );
        std::fs::write(place.join("register"), line).map_err(|error| format!("{EMULATED}: {error}"))
    }
}

/// Returns the libraries that a program's headers name.
pub(super) fn needed(headers: &str) -> impl Iterator<Item = &str> {
    headers.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("NEEDED")).then(|| words.next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_headers() {
        let headers = "Dynamic Section:\n  NEEDED               libm.so.6\n  NEEDED               libc.so.6\n  INIT 0x1\n";
        let found: Vec<&str> = needed(headers).collect();
        assert_eq!(found, ["libm.so.6", "libc.so.6"]);
    }

    #[test]
    fn processors_have_the_names_that_packages_give_them() {
        assert_eq!(Target::ARM64.deb_arch(), "arm64");
        assert_eq!(Target::ARM64.triple("musl"), "aarch64-unknown-linux-musl");
    }
}
