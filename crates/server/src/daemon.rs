//! Life as a service: leaving the terminal, the pid file, and telling a supervisor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use base::process;

use crate::config::{Config, Supervised, system_reason};
use crate::log::Log;

/// Where the pid file goes when the server leaves the terminal and nobody named one.
const PID_FILE_DEFAULT: &str = "/var/run/iolite.pid";
/// Where systemd listens.
const SYSTEMD_VARIABLE: &str = "NOTIFY_SOCKET";
/// Upstart's name for the job.
const UPSTART_VARIABLE: &str = "UPSTART_JOB";

/// Leaves the terminal when `config` asks for it and no supervisor waits for this process. To be
/// called before any thread is started.
///
/// # Errors
/// The system refused, or there are threads.
pub fn leave_terminal(config: &Config, supervisor: &Supervisor) -> io::Result<()> {
    if config.daemonize && !supervisor.is_there() {
        process::detach()?;
    }
    Ok(())
}

/// The pid file; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process' number where `config` asks for it; a file that cannot be written is a
    /// warning in the log.
    pub fn create(config: &Config, log: &Log) -> Option<Self> {
        let path = match &config.pid_file {
            Some(path) => path.clone(),
            None if config.daemonize => PathBuf::from(PID_FILE_DEFAULT),
            None => return None,
        };
        match Self::write(&path) {
            Ok(file) => Some(file),
            Err(error) => {
                let (path, reason) = (path.display(), system_reason(&error));
                log.warning(format_args!("Can't write the pid file '{path}': {reason}"));
                None
            }
        }
    }

    fn write(path: &Path) -> io::Result<Self> {
        std::fs::write(path, format!("{}\n", std::process::id()))?;
        Ok(Self {
            // The working directory may be another when the file is removed.
            path: std::path::absolute(path)?,
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _may_be_gone = std::fs::remove_file(&self.path);
    }
}

/// Whoever started the server and waits to hear from it.
#[derive(Debug)]
pub struct Supervisor {
    kind: SupervisorKind,
}

#[derive(Debug)]
enum SupervisorKind {
    Nobody,
    Upstart,
    Systemd(UnixDatagram),
}

impl Supervisor {
    /// The supervisor that `supervised` allows and the environment shows.
    pub fn find(supervised: Supervised, log: &Log) -> Self {
        let kind = choose(
            supervised,
            std::env::var_os(SYSTEMD_VARIABLE),
            std::env::var_os(UPSTART_VARIABLE),
            log,
        );
        Self { kind }
    }

    /// Whether there is one; then `daemonize` is ignored.
    pub fn is_there(&self) -> bool {
        !matches!(self.kind, SupervisorKind::Nobody)
    }

    /// Name for INFO's `process_supervised`.
    pub fn name(&self) -> &'static str {
        match self.kind {
            SupervisorKind::Nobody => "no",
            SupervisorKind::Upstart => "upstart",
            SupervisorKind::Systemd(_) => "systemd",
        }
    }

    /// The server listens and is loaded.
    pub fn ready(&self) {
        match self.kind {
            SupervisorKind::Upstart => {
                let _goes_on = process::stop_until_continued();
            }
            _ => self.tell("STATUS=Ready to accept connections\nREADY=1\n"),
        }
    }

    /// The server shuts down.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    /// One line on what the server does.
    pub fn status(&self, status: &str) {
        let status = status.lines().next().unwrap_or_default();
        self.tell(&format!("STATUS={status}\n"));
    }

    /// Sends to systemd. A message that cannot be sent is lost: systemd's own timeouts decide.
    fn tell(&self, message: &str) {
        if let SupervisorKind::Systemd(socket) = &self.kind {
            let _lost = socket.send(message.as_bytes());
        }
    }
}

fn choose(
    supervised: Supervised,
    systemd: Option<OsString>,
    upstart: Option<OsString>,
    log: &Log,
) -> SupervisorKind {
    let (may_systemd, may_upstart) = match supervised {
        Supervised::No => (false, false),
        Supervised::Systemd => (true, false),
        Supervised::Upstart => (false, true),
        Supervised::Auto => (true, true),
    };
    if may_upstart && upstart.is_some() {
        log.notice(format_args!(
            "Supervised by upstart, will stop to signal readiness."
        ));
        return SupervisorKind::Upstart;
    }
    if may_systemd && let Some(address) = systemd {
        return match connect(&address) {
            Ok(socket) => {
                log.notice(format_args!(
                    "Supervised by systemd. Please make sure you set appropriate values for \
                     TimeoutStartSec and TimeoutStopSec in your service unit."
                ));
                SupervisorKind::Systemd(socket)
            }
            Err(error) => {
                let reason = system_reason(&error);
                log.warning(format_args!(
                    "Can't reach systemd at {SYSTEMD_VARIABLE}: {reason}"
                ));
                SupervisorKind::Nobody
            }
        };
    }
    match supervised {
        Supervised::Systemd => log.warning(format_args!(
            "systemd supervision requested, but {SYSTEMD_VARIABLE} not found!"
        )),
        Supervised::Upstart => log.warning(format_args!(
            "upstart supervision requested, but {UPSTART_VARIABLE} not found!"
        )),
        Supervised::No | Supervised::Auto => {}
    }
    SupervisorKind::Nobody
}

/// A socket that sends to `address`: a path, or an abstract name behind an `@`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::log::Level;

    fn silent() -> Log {
        Log::new(Level::Nothing, None)
    }

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("iolite-{name}-{}", std::process::id()))
    }

    #[test]
    fn systemd_hears_of_every_step() {
        let path = temporary("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let address = Some(path.clone().into_os_string());
        let kind = choose(Supervised::Auto, address, None, &silent());
        let supervisor = Supervisor { kind };
        assert_eq!(
            (supervisor.name(), supervisor.is_there()),
            ("systemd", true)
        );
        supervisor.status("Loading\nmore");
        supervisor.ready();
        supervisor.stopping();
        let mut buffer = [0; 100];
        let mut next = || {
            let length = listener.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        assert_eq!(next(), "STATUS=Loading\n");
        assert_eq!(next(), "STATUS=Ready to accept connections\nREADY=1\n");
        assert_eq!(next(), "STOPPING=1\n");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn abstract_names_are_reached() {
        let name = format!("iolite-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        let socket = connect(OsStr::new(&format!("@{name}"))).unwrap();
        socket.send(b"READY=1").unwrap();
        let mut buffer = [0; 10];
        assert_eq!(listener.recv(&mut buffer).unwrap(), 7);
    }

    #[test]
    fn nobody_is_told_when_nobody_listens() {
        let name = |supervised, systemd: Option<&str>, upstart: Option<&str>| {
            let [systemd, upstart] = [systemd, upstart].map(|text| text.map(OsString::from));
            Supervisor {
                kind: choose(supervised, systemd, upstart, &silent()),
            }
            .name()
        };
        assert_eq!(name(Supervised::No, Some("@x"), Some("job")), "no");
        assert_eq!(name(Supervised::Systemd, None, Some("job")), "no");
        assert_eq!(
            name(Supervised::Systemd, Some("/does/not/exist"), None),
            "no"
        );
        assert_eq!(name(Supervised::Upstart, Some("@x"), None), "no");
        assert_eq!(name(Supervised::Auto, None, Some("job")), "upstart");
    }

    #[test]
    fn the_pid_file_lives_as_long_as_its_owner() {
        let path = temporary("pid");
        let config = Config {
            pid_file: Some(path.clone()),
            ..Settings::default().config()
        };
        let file = PidFile::create(&config, &silent()).unwrap();
        let content = std::fs::read_to_string(&path).unwrap();
        assert_eq!(content, format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
        assert!(PidFile::create(&Settings::default().config(), &silent()).is_none());
        let config = Config {
            pid_file: Some(PathBuf::from("/does/not/exist/pid")),
            ..config
        };
        assert!(PidFile::create(&config, &silent()).is_none());
    }
}
