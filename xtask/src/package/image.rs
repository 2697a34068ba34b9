//! An image for containers in the OCI layout: the server, the C library, and a shell for entry and health checks.
//!
//! Its entry point works as in the images of Redis and Valkey: options or a file start the server,
//! `/data` is the data directory, and root becomes the user 999. It runs read-only and without any
//! capability.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Package;
use super::archives::{link_names, tar};
use super::files::{Outcome, copy, make_directory, output, run, write};
use super::target::Target;
use super::tree::set_mode;
use crate::{debian, workspace_root};

/// Names under which scripts call a client.
const CLIENT_NAMES: [&str; 2] = ["redis-cli", "valkey-cli"];

/// Programs of the shell for the entry point, for health checks and for a person inside the
/// container.
const SHELL_PROGRAMS: [&str; 18] = [
    "sh", "cat", "chown", "cp", "df", "env", "find", "grep", "id", "ls", "mkdir", "nc", "ps", "rm",
    "sleep", "su", "tail", "wget",
];

pub(super) fn make(package: &Package, tree: &Path) -> Outcome<()> {
    let root = package.work.join("image-root");
    fill(package, &root, tree)?;
    let layout = package.work.join("image");
    let reference = format!("{}:{}", layout.display(), package.version);
    let epoch = format!("@{}", package.epoch.0);
    let created =
        output(Command::new("date").args(["--utc", "--date", &epoch, "+%Y-%m-%dT%H:%M:%SZ"]))?;
    let created = format!("--created={}", created.trim());
    let umoci = |words: &[&str]| {
        let mut command = Command::new("umoci");
        command.args(words);
        run(&mut command)
    };
    umoci(&["init", "--layout", &layout.display().to_string()])?;
    umoci(&["new", "--image", &reference])?;
    // The same files give the same bytes, as in the other archives. `umoci insert` leaves out the
    // end of the archive.
    let layer = package.work.join("layer.tar").display().to_string();
    tar(package, &root, &layer, &[])?;
    let history = format!(
        "--history.created={}",
        created.trim_start_matches("--created=")
    );
    umoci(&["raw", "add-layer", &history, "--image", &reference, &layer])?;
    let version = format!(
        "--config.label=org.opencontainers.image.version={}",
        package.version
    );
    umoci(&[
        "config",
        &created,
        &history,
        "--image",
        &reference,
        "--author=The Iolite developers",
        "--os=linux",
        &format!("--architecture={}", package.target.deb_arch()),
        "--config.entrypoint=/usr/local/bin/entrypoint.sh",
        "--config.cmd=iolite",
        "--config.workingdir=/data",
        "--config.volume=/data",
        "--config.exposedports=6379/tcp",
        "--config.stopsignal=SIGTERM",
        "--config.env=PATH=/usr/local/bin:/usr/bin:/bin",
        // Everyone who can reach a container's port may use it, as in the images of Redis.
        "--config.env=IOLITE_PROTECTED_MODE=no",
        "--config.env=IOLITE_BIND=* -::*",
        "--config.label=org.opencontainers.image.title=iolite",
        "--config.label=org.opencontainers.image.licenses=MIT OR Apache-2.0",
        &version,
    ])?;
    umoci(&["gc", "--layout", &layout.display().to_string()])?;
    // An archive in the OCI form is a tar of the layout.
    let file = format!(
        "iolite-{}-{}.oci.tar",
        package.version,
        package.target.deb_arch()
    );
    tar(package, &layout, &file, &[])
}

/// Fills the root of the container.
fn fill(package: &Package, root: &Path, tree: &Path) -> Outcome<()> {
    let programs = root.join("usr/bin");
    copy(&tree.join("usr/bin/iolite"), &programs.join("iolite"))?;
    link_names(&programs)?;
    // Health checks of charts and compose files call the client.
    for name in CLIENT_NAMES {
        link("iolite", &programs.join(name))?;
    }
    copy(&busybox(package)?, &programs.join("busybox"))?;
    for name in SHELL_PROGRAMS {
        link("busybox", &programs.join(name))?;
    }
    for name in ["bin", "sbin"] {
        link("usr/bin", &root.join(name))?;
    }
    for (from, to) in libraries(package.target, &programs.join("iolite"))? {
        copy(&from, &root.join(to.strip_prefix("/").unwrap_or(&to)))?;
    }
    let entry = root.join("usr/local/bin/entrypoint.sh");
    copy(
        &workspace_root().join("packaging/image/entrypoint.sh"),
        &entry,
    )?;
    for program in [&entry, &programs.join("iolite"), &programs.join("busybox")] {
        set_mode(program, 0o755)?;
    }
    write(
        &root.join("etc/passwd"),
        "root:x:0:0:root:/:/bin/sh\niolite:x:999:999::/data:/bin/sh\n",
    )?;
    write(&root.join("etc/group"), "root:x:0:\niolite:x:999:\n")?;
    write(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    let doc = "usr/share/doc/iolite";
    run(Command::new("cp").arg("-a").arg(tree.join(doc)).arg({
        make_directory(&root.join("usr/share/doc"))?;
        root.join(doc)
    }))?;
    // Mount points for the container's runtime, because the root is read-only.
    for directory in ["dev", "proc", "sys"] {
        make_directory(&root.join(directory))?;
    }
    for directory in ["data", "tmp"] {
        make_directory(&root.join(directory))?;
        set_mode(&root.join(directory), 0o1777)?;
    }
    Ok(())
}

/// Returns the shell for the processor that is packaged for.
fn busybox(package: &Package) -> Outcome<PathBuf> {
    if package.target.is_own() {
        return Ok("/bin/busybox".into());
    }
    let place = package.work.join("busybox");
    make_directory(&place)?;
    debian::unpack_for(package.target.deb_arch(), "busybox-static", &place)?;
    Ok(place.join("bin/busybox"))
}

/// Returns the libraries that the binary is loaded with, and those that look up names in the
/// network. Each comes with its present path and its path in the image.
fn libraries(target: Target, program: &Path) -> Outcome<Vec<(PathBuf, PathBuf)>> {
    let mut libraries = target.libraries(program)?;
    let c_library = libraries
        .iter()
        .find(|(_, to)| to.ends_with("libc.so.6"))
        .and_then(|(from, to)| Some((from.parent()?.to_owned(), to.parent()?.to_owned())));
    let (from, to) = c_library.ok_or("the binary has no C library")?;
    for name in ["libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2"] {
        let path = from.join(name);
        if path.exists() {
            libraries.push((path, to.join(name)));
        }
    }
    Ok(libraries)
}

fn link(to: &str, path: &Path) -> Outcome<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let linked = std::os::unix::fs::symlink(to, path);
    linked.map_err(|error| format!("{}: {error}", path.display()))
}
