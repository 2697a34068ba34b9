//! Servers as child processes: the oracle (`redis-server`) and the built `iolite`.
//!
//! Each server has its own directory. It listens on a Unix socket there and, on request, on a free
//! loopback port. When the value is dropped, the server is killed and its directory removed.

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

/// Maximum time until a started server answers.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two checks whether it answers.
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
    /// Returns a builder of Redis, whose answers ours are compared with. `REDIS_SERVER` names
    /// another program.
    #[must_use]
    pub fn oracle() -> Self {
        Self::new("oracle", oracle_program())
    }

    /// Returns a builder of the built server.
    #[must_use]
    pub fn iolite() -> Self {
        Self::new("iolite", iolite_program())
    }

    /// Returns a builder of any program with Redis' command line. `name` is for messages.
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

    /// Makes the server read a configuration file. The command line overrides it.
    #[must_use]
    pub fn file(mut self, path: &Path) -> Self {
        self.file = Some(path.to_owned());
        self
    }

    /// Puts these words first on the command line: a command that starts a server.
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

    /// Sets a variable of the server's environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the server also listen on a free port of 127.0.0.1.
    #[must_use]
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// If the program is missing, ends early, or does not answer in time. The text contains its
    /// log.
    pub fn start(self) -> io::Result<Server> {
        // Another process may take the free port before the server listens on it.
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
    /// Returns its name in messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, named as for `kill`. See [`signal`].
    pub fn signal(&self, name: &str) {
        signal(name, self.pid());
    }

    /// Returns its TCP address, or `None` if it was started without one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.port
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Returns the path of its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// Returns the directory it runs in.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns what it has written to its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Opens a connection: over TCP if the server listens there, otherwise over the Unix socket.
    ///
    /// # Errors
    /// If the server does not accept it.
    pub fn client(&self) -> io::Result<Client> {
        match self.address() {
            Some(address) => Client::connect_tcp(address),
            None => Client::connect_unix(&self.socket()),
        }
    }

    /// Returns the memory it holds, in bytes (resident set size).
    ///
    /// # Errors
    /// If the process has ended.
    pub fn rss_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("smaps_rollup", "Rss:")
    }

    /// Returns the part of that memory that is the process' own, in bytes. Pages of the program and
    /// of other files are left out, because their number varies with what runs.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn anonymous_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("smaps_rollup", "Anonymous:")
    }

    /// Returns the most memory it ever held, in bytes.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn rss_peak_bytes(&self) -> io::Result<u64> {
        self.memory_bytes("status", "VmHWM:")
    }

    /// Returns a field of a file about the process. Avoid `status` where another file has the
    /// figure: figures in `status` lag behind by some dozen pages for each processor.
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
    /// If the system cannot tell.
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
            // A test that lists all clients must not see this one.
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
        // The server may have ended by itself. Then there is nothing to kill or wait for.
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

/// Returns the oracle's program: `redis-server`, or the one that `REDIS_SERVER` names.
#[must_use]
pub fn oracle_program() -> PathBuf {
    let named = std::env::var_os("REDIS_SERVER");
    named.map_or_else(|| PathBuf::from("redis-server"), PathBuf::from)
}

/// Returns the path of the server under test: the one that `SERVER_BIN` names, otherwise the one
/// next to the running test in the target directory.
///
/// `cargo xtask test` names the binary of `cargo build --release -p server`, which is what ships.
/// The one next to a test is built with the features that tests enable in the lower rooms.
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

/// Creates a new empty directory.
///
/// # Errors
/// If it cannot be created among the system's temporary files.
pub fn temporary_directory(name: &str) -> io::Result<PathBuf> {
    prefixed(name).map(TempDir::keep)
}

fn prefixed(name: &str) -> io::Result<TempDir> {
    let prefix = format!("testkit-{name}-");
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

/// A new empty directory that is removed with its contents when this value is dropped.
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

/// Returns a port of 127.0.0.1 that no process listens on at the moment. It lies below the ports
/// that the system gives to connections, one of which could otherwise take it before the server
/// does. Each call returns another port.
///
/// # Errors
/// If there is no such port.
pub fn free_port() -> io::Result<u16> {
    const FIRST: u16 = 10_000;
    const COUNT: u32 = 10_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Tests in other processes begin at other ports.
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

/// Sends a process a signal, named as for `kill` (`-STOP`). After `-STOP`, waits until all threads
/// of the process are stopped. Each thread stops when it is next scheduled; on a busy machine it
/// may answer once more before that.
///
/// # Panics
/// If there is no such process, or it does not stop.
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
        // A thread that has ended in the meantime has no such file.
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}
