//! Destination of the audit log: a file, or the machine's log (`audit-log-file syslog`).
//!
//! A thread of its own writes the lines, so that no worker waits for a disk. The queue is bounded;
//! the thread that has a line too many drops it and counts it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use engine::observer::AuditSink;

use crate::syslog::{Severity, Syslog, Tag};

/// Maximum number of queued lines.
const LINES_MAX: usize = 4096;
/// Mode of a new file: only the owner may read names of users and keys.
const FILE_MODE: u32 = 0o600;
/// The word that selects the machine's log instead of a file.
const SYSLOG: &str = "syslog";
/// Prefix of its lines.
const IDENT: &str = "iolite-audit";
/// The facility of security messages.
const SECURITY: u8 = 10;

/// The channel to the writer thread.
#[derive(Debug)]
pub struct AuditWriter {
    lines: SyncSender<String>,
}

enum Place {
    File(File),
    Syslog(Syslog),
}

impl AuditWriter {
    /// Appends to a file, or sends to the machine's log. The thread ends with the writer.
    ///
    /// # Errors
    /// The file cannot be opened, or nothing receives messages.
    #[allow(
        clippy::disallowed_methods,
        reason = "one thread that waits for a disk"
    )]
    pub fn open(file: &Path) -> io::Result<Self> {
        let place = if file == Path::new(SYSLOG) {
            let syslog = Syslog::new(Tag {
                ident: IDENT.to_owned(),
                facility: SECURITY,
            })?;
            if !syslog.is_heard() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Place::Syslog(syslog)
        } else {
            let mut options = OpenOptions::new();
            let options = options.append(true).create(true).mode(FILE_MODE);
            Place::File(options.open(file)?)
        };
        let (lines, received) = sync_channel(LINES_MAX);
        std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || write(place, &received))?;
        Ok(Self { lines })
    }
}

impl AuditSink for AuditWriter {
    fn take(&self, line: String) -> bool {
        self.lines.try_send(line).is_ok()
    }
}

fn write(mut place: Place, lines: &Receiver<String>) {
    for mut line in lines {
        let _lost = match &mut place {
            Place::File(file) => {
                line.push('\n');
                file.write_all(line.as_bytes())
            }
            Place::Syslog(syslog) => syslog.send(Severity::Informational, &line),
        };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use engine::observer::AuditSink as _;
    use testkit::patience::Patience;
    use testkit::process::temporary_directory;

    use super::AuditWriter;

    #[test]
    fn lines_are_appended_to_the_file() {
        let path = temporary_directory("audit").unwrap().join("audit.log");
        std::fs::write(&path, "old\n").unwrap();
        let writer = AuditWriter::open(&path).unwrap();
        assert!(writer.take("one".to_owned()) && writer.take("two".to_owned()));
        let patience = Patience::of(Duration::from_secs(60));
        while std::fs::read_to_string(&path).unwrap() != "old\none\ntwo\n" {
            assert!(patience.lasts());
            std::thread::yield_now();
        }
    }
}
