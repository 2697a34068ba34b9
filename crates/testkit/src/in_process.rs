//! A server inside the test: no socket, no process. The caller chooses the store.
//!
//! Workers, sessions and commands are those of the binary. A connection is a pair of queues.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use server::cli::{self, Invocation};
use server::config::Settings;
use server::in_process::InProcessServer;
use store::Store;

use crate::client::{Client, Link};
use crate::patience::Patience;
use crate::process::temporary_directory;
use crate::target::{Launcher, Target};

/// Maximum time until a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(180);
/// Pause between two looks for a reply.
const POLL: Duration = Duration::from_micros(50);

/// A function that makes the store for some settings.
pub type MakeStore = fn(&Settings) -> io::Result<Arc<Store>>;

/// Returns a launcher of servers in this process, over the stores that `make_store` makes.
#[must_use]
pub fn launcher(name: &'static str, make_store: MakeStore) -> Launcher {
    Launcher {
        name,
        is_oracle: false,
        start: Box::new(move |args| {
            let directory = Directory(temporary_directory("in-process")?);
            let settings = settings(args, &directory.0)?;
            let store = make_store(&settings)?;
            let server = InProcessServer::start(store, settings, Arc::new(SystemClock::new()))?;
            Ok(Box::new(InProcess {
                name,
                server: Some(server),
                _directory: directory,
            }))
        }),
    }
}

/// Returns the settings of the command line `args`. Files go below `directory`.
fn settings(args: &[String], directory: &Path) -> io::Result<Settings> {
    let defaults = ["iolite", "--save", "", "--appendonly", "no", "--dir"].map(OsString::from);
    let directory = [OsString::from(directory)];
    let words = defaults.into_iter().chain(directory);
    let words = words.chain(args.iter().map(OsString::from)).collect();
    match cli::read(words, std::iter::empty(), &mut io::empty()) {
        Ok(Invocation::Serve(startup)) => Ok(startup.settings),
        Ok(Invocation::Print { text, .. }) => Err(io::Error::other(text)),
        Ok(_) => Err(io::Error::other("no server")),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

struct InProcess {
    name: &'static str,
    server: Option<InProcessServer>,
    _directory: Directory,
}

/// A directory that is removed with its server.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

impl Target for InProcess {
    fn name(&self) -> &str {
        self.name
    }

    fn connect(&self) -> io::Result<Client> {
        let server = self.server.as_ref();
        let server = server.ok_or(ErrorKind::NotConnected)?;
        Ok(Client::over(Box::new(Waiting {
            link: server.connect(),
            blocks: true,
        })))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // If a worker has failed, the test has seen it from the replies.
        if let Some(server) = self.server.take() {
            let _stopped = server.stop();
        }
    }
}

/// A link that waits where the inner link returns `WouldBlock`.
struct Waiting<L> {
    link: L,
    blocks: bool,
}

impl<L: Read + Write + Send> Link for Waiting<L> {
    fn set_blocking(&mut self, blocks: bool) -> io::Result<()> {
        self.blocks = blocks;
        Ok(())
    }
}

impl<L> Waiting<L> {
    fn wait<T>(&mut self, mut attempt: impl FnMut(&mut L) -> io::Result<T>) -> io::Result<T> {
        let patience = Patience::of(REPLY_TIMEOUT);
        loop {
            match attempt(&mut self.link) {
                Err(error)
                    if self.blocks && error.kind() == ErrorKind::WouldBlock && patience.lasts() =>
                {
                    std::thread::sleep(POLL);
                }
                other => return other,
            }
        }
    }
}

impl<L: Read> Read for Waiting<L> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(|link| link.read(buffer))
    }
}

impl<L: Write> Write for Waiting<L> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|link| link.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.flush()
    }
}
