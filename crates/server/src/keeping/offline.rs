//! `iolite import` and `iolite export`: the data of a directory, without a server on it.
//!
//! ```text
//!   RDB, AOF ──► store ──► checkpoint                                     import
//!   checkpoint and log, or RDB, AOF in <dir> ──► store ──► RDB, AOF       export
//! ```
//!
//! Both take the options of the server, and work with what it would find in its directory. The
//! directory is locked meanwhile, so no server may run on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::SystemClock;
use durability::checkpoint::{Lineage, Manifest};
use durability::disk::SystemDisk;
use reactor::workers::available_cores;
use store::{Options, Store};

use crate::cli::Startup;
use crate::cluster_tool::quoted;
use crate::config::SharedConfig;
use crate::node::Node;
use persistence::aof::{self, export_aof};
use persistence::checkpointer::{Checkpointer, Setup, Why, writers_for};
use persistence::directory::DataDirectory;
use persistence::export::{ExportOptions, Exported, export_rdb};
use persistence::import::{self, import_rdb};
use persistence::log_alone;
use persistence::recovery::{self, Effects, Target};
use persistence::running::OpenError;

/// Why nothing was imported or exported.
#[derive(Debug)]
pub struct OfflineError(String);

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OfflineError {}

/// Report of what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// For people.
    pub text: String,
    /// For programs: a JSON object.
    pub json: String,
}

/// What was loaded from a file of another server.
enum Loaded {
    File(import::Loaded),
    Log(aof::Loaded),
}

impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(
                f,
                "{} keys, {} had expired, {} were empty",
                file.keys, file.expired_keys, file.empty_keys
            ),
            Self::Log(log) => write!(
                f,
                "{} keys, then {} commands, {} of which failed",
                log.base_keys, log.replayed.commands, log.replayed.failed
            ),
        }
    }
}

impl Loaded {
    fn functions(&self) -> usize {
        match self {
            Self::File(file) => file.functions.len(),
            Self::Log(log) => log.functions.len(),
        }
    }

    /// Returns members of a JSON object.
    fn members(&self) -> String {
        let of_kind = match self {
            Self::File(file) => format!(
                "\"keys\":{},\"expired\":{},\"empty\":{}",
                file.keys, file.expired_keys, file.empty_keys
            ),
            Self::Log(log) => format!(
                "\"keys\":{},\"commands\":{},\"failed\":{}",
                log.base_keys, log.replayed.commands, log.replayed.failed
            ),
        };
        format!("{of_kind},\"functions_left_out\":{}", self.functions())
    }
}

/// Format of an exported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An RDB file.
    Rdb,
    /// An append-only directory of Redis 7.
    Aof,
}

/// Returns a function that puts `what` failed before the reason.
fn because<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> OfflineError {
    move |error| OfflineError(format!("{what}: {error}"))
}

/// Loads an RDB file, or append-only files, into the data directory, which must not contain data
/// yet. Returns a report.
///
/// # Errors
/// There is data already, another server has the directory, or the file is incomplete. Nothing has
/// changed then.
pub fn import(startup: Startup, file: &Path) -> Result<Done, OfflineError> {
    let file = absolute(file)?;
    let place = Place::enter(startup)?;
    let native = place.directory.path().display();
    if place.manifest()?.is_some() {
        let reason = "there is data already; move it away first";
        return Err(OfflineError(format!("{native}: {reason}")));
    }
    let loaded = place.import(&file)?;
    let lineage: Lineage = place
        .node
        .replication
        .history()
        .id
        .as_str()
        .parse()
        .map_err(because("a new history of writes"))?;
    let checkpointer = Checkpointer::new(Setup {
        store: Arc::clone(&place.node.core.store),
        disk: Arc::new(SystemDisk),
        directory: place.directory.path().to_owned(),
        clock: Arc::clone(&place.node.core.clock),
        lineage,
        background: Arc::clone(&place.node.work.background),
        writers: writers_for(available_cores()),
        surroundings: Arc::new(()),
    });
    let mut handle = place.node.core.store.handle();
    let made = checkpointer.make_now(&mut handle, Why::Imported);
    let outcome =
        made.map_err(|_| OfflineError(format!("{native}: a checkpoint is being made")))?;
    outcome.result.map_err(because(&native))?;
    Ok(Done {
        text: format!("{} is in {native} now: {loaded}", file.display()),
        json: format!(
            "{{\"is_good\":true,\"file\":{},\"directory\":{},{}}}",
            quoted(&file.to_string_lossy()),
            quoted(&native.to_string()),
            loaded.members()
        ),
    })
}

/// Writes the data of the directory in this form, in the given version of RDB or the oldest usual
/// one that loses nothing. Returns a report.
///
/// # Errors
/// There is no data, another server has the directory, or something is damaged. The file is
/// unchanged then.
pub fn export(
    startup: Startup,
    file: &Path,
    form: Form,
    version: Option<u16>,
) -> Result<Done, OfflineError> {
    let file = absolute(file)?;
    let place = Place::enter(startup)?;
    place.load()?;
    let options = ExportOptions {
        version,
        compresses: place.node.core.config.current().compresses_dumps,
        sums_up: true,
    };
    let env = &place.node.core.env;
    let exported = match form {
        Form::Rdb => export_rdb(env, &SystemDisk, &file, options),
        Form::Aof => {
            let config = place.node.core.config.current();
            let prefix = &config.durability.aof_file_name;
            export_aof(env, &SystemDisk, &file, prefix, options)
        }
    };
    let exported = exported.map_err(because(file.display()))?;
    let Exported {
        keys,
        version,
        bytes,
        ..
    } = exported;
    Ok(Done {
        text: format!(
            "{keys} keys are in {} now, RDB version {version}, {bytes} bytes",
            file.display()
        ),
        json: format!(
            "{{\"is_good\":true,\"file\":{},\"keys\":{keys},\"rdb_version\":{version},\"bytes\":{bytes}}}",
            quoted(&file.to_string_lossy())
        ),
    })
}

/// Makes a path absolute before the working directory changes.
fn absolute(file: &Path) -> Result<PathBuf, OfflineError> {
    std::path::absolute(file).map_err(because(file.display()))
}

/// A data directory, and a server without clients on it.
struct Place {
    directory: DataDirectory,
    node: Arc<Node>,
    /// Point up to which it is loaded.
    target: Target,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(tier) = self.node.tier() {
            tier.stop();
        }
    }
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
        let node = Arc::new(Node::new(
            commands::table(),
            store,
            Arc::new(config),
            Arc::new(SystemClock::new()),
        ));
        Ok(Self {
            directory,
            node,
            target: startup.recover_to,
        })
    }

    fn files(&self) -> recovery::Place {
        recovery::Place::within(&self.node.core.config.current().dir)
    }

    fn manifest(&self) -> Result<Option<Manifest>, OfflineError> {
        self.files().manifest().map_err(|fault| {
            let path = self.directory.path().display();
            OfflineError(format!("{path}: {fault}"))
        })
    }

    /// Loads what a server would load.
    fn load(&self) -> Result<(), OfflineError> {
        let Some(manifest) = self.manifest()? else {
            return self.load_foreign();
        };
        if !manifest.segments.is_empty() {
            self.node
                .open_tier()
                .map_err(because("cannot open the tier"))?;
        }
        let files = self.files();
        let is_log_alone = log_alone::is_marked(&files);
        if is_log_alone.map_err(because("cannot read the directory"))? {
            let refused = OpenError::LogAlone(files.directory);
            return Err(OfflineError(refused.to_string()));
        }
        let started_ns = self.node.core.clock.monotonic_ns();
        let recovered = recovery::recover(
            &self.node.core.env,
            &files,
            manifest,
            (self.target, Effects::Applied),
            available_cores(),
        );
        let recovered = recovered.map_err(because("cannot load the data"))?;
        self.node.end_loading();
        recovered.tell(&self.node.core.env, started_ns);
        Ok(())
    }

    /// Loads the files of another server in the directory.
    fn load_foreign(&self) -> Result<(), OfflineError> {
        let config = self.node.core.config.current();
        let durability = &config.durability;
        if durability.level.has_log() {
            let (directory, file) = (&durability.aof_directory_name, &durability.aof_file_name);
            let found = aof::Source::find(&config.dir, directory, file);
            if let Some(source) = found.map_err(because("append-only files"))? {
                self.import_log(&source)?;
                return Ok(());
            }
        }
        let path = config.dir.join(&durability.rdb_file_name);
        import_rdb(&self.node.core.env, &path).map_err(because(path.display()))?;
        Ok(())
    }

    /// Loads a file of another server.
    fn import(&self, file: &Path) -> Result<Loaded, OfflineError> {
        let loaded = if aof::Source::is_log(file) {
            let source = aof::Source::at(file);
            Loaded::Log(self.import_log(&source.map_err(because("append-only files"))?)?)
        } else {
            let loaded = import_rdb(&self.node.core.env, file);
            Loaded::File(loaded.map_err(because(file.display()))?)
        };
        let functions = loaded.functions();
        if functions > 0 {
            self.node
                .core
                .log
                .warning(format_args!("Libraries of functions left out: {functions}"));
        }
        Ok(loaded)
    }

    fn import_log(&self, source: &aof::Source) -> Result<aof::Loaded, OfflineError> {
        let accepts_short = self.node.core.config.current().durability.accepts_torn_log;
        let loaded = aof::load(&self.node.core.env, source, accepts_short);
        loaded.map_err(because("append-only files"))
    }
}
