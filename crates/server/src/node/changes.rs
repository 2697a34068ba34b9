//! Puts a CONFIG SET into force: all of it, or nothing if a part fails.

use std::io;

use cluster::directives::NODE_TIMEOUT;
use persistence::running::Persistence;

use super::Node;
use crate::config::{ApplyError, Change, Config, DurabilityLevel, system_reason};
use crate::group::directives;
use crate::keeping::wish::log_wish;
use crate::listeners::Fault;
use crate::{limits, open_files, process, tls};

/// The error reply for a change of TLS that fails.
const TLS_REFUSED: &str = "Unable to update TLS configuration. Check server logs.";

impl Node {
    /// Puts a CONFIG SET into force.
    ///
    /// # Errors
    /// A part of it cannot be done; then nothing has changed.
    pub fn apply(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        if change.names.contains(&"dir") {
            self.keep_directory(change)?;
        }
        if change.names.contains(&NODE_TIMEOUT) {
            directives::check_own_timeout(self)?;
        }
        if change.names.contains(&"maxclients") {
            open_files::make_more_room(change.new)?;
        }
        let prepared = self.prepare_tls(change)?;
        self.change_rank(change)?;
        let changed = self.change_listeners(change, prepared).and_then(|()| {
            self.change_level(change)
                .inspect_err(|_| self.keep_listeners(change))
        });
        if let Err(error) = changed {
            self.keep_rank(change);
            return Err(error);
        }
        self.apply_limits(change.new);
        if change.names.contains(&"requirepass") {
            let password = change.new.password.as_deref();
            self.core.shared.access.users.set_default_password(password);
        }
        if change.names.contains(&"maxmemory-clients") {
            let bytes_max = limits::clients_bytes_max(change.new, process::usable_bytes());
            self.enforce_client_memory(bytes_max);
        }
        self.apply_durability(change.new);
        if let Some((tier, wanted)) = self.tier().zip(change.new.tier.as_ref()) {
            let around = (&*self.core.shared, &*self.core.log);
            tier.change(around, wanted, change.new);
        }
        self.replication.apply(self, change.new);
        self.cluster_mode.apply(self, change.new);
        if let Some(management) = &*self.management() {
            management.change(&self.core.shared, change.new);
        }
        self.core.log.set_level(change.new.log_level);
        Ok(())
    }

    /// Refuses another working directory while this one holds data.
    fn keep_directory(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        let is_used = self.persistence().is_some_and(Persistence::has_directory);
        let reason = if change.new.dir == change.old.dir {
            return Ok(());
        } else if is_used {
            "Data is kept in the present one while the server runs."
        } else if self.begins_log(change) {
            "A log is begun in the present one: change this first."
        } else {
            return Ok(());
        };
        Err(ApplyError {
            name: "dir",
            reason: reason.to_owned(),
        })
    }

    /// Changes the score for the kernel's choice of a process to kill, if `change` asks for that.
    fn change_rank(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        let mut names = change.names.iter();
        let Some(name) = names.find(|name| name.starts_with("oom-score-adj")) else {
            return Ok(());
        };
        self.rank(change.new).map_err(|_| ApplyError {
            name,
            reason: "Failed to set current oom_score_adj. Check server logs.".to_owned(),
        })
    }

    /// Sets the kernel's score of the process as `config` says. If that fails, logs the reason.
    pub(super) fn rank(&self, config: &Config) -> io::Result<()> {
        self.process.oom_rank.apply(config).inspect_err(|error| {
            let cause = system_reason(error);
            self.core
                .log
                .warning(format_args!("Unable to write oom_score_adj: {cause}"));
        })
    }

    /// Restores the kernel's score after a change that failed.
    fn keep_rank(&self, change: &Change<'_>) {
        if (change.old.oom_score, change.old.oom_adjustment)
            != (change.new.oom_score, change.new.oom_adjustment)
        {
            // The kernel accepted this score before.
            let _as_before = self.process.oom_rank.apply(change.old);
        }
    }

    /// Whether a change starts the log, which waits for the disk.
    pub(crate) fn begins_log(&self, change: &Change<'_>) -> bool {
        let (old, new) = (change.old.durability.level, change.new.durability.level);
        let has_none = |persistence: &Persistence| !persistence.log().state().has_log();
        old != new && new.has_log() && self.persistence().is_some_and(has_none)
    }

    /// Returns why this node cannot run at a durability level, or `None` if it can. A node in
    /// cluster mode that is alone is its own majority.
    pub(crate) fn refuses_level(&self, level: DurabilityLevel) -> Option<String> {
        let is_missing = level == DurabilityLevel::Quorum && !self.has_group();
        is_missing.then(|| "quorum takes a control group: without one nobody is fenced.".to_owned())
    }

    fn has_group(&self) -> bool {
        self.replication.fence.is_grouped() || self.core.shared.hash_slots.is_on()
    }

    /// Starts or ends the log, if `change` asks for that.
    fn change_level(&self, change: &Change<'_>) -> Result<(), ApplyError> {
        let (old, new) = (&change.old.durability, &change.new.durability);
        if let Some(reason) = self.refuses_level(new.level) {
            return Err(ApplyError {
                name: "durability",
                reason,
            });
        }
        if old.level.has_log() && !new.level.has_log() && self.has_group() {
            // As at start: replicas follow the log only, and no replica is promoted without a log.
            return Err(ApplyError {
                name: "durability",
                reason: "a node of a control group or of a cluster keeps a log on disk.".to_owned(),
            });
        }
        let persistence = self
            .persistence()
            .filter(|_| (old.level, old.sync) != (new.level, new.sync));
        let is_about_log = old.level.has_log() || new.level.has_log();
        if persistence.is_some() && is_about_log && self.core.shared.refusals.is_loading() {
            // The log is still being read: a checkpoint of the data loaded so far would replace the
            // rest.
            return Err(ApplyError {
                name: "durability",
                reason: "Data is being loaded.".to_owned(),
            });
        }
        let changed = persistence.map_or(Ok(()), |it| it.change_log(&log_wish(new)));
        changed.map_err(|reason| ApplyError {
            name: "durability",
            reason,
        })
    }

    fn apply_durability(&self, config: &Config) {
        self.core.env.load_delay.set(config.key_load_delay);
        if let Some(persistence) = self.persistence() {
            let bytes = config.durability.checkpoint_buffer_bytes_max;
            let checkpointer = &persistence.checkpointer;
            checkpointer.set_buffer_limit(bytes);
            checkpointer.key_delay().set(config.key_save_delay);
            persistence.set_dir(&config.dir);
        }
        self.judge_writes(config);
    }

    /// Moves the listeners, if `change` asks for that.
    fn change_listeners(
        &self,
        change: &Change<'_>,
        prepared: Option<tls::Prepared>,
    ) -> Result<(), ApplyError> {
        let refuse = |(name, reason): (&'static str, &str), fault: Fault| {
            let cause = system_reason(&fault.cause);
            self.core
                .log
                .warning(format_args!("{}: {cause}", fault.what));
            ApplyError {
                name,
                reason: reason.to_owned(),
            }
        };
        let enforced = self.process.tls.enforce(prepared).map_err(|cause| {
            let what = "cannot make handshakes".to_owned();
            refuse(("tls-port", TLS_REFUSED), Fault { what, cause })
        });
        let porter = enforced?;
        let about = if change.names.contains(&"port") {
            ("port", "Unable to listen on this port. Check server logs.")
        } else if change.names.contains(&"tls-port") {
            (
                "tls-port",
                "Unable to listen on this port. Check server logs.",
            )
        } else if change.names.contains(&"bind") {
            ("bind", "Failed to bind to specified addresses.")
        } else {
            return Ok(());
        };
        let listeners = self.process.listeners.get();
        let changed = listeners.map(|listeners| listeners.change(change.new, porter.as_ref()));
        changed
            .unwrap_or(Ok(()))
            .map_err(|fault| refuse(about, fault))
    }

    /// Restores the listeners after a change that failed.
    fn keep_listeners(&self, change: &Change<'_>) {
        let before = Change {
            old: change.new,
            new: change.old,
            names: change.names,
        };
        let prepared = self.prepare_tls(&before);
        // The log has the error; the former addresses were free a moment ago.
        let _kept = prepared.and_then(|prepared| self.change_listeners(&before, prepared));
    }

    /// Reads the files for encrypted connections, if `change` concerns them.
    fn prepare_tls(&self, change: &Change<'_>) -> Result<Option<tls::Prepared>, ApplyError> {
        let (old, new) = (&change.old.tls, &change.new.tls);
        if old.rules == new.rules && (old.is_on() || !new.is_on()) {
            return Ok(None);
        }
        self.process
            .tls
            .prepare(&self.core.clock, new)
            .map_err(|error| {
                self.core.log.warning(format_args!("{error}"));
                let mut names = change.names.iter();
                let name = names.find(|name| name.starts_with("tls-"));
                ApplyError {
                    name: name.copied().unwrap_or("tls-port"),
                    reason: TLS_REFUSED.to_owned(),
                }
            })
    }
}
