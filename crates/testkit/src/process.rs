//! Servers as child processes: the oracle (`redis-server`) and the built `iolite`.
//!
//! Each server has a directory of its own, listens on a Unix socket in it and, when asked, on a free
//! loopback port; it is killed and its directory removed when the value is dropped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use protocol::Value;
use tempfile::TempDir;

use crate::client::Client;
use crate::patience::Patience;
use crate::target::Target;

/// How long a server may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two looks whether it does.
const START_POLL: Duration = Duration::from_millis(3);

/// A server to be started.
#[derive(Debug)]
pub struct ServerBuilder {
    name: &'static str,
    program: PathBuf,
    words: Vec<String>,
    file: Option<PathBuf>,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    tcp: bool,
}

/// A running server, killed on drop.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    child: Child,
    directory: PathBuf,
    port: Option<u16>,
}

impl ServerBuilder {
    /// Redis, by whose answers ours are judged. `REDIS_SERVER` names another program.
    #[must_use]
    pub fn oracle() -> Self {
        Self::new("oracle", oracle_program())
    }

    /// The built server.
    #[must_use]
    pub fn iolite() -> Self {
        Self::new("iolite", iolite_program())
    }

    /// Any program that takes Redis' command line; `name` is for messages.
    #[must_use]
    pub fn new(name: &'static str, program: PathBuf) -> Self {
        Self {
            name,
            program,
            words: Vec::new(),
            file: None,
            args: Vec::new(),
            variables: Vec::new(),
            tcp: false,
        }
    }

    /// Reads a configuration file, below what the command line says.
    #[must_use]
    pub fn file(mut self, path: &Path) -> Self {
        self.file = Some(path.to_owned());
        self
    }

    /// Begins the command line with these words: a command that starts a server.
    #[must_use]
    pub fn words<A: AsRef<str>>(mut self, words: &[A]) -> Self {
        self.words
            .extend(words.iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Adds words to the command line.
    #[must_use]
    pub fn args<A: AsRef<str>>(mut self, args: &[A]) -> Self {
        self.args
            .extend(args.iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Listens on a free port of 127.0.0.1 too.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// When the program is missing, ends early, or does not answer in time; the text holds the end
    /// of its log.
    pub fn start(self) -> io::Result<Server> {
        // Between choosing a free port and listening on it someone else may take it.
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut server = self.spawn()?;
            match server.wait_until_ready() {
                Err(error) if self.tcp && attempts < 20 && error.kind() == ErrorKind::AddrInUse => {
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    fn spawn(&self) -> io::Result<Server> {
        let directory = temporary_directory(self.name)?;
        let port = if self.tcp { free_port()? } else { 0 };
        let log = File::create(directory.join("log"))?;
        let child = Command::new(&self.program)
            .args(&self.words)
            .args(&self.file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(&directory)
            .arg("--unixsocket")
            .arg(directory.join("socket"))
            .args(&self.args)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            .spawn();
        let child = child.map_err(|error| {
            let _removed = fs::remove_dir_all(&directory);
            io::Error::new(error.kind(), format!("{}: {error}", self.program.display()))
        })?;
        Ok(Server {
            name: self.name,
            child,
            directory,
            port: self.tcp.then_some(port),
        })
    }
}

impl Server {
    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, as `kill` calls it. See [`signal`].
    pub fn signal(&self, name: &str) {
        signal(name, self.pid());
    }

    /// Its TCP address, when it was started with one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.port
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// The directory it runs in.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What it has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A new connection: over TCP when it listens there, over the Unix socket otherwise.
    ///
    /// # Errors
    /// When it does not accept one.
    pub fn client(&self) -> io::Result<Client> {
        match self.address() {
            Some(address) => Client::connect_tcp(address),
            None => Client::connect_unix(&self.socket()),
        }
    }

    /// Memory it holds, in bytes (resident set size).
    ///
    /// # Errors
    /// When it is gone.
    pub fn rss_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("smaps_rollup", "Rss:")
    }

    /// The part of it that is the process' own, in bytes: without pages of the program and other files, which come and go
    /// with what runs.
    ///
    /// # Errors
    /// When it is gone.
    pub fn anonymous_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("smaps_rollup", "Anonymous:")
    }

    /// The most memory it ever held, in bytes.
    ///
    /// # Errors
    /// When it is gone.
    pub fn rss_peak_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("status", "VmHWM:")
    }

    /// A field of a file about the process. Where there is a choice not `status`: its figures lag behind by some
    /// dozen pages for each processor.
    fn memory_bytes(&self, file: &str, field: &str) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.pid()))?;
        text.lines()
            .find_map(|line| line.strip_prefix(field))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok())
            .map(|kilobytes| kilobytes * 1024)
            .ok_or_else(|| io::Error::other("no resident set size"))
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let patience = Patience::of(START_TIMEOUT);
        while patience.lasts() {
            if let Some(status) = self.child.try_wait()? {
                return Err(self.early_end(&format!("ended with {status}")));
            }
            if self.answers() {
                return Ok(());
            }
            std::thread::sleep(START_POLL);
        }
        Err(self.early_end("does not answer"))
    }

    fn answers(&self) -> bool {
        let reply = self.client().and_then(|mut client| {
            let reply = client.command(&["PING"])?;
            // A test that looks at all clients does not meet this one.
            client.finish()?;
            Ok(reply)
        });
        match reply {
            Ok(Value::Error(text)) => !text.starts_with(b"LOADING"),
            Ok(_) => true,
            Err(_) => false,
        }
    }

    fn early_end(&self, what: &str) -> io::Error {
        let log = self.log();
        let kind = match log.contains("in use") {
            true => ErrorKind::AddrInUse,
            false => ErrorKind::Other,
        };
        io::Error::new(kind, format!("{} {what}; its log:\n{log}", self.name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill or wait for.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
        let _removed = fs::remove_dir_all(&self.directory);
    }
}

impl Target for Server {
    fn name(&self) -> &str {
        self.name
    }

    fn connect(&self) -> io::Result<Client> {
        self.client()
    }
}

/// The oracle's program: `redis-server`, or what `REDIS_SERVER` names.
#[must_use]
pub fn oracle_program() -> PathBuf {
    let named = std::env::var_os("REDIS_SERVER");
    named.map_or_else(|| PathBuf::from("redis-server"), PathBuf::from)
}

/// Where the server under test is: `SERVER_BIN` names it, otherwise it is the one next to the running test in
/// the target directory.
///
/// `cargo xtask test` names the binary of `cargo build --release -p server`, which is what ships. The one next to
/// a test is built with the features that tests want of the rooms below.
#[must_use]
pub fn iolite_program() -> PathBuf {
    if let Some(path) = std::env::var_os("SERVER_BIN") {
        return PathBuf::from(path);
    }
    let beside = |running: PathBuf| {
        // A test runs from target/PROFILE/deps, a tool from target/PROFILE.
        let profile = running
            .ancestors()
            .skip(1)
            .find(|directory| directory.file_name() != Some(OsStr::new("deps")))?;
        Some(profile.join("iolite"))
    };
    std::env::current_exe()
        .ok()
        .and_then(beside)
        .unwrap_or_else(|| PathBuf::from("iolite"))
}

/// A new empty directory.
///
/// # Errors
/// When the system's place for temporary files takes none.
pub fn temporary_directory(name: &str) -> io::Result<PathBuf> {
    prefixed(name).map(TempDir::keep)
}

fn prefixed(name: &str) -> io::Result<TempDir> {
    let prefix = format!("testkit-{name}-");
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

/// A new empty directory, which goes with this, and all that is in it.
#[derive(Debug)]
pub struct TemporaryDirectory(TempDir);

impl TemporaryDirectory {
    /// As [`temporary_directory`].
    ///
    /// # Errors
    /// When the system's place for temporary files takes none.
    pub fn new(name: &str) -> io::Result<Self> {
        prefixed(name).map(Self)
    }
}

impl Deref for TemporaryDirectory {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

impl AsRef<Path> for TemporaryDirectory {
    fn as_ref(&self) -> &Path {
        self
    }
}

/// A port of 127.0.0.1 that nobody listens on at the moment: below those that the system gives to connections, which would take it
/// before a server does, and another one each time.
///
/// # Errors
/// When there is none.
pub fn free_port() -> io::Result<u16> {
    const FIRST: u16 = 10_000;
    const COUNT: u32 = 10_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Tests of other processes begin elsewhere.
    let begin = std::process::id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let at = begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = FIRST + u16::try_from(at).unwrap_or_default();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// Sends a process a signal, as `kill` calls it (`-STOP`). Who is stopped is so in all of its threads when this returns:
/// each stops when it is its turn, which on a busy machine is after it has answered once more.
///
/// # Panics
/// When there is no such process, or it does not stop.
pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(
        sent.is_ok_and(|status| status.success()),
        "kill {name} {pid}"
    );
    let patience = Patience::of(Duration::from_secs(60));
    while name == "-STOP" && !is_stopped(pid) {
        assert!(patience.lasts(), "process {pid} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // A thread that has ended meanwhile has none.
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
