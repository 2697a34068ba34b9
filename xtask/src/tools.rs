//! Programs that tests need beyond Rust and a C compiler: found, installed, or named as missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::parts::done;

/// A set of programs and their packages.
#[derive(Debug)]
pub struct Tool {
    /// The programs that must be there.
    programs: &'static [&'static str],
    /// Debian's packages that contain it.
    packages: &'static [&'static str],
}

/// The oracle.
pub static REDIS_SERVER: Tool = Tool {
    programs: &["redis-server"],
    packages: &["redis-server"],
};
/// Counts instructions.
pub static VALGRIND: Tool = Tool {
    programs: &["valgrind"],
    packages: &["valgrind"],
};
/// Client and load generator of Redis.
pub static REDIS_TOOLS: Tool = Tool {
    programs: &["redis-cli", "redis-benchmark"],
    packages: &["redis-tools"],
};
/// Tests a memcached server.
pub static MEMCACHED_TOOLS: Tool = Tool {
    programs: &["memccapable"],
    packages: &["libmemcached-tools"],
};
/// Runs redis-py.
pub static PYTHON: Tool = Tool {
    programs: &["python3"],
    packages: &["python3", "python3-venv"],
};
/// Runs ioredis.
pub static NODE: Tool = Tool {
    programs: &["node", "npm"],
    packages: &["nodejs", "npm"],
};
/// Runs go-redis.
pub static GO: Tool = Tool {
    programs: &["go"],
    packages: &["golang-go"],
};
/// Checks the shell lines of workflows.
pub static SHELLCHECK: Tool = Tool {
    programs: &["shellcheck"],
    packages: &["shellcheck"],
};
/// Runs jedis.
pub static MAVEN: Tool = Tool {
    programs: &["mvn", "javac"],
    packages: &["maven", "default-jdk-headless"],
};
/// Links programs for a big-endian processor, provides its C library, and compiles the virtual
/// machine of scripts for it.
pub static S390X_COMPILER: Tool = Tool {
    programs: &["s390x-linux-gnu-gcc", "s390x-linux-gnu-g++"],
    packages: &[
        "gcc-s390x-linux-gnu",
        "g++-s390x-linux-gnu",
        "libc6-dev-s390x-cross",
    ],
};
/// Builds for 64-bit Arm, provides its C library, and runs its programs.
pub static ARM64_COMPILER: Tool = Tool {
    programs: &[
        "aarch64-linux-gnu-gcc",
        "aarch64-linux-gnu-g++",
        "qemu-aarch64-static",
    ],
    packages: &[
        "gcc-aarch64-linux-gnu",
        "g++-aarch64-linux-gnu",
        "libc6-dev-arm64-cross",
        "qemu-user-static",
    ],
};
/// Compiles the virtual machine of scripts, and the fuzzer that the fuzz targets are linked with.
pub static CPP_COMPILER: Tool = Tool {
    programs: &["c++"],
    packages: &["g++"],
};
/// Reads the counters of coverage. It has the version that the pinned compiler is built on.
pub static LLVM: Tool = Tool {
    programs: &["llvm-profdata-22", "llvm-cov-22"],
    packages: &["llvm-22"],
};

/// Makes packages for Debian and RPM.
pub static PACKERS: Tool = Tool {
    programs: &["dpkg-deb", "rpmbuild", "objcopy", "objdump"],
    packages: &["dpkg-dev", "rpm", "binutils"],
};
/// Makes images for containers. Their shell is Busybox.
pub static IMAGE_TOOLS: Tool = Tool {
    programs: &["umoci", "skopeo", "busybox"],
    packages: &["umoci", "skopeo", "busybox-static"],
};
/// Runs a program below another root, makes such roots, and checks packages for Debian.
pub static PACKAGE_CHECKERS: Tool = Tool {
    programs: &["bwrap", "debootstrap", "lintian"],
    packages: &["bubblewrap", "debootstrap", "lintian"],
};

impl Tool {
    /// Ensures that the programs are there, and installs them if possible.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn ensure(&self) -> Result<(), String> {
        if self.is_here() {
            return Ok(());
        }
        println!("installing {}", self.packages.join(" "));
        if self.install() && self.is_here() {
            return Ok(());
        }
        let (programs, packages) = (self.programs.join(", "), self.packages.join(" "));
        Err(format!("{programs} (apt-get install {packages})"))
    }

    fn is_here(&self) -> bool {
        self.programs.iter().all(|program| is_in_path(program))
    }

    /// Installs the packages with apt, as root or through sudo without a password prompt.
    fn install(&self) -> bool {
        if !is_in_path("apt-get") {
            return false;
        }
        let prefix: &[&str] = match is_root() {
            true => &["apt-get"],
            false => &["sudo", "-n", "apt-get"],
        };
        let apt = |words: &[&str]| {
            let mut command = Command::new(prefix[0]);
            command.args(&prefix[1..]).args(words);
            command.env("DEBIAN_FRONTEND", "noninteractive");
            // Services that packages start by themselves would interfere.
            command.env("RUNLEVEL", "1").stdout(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let install = ["install", "-y", "--no-install-recommends"];
        let words: Vec<&str> = install.iter().chain(self.packages).copied().collect();
        // The lists of packages may be old or missing.
        apt(&words) || (apt(&["update"]) && apt(&words))
    }
}

/// A program in Go that is built from its module: nothing has to be installed but Go.
#[derive(Debug)]
pub(crate) struct GoProgram {
    pub(crate) name: &'static str,
    /// What `go install` is given, without a version.
    pub(crate) module: &'static str,
    pub(crate) version: &'static str,
}

impl GoProgram {
    /// Where it is; builds it below `directory` the first time.
    ///
    /// # Errors
    /// Why it cannot be built.
    pub(crate) fn build(&self, directory: &Path) -> Result<PathBuf, String> {
        let (name, version) = (self.name, self.version);
        GO.ensure()?;
        let directory = directory.join(format!("{name}-{version}"));
        let program = directory.join(name);
        if !program.is_file() {
            println!("building {name} {version}");
            let mut install = Command::new("go");
            install.args(["install", &format!("{}@{version}", self.module)]);
            done(install.env("GOBIN", directory), name)?;
        }
        Ok(program)
    }
}

pub(crate) fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn is_root() -> bool {
    let answer = Command::new("id").arg("-u").output();
    answer.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
