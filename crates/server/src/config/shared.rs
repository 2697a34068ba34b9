//! The configuration that all threads share, and its changes while the server runs.
//!
//! Readers keep an `Arc<Config>` and call [`ConfigReader::refresh`] once per loop turn: one relaxed
//! load while nothing changes. Writers (CONFIG SET) take a lock, validate every pair, let the
//! runtime apply the result, and only then publish it. A refusal at any point leaves everything
//! unchanged. Applying may wait for a disk, so readers have a lock of their own, which is held only
//! for the time of a copy.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use base::glob::{self, Case};

use super::directive::{ChangeRule, Directive};
use super::directives;
use super::error::ConfigError;
use super::fields::{Config, Origin, Permission};
use super::rewrite;
use super::settings::Settings;
use super::value::{Gathering, is_pattern};
use base::os_error::system_reason;

/// The configuration of a running server.
#[derive(Debug)]
pub struct SharedConfig {
    generation: AtomicU64,
    /// Held by the thread that makes a change, from reading the present settings until the change
    /// is published.
    changing: Mutex<()>,
    current: Mutex<Current>,
    /// Held while the file is written. Locked before `current`.
    rewriting: Mutex<()>,
    origin: Origin,
}

#[derive(Debug)]
struct Current {
    settings: Settings,
    config: Arc<Config>,
}

/// A validated change.
struct Planned {
    old: Arc<Config>,
    settings: Settings,
    config: Config,
    names: Vec<&'static str>,
}

impl Planned {
    fn change(&self) -> Change<'_> {
        Change {
            old: &self.old,
            new: &self.config,
            names: &self.names,
        }
    }
}

/// The change of a CONFIG SET, as the runtime gets it.
#[derive(Debug)]
pub struct Change<'a> {
    /// The settings before.
    pub old: &'a Config,
    /// The settings to apply.
    pub new: &'a Config,
    /// Names of the directives whose values differ, without aliases.
    pub names: &'a [&'static str],
}

/// The error of a runtime that could not apply a change. The runtime must leave no trace of the
/// change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyError {
    /// The directive at fault.
    pub name: &'static str,
    /// The reason, for the client.
    pub reason: String,
}

impl SharedConfig {
    /// Shares `settings`, which were loaded from `origin`.
    pub fn new(settings: Settings, origin: Origin) -> Self {
        let config = Arc::new(settings.config());
        Self {
            generation: AtomicU64::new(1),
            changing: Mutex::default(),
            current: Mutex::new(Current { settings, config }),
            rewriting: Mutex::default(),
            origin,
        }
    }

    /// Returns a number that grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the present settings.
    pub fn current(&self) -> Arc<Config> {
        Arc::clone(&self.lock().config)
    }

    /// Returns the present value of every directive.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Returns the origin of the settings.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// CONFIG GET: passes name and value of each directive that matches one of `patterns` to
    /// `emit`, each name once. Aliases count as names of their own. A pattern without wildcards is
    /// repeated in the client's spelling; only such a pattern finds hidden directives.
    pub fn get(&self, patterns: &[&[u8]], emit: &mut dyn FnMut(&[u8], &[u8])) {
        let current = self.lock();
        let mut seen: Vec<&'static str> = Vec::new();
        let mut show = |at: usize, name: &'static str, spelling: &[u8]| {
            if !seen.contains(&name) {
                seen.push(name);
                let kind = directives::all()[at].kind;
                emit(spelling, &kind.show(current.settings.value(at)));
            }
        };
        for pattern in patterns {
            if !is_pattern(pattern) {
                if let Some((at, _, name)) = directives::find(pattern) {
                    show(at, name, pattern);
                }
                continue;
            }
            let shown = directives::all().iter().enumerate();
            for (at, row) in shown.filter(|(_, row)| !row.is_hidden) {
                row.names()
                    .filter(|name| glob::matches(pattern, name.as_bytes(), Case::Insensitive))
                    .for_each(|name| show(at, name, name.as_bytes()));
            }
        }
    }

    /// CONFIG SET: changes all of `pairs` (name, value) or nothing.
    ///
    /// `is_local` says whether the client is on this machine, which protected directives may
    /// require. `apply` runs before any thread sees the new settings, and only if a value differs.
    /// It may read this configuration, which is still the old one, and must not change it. Other
    /// threads that make changes wait meanwhile.
    ///
    /// # Errors
    /// [`ConfigError`], whose text is the error reply; nothing has changed.
    pub fn set(
        &self,
        pairs: &[(&[u8], &[u8])],
        is_local: bool,
        apply: &mut dyn FnMut(&Change<'_>) -> Result<(), ApplyError>,
    ) -> Result<(), ConfigError> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = self.plan(pairs, is_local)?;
        planned.map_or(Ok(()), |planned| self.make(planned, apply))
    }

    /// As [`SharedConfig::set`], for a caller that must not wait. Does nothing and returns `None`
    /// while another thread makes a change, or if `is_slow` returns true for this one.
    ///
    /// # Errors
    /// As [`SharedConfig::set`].
    pub fn set_unless_slow(
        &self,
        pairs: &[(&[u8], &[u8])],
        is_local: bool,
        is_slow: &dyn Fn(&Change<'_>) -> bool,
        apply: &mut dyn FnMut(&Change<'_>) -> Result<(), ApplyError>,
    ) -> Option<Result<(), ConfigError>> {
        let _alone = match self.changing.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        match self.plan(pairs, is_local) {
            Ok(Some(planned)) if is_slow(&planned.change()) => None,
            Ok(Some(planned)) => Some(self.make(planned, apply)),
            Ok(None) => Some(Ok(())),
            Err(refused) => Some(Err(refused)),
        }
    }

    /// Checks whether `pairs` could be set, as far as possible without applying them.
    ///
    /// # Errors
    /// As [`SharedConfig::set`].
    pub(super) fn check(
        &self,
        pairs: &[(&[u8], &[u8])],
        is_local: bool,
    ) -> Result<(), ConfigError> {
        self.plan(pairs, is_local).map(drop)
    }

    /// Returns the change that `pairs` make, or `None` if they change nothing.
    fn plan(
        &self,
        pairs: &[(&[u8], &[u8])],
        is_local: bool,
    ) -> Result<Option<Planned>, ConfigError> {
        let (before, old) = {
            let current = self.lock();
            (current.settings.clone(), Arc::clone(&current.config))
        };
        let targets = find_targets(pairs, &before, old.protected_configs, is_local)?;
        let mut settings = before.clone();
        for target in &targets {
            assign(&mut settings, target).map_err(|reason| target.refused(&reason))?;
        }
        for target in &targets {
            check_level(&settings, target).map_err(|reason| target.refused(reason))?;
        }
        let names = settings.differences(&before);
        let config = settings.config();
        Ok((!names.is_empty()).then_some(Planned {
            old,
            settings,
            config,
            names,
        }))
    }

    /// Applies and publishes a planned change. The caller holds `changing`.
    fn make(
        &self,
        mut planned: Planned,
        apply: &mut dyn FnMut(&Change<'_>) -> Result<(), ApplyError>,
    ) -> Result<(), ConfigError> {
        let moves = planned.names.contains(&"dir");
        if moves {
            let entered = planned.settings.enter_dir();
            entered.map_err(|error| ConfigError::refused("dir", &system_reason(&error)))?;
            planned.config = planned.settings.config();
        }
        if let Err(error) = apply(&planned.change()) {
            if moves {
                // The old directory worked until now; if it is gone, there is no better one.
                let _unchanged = self.lock().settings.enter_dir();
            }
            return Err(ConfigError::refused(error.name, &error.reason));
        }
        let mut current = self.lock();
        // `set_primary` changes the primary without waiting for `changing`: its present value
        // stays.
        let primary = current.config.replication.primary.clone();
        planned.settings.set_primary(primary.as_ref());
        planned.config.replication.primary = primary;
        current.settings = planned.settings;
        current.config = Arc::new(planned.config);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Records the new primary of this server (REPLICAOF), which CONFIG REWRITE writes as
    /// `replicaof`.
    pub fn set_primary(&self, primary: Option<(String, u16)>) {
        let mut current = self.lock();
        current.settings.set_primary(primary.as_ref());
        let mut config = Config::clone(&current.config);
        config.replication.primary = primary;
        current.config = Arc::new(config);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// CONFIG REWRITE: writes the settings into the file that the server was started with. `users`
    /// are the lines that define users. With `all`, default values are written too.
    ///
    /// # Errors
    /// [`ConfigError`], whose text is the error reply; the file is unchanged.
    pub fn rewrite(&self, users: &[Vec<u8>], all: bool) -> Result<(), ConfigError> {
        let path = self
            .origin
            .file
            .as_deref()
            .ok_or_else(ConfigError::no_file)?;
        let _alone = self
            .rewriting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let settings = self.settings();
        let old = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|error| ConfigError::rewriting(&error))?,
        };
        let new = rewrite::rewritten(&old, &settings, users, all);
        rewrite::replace_file(path, &new).map_err(|error| ConfigError::rewriting(&error))
    }

    /// Returns the path of the configuration file, for INFO; empty without a file.
    pub fn file_path(&self) -> String {
        let path = self.origin.file.as_deref().unwrap_or_else(|| Path::new(""));
        path.display().to_string()
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One pair of a CONFIG SET.
struct Target<'a> {
    at: usize,
    row: &'static Directive,
    name: &'static str,
    value: &'a [u8],
}

impl Target<'_> {
    fn refused(&self, reason: &str) -> ConfigError {
        ConfigError::refused(self.name, reason)
    }

    /// Whether the directive has this value already.
    fn is_so_in(&self, settings: &Settings) -> bool {
        self.row.kind.show(settings.value(self.at)) == self.value
    }
}

/// Directives of our own, or own names of directives, that only a restart changes. CONFIG SET may
/// set them to their present value, because clients that set every directive skip Redis'
/// unchangeable ones and do not know these.
pub(super) const OWN_AT_START: &[&str] = &[
    "threads",
    "tls-unixsocket",
    "audit-log-file",
    "busy-poll-us",
    "log-segment-size",
    "server-cpulist",
    "bio-cpulist",
    "aof-rewrite-cpulist",
    "bgsave-cpulist",
    "unixsocketgroup",
];

/// Returns the rows that `pairs` name, after checking that all may be set and none is named twice.
fn find_targets<'a>(
    pairs: &[(&[u8], &'a [u8])],
    settings: &Settings,
    protected: Permission,
    is_local: bool,
) -> Result<Vec<Target<'a>>, ConfigError> {
    let mut targets: Vec<Target<'a>> = Vec::with_capacity(pairs.len());
    for &(name, value) in pairs {
        let (at, row, name) = directives::find(name).ok_or_else(|| ConfigError::unknown(name))?;
        let target = Target {
            at,
            row,
            name,
            value,
        };
        match row.change {
            ChangeRule::AtStart if OWN_AT_START.contains(&name) && target.is_so_in(settings) => {}
            ChangeRule::AtStart => return Err(target.refused("can't set immutable config")),
            ChangeRule::Protected if !protected.includes(is_local) => {
                return Err(target.refused("can't set protected config"));
            }
            ChangeRule::Protected | ChangeRule::Always => {}
        }
        if targets.iter().any(|other| other.name == name) {
            return Err(target.refused("duplicate parameter"));
        }
        targets.push(target);
    }
    Ok(targets)
}

fn assign(settings: &mut Settings, target: &Target<'_>) -> Result<(), String> {
    let words: Vec<Vec<u8>> = match target.value {
        [] if target.row.kind.takes_words() => Vec::new(),
        value if target.row.kind.takes_words() => value
            .split(|&byte| byte == b' ')
            .map(<[u8]>::to_vec)
            .collect(),
        value => vec![value.to_vec()],
    };
    settings.assign(target.at, &words, Gathering::Anew)?;
    target.row.check_standing(settings.value(target.at))
}

/// Checks that `durability` still has the value that it was set to after the whole of a CONFIG SET.
fn check_level(settings: &Settings, target: &Target<'_>) -> Result<(), &'static str> {
    let shown = target.row.kind.show(settings.value(target.at));
    if target.row.name != "durability" || shown.eq_ignore_ascii_case(target.value) {
        Ok(())
    } else {
        Err("the other arguments make another level")
    }
}

/// One thread's view of the shared configuration.
#[derive(Debug)]
pub struct ConfigReader {
    shared: Arc<SharedConfig>,
    generation: u64,
    config: Arc<Config>,
}

impl ConfigReader {
    /// Starts with the present settings.
    pub fn new(shared: Arc<SharedConfig>) -> Self {
        let generation = shared.generation.load(Ordering::Acquire);
        let config = shared.current();
        Self {
            shared,
            generation,
            config,
        }
    }

    /// Returns the settings as of the last refresh.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes over a change and returns `true` if there was one. Costs one relaxed load otherwise.
    pub fn refresh(&mut self) -> bool {
        let generation = self.shared.generation();
        if generation == self.generation {
            return false;
        }
        self.generation = generation;
        self.config = self.shared.current();
        true
    }
}
