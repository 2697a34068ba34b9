//! `cargo xtask package`: what is handed out, made from one build of the profile `dist`.
//!
//! A tarball, packages for Debian and for RPM, an image for containers, debug information, and the sums of all of
//! them, in `target/package`. Programs of Debian make and check the formats; nothing here needs a daemon or rights.
//! The binary has the C++ library inside, so that it needs the C library alone.
//!
//! `cargo xtask check-packages` unpacks each and runs the server that is in it, without the build's directories.

mod archives;
mod bill;
mod checks;
mod image;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::{self, cargo, target_directory};
use crate::tools::{self, Tool};

pub use checks::check;

type Outcome<T> = Result<T, String>;

/// Seconds since 1970 that all files in packages are given, so that two builds of one commit are equal: the time of
/// the commit.
struct Epoch(String);

/// What is packed, and where it is put.
struct Package {
    /// The version of the workspace.
    version: String,
    /// The processor, as Rust names it.
    arch: &'static str,
    epoch: Epoch,
    /// Everything that is handed out.
    out: PathBuf,
    /// What is being put together.
    work: PathBuf,
}

/// Programs that make and check packages.
const NEEDS: [&Tool; 3] = [&tools::CPP_COMPILER, &tools::PACKERS, &tools::IMAGE_TOOLS];

/// Oldest C library that the packages are said to run with: that of the machine that builds them.
fn glibc_version() -> Outcome<String> {
    let text = output(Command::new("ldd").arg("--version"))?;
    let first = text.lines().next().unwrap_or_default();
    let version = first.rsplit(' ').next().unwrap_or_default();
    Ok(version.to_owned())
}

/// Makes everything.
///
/// # Errors
/// What could not be run or written.
pub fn make() -> Outcome<()> {
    for tool in NEEDS {
        tool.ensure()?;
    }
    let package = Package::begin()?;
    let program = package.build()?;
    let tree = tree::make(&package, &program)?;
    bill::make(&package, &tree)?;
    archives::tarball(&package, &tree)?;
    archives::deb(&package, &tree)?;
    archives::deb_compat(&package)?;
    archives::rpm(&package, &tree)?;
    image::make(&package, &tree)?;
    archives::sums(&package)?;
    println!("in {}:", package.out.display());
    print!("{}", read(&package.out.join("SHA256SUMS"))?);
    Ok(())
}

impl Package {
    fn begin() -> Outcome<Self> {
        let root = crate::workspace_root();
        let manifest = read(&root.join("Cargo.toml"))?;
        let version = manifest
            .lines()
            .find_map(|line| line.strip_prefix("version = \""))
            .and_then(|rest| rest.strip_suffix('"'))
            .ok_or("Cargo.toml has no version")?;
        let time = output(Command::new("git").args(["log", "-1", "--format=%ct"]))?;
        let out = target_directory().join("package");
        let work = target_directory().join("package-work");
        for directory in [&out, &work] {
            remove(directory)?;
            make_directory(directory)?;
        }
        Ok(Self {
            version: version.to_owned(),
            arch: std::env::consts::ARCH,
            epoch: Epoch(time.trim().to_owned()),
            out,
            work,
        })
    }

    fn deb_arch(&self) -> &'static str {
        match self.arch {
            "aarch64" => "arm64",
            _ => "amd64",
        }
    }

    /// Builds the server, and takes its debug information apart; where the program is.
    fn build(&self) -> Outcome<PathBuf> {
        let library = output(Command::new("c++").arg("-print-file-name=libstdc++.a"))?;
        let directory = Path::new(library.trim()).parent().map(Path::to_owned);
        let directory = directory.ok_or("the C++ compiler has no static library")?;
        let mut build = cargo(&["build", "--profile", "dist", "--package", "server"]);
        build.env("KEEP_SYMBOLS", "yes");
        build.env("CXXSTDLIB", "static=stdc++");
        build.env("RUSTFLAGS", flags(&directory));
        build.env("CARGO_TARGET_DIR", target_directory().join("package-build"));
        run(&mut build)?;
        let built = target_directory().join("package-build/dist/iolite");
        let program = self.work.join("iolite");
        let debug = self.work.join("iolite.debug");
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&built, &debug]))?;
        run(Command::new("objcopy")
            .arg("--strip-all")
            .arg(format!("--add-gnu-debuglink={}", debug.display()))
            .args([&built, &program]))?;
        Ok(program)
    }
}

/// Paths of this machine stay out of the binary, or two builds in two directories would differ.
fn flags(cxx_directory: &Path) -> String {
    let root = crate::workspace_root();
    let home = std::env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo"),
        PathBuf::from,
    );
    format!(
        "-L native={} -C link-arg=-static-libgcc --remap-path-prefix={}=/iolite --remap-path-prefix={}=/cargo",
        cxx_directory.display(),
        root.display(),
        home.display()
    )
}

/// A template with its words in place.
fn filled(text: &str, words: &[(&str, &str)]) -> String {
    let fill = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
    words.iter().fold(text.to_owned(), fill)
}

fn template(name: &str) -> Outcome<String> {
    read(&crate::workspace_root().join("packaging").join(name))
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome<()> {
    if let Some(directory) = path.parent() {
        make_directory(directory)?;
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    if let Some(directory) = to.parent() {
        make_directory(directory)?;
    }
    let copied = fs::copy(from, to);
    copied
        .map(|_| ())
        .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

fn make_directory(path: &Path) -> Outcome<()> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn run(command: &mut Command) -> Outcome<()> {
    let what = format!("{command:?}");
    parts::done(command, &what)
}

fn output(command: &mut Command) -> Outcome<String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?}: {}\n{said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled() {
        let text = filled("Version: @VERSION@\n", &[("@VERSION@", "1.2.3")]);
        assert_eq!(text, "Version: 1.2.3\n");
    }

    #[test]
    fn no_template_has_a_word_that_is_not_filled() {
        let words = [
            "@VERSION@",
            "@DEB_ARCH@",
            "@RPM_ARCH@",
            "@INSTALLED_KB@",
            "@GLIBC@",
        ];
        for name in ["debian/control", "debian/control-compat", "rpm/iolite.spec"] {
            let text = template(name).expect("the template is there");
            let left = filled(&text, &words.map(|word| (word, "")));
            let mut after_signs = left.split('@').skip(1);
            let is_word = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(!after_signs.any(is_word), "{name}: {left}");
        }
    }
}
