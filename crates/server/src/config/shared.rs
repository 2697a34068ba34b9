//! The configuration that all threads share, and how it changes while the server runs.
//!
//! Readers keep an `Arc<Config>` and ask [`ConfigReader::refresh`] once a loop turn: one relaxed
//! load while nothing changes. Writers (CONFIG SET) take a lock, validate every pair, let the
//! runtime apply the result, and only then publish it; a refusal at any point leaves everything as
//! it was. Applying may wait for a disk, so that lock is not the readers': theirs is held for the time
//! of a copy.

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
    /// Held by who makes a change, from looking at what there is until it is published.
    changing: Mutex<()>,
    current: Mutex<Current>,
    /// Held while the file is written. Before `current`.
    rewriting: Mutex<()>,
    origin: Origin,
}

#[derive(Debug)]
struct Current {
    settings: Settings,
    config: Arc<Config>,
}

/// A change that may be made.
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

/// What a CONFIG SET changed, told to the runtime.
#[derive(Debug)]
pub struct Change<'a> {
    /// The settings before.
    pub old: &'a Config,
    /// The settings to apply.
    pub new: &'a Config,
    /// Names of the directives whose value differs, without aliases.
    pub names: &'a [&'static str],
}

/// The runtime could not apply a change; it has to leave no trace of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyError {
    /// The directive at fault.
    pub name: &'static str,
    /// The reason, as the client reads it.
    pub reason: String,
}

impl SharedConfig {
    /// Shares `settings`, found as `origin` says.
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

    /// Number that grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The settings of this moment.
    pub fn current(&self) -> Arc<Config> {
        Arc::clone(&self.lock().config)
    }

    /// The value of every directive at this moment.
    pub fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Where the settings came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// CONFIG GET: hands name and value of each directive that one of `patterns` names to `emit`,
    /// each name once. Aliases are names of their own; a name without wildcards is repeated as the
    /// client spelt it, and only such a one finds what is hidden.
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
    /// `is_local` says whether the asking client is on this machine (protected directives ask).
    /// `apply` runs before anyone sees the new settings, and only when a value differs; it may ask this
    /// configuration, which is as it was, and must not change it. Others who make a change wait meanwhile.
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

    /// As [`SharedConfig::set`], for who may not wait: nothing is done, and there is no answer, while somebody
    /// else makes a change, or where `is_slow` says so of this one.
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

    /// Whether `pairs` could be set, as far as can be said without doing it.
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

    /// What `pairs` change, if anything.
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

    /// Puts into force what was planned, by who makes changes alone.
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
                // The old directory was good enough until now; if it is gone there is no better.
                let _unchanged = self.lock().settings.enter_dir();
            }
            return Err(ConfigError::refused(error.name, &error.reason));
        }
        let mut current = self.lock();
        // Whom the server follows changes by itself, with nobody waiting for a change that is made.
        let primary = current.config.replication.primary.clone();
        planned.settings.set_primary(primary.as_ref());
        planned.config.replication.primary = primary;
        current.settings = planned.settings;
        current.config = Arc::new(planned.config);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Notes whom the server follows from now on (REPLICAOF): what CONFIG REWRITE writes as `replicaof`.
    pub fn set_primary(&self, primary: Option<(String, u16)>) {
        let mut current = self.lock();
        current.settings.set_primary(primary.as_ref());
        let mut config = Config::clone(&current.config);
        config.replication.primary = primary;
        current.config = Arc::new(config);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// CONFIG REWRITE: writes the settings into the file the server was started with.
    /// `users` are the lines about users; with `all`, what is as by default is written, too.
    ///
    /// # Errors
    /// [`ConfigError`], whose text is the error reply; the file is as it was.
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

    /// Path of the configuration file, for INFO; empty without one.
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

    /// Whether it changes nothing.
    fn is_so_in(&self, settings: &Settings) -> bool {
        self.row.kind.show(settings.value(self.at)) == self.value
    }
}

/// Directives of our own, or by names of our own, that only a start changes. They may be set to what they
/// are: who sets every directive to that leaves out those of Redis that cannot change, and does not
/// know of these.
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

/// The rows that `pairs` name, once it is clear that all may be set and none is named twice.
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

/// Whether `durability` is still what it was set to when the whole of a CONFIG SET is done.
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
    /// Starts with the settings of this moment.
    pub fn new(shared: Arc<SharedConfig>) -> Self {
        let generation = shared.generation.load(Ordering::Acquire);
        let config = shared.current();
        Self {
            shared,
            generation,
            config,
        }
    }

    /// The settings as of the last refresh.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes up a change, if there was one: `true` then. One relaxed load otherwise.
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
