//! Servers of a comparison: some are already running, some are started for it and stopped
//! afterwards.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::words;
use protocol::Value;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::endpoint::{Address, Endpoint, info_field};
use crate::error::BenchError;
use crate::options::{Options, parse_cpus};
use crate::record::Server;

/// Maximum number of attempts to reach a started server, and the pause between two.
const START_LOOKS: u32 = 600;
const START_PAUSE: Duration = Duration::from_millis(50);

/// A server to be measured.
#[derive(Debug)]
pub(crate) struct Contestant {
    pub(crate) endpoint: Endpoint,
    pub(crate) server: Server,
    /// The process, if the server was started for this.
    started: Option<Started>,
    /// Whether its data was loaded by this tool, so that it may be deleted.
    is_ours: bool,
}

/// A process started for a comparison.
#[derive(Debug)]
struct Started {
    child: Child,
    command: String,
}

impl Drop for Started {
    fn drop(&mut self) {
        // If it has ended by itself, there is nothing to stop.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

impl Contestant {
    /// Returns all servers that `options` names, in their order, and starts those to be started.
    ///
    /// # Errors
    /// A server cannot be started or reached.
    pub(crate) fn all(options: &Options) -> Result<Vec<Self>, BenchError> {
        let mut all = Vec::new();
        for (name, address) in &options.compare {
            let endpoint = Endpoint {
                name: name.clone(),
                address: address.clone(),
                pid: None,
                ..options.endpoint.clone()
            };
            all.push(Self::running(endpoint)?);
        }
        for (name, command) in &options.start {
            all.push(Self::started(name, command, options)?);
        }
        if all.is_empty() {
            all.push(Self::running(options.endpoint.clone())?);
        }
        Ok(all)
    }

    /// Connects to a server that is already running.
    fn running(endpoint: Endpoint) -> Result<Self, BenchError> {
        let mut session = endpoint.connect()?;
        let server = Server {
            name: endpoint.name.clone(),
            version: version(&session.info("server")?),
            address: endpoint.address.to_string(),
        };
        Ok(Self {
            endpoint,
            server,
            started: None,
            is_ours: false,
        })
    }

    fn started(name: &str, command: &str, options: &Options) -> Result<Self, BenchError> {
        let port = free_port().map_err(|error| BenchError::System("a free port", error))?;
        let mut started = Started {
            child: spawn(&command.replace("{port}", &port.to_string()), options)?,
            command: command.to_owned(),
        };
        let endpoint = Endpoint {
            name: name.to_owned(),
            address: Address::Tcp(Ipv4Addr::LOCALHOST.to_string(), port),
            pid: Some(started.child.id()),
            ..options.endpoint.clone()
        };
        for _ in 0..START_LOOKS {
            if answers(&endpoint) {
                let mut contestant = Self::running(endpoint)?;
                contestant.started = Some(started);
                return Ok(contestant);
            }
            if let Ok(Some(status)) = started.child.try_wait() {
                return Err(BenchError::Usage(format!(
                    "'{command}' ended with {status}"
                )));
            }
            std::thread::sleep(START_PAUSE);
        }
        Err(BenchError::Usage(format!(
            "'{command}' does not answer on port {port}"
        )))
    }

    /// Deletes all its data. A server that was started for this is restarted, so that its memory is
    /// that of a server that never had data.
    ///
    /// # Errors
    /// It holds data that `options` do not allow to delete, or refuses.
    pub(crate) fn empty(&mut self, options: &Options) -> Result<(), BenchError> {
        if let Some(started) = self.started.take() {
            let command = started.command.clone();
            drop(started);
            *self = Self::started(&self.endpoint.name, &command, options)?;
            return Ok(());
        }
        let mut session = self.endpoint.connect()?;
        let keys = session.keys_count()?;
        if keys > 0 && !options.may_flush && !self.is_ours {
            return Err(BenchError::HoldsData {
                server: self.server.name.clone(),
                keys,
            });
        }
        self.is_ours = true;
        session.demand("FLUSHALL", &["FLUSHALL"]).map(|_| ())
    }
}

fn answers(endpoint: &Endpoint) -> bool {
    let pong = endpoint
        .connect()
        .and_then(|mut session| session.ask(&["PING"]));
    matches!(pong, Ok(Value::Simple(_)))
}

/// Returns a server's name and version: its own before those of the server it is compatible with.
fn version(info: &str) -> String {
    let names = ["iolite", "valkey", "dragonfly", "keydb", "redis"];
    let found = names.iter().find_map(|name| {
        let version = info_field(info, &format!("{name}_version"))?;
        Some(format!("{name} {version}"))
    });
    found.unwrap_or_else(|| "unknown".to_owned())
}

/// Starts a command; it inherits the processors of the calling thread.
fn spawn(command: &str, options: &Options) -> Result<Child, BenchError> {
    let refuse = |reason: &str| BenchError::Usage(format!("'{command}' {reason}"));
    let words = words::split(command.as_bytes()).map_err(|_| refuse("has unbalanced quotes"))?;
    let words: Vec<String> = words
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| refuse("names no program"))?;
    let pinning = |error: rustix::io::Errno| BenchError::System("pinning a server", error.into());
    let own = sched_getaffinity(None).map_err(pinning)?;
    if !options.server_cpus.is_empty() {
        let mut set = CpuSet::new();
        for cpu in parse_cpus(&options.server_cpus)? {
            if cpu < CpuSet::MAX_CPU {
                set.set(cpu);
            }
        }
        sched_setaffinity(None, &set).map_err(pinning)?;
    }
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    sched_setaffinity(None, &own).map_err(pinning)?;
    child.map_err(|error| refuse(&format!("cannot be started: {error}")))
}

fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_called_by_its_own_name_first() {
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n";
        assert_eq!(version(valkey), "valkey 8.1.0");
        assert_eq!(version("redis_version:7.0.15\r\n"), "redis 7.0.15");
        assert_eq!(version(""), "unknown");
    }

    #[test]
    fn what_cannot_be_started_is_named() {
        let options = Options {
            start: vec![("x".to_owned(), "/nonexistent --port {port}".to_owned())],
            ..Options::default()
        };
        let error = Contestant::all(&options).unwrap_err().to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }
}
