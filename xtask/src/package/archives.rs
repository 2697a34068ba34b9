//! The tarball, the package for Debian, the one with links, the package for RPM, and the checksums.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::files::{Outcome, copy, filled, make_directory, output, run, template, write};
use super::tree::set_mode;
use super::{Package, glibc};

/// Names under which scripts and health checks call a server.
pub(super) const NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// Packs everything below one directory. `what` names the variant in the file name.
pub(super) fn tarball(package: &Package, tree: &Path, what: &str) -> Outcome<()> {
    let name = format!(
        "iolite-{}-linux-{}{what}",
        package.version, package.target.arch
    );
    pack(package, tree, &format!("{name}.tar.gz"), Some(&name))
}

/// Packs line tables and symbols.
pub(super) fn debug(package: &Package, debug: &Path) -> Outcome<()> {
    let directory = package.work.join("debug");
    copy(debug, &directory.join("iolite.debug"))?;
    let name = format!("iolite-{}-linux-{}", package.version, package.target.arch);
    pack(package, &directory, &format!("{name}-debug.tar.gz"), None)
}

fn pack(package: &Package, from: &Path, name: &str, below: Option<&str>) -> Outcome<()> {
    let gzip = "--use-compress-program=gzip -9n".to_owned();
    let below = below.map(|below| format!("--transform=s,^\\.,{below},"));
    let options: Vec<String> = below.into_iter().chain([gzip]).collect();
    tar(package, from, name, &options)
}

/// Writes a tar archive that has the same bytes for the same files: sorted, without owner, with the
/// time of the commit.
pub(super) fn tar(package: &Package, from: &Path, name: &str, options: &[String]) -> Outcome<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", package.epoch.0));
    tar.args(options);
    tar.arg("--create")
        .arg(format!("--file={}", package.out.join(name).display()))
        .arg(format!("--directory={}", from.display()))
        .arg(".");
    run(&mut tar)
}

pub(super) fn deb(package: &Package, tree: &Path) -> Outcome<()> {
    let root = package.work.join("deb");
    run(Command::new("cp").arg("-a").args([tree, &root]))?;
    let doc = root.join("usr/share/doc/iolite");
    write(&doc.join("copyright"), COPYRIGHT)?;
    let changelog = doc.join("changelog");
    copy(&doc.join("CHANGELOG.md"), &changelog)?;
    run(Command::new("gzip").arg("-9n").arg(&changelog))?;
    let manuals = root.join("usr/share/man/man1");
    for entry in fs::read_dir(&manuals).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        run(Command::new("gzip").arg("-9n").arg(path))?;
    }
    let installed = output(Command::new("du").args(["-sk"]).arg(&root))?;
    let installed = installed
        .split_whitespace()
        .next()
        .unwrap_or("0")
        .to_owned();
    let control = root.join("DEBIAN");
    let words = [
        ("@VERSION@", package.version.as_str()),
        ("@DEB_ARCH@", package.target.deb_arch()),
        ("@INSTALLED_KB@", &installed),
        (
            "@GLIBC@",
            &glibc::needed_text(package.target, &tree.join("usr/bin/iolite"))?,
        ),
    ];
    write(
        &control.join("control"),
        &filled(&template("debian/control")?, &words),
    )?;
    write(&control.join("conffiles"), "/etc/iolite/iolite.conf\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        write(
            &control.join(script),
            &template(&format!("debian/{script}"))?,
        )?;
        set_mode(&control.join(script), 0o755)?;
    }
    build_deb(package, &root, "iolite", package.target.deb_arch())
}

/// Makes the package of links with the names of other servers.
pub(super) fn deb_compat(package: &Package) -> Outcome<()> {
    let root = package.work.join("deb-compat");
    link_names(&root.join("usr/bin"))?;
    let doc = root.join("usr/share/doc/iolite-redis-compat");
    write(&doc.join("copyright"), COPYRIGHT)?;
    let words = [("@VERSION@", package.version.as_str())];
    let control = filled(&template("debian/control-compat")?, &words);
    write(&root.join("DEBIAN/control"), &control)?;
    build_deb(package, &root, "iolite-redis-compat", "all")
}

/// Creates links with the names of other servers.
pub(super) fn link_names(directory: &Path) -> Outcome<()> {
    make_directory(directory)?;
    for name in NAMES {
        let linked = std::os::unix::fs::symlink("iolite", directory.join(name));
        linked.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn build_deb(package: &Package, root: &Path, name: &str, arch: &str) -> Outcome<()> {
    let file = format!("{name}_{}_{arch}.deb", package.version);
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", "--build"]);
    build.arg(root).arg(package.out.join(file));
    build.env("SOURCE_DATE_EPOCH", &package.epoch.0);
    run(&mut build)
}

pub(super) fn rpm(package: &Package, tree: &Path) -> Outcome<()> {
    let top = package.work.join("rpm");
    let words = [
        ("@VERSION@", package.version.as_str()),
        (
            "@GLIBC@",
            &glibc::needed_text(package.target, &tree.join("usr/bin/iolite"))?,
        ),
    ];
    let spec = top.join("iolite.spec");
    write(&spec, &filled(&template("rpm/iolite.spec")?, &words))?;
    let root = top.join("root");
    run(Command::new("cp").arg("-a").args([tree, &root]))?;
    let define = |name: &str, value: &str| format!("--define={name} {value}");
    let mut build = Command::new("rpmbuild");
    build.arg("-bb").arg("--quiet");
    build.arg(format!("--target={}", package.target.arch));
    build.arg(format!("--buildroot={}", root.display()));
    build.arg(define("_topdir", &top.display().to_string()));
    build.arg(define("_rpmdir", &package.out.display().to_string()));
    build.arg(define("_rpmfilename", "%{NAME}-%{VERSION}.%{ARCH}.rpm"));
    build.arg(define("_buildhost", "iolite"));
    build.arg(define("use_source_date_epoch_as_buildtime", "1"));
    build.arg(define("clamp_mtime_to_source_date_epoch", "1"));
    // The files are final: nothing is stripped or compressed again.
    build.arg(define("__os_install_post", "%{nil}"));
    build.env("SOURCE_DATE_EPOCH", &package.epoch.0);
    build.arg(&spec);
    run(&mut build)
}

/// Name of the file of checksums.
const SUMS: &str = "SHA256SUMS";

/// Writes the SHA-256 of all published files.
pub(super) fn sums(package: &Package) -> Outcome<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(&package.out).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        names.push(entry.file_name());
    }
    // The file of checksums is written again if files were added later.
    names.retain(|name| name != SUMS);
    names.sort();
    let mut sum = Command::new("sha256sum");
    sum.args(&names).current_dir(&package.out);
    write(&package.out.join(SUMS), &output(&mut sum)?)
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: iolite

Files: *
Copyright: 2026 The Iolite developers
License: Apache-2.0 or MIT
 The texts are in LICENSE-APACHE and LICENSE-MIT in /usr/share/doc/iolite; libraries that are in the binary are
 named with their licences in THIRD-PARTY.md there.
";
