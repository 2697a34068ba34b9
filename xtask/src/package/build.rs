//! Builds the server for publication, with the profile `dist`. The binary contains no path of this
//! machine, so that two builds of one commit in two directories are equal.
//!
//! There are two kinds: one uses the C library of the machine it runs on; the other contains all
//! libraries (musl), and runs on a machine that has none. Both contain the C++ library, which the
//! virtual machine of scripts needs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{Outcome, make_directory, output, run};
use super::target::Target;

/// The inputs of a build.
pub(super) struct Build<'a> {
    /// The workspace. Built files lie below it.
    pub(super) source: &'a Path,
    pub(super) target: Target,
    pub(super) kind: Kind,
}

/// The C library of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The machine's C library.
    Shared,
    /// A C library inside the program.
    Inside,
}

/// The program and its debug information, as separate files.
pub(super) struct Built {
    pub(super) program: PathBuf,
    pub(super) debug: PathBuf,
}

impl Build<'_> {
    /// Builds, and puts program and debug information into a directory.
    pub(super) fn make(&self, into: &Path) -> Outcome<Built> {
        let built = match self.kind {
            Kind::Shared => self.shared()?,
            Kind::Inside => self.inside()?,
        };
        apart(self.target, &built, into)
    }

    fn directory(&self) -> PathBuf {
        self.source.join("target/package-build")
    }

    /// Returns the cargo command with this verb for the published server.
    fn cargo(&self, verb: &str) -> Command {
        let words = [verb, "--locked", "--profile", "dist", "--package", "server"];
        let mut cargo = crate::parts::cargo(&words);
        cargo.current_dir(self.source);
        cargo.env("KEEP_SYMBOLS", "yes");
        cargo.env("CARGO_TARGET_DIR", self.directory());
        // An incremental build would place parts of earlier builds differently than a clean one.
        cargo.env("CARGO_INCREMENTAL", "0");
        let maps: Vec<String> = self
            .paths()
            .into_iter()
            .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
            .collect();
        for name in ["CFLAGS", "CXXFLAGS"] {
            cargo.env(name, maps.join(" "));
        }
        if self.target.arch == "aarch64" {
            // Kernels of that processor have pages of 4, 16 or 64 KiB. An allocator built for small
            // pages does not start on larger ones.
            cargo.env("JEMALLOC_SYS_WITH_LG_PAGE", "16");
        }
        cargo
    }

    /// Returns the paths that stay out of the binary, with their replacements. If two match, the
    /// later one applies.
    fn paths(&self) -> [(PathBuf, &'static str); 3] {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        let known = |name: &str, below: &str| {
            std::env::var_os(name).map_or_else(|| home.join(below), PathBuf::from)
        };
        let cargo = (known("CARGO_HOME", ".cargo"), "/cargo");
        let rustup = (known("RUSTUP_HOME", ".rustup"), "/rustup");
        [cargo, rustup, (self.source.to_path_buf(), "/iolite")]
    }

    fn flags(&self, more: &[String]) -> OsString {
        let maps = self
            .paths()
            .into_iter()
            .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
        let all: Vec<String> = more.iter().cloned().chain(maps).collect();
        // The form of `CARGO_ENCODED_RUSTFLAGS`, because paths may have spaces.
        all.join("\u{1f}").into()
    }

    fn shared(&self) -> Outcome<PathBuf> {
        let compiler = self.target.tool("g++");
        let library = output(Command::new(compiler).arg("-print-file-name=libstdc++.a"))?;
        let directory = Path::new(library.trim()).parent();
        let directory = directory.ok_or("the C++ compiler has no static library")?;
        let more = [
            format!("-Lnative={}", directory.display()),
            "-Clink-arg=-static-libgcc".to_owned(),
        ];
        let mut build = self.cargo("build");
        build.env("CXXSTDLIB", "static=stdc++");
        build.env("CARGO_ENCODED_RUSTFLAGS", self.flags(&more));
        let mut directory = self.directory();
        if !self.target.is_own() {
            let triple = self.target.triple("gnu");
            run(Command::new("rustup").args(["target", "add", &triple]))?;
            let setting = triple.to_uppercase().replace('-', "_");
            build.env(
                format!("CARGO_TARGET_{setting}_LINKER"),
                self.target.tool("gcc"),
            );
            build.args(["--target", &triple]);
            directory.push(triple);
        }
        run(&mut build)?;
        Ok(directory.join("dist/iolite"))
    }

    /// Builds with Zig as the C and C++ compiler. Zig brings the libraries, because Debian has no
    /// C++ library for musl.
    fn inside(&self) -> Outcome<PathBuf> {
        let triple = self.target.triple("musl");
        run(Command::new("rustup").args(["target", "add", &triple]))?;
        let zig = zig()?;
        let mut build = self.cargo("zigbuild");
        build.args(["--target", &triple]);
        build.env("CARGO_ENCODED_RUSTFLAGS", self.flags(&[]));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(zig.join("bin")).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(paths).map_err(|error| error.to_string())?;
        build.env("PATH", path);
        run(&mut build)?;
        Ok(self.directory().join(triple).join("dist/iolite"))
    }
}

/// Returns a Python environment with zig and with the program that makes cargo use it.
pub(super) fn zig() -> Outcome<PathBuf> {
    const WANTED: [&str; 2] = ["cargo-zigbuild==0.24.0", "ziglang==0.17.0"];
    let place = crate::parts::target_directory().join("package-zig");
    if !place.join("bin/cargo-zigbuild").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
        let mut install = Command::new(place.join("bin/pip"));
        install.args(["install", "--quiet", "--disable-pip-version-check"]);
        run(install.args(WANTED))?;
    }
    Ok(place)
}

/// Separates the debug information from a program.
pub(super) fn apart(target: Target, built: &Path, into: &Path) -> Outcome<Built> {
    make_directory(into)?;
    let objcopy = target.tool("objcopy");
    let (program, debug) = (into.join("iolite"), into.join("iolite.debug"));
    run(Command::new(&objcopy)
        .arg("--only-keep-debug")
        .args([built, &debug]))?;
    run(Command::new(&objcopy)
        .arg("--strip-all")
        .arg(format!("--add-gnu-debuglink={}", debug.display()))
        .args([built, &program]))?;
    Ok(Built { program, debug })
}
