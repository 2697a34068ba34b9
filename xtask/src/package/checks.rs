//! Checks that the packages work. Each is installed into its own root, without anything of the
//! build, and is run. That needs root.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::archives;
use super::files::{Outcome, make_directory, output, read, remove, run, write};
use super::roots::Root;
use super::target::{Target, needed};
use super::tree::set_mode;
use crate::tools;

/// Number and interval of the requests to a starting server whether it is ready: a minute in all,
/// far more than a start takes anywhere.
const ASKED_MAX: u32 = 1_200;
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// Checks everything that `cargo xtask package` has made.
///
/// # Errors
/// What does not work.
pub fn check(target: Target) -> Outcome<()> {
    target.ensure()?;
    for tool in [
        &tools::PACKERS,
        &tools::IMAGE_TOOLS,
        &tools::PACKAGE_CHECKERS,
        &tools::REDIS_TOOLS,
    ] {
        tool.ensure()?;
    }
    target.run_in_roots()?;
    let out = target.directory("package");
    let work = target.directory("package-check");
    remove(&work)?;
    make_directory(&work)?;
    run(Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(&out))?;
    let find = |end: &str| find(&out, end);
    let arch = target.arch;
    check_tarball(target, &find(&format!("linux-{arch}.tar.gz"))?, &work)?;
    match find(&format!("linux-{arch}-musl.tar.gz")) {
        Ok(file) => check_tarball_without_libraries(target, &file, &work)?,
        Err(_) => println!("there is no tarball without libraries"),
    }
    let compat = find_any(&out, |name| name.contains("-compat_"))?;
    check_deb(target, &find(".deb")?, &compat, &work)?;
    check_rpm(target, &find(".rpm")?, &work)?;
    check_wheel(target, &find(".whl")?, &work)?;
    check_image(&image_of(target, &out)?, &work)?;
    check_units(&work)?;
    println!("all packages work");
    Ok(())
}

/// The documents that every package contains besides the server.
const PAPERS: [&str; 4] = [
    "usr/share/doc/iolite/LICENSE-APACHE",
    "usr/share/doc/iolite/LICENSE-MIT",
    "usr/share/doc/iolite/THIRD-PARTY.md",
    "usr/share/doc/iolite/iolite.cdx.json",
];

/// The libraries that a server may need from the machine.
const LIBRARIES: [&str; 6] = [
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
];

fn has_papers(root: &Root, what: &str) -> Outcome<()> {
    let missing = PAPERS.iter().find(|path| !root.has(path));
    missing.map_or(Ok(()), |path| Err(format!("{what} has no {path}")))
}

/// Unpacks the contents of a tarball's single directory into the root.
fn unpack_into(file: &Path, root: &Root) -> Outcome<()> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"])
        .arg(file);
    run(tar.arg("--directory").arg(root.path()))
}

fn check_tarball(target: Target, file: &Path, work: &Path) -> Outcome<()> {
    let root = Root::empty(target, work.join("tarball"))?;
    unpack_into(file, &root)?;
    has_papers(&root, "the tarball")?;
    let mut headers = Command::new(target.tool("objdump"));
    headers.arg("-p").arg(root.path().join("usr/bin/iolite"));
    for library in needed(&output(&mut headers)?) {
        if !LIBRARIES.contains(&library) {
            return Err(format!("the server needs {library}"));
        }
    }
    root.take_libraries_of("usr/bin/iolite")?;
    serves("the tarball", root.command("/usr/bin/iolite"))
}

/// Checks that the server of the other tarball runs in an otherwise empty root.
fn check_tarball_without_libraries(target: Target, file: &Path, work: &Path) -> Outcome<()> {
    let root = Root::empty(target, work.join("tarball-musl"))?;
    unpack_into(file, &root)?;
    has_papers(&root, "the tarball without libraries")?;
    serves(
        "the tarball without libraries",
        root.command("/usr/bin/iolite"),
    )
}

/// Installs the packages for Debian, runs the server as the service's user, and upgrades, removes
/// and purges them as an operator does.
fn check_deb(target: Target, file: &Path, compat: &Path, work: &Path) -> Outcome<()> {
    let mut judge = Command::new("lintian");
    judge.args(["--fail-on=error", "--no-tag-display-limit", "--allow-root"]);
    output(judge.arg(file))?;
    let root = Root::debian(target, work.join("deb"))?;
    let (file, compat) = (root.take(file)?, root.take(compat)?);
    root.run(&["dpkg", "--install", &file, &compat])?;
    has_papers(&root, "the Debian package")?;
    for name in ["iolite"].into_iter().chain(archives::NAMES) {
        root.run(&[name, "--version"])?;
    }
    serves("the Debian package", as_service(&root))?;
    // An upgrade keeps what the operator wrote.
    let config = "/etc/iolite/iolite.conf";
    root.run(&["sh", "-c", &format!("echo 'maxclients 77' >>{config}")])?;
    root.run(&["dpkg", "--install", &file])?;
    root.run(&["grep", "maxclients 77", config])?;
    serves("the Debian package after an upgrade", as_service(&root))?;
    root.run(&["dpkg", "--remove", "iolite-redis-compat", "iolite"])?;
    if root.has("usr/bin/iolite") || !root.has("var/lib/iolite") {
        return Err("removing the Debian package takes the server, and nothing of the data".into());
    }
    root.run(&["dpkg", "--purge", "iolite"])?;
    for left in ["var/lib/iolite", "etc/iolite"] {
        if root.has(left) {
            return Err(format!("purging the Debian package leaves {left}"));
        }
    }
    println!("the Debian package: installed, upgraded, removed and purged");
    Ok(())
}

/// Returns the command that runs the server with the package's configuration, as its user.
fn as_service(root: &Root) -> Command {
    let mut command = root.command("setpriv");
    command.args(["--reuid=iolite", "--regid=iolite", "--clear-groups"]);
    command.args(["/usr/bin/iolite", "/etc/iolite/iolite.conf"]);
    command
}

fn check_rpm(target: Target, file: &Path, work: &Path) -> Outcome<()> {
    run(Command::new("rpm")
        .args(["-K", "--nosignature"])
        .arg(file)
        .stdout(Stdio::null()))?;
    let root = Root::debian(target, work.join("rpm"))?;
    let rpm = |words: &[&str]| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(root.path()).arg("--force-debian");
        output(rpm.args(words))
    };
    let path = file.display().to_string();
    // This rpm has not installed the C library, and may belong to another processor than the
    // package.
    rpm(&[
        "--install",
        "--nodeps",
        "--nosignature",
        "--ignorearch",
        &path,
    ])?;
    has_papers(&root, "the RPM package")?;
    rpm(&["--verify", "--nodeps", "iolite"])?;
    serves("the RPM package", as_service(&root))?;
    rpm(&["--erase", "iolite"])?;
    match root.has("usr/bin/iolite") {
        true => Err("removing the RPM package leaves the server".to_owned()),
        false => Ok(()),
    }
}

/// Installs the wheel into an environment on an otherwise minimal system, and runs the wheel's own
/// tests.
fn check_wheel(target: Target, file: &Path, work: &Path) -> Outcome<()> {
    let root = Root::debian(target, work.join("wheel"))?;
    let wheel = root.take(file)?;
    let tests =
        root.take(&crate::workspace_root().join("packaging/python/tests/test_plugin.py"))?;
    root.run(&[
        "python3",
        "-m",
        "venv",
        "--system-site-packages",
        "/tmp/env",
    ])?;
    root.run(&["/tmp/env/bin/pip", "install", "--no-index", &wheel])?;
    root.run(&["/tmp/env/bin/python", "-m", "pytest", "-q", &tests])?;
    serves("the wheel", root.command("/tmp/env/bin/iolite"))
}

/// Checks that the layers of an image are whole archives. Docker and umoci accept one whose end is
/// missing; other programs do not.
fn check_layers(layout: &Path) -> Outcome<()> {
    let blobs = layout.join("blobs/sha256");
    let mut layers_count = 0;
    for entry in std::fs::read_dir(&blobs).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
        // The other blobs are JSON.
        if bytes.starts_with(&[0x1f, 0x8b]) {
            layers_count += 1;
            output(
                Command::new("tar")
                    .args(["--list", "--gzip", "--file"])
                    .arg(&path),
            )?;
        }
    }
    match layers_count {
        0 => Err(format!("{} has no layer", layout.display())),
        _ => Ok(()),
    }
}

/// Unpacks the image and runs it read-only, as user 999. Only the data directory is writable.
fn check_image(file: &Path, work: &Path) -> Outcome<()> {
    let layout = work.join("image");
    let from = format!("oci-archive:{}", file.display());
    let to = format!("oci:{}:latest", layout.display());
    run(Command::new("skopeo").args(["copy", "--quiet", &from, &to]))?;
    check_layers(&layout)?;
    let bundle = work.join("bundle");
    let image = format!("{}:latest", layout.display());
    run(Command::new("umoci")
        .args(["unpack", "--rootless", "--image", &image])
        .arg(&bundle))?;
    let data = work.join("image-data");
    make_directory(&data)?;
    set_mode(&data, 0o777)?;
    let mut sandbox = Command::new("bwrap");
    sandbox.args([
        "--unshare-user",
        "--unshare-pid",
        "--uid",
        "999",
        "--gid",
        "999",
        "--die-with-parent",
    ]);
    sandbox.arg("--ro-bind").arg(bundle.join("rootfs")).arg("/");
    sandbox.arg("--bind").arg(&data).arg("/data");
    sandbox.args([
        "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/data",
    ]);
    sandbox.args([
        "--clearenv",
        "--setenv",
        "PATH",
        "/usr/local/bin:/usr/bin:/bin",
    ]);
    // The entry point as called by `docker run iolite redis-server …`.
    sandbox.args(["/usr/local/bin/entrypoint.sh", "redis-server"]);
    serves("the image", sandbox)
}

fn check_units(work: &Path) -> Outcome<()> {
    if !tools::is_in_path("systemd-analyze") {
        println!("systemd-analyze is not here: units were not looked at");
        return Ok(());
    }
    for (unit, instance) in [
        ("iolite.service", "iolite.service"),
        ("iolite@.service", "iolite@second.service"),
    ] {
        let path = crate::workspace_root().join("packaging/systemd").join(unit);
        let mut judge = Command::new("systemd-analyze");
        judge.args(["security", "--offline=true", "--no-pager", "--threshold=15"]);
        output(judge.arg(&path))?;
        // The program that a unit starts must exist. This machine has another one in its place.
        let copy = work.join(instance);
        write(&copy, &read(&path)?.replace("/usr/bin/iolite", "/bin/true"))?;
        let mut judge = Command::new("systemd-analyze");
        judge.args(["verify", "--man=no"]);
        let said = output_and_complaints(judge.arg(&copy))?;
        // An unknown key causes a complaint, but no failure of the program.
        if !said.is_empty() {
            return Err(format!("{unit}: {said}"));
        }
    }
    println!("units: judged by systemd-analyze");
    Ok(())
}

/// Returns the output of a program that succeeded, including standard error.
fn output_and_complaints(command: &mut Command) -> Outcome<String> {
    let told = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let said = [told.stdout, told.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    match told.status.success() {
        true => Ok(said),
        false => Err(format!("{command:?}: {}\n{said}", told.status)),
    }
}

/// Starts a server with this program, and checks that it keeps a value across SHUTDOWN.
fn serves(what: &str, mut program: Command) -> Outcome<()> {
    let port = crate::instructions::free_port()?.to_string();
    program.args(["--port", &port, "--appendonly", "yes"]);
    program.stdout(Stdio::null());
    for is_first in [true, false] {
        let mut server = program
            .spawn()
            .map_err(|error| format!("{what}: {error}"))?;
        let served = talk(&port, is_first);
        if served.is_err() {
            let _killed = server.kill();
        }
        ended(what, &mut server)?;
        served.map_err(|error| format!("{what}: {error}"))?;
    }
    println!("{what}: serves");
    Ok(())
}

fn talk(port: &str, is_first: bool) -> Outcome<()> {
    let ask = |words: &[&str]| output(Command::new("redis-cli").args(["-p", port]).args(words));
    let is_ready = || ask(&["ping"]).is_ok_and(|reply| reply.trim() == "PONG");
    let mut asked = 0;
    while !is_ready() {
        asked += 1;
        if asked > ASKED_MAX {
            return Err("not ready after a minute".to_owned());
        }
        std::thread::sleep(ASKED_EVERY);
    }
    if is_first {
        ask(&["set", "key", "value"])?;
    }
    let script = ask(&["eval", "return redis.call('get', KEYS[1])", "1", "key"])?;
    if script.trim() != "value" {
        return Err(format!("a script answered {script}"));
    }
    ask(&["shutdown"]).map(|_| ())
}

fn ended(what: &str, server: &mut Child) -> Outcome<()> {
    let status = server.wait().map_err(|error| error.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{what}: {status}")),
    }
}

/// Returns the image for a processor.
pub(super) fn image_of(target: Target, out: &Path) -> Outcome<PathBuf> {
    find(out, &format!("-{}.oci.tar", target.deb_arch()))
}

/// Returns the first file whose name has this end, except the package of links.
fn find(directory: &Path, end: &str) -> Outcome<PathBuf> {
    find_any(directory, |name| {
        name.ends_with(end) && !name.contains("-compat")
    })
    .map_err(|error| format!("{error} that ends with {end}"))
}

/// Returns the first file with a matching name.
fn find_any(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Outcome<PathBuf> {
    let sums = read(&directory.join("SHA256SUMS"))?;
    let names = sums
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let mut found = names.filter(|name| is_wanted(name));
    let name = found
        .next()
        .ok_or("run cargo xtask package: it left no file")?;
    Ok(directory.join(name))
}
