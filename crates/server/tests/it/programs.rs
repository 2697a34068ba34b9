//! Programs for real clients, unmodified from their registries, and the means to run them.
//!
//! Their packages are downloaded into the target directory at the first run, and kept there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Returns the directory of the programs, with one directory or file per client.
pub(crate) fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Returns the directory in which packages of a client are kept between runs.
pub(crate) fn packages(client: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("clients")
        .join(client);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Runs a command to its successful end. Returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    run_with_input(command, b"")
}

/// As [`run`], for a command that gets this input.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = output_of(command, input);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(
        status.success(),
        "{command:?}: {status}\n{stdout}\n{stderr}"
    );
    stdout.into_owned()
}

/// Returns the output and the exit status of a command.
pub(crate) fn output_of(command: &mut Command, input: &[u8]) -> Output {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = piped.spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // The child may write before it has read everything, or read nothing at all.
        scope.spawn(move || {
            let _sent = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    })
}

/// Returns a Python that has these packages.
pub(crate) fn python_with(wanted: &[&str]) -> PathBuf {
    let environment = packages("redis-py");
    let python = environment.join("bin/python");
    if !python.exists() {
        run(Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment));
    }
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    run(install.args(wanted));
    python
}

/// Returns a directory in which Node finds these packages.
pub(crate) fn node_with(client: &str, wanted: &[&str]) -> PathBuf {
    let directory = packages(client);
    if !directory.join("node_modules").exists() {
        let mut install = Command::new("npm");
        install.args(["install", "--no-fund", "--no-audit", "--no-save"]);
        install.args(wanted).arg("--prefix").arg(&directory);
        run(install.current_dir(&directory));
    }
    directory
}

/// Returns the command of a package of the Go program. The caller adds arguments.
pub(crate) fn go_program(package: &str) -> Command {
    let directory = packages("go-redis");
    copy(&programs().join("go_redis"), &directory);
    // Checksums are written beside the copy. The repository does not need them.
    run(Command::new("go")
        .args(["mod", "tidy"])
        .current_dir(&directory));
    let mut program = Command::new("go");
    program.args(["run", package]).current_dir(&directory);
    program
}

/// Returns the command of a Java class whose `main` gets these arguments.
pub(crate) fn java_program(class: &str, args: &str) -> Command {
    let directory = packages("java");
    copy(&programs().join("java"), &directory);
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "compile", "exec:java"]);
    maven.arg(format!("-Dexec.mainClass={class}"));
    maven.arg(format!("-Dexec.args={args}"));
    maven.arg(format!(
        "-Dmaven.repo.local={}",
        packages("maven").display()
    ));
    maven.current_dir(&directory);
    maven
}

/// Copies the content of a directory into another one.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}
