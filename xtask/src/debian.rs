//! Unpacks files of packages below `target/`: packages of a newer Debian release, or of this
//! release for another processor.
//!
//! The machine's own system does not change. apt runs with its own lists, cache and status file,
//! and the packages are unpacked, never installed. The mirror is the one that the machine is
//! configured for. Only programs that need no library of the newer release can be used this way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The release that is used. It keeps several versions of the Rust compiler's source side by side.
const SUITE: &str = "trixie-backports";

/// Unpacks `package` into `directory`. `package` is `name` or `name=version`, where the version may
/// end with `*`.
///
/// # Errors
/// Why the package could not be fetched: no apt, no network, no such version.
pub(crate) fn unpack(package: &str, directory: &Path) -> Result<(), String> {
    unpack_from(SUITE, None, package, directory)
}

/// Unpacks a package of the release that this machine runs, for another processor. `arch` is
/// Debian's name of it.
///
/// # Errors
/// As for [`unpack`].
pub(crate) fn unpack_for(arch: &str, package: &str, directory: &Path) -> Result<(), String> {
    let suite = suite().ok_or("this machine's system has no name")?;
    unpack_from(&suite, Some(arch), package, directory)
}

fn unpack_from(
    suite: &str,
    arch: Option<&str>,
    package: &str,
    directory: &Path,
) -> Result<(), String> {
    println!("fetching {package} from {suite}");
    let place = directory.join("apt");
    let failed = |error: io::Error| format!("{package}: {error}");
    let apt = Apt::new(&place, suite, arch).map_err(failed)?;
    let downloaded = apt.run(&["update"]) && apt.run(&["download", package]);
    if !downloaded {
        return Err(format!("{package} (Debian package of {suite})"));
    }
    for archive in archives(&place).map_err(failed)? {
        let mut unpack = Command::new("dpkg");
        unpack.arg("-x").arg(&archive).arg(directory);
        if !unpack.status().is_ok_and(|status| status.success()) {
            return Err(format!("{package}: dpkg -x failed"));
        }
    }
    fs::remove_dir_all(&place).map_err(failed)
}

/// An apt with its own state.
struct Apt {
    place: PathBuf,
    /// The processor, if it is not this machine's.
    arch: Option<String>,
}

impl Apt {
    fn new(place: &Path, suite: &str, arch: Option<&str>) -> io::Result<Self> {
        for directory in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(place.join(directory))?;
        }
        let mirror = mirror().ok_or(io::ErrorKind::NotFound)?;
        let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let source = format!("deb [signed-by={keys}] {mirror} {suite} main\n");
        fs::write(place.join("sources.list"), source)?;
        fs::write(place.join("status"), "")?;
        Ok(Self {
            place: place.to_path_buf(),
            arch: arch.map(str::to_owned),
        })
    }

    fn run(&self, words: &[&str]) -> bool {
        let mut command = Command::new("apt-get");
        let settings = [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::Status", "status"),
            ("Dir::Cache", "cache"),
        ];
        for (name, file) in settings {
            let path = self.place.join(file);
            command.arg("-o").arg(format!("{name}={}", path.display()));
        }
        for setting in [
            "Dir::Etc::SourceParts=-",
            "Acquire::Languages=none",
            // apt's own user may not write to the directory.
            "APT::Sandbox::User=root",
        ] {
            command.args(["-o", setting]);
        }
        if let Some(arch) = &self.arch {
            command.arg("-o").arg(format!("APT::Architecture={arch}"));
            command.arg("-o").arg(format!("APT::Architectures={arch}"));
        }
        command.args(words).current_dir(&self.place);
        command
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// Returns the first mirror of Debian in the configuration of the machine's apt.
pub(crate) fn mirror() -> Option<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)"]);
    command.args(["Created-By: Packages", "Origin: Debian"]);
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

/// Returns the name of the release that this machine runs.
pub(crate) fn suite() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(|name| name.trim_matches('"').to_owned())
}

fn archives(place: &Path) -> io::Result<Vec<PathBuf>> {
    let mut archives = Vec::new();
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            archives.push(path);
        }
    }
    Ok(archives)
}
