//! `cargo xtask package`: makes everything that is published, from one build of the profile `dist`.
//!
//! These are a tarball, a tarball whose server needs no library at all, packages for Debian and for
//! RPM, an image for containers, a wheel for Python, debug information, the bill of materials, and
//! the checksums of all of them. They are put into `target/package`. Debian's programs make and
//! check the formats; nothing here needs a daemon or root. The binary contains the C++ library, so
//! that it needs only the C library.
//!
//! `cargo xtask check-packages` installs each package into its own root and runs the server in it.
//! `cargo xtask check-builds` builds the server again in another directory and compares.

mod archives;
mod bill;
mod build;
mod checks;
mod files;
mod glibc;
mod image;
mod index;
mod roots;
mod target;
mod tree;
mod twice;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use build::{Build, Built, Kind};
use files::{Outcome, make_directory, output, read, remove};

use crate::tools::{self, Tool};

pub use checks::check;
pub use index::make as make_index;
pub use target::Target;
pub use twice::check as check_builds;

/// The time of all files in packages, in seconds since 1970. It is the time of the commit, so that
/// two builds of one commit are equal.
struct Epoch(String);

/// What is packed, and where it is put.
struct Package {
    /// The version of the workspace.
    version: String,
    target: Target,
    epoch: Epoch,
    /// Directory of the published files.
    out: PathBuf,
    /// Directory of work in progress.
    work: PathBuf,
}

/// Programs that make and check packages.
const NEEDS: [&Tool; 3] = [&tools::PACKERS, &tools::IMAGE_TOOLS, &tools::PYTHON];

/// Makes all packages.
///
/// # Errors
/// What could not be run or written.
pub fn make(target: Target) -> Outcome<()> {
    let package = Package::begin(target)?;
    let built = package.build(Kind::Shared, "built")?;
    package.pack(&built)?;
    // The compiler comes from elsewhere. If it is missing, everything else is still made. If the
    // build fails, that is an error.
    let inside = match build::zig() {
        Ok(_) => package.pack_inside(),
        Err(error) => {
            println!("no server without libraries: {error}");
            Ok(())
        }
    };
    package.finish()?;
    inside
}

/// Packs a program that is already built. This serves work on the packages, and a server that runs
/// only with the C library of the machine.
///
/// # Errors
/// What could not be run or written.
pub fn make_of(target: Target, program: &str) -> Outcome<()> {
    let package = Package::begin(target)?;
    let built = build::apart(target, Path::new(program), &package.work.join("given"))?;
    package.pack(&built)?;
    package.finish()
}

impl Package {
    fn begin(target: Target) -> Outcome<Self> {
        target.ensure()?;
        for tool in NEEDS {
            tool.ensure()?;
        }
        let package = Self::described(target)?;
        for directory in [&package.out, &package.work] {
            remove(directory)?;
            make_directory(directory)?;
        }
        Ok(package)
    }

    /// Returns the description of the package for a processor, at this commit.
    fn described(target: Target) -> Outcome<Self> {
        let root = crate::workspace_root();
        let manifest = read(&root.join("Cargo.toml"))?;
        let version = manifest
            .lines()
            .find_map(|line| line.strip_prefix("version = \""))
            .and_then(|rest| rest.strip_suffix('"'))
            .ok_or("Cargo.toml has no version")?;
        let mut log = Command::new("git");
        log.args(["log", "-1", "--format=%ct"]).current_dir(&root);
        let time = output(&mut log)?;
        let out = target.directory("package");
        let work = target.directory("package-work");
        Ok(Self {
            version: version.to_owned(),
            target,
            epoch: Epoch(time.trim().to_owned()),
            out,
            work,
        })
    }

    fn build(&self, kind: Kind, directory: &str) -> Outcome<Built> {
        let root = crate::workspace_root();
        let build = Build {
            source: &root,
            target: self.target,
            kind,
        };
        build.make(&self.work.join(directory))
    }

    /// Makes everything that contains this program.
    fn pack(&self, built: &Built) -> Outcome<()> {
        let tree = tree::make(self, "tree", &built.program)?;
        bill::make(self, &tree)?;
        archives::tarball(self, &tree, "")?;
        archives::debug(self, &built.debug)?;
        archives::deb(self, &tree)?;
        archives::deb_compat(self)?;
        archives::rpm(self, &tree)?;
        image::make(self, &tree)?;
        wheel::make(self, &built.program)
    }

    /// Makes the tarball whose server contains all libraries.
    fn pack_inside(&self) -> Outcome<()> {
        let inside = self.build(Kind::Inside, "built-musl")?;
        let tree = tree::make(self, "tree-musl", &inside.program)?;
        bill::make(self, &tree)?;
        archives::tarball(self, &tree, "-musl")
    }

    /// Writes the checksums and lists the files.
    fn finish(&self) -> Outcome<()> {
        archives::sums(self)?;
        println!("in {}:", self.out.display());
        print!("{}", read(&self.out.join("SHA256SUMS"))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::files::{filled, template};

    #[test]
    fn templates_are_filled() {
        let text = filled("Version: @VERSION@\n", &[("@VERSION@", "1.2.3")]);
        assert_eq!(text, "Version: 1.2.3\n");
    }

    #[test]
    fn no_template_has_a_word_that_is_not_filled() {
        let words = ["@VERSION@", "@DEB_ARCH@", "@INSTALLED_KB@", "@GLIBC@"];
        for name in ["debian/control", "debian/control-compat", "rpm/iolite.spec"] {
            let text = template(name).expect("the template is there");
            let left = filled(&text, &words.map(|word| (word, "")));
            let mut after_signs = left.split('@').skip(1);
            let is_word = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(!after_signs.any(is_word), "{name}: {left}");
        }
    }
}
