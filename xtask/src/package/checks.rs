//! Whether what was packed works: unpacked into an empty root, with nothing of the build beside it, and run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Outcome, make_directory, output, read, remove, run};
use crate::parts::target_directory;
use crate::tools;

/// How often a server that starts is asked whether it is ready, and how long after each other: a minute in all, far
/// more than it takes anywhere.
const ASKED_MAX: u32 = 1_200;
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// Checks everything that `cargo xtask package` left.
///
/// # Errors
/// What does not work.
pub fn check() -> Outcome<()> {
    for tool in [
        &tools::PACKERS,
        &tools::IMAGE_TOOLS,
        &tools::PACKAGE_CHECKERS,
        &tools::REDIS_TOOLS,
    ] {
        tool.ensure()?;
    }
    let out = target_directory().join("package");
    let work = target_directory().join("package-check");
    remove(&work)?;
    make_directory(&work)?;
    run(Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(&out))?;
    let find = |end: &str| find(&out, end);
    let tarball = work.join("tarball");
    unpack_tar(
        &find(&format!("linux-{}.tar.gz", std::env::consts::ARCH))?,
        &tarball,
    )?;
    let inner = first_directory(&tarball)?;
    serves(
        "the tarball",
        Command::new(inner.join("usr/bin/iolite")),
        &work,
    )?;
    check_deb(&find(".deb")?, &work)?;
    check_rpm(&find(".rpm")?, &work)?;
    check_image(&find(".oci.tar")?, &work)?;
    check_units()?;
    println!("all packages work");
    Ok(())
}

fn check_deb(file: &Path, work: &Path) -> Outcome<()> {
    let root = work.join("deb");
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .args([file, &root]))?;
    let files = output(Command::new("dpkg-deb").arg("--contents").arg(file))?;
    for wanted in [
        "./usr/bin/iolite",
        "./etc/iolite/iolite.conf",
        "man1/iolite.1.gz",
        "iolite.service",
    ] {
        if !files.contains(wanted) {
            return Err(format!("{} has no {wanted}", file.display()));
        }
    }
    let mut judge = Command::new("lintian");
    judge.args(["--fail-on=error", "--no-tag-display-limit", "--allow-root"]);
    output(judge.arg(file))?;
    serves(
        "the Debian package",
        Command::new(root.join("usr/bin/iolite")),
        work,
    )
}

fn check_rpm(file: &Path, work: &Path) -> Outcome<()> {
    let files = output(
        Command::new("rpm")
            .args(["-qpl", "--nosignature"])
            .arg(file),
    )?;
    if !files.lines().any(|line| line == "/usr/bin/iolite") {
        return Err(format!("{} has no program", file.display()));
    }
    run(Command::new("rpm")
        .args(["-K", "--nosignature"])
        .arg(file)
        .stdout(Stdio::null()))?;
    let root = work.join("rpm");
    make_directory(&root)?;
    let archive = output(Command::new("sh").arg("-c").arg(format!(
        "cd '{}' && rpm2cpio '{}' | cpio --extract --make-directories --quiet",
        root.display(),
        file.display()
    )));
    archive?;
    serves(
        "the RPM package",
        Command::new(root.join("usr/bin/iolite")),
        work,
    )
}

/// Unpacks the image and runs it read-only, as user 999, with a data directory alone that it may write to.
fn check_image(file: &Path, work: &Path) -> Outcome<()> {
    let layout = work.join("image");
    let from = format!("oci-archive:{}", file.display());
    let to = format!("oci:{}:latest", layout.display());
    run(Command::new("skopeo").args(["copy", "--quiet", &from, &to]))?;
    let bundle = work.join("bundle");
    let image = format!("{}:latest", layout.display());
    run(Command::new("umoci")
        .args(["unpack", "--rootless", "--image", &image])
        .arg(&bundle))?;
    let data = work.join("image-data");
    make_directory(&data)?;
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
    // As `docker run iolite redis-server …` enters it.
    sandbox.args(["/usr/local/bin/entrypoint.sh", "redis-server"]);
    serves("the image", sandbox, work)
}

fn check_units() -> Outcome<()> {
    if !tools::is_in_path("systemd-analyze") {
        println!("systemd-analyze is not here: units were not looked at");
        return Ok(());
    }
    for unit in ["iolite.service", "iolite@.service"] {
        let path = crate::workspace_root().join("packaging/systemd").join(unit);
        let mut judge = Command::new("systemd-analyze");
        judge.args(["security", "--offline=true", "--no-pager", "--threshold=15"]);
        output(judge.arg(path))?;
    }
    Ok(())
}

/// Starts a server with this program, and has it keep a value across SHUTDOWN.
fn serves(what: &str, mut program: Command, work: &Path) -> Outcome<()> {
    let port = crate::instructions::free_port()?.to_string();
    let data = work.join(format!("data-{port}"));
    make_directory(&data)?;
    program
        .current_dir(&data)
        .args(["--port", &port, "--appendonly", "yes"]);
    program.stdout(Stdio::null());
    let mut server = program
        .spawn()
        .map_err(|error| format!("{what}: {error}"))?;
    let served = talk(&port);
    if served.is_err() {
        let _killed = server.kill();
    }
    ended(what, &mut server)?;
    served.map_err(|error| format!("{what}: {error}"))?;
    println!("{what}: serves");
    Ok(())
}

fn talk(port: &str) -> Outcome<()> {
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
    ask(&["set", "key", "value"])?;
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

fn unpack_tar(file: &Path, to: &Path) -> Outcome<()> {
    make_directory(to)?;
    run(Command::new("tar")
        .arg("--extract")
        .arg("--file")
        .arg(file)
        .arg("--directory")
        .arg(to))
}

/// The first file whose name ends so, but for the package of links.
fn find(directory: &Path, end: &str) -> Outcome<PathBuf> {
    let sums = read(&directory.join("SHA256SUMS"))?;
    let names = sums
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let mut found = names.filter(|name| name.ends_with(end) && !name.contains("-compat"));
    let name = found
        .next()
        .ok_or_else(|| format!("there is no {end}; run cargo xtask package"))?;
    Ok(directory.join(name))
}

fn first_directory(path: &Path) -> Outcome<PathBuf> {
    let mut entries = std::fs::read_dir(path).map_err(|error| error.to_string())?;
    let entry = entries.next().ok_or("an empty tarball")?;
    entry
        .map(|entry| entry.path())
        .map_err(|error| error.to_string())
}
