//! Operation as a service: leaving the terminal, the pid file, and messages to a supervisor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base::process;

use crate::config::{Supervised, system_reason};
use crate::log::Log;

/// Variable with the address of systemd's socket.
const SYSTEMD_VARIABLE: &str = "NOTIFY_SOCKET";
/// Variable with Upstart's name for the job.
const UPSTART_VARIABLE: &str = "UPSTART_JOB";
/// Log line if systemd is the supervisor.
const SYSTEMD_FOUND: &str = "Supervised by systemd. Please make sure you set appropriate values \
                             for TimeoutStartSec and TimeoutStopSec in your service unit.";

/// Leaves the terminal: the calling process ends, and its child continues in a session of its own,
/// with standard input, output and error redirected to nothing. Must be called before any thread
/// starts, and not if a [`Supervisor`] waits for this process.
///
/// # Errors
/// The system refused, or there are other threads.
pub fn daemonize() -> io::Result<()> {
    process::detach()
}

/// The pid file; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process' number to `path`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(path: &Path) -> io::Result<Self> {
        std::fs::write(path, format!("{}\n", std::process::id()))?;
        Ok(Self {
            // The working directory may have changed when the file is removed.
            path: std::path::absolute(path)?,
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _may_be_gone = std::fs::remove_file(&self.path);
    }
}

/// The process manager that started the server and waits for its messages.
#[derive(Debug)]
pub struct Supervisor {
    kind: SupervisorKind,
    remark: Option<Remark>,
    /// Time of the last report of the loading, and the bytes loaded by then.
    loading: Mutex<Option<(u64, u64)>>,
}

/// Interval of reports of the loading to the supervisor …
const LOADING_EVERY_MS: u64 = 1000;
/// … and extension of its timeout at each report with progress.
const LOADING_GRANTED_US: u64 = 60_000_000;

#[derive(Debug)]
enum SupervisorKind {
    Nobody,
    Upstart,
    Systemd(UnixDatagram),
}

/// Log line about the supervisor.
#[derive(Debug)]
enum Remark {
    Found(&'static str),
    Missing(String),
}

impl Supervisor {
    /// Returns the supervisor that `supervised` permits and the environment shows.
    pub fn find(supervised: Supervised) -> Self {
        choose(
            supervised,
            std::env::var_os(SYSTEMD_VARIABLE),
            std::env::var_os(UPSTART_VARIABLE),
        )
    }

    /// Logs the supervisor that was found, or that one was requested and not found.
    pub fn introduce(&self, log: &Log) {
        match &self.remark {
            Some(Remark::Found(text)) => log.notice(format_args!("{text}")),
            Some(Remark::Missing(text)) => log.warning(format_args!("{text}")),
            None => {}
        }
    }

    /// Whether there is a supervisor; then `daemonize` is ignored.
    pub fn is_there(&self) -> bool {
        !matches!(self.kind, SupervisorKind::Nobody)
    }

    /// Returns the name for INFO's `process_supervised`.
    pub fn name(&self) -> &'static str {
        match self.kind {
            SupervisorKind::Nobody => "no",
            SupervisorKind::Upstart => "upstart",
            SupervisorKind::Systemd(_) => "systemd",
        }
    }

    /// Reports that the server listens and has loaded its data.
    pub fn ready(&self) {
        match self.kind {
            SupervisorKind::Upstart => {
                let _goes_on = process::stop_until_continued();
            }
            _ => self.tell("STATUS=Ready to accept connections\nREADY=1\n"),
        }
    }

    /// Reports the progress of the loading, once a second, and extends the supervisor's timeout
    /// while there is progress.
    pub fn loading(&self, now_ms: u64, bytes: u64, percent: f64) {
        if !matches!(self.kind, SupervisorKind::Systemd(_)) {
            return;
        }
        let mut told = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_due, goes_on) = match *told {
            None => (true, true),
            Some((told_ms, before)) => (
                now_ms.saturating_sub(told_ms) >= LOADING_EVERY_MS,
                bytes != before,
            ),
        };
        if !is_due {
            return;
        }
        *told = Some((now_ms, bytes));
        let mut message = format!("STATUS=Loading, {percent:.1} % done\n");
        if goes_on {
            message += &format!("EXTEND_TIMEOUT_USEC={LOADING_GRANTED_US}\n");
        }
        self.tell(&message);
    }

    /// Reports that the server shuts down.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    /// Reports one line about the server's state.
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
) -> Supervisor {
    let (may_systemd, may_upstart) = match supervised {
        Supervised::No => (false, false),
        Supervised::Systemd => (true, false),
        Supervised::Upstart => (false, true),
        Supervised::Auto => (true, true),
    };
    let found = |kind, text| Supervisor {
        kind,
        remark: Some(Remark::Found(text)),
        loading: Mutex::default(),
    };
    if may_upstart && upstart.is_some() {
        let text = "Supervised by upstart, will stop to signal readiness.";
        return found(SupervisorKind::Upstart, text);
    }
    let missing = |text| Supervisor {
        kind: SupervisorKind::Nobody,
        remark: text,
        loading: Mutex::default(),
    };
    if may_systemd && let Some(address) = systemd {
        return match connect(&address) {
            Ok(socket) => found(SupervisorKind::Systemd(socket), SYSTEMD_FOUND),
            Err(error) => missing(Some(Remark::Missing(format!(
                "Can't reach systemd at {SYSTEMD_VARIABLE}: {}",
                system_reason(&error)
            )))),
        };
    }
    let text = |name: &str, variable: &str| {
        let text = format!("{name} supervision requested, but {variable} not found!");
        Some(Remark::Missing(text))
    };
    missing(match supervised {
        Supervised::Systemd => text("systemd", SYSTEMD_VARIABLE),
        Supervised::Upstart => text("upstart", UPSTART_VARIABLE),
        Supervised::No | Supervised::Auto => None,
    })
}

/// Returns a socket that sends to `address`: a path, or an abstract name after an `@`.
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

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("iolite-{name}-{}", std::process::id()))
    }

    #[test]
    fn systemd_hears_of_every_step() {
        let path = temporary("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let address = Some(path.clone().into_os_string());
        let supervisor = choose(Supervised::Auto, address, None);
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
        let waits = "EXTEND_TIMEOUT_USEC=60000000\n";
        supervisor.loading(5, 0, 0.0);
        supervisor.loading(900, 10, 1.0);
        supervisor.loading(1005, 100, 12.34);
        supervisor.loading(2005, 100, 12.34);
        supervisor.loading(3005, 101, 12.4);
        assert_eq!(next(), format!("STATUS=Loading, 0.0 % done\n{waits}"));
        assert_eq!(next(), format!("STATUS=Loading, 12.3 % done\n{waits}"));
        assert_eq!(next(), "STATUS=Loading, 12.3 % done\n");
        assert_eq!(next(), format!("STATUS=Loading, 12.4 % done\n{waits}"));
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
            choose(supervised, systemd, upstart).name()
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
        let file = PidFile::write(&path).unwrap();
        let content = std::fs::read_to_string(&path).unwrap();
        assert_eq!(content, format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
        assert!(PidFile::write(Path::new("/does/not/exist/pid")).is_err());
    }

    #[test]
    fn who_was_asked_for_and_is_not_there_is_missed() {
        let remark = |supervised, systemd: Option<&str>| {
            choose(supervised, systemd.map(OsString::from), None).remark
        };
        assert!(remark(Supervised::Auto, None).is_none());
        for systemd in [None, Some("/does/not/exist")] {
            let remark = remark(Supervised::Systemd, systemd);
            assert!(matches!(remark, Some(Remark::Missing(_))), "{remark:?}");
        }
        assert!(matches!(
            remark(Supervised::Upstart, None),
            Some(Remark::Missing(_))
        ));
    }
}
