//! Clean roots: directories in which something is installed and run. They share only the kernel and
//! the network with this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{Outcome, copy, make_directory, output, remove, run};
use super::target::Target;
use crate::debian;

/// Packages added to the smallest Debian system. The tests of the wheel need them.
const INCLUDED: &str = "python3-venv,python3-pytest";

/// A clean root.
pub(super) struct Root {
    path: PathBuf,
    /// The processor of its programs.
    target: Target,
}

impl Root {
    /// Returns an empty root, for what tarballs contain.
    pub(super) fn empty(target: Target, path: PathBuf) -> Outcome<Self> {
        remove(&path)?;
        for name in ["data", "dev", "proc", "tmp"] {
            make_directory(&path.join(name))?;
        }
        Ok(Self { path, target })
    }

    /// Returns a root with the smallest Debian system. It is fetched once and copied for each use.
    pub(super) fn debian(target: Target, path: PathBuf) -> Outcome<Self> {
        let kept = target.directory("package-debian");
        if !kept.join("usr/bin/pytest-3").exists() {
            remove(&kept)?;
            let (mirror, suite) = (debian::mirror(), debian::suite());
            let mirror = mirror.ok_or("apt knows no mirror of Debian")?;
            let suite = suite.ok_or("this machine's system has no name")?;
            println!("fetching a Debian system");
            let mut bootstrap = Command::new("debootstrap");
            bootstrap.arg(format!("--arch={}", target.deb_arch()));
            bootstrap.args(["--variant=minbase", &format!("--include={INCLUDED}")]);
            bootstrap.arg(suite).arg(&kept).arg(mirror);
            output(&mut bootstrap)?;
        }
        remove(&path)?;
        run(Command::new("cp").arg("-a").args([&kept, &path]))?;
        make_directory(&path.join("data"))?;
        Ok(Self { path, target })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies a file of this machine into the root.
    pub(super) fn take(&self, file: &Path) -> Outcome<String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let inside = format!("/tmp/{name}");
        copy(file, &self.path.join(inside.trim_start_matches('/')))?;
        Ok(inside)
    }

    /// Copies the libraries that a program in the root names into the root.
    pub(super) fn take_libraries_of(&self, program: &str) -> Outcome<()> {
        let libraries = self.target.libraries(&self.path.join(program))?;
        for (from, to) in libraries {
            copy(&from, &self.path.join(to.strip_prefix("/").unwrap_or(&to)))?;
        }
        Ok(())
    }

    pub(super) fn has(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path.join(path)).is_ok()
    }

    /// Returns a command that runs a program of the root, as its root user, with `/data` as
    /// directory.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut sandbox = Command::new("bwrap");
        sandbox.args(["--unshare-pid", "--die-with-parent", "--bind"]);
        sandbox.arg(&self.path).arg("/");
        sandbox.args(["--proc", "/proc", "--dev", "/dev", "--chdir", "/data"]);
        sandbox.args(["--clearenv", "--setenv", "PATH"]);
        sandbox.arg("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        sandbox.args(["--setenv", "HOME", "/tmp", "--setenv", "LC_ALL", "C"]);
        sandbox.arg(program);
        sandbox
    }

    /// Runs a program of the root to its end, and returns its output.
    pub(super) fn run(&self, words: &[&str]) -> Outcome<String> {
        let (program, rest) = words.split_first().ok_or("nothing to run")?;
        output(self.command(program).args(rest))
    }
}
