//! `iolite import` and `iolite export`: the data of a directory, without a server on it.
//!
//! ```text
//!   dump.rdb ──► store ──► checkpoint in <dir>/iolite        import
//!   checkpoint in <dir>/iolite, or <dir>/dump.rdb ──► store ──► file.rdb   export
//! ```
//!
//! Both take the options of the server: what it would find in its directory is what they work with. The
//! directory is locked meanwhile, so no server may run on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::SystemClock;
use durability::checkpoint::{Lineage, Manifest, read_manifest};
use durability::disk::{Disk as _, SystemDisk};
use durability::log::{LogError, Reader};
use reactor::workers::available_cores;
use store::{Options, Store};

use super::checkpointer::{Checkpointer, Setup, Why, writers_for};
use super::directory::DataDirectory;
use super::export::{ExportOptions, export_rdb};
use super::import::import_rdb;
use super::loader::{LoadProgress, Source};
use crate::cli::Startup;
use crate::config::SharedConfig;
use crate::node::Node;

/// Why nothing was imported or exported.
#[derive(Debug)]
pub struct OfflineError(String);

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OfflineError {}

/// Puts what fails in front of why.
fn because<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> OfflineError {
    move |error| OfflineError(format!("{what}: {error}"))
}

/// Loads the RDB file into the directory of the data, where there must be none yet; what was done, in
/// words.
///
/// # Errors
/// When there is data already, another server has the directory, or the file is not whole. Nothing is
/// changed then.
pub fn import(startup: Startup, file: &Path) -> Result<String, OfflineError> {
    let file = absolute(file)?;
    let place = Place::enter(startup)?;
    let native = place.directory.path().display();
    if place.manifest()?.is_some() {
        let reason = "there is data already; move it away first";
        return Err(OfflineError(format!("{native}: {reason}")));
    }
    let loaded = import_rdb(&place.node, &file).map_err(because(file.display()))?;
    if !loaded.functions.is_empty() {
        place.node.log.warning(format_args!(
            "Libraries of functions left out: {}",
            loaded.functions.len()
        ));
    }
    let lineage: Lineage = place
        .node
        .replication_id
        .parse()
        .map_err(because("a new history of writes"))?;
    let checkpointer = Checkpointer::new(Setup {
        store: Arc::clone(&place.node.store),
        disk: Arc::new(SystemDisk),
        directory: place.directory.path().to_owned(),
        clock: Arc::clone(&place.node.clock),
        lineage,
        writers: writers_for(available_cores()),
        surroundings: Arc::new(()),
    });
    let mut handle = place.node.store.handle();
    let made = checkpointer.make_now(&mut handle, Why::Imported);
    let outcome =
        made.map_err(|_| OfflineError(format!("{native}: a checkpoint is being made")))?;
    outcome.result.map_err(because(&native))?;
    Ok(format!(
        "{} keys of {} are in {native} now; {} had expired, {} were empty\n",
        loaded.keys,
        file.display(),
        loaded.expired_keys,
        loaded.empty_keys,
    ))
}

/// Writes the data of the directory into an RDB file, in this version or the oldest usual one that loses
/// nothing; what was done, in words.
///
/// # Errors
/// When there is no data, another server has the directory, or something is damaged. The file is what it
/// was then.
pub fn export(startup: Startup, file: &Path, version: Option<u16>) -> Result<String, OfflineError> {
    let file = absolute(file)?;
    let place = Place::enter(startup)?;
    place.load()?;
    let options = ExportOptions {
        version,
        compresses: place.node.config.current().compresses_dumps,
        sums_up: true,
    };
    let exported = export_rdb(&place.node, &SystemDisk, &file, options);
    let exported = exported.map_err(because(file.display()))?;
    Ok(format!(
        "{} keys are in {} now, RDB version {}, {} bytes\n",
        exported.keys,
        file.display(),
        exported.version,
        exported.bytes,
    ))
}

/// A path as it is before the directory is changed.
fn absolute(file: &Path) -> Result<PathBuf, OfflineError> {
    std::path::absolute(file).map_err(because(file.display()))
}

/// A directory of data, and a server without clients over it.
struct Place {
    directory: DataDirectory,
    node: Node,
}

impl Place {
    fn enter(mut startup: Startup) -> Result<Self, OfflineError> {
        startup
            .enter()
            .map_err(|error| OfflineError(error.to_string()))?;
        let config = startup.settings.config();
        let directory = DataDirectory::take(&config.dir);
        let directory = directory.map_err(|error| OfflineError(error.to_string()))?;
        let options = Options {
            databases: u16::try_from(config.databases_count).unwrap_or(u16::MAX),
        };
        let store = Store::new(&options).map_err(because("cannot reserve memory"))?;
        let config = SharedConfig::new(startup.settings, startup.origin);
        let node = Node::new(store, Arc::new(config), Arc::new(SystemClock::new()));
        Ok(Self { directory, node })
    }

    fn manifest(&self) -> Result<Option<Manifest>, OfflineError> {
        read_manifest(&SystemDisk, self.directory.path()).map_err(|fault| {
            let path = self.directory.path().display();
            OfflineError(format!("{path}: {fault}"))
        })
    }

    /// Loads what a server would.
    fn load(&self) -> Result<(), OfflineError> {
        let Some(manifest) = self.manifest()? else {
            let config = self.node.config.current();
            let path = config.dir.join(&config.durability.rdb_file_name);
            import_rdb(&self.node, &path).map_err(because(path.display()))?;
            return Ok(());
        };
        let limits = self.node.settings.value_limits();
        let progress = LoadProgress::default();
        let source = Source {
            disk: &SystemDisk,
            directory: self.directory.path(),
            manifest: &manifest,
            limits: &limits,
            progress: &progress,
        };
        source
            .load(&self.node.store, available_cores())
            .map_err(because(self.directory.path().display()))?;
        self.expect_short_log(&manifest)
    }

    /// Makes sure that the log has nothing that the checkpoint has not.
    fn expect_short_log(&self, manifest: &Manifest) -> Result<(), OfflineError> {
        let path = self.directory.log_path();
        let Ok(names) = SystemDisk.list(&path) else {
            return Ok(());
        };
        let has_more = match manifest.log_sequence {
            // Whatever is there was begun behind the checkpoint, as far as anybody can tell.
            None => names.iter().any(|name| name.ends_with(".log")),
            Some(from) => has_frames(&path, from).map_err(because("the log"))?,
        };
        if !has_more {
            return Ok(());
        }
        Err(OfflineError(format!(
            "{}: the log has writes that are in no checkpoint yet; start a server and SAVE first",
            path.display()
        )))
    }
}

/// Whether the log has anything from `from` on.
fn has_frames(log: &Path, from: u64) -> Result<bool, LogError> {
    let mut reader = Reader::open(Arc::new(SystemDisk), log, from)?;
    Ok(reader.next_frame()?.is_some())
}
