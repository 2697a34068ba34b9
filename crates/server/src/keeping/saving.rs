//! Use of the checkpointer by commands, save points, signals and the shutdown.
//!
//! ```text
//!   SAVE, SHUTDOWN, SIGTERM ─── request, wait ──┐
//!   BGSAVE, BGREWRITEAOF ────── request ────────┼──► Checkpointer ──► ended: MISCONF or not, INFO
//!   save points ─────────────── upkeep ─────────┘
//! ```

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use engine::{CommandError, SaveKind, SaveRefusal, SaveStart, SaveTime, ShutdownRequest};

use crate::config::{Config, Durability, DurabilityLevel, SavePoint};
use crate::node::Node;
use persistence::checkpointer::{Failure, Figures, Outcome, Refused, Ticket, Why};
use persistence::running::Persistence;

/// Minimum time between a failed checkpoint and the next one for save points.
const RETRY_MS: u64 = 5_000;

/// A long log asks for a checkpoint once the last one began this many times its own duration ago.
/// Otherwise, if the log grows by the size of all data in a second, checkpoints would follow one
/// another without a pause.
const REST_TIMES: u64 = 30;

/// Length of the log that ends this pause: reading so much at start takes some seconds.
const LOG_BYTES_UNRESTED: u64 = 1 << 30;

/// Error reply of a SHUTDOWN after which the server continues.
pub(crate) const SHUTDOWN_FAILED: CommandError =
    CommandError::fixed("ERR Errors trying to SHUTDOWN. Check logs.");

/// Returns the kind of a checkpoint with this reason.
#[must_use]
pub(crate) fn kind_of(why: Why) -> SaveKind {
    match why {
        Why::Rewrite | Why::LongLog | Why::LongTier => SaveKind::Rewrite,
        Why::Asked
        | Why::Flushed
        | Why::SavePoint
        | Why::Imported
        | Why::Reload
        | Why::Shutdown => SaveKind::Snapshot,
    }
}

/// Returns the kind of the present or scheduled checkpoint, for the reply to a request for another
/// one. A checkpoint for FLUSHALL alone does not count: in Redis it ends before the reply.
fn busy_with(figures: &Figures) -> Option<SaveKind> {
    let current = figures.current.map(|current| current.why);
    let why = current.filter(|why| *why != Why::Flushed);
    let why = why.or(figures.scheduled);
    why.filter(|why| *why != Why::Flushed).map(kind_of)
}

impl Node {
    /// SAVE: makes a checkpoint, and returns when it is done or has failed.
    pub(crate) fn save(&self) -> Result<(), SaveRefusal> {
        let persistence = self.persistence().ok_or(SaveRefusal::Impossible)?;
        if let Some(kind @ SaveKind::Snapshot) = busy_with(&persistence.checkpointer.figures()) {
            return Err(SaveRefusal::Busy(kind));
        }
        self.save_for(Why::Asked)
    }

    /// Schedules a checkpoint after everything was deleted, if save points alone decide when data
    /// is saved. A log would already record the deletion.
    pub(crate) fn flushed_all(&self) {
        let durability = &self.core.config.current().durability;
        let saves = !durability.save_points.is_empty() && !durability.level.has_log();
        let Some(persistence) = self.persistence() else {
            return;
        };
        if !saves || self.core.shared.refusals.is_loading() {
            return;
        }
        self.keeping.saving.known().changes_at_flush = Some(self.core.store.statistics().changes);
        // Refused only during the shutdown, which saves everything anyway.
        let _scheduled = persistence.checkpointer.schedule(Why::Flushed);
    }

    /// Returns the number of changes that a save would keep. Changes before a FLUSHALL whose save
    /// is under way do not count, because nothing of them is left.
    pub(crate) fn changes_to_save(&self, figures: &Figures) -> u64 {
        let at_flush = self.keeping.saving.known().changes_at_flush;
        let since_flush =
            at_flush.map(|at| self.core.store.statistics().changes.saturating_sub(at));
        since_flush.map_or(figures.changes_since_save, |since| {
            since.min(figures.changes_since_save)
        })
    }

    /// Starts to save all data, if any is kept. [`Node::is_kept`] reports when it is done.
    pub(crate) fn keep_all(&self, why: Why) -> Option<Ticket> {
        if self.core.config.current().durability.level == DurabilityLevel::None {
            return None;
        }
        let checkpointer = &self.persistence()?.checkpointer;
        checkpointer.schedule(why).ok()
    }

    /// Whether the save has succeeded, or `None` while it is not known.
    pub(crate) fn is_kept(&self, ticket: Ticket) -> Option<bool> {
        let checkpointer = &self.persistence()?.checkpointer;
        Some(checkpointer.outcome(ticket)?.result.is_ok())
    }

    pub(super) fn save_for(&self, why: Why) -> Result<(), SaveRefusal> {
        let persistence = self.persistence().ok_or(SaveRefusal::Impossible)?;
        let checkpointer = &persistence.checkpointer;
        let ticket = checkpointer.schedule(why);
        let ticket = ticket.map_err(|_| SaveRefusal::Impossible)?;
        let outcome = checkpointer.wait(ticket);
        outcome.result.map_err(|_| SaveRefusal::Impossible)?;
        Ok(())
    }

    /// BGSAVE and BGREWRITEAOF.
    pub(crate) fn begin_save(
        &self,
        kind: SaveKind,
        time: SaveTime,
    ) -> Result<SaveStart, SaveRefusal> {
        let checkpointer = &self
            .persistence()
            .ok_or(SaveRefusal::Impossible)?
            .checkpointer;
        let figures = checkpointer.figures();
        let current = busy_with(&figures);
        match (current, time) {
            (Some(current), _) if current == kind => return Err(SaveRefusal::Busy(kind)),
            (Some(current), SaveTime::Now) => return Err(SaveRefusal::Busy(current)),
            (_, SaveTime::Later) => {
                self.keeping.saving.known().deferred = Some(kind);
                return Ok(SaveStart::Scheduled);
            }
            (None, _) | (Some(_), SaveTime::WhenFree) => {}
        }
        let why = match kind {
            SaveKind::Snapshot => Why::Asked,
            SaveKind::Rewrite => Why::Rewrite,
        };
        match checkpointer.request(why) {
            Ok(_) => Ok(SaveStart::Started),
            Err(Refused::InProgress) if time == SaveTime::Now => Err(SaveRefusal::Busy(kind)),
            Err(Refused::InProgress) => {
                let scheduled = checkpointer.schedule(why);
                scheduled.map_err(|_| SaveRefusal::Impossible)?;
                Ok(SaveStart::Scheduled)
            }
            Err(Refused::Stopping) => Err(SaveRefusal::Impossible),
        }
    }

    /// Starts a checkpoint if a transaction asked for one, or if a save point is reached.
    pub(crate) fn look_at_save_points(&self, now_unix_ms: u64) {
        let Some(persistence) = self.persistence() else {
            return;
        };
        if self.core.shared.refusals.is_loading() || self.is_stopping() {
            return;
        }
        let deferred = self.keeping.saving.known().deferred.take();
        if let Some(kind) = deferred {
            // A checkpoint that is already under way serves as well.
            let _begun = self.begin_save(kind, SaveTime::WhenFree);
        }
        let config = self.core.config.current();
        let figures = persistence.checkpointer.figures();
        let tried_unix_ms = self.keeping.saving.known().tried_unix_ms;
        let log = persistence.log();
        let state = log.state();
        if figures.last_failure.is_some()
            && state.has_log()
            && !state.names_log
            && may_try(&figures, now_unix_ms, tried_unix_ms)
        {
            self.keeping.saving.known().tried_unix_ms = now_unix_ms;
            self.core.log.notice(format_args!(
                "The log has no checkpoint before it. Making one..."
            ));
            let _begun = persistence.checkpointer.request(Why::Rewrite);
            return;
        }
        if may_try(&figures, now_unix_ms, tried_unix_ms)
            && let Some(bytes) = log.bytes()
            && has_grown(
                &config.durability,
                bytes,
                log.base_bytes(),
                has_rested(&figures, now_unix_ms),
            )
        {
            self.keeping.saving.known().tried_unix_ms = now_unix_ms;
            self.core.log.notice(format_args!(
                "The log has grown to {bytes} bytes. Making a checkpoint..."
            ));
            let _begun = persistence.checkpointer.request(Why::LongLog);
            return;
        }
        if may_try(&figures, now_unix_ms, tried_unix_ms)
            && self.tier().is_some_and(|tier| tier.wants_checkpoint())
        {
            self.keeping.saving.known().tried_unix_ms = now_unix_ms;
            self.core.log.notice(format_args!(
                "Much of the tier is kept for the checkpoint in force alone. Making another one..."
            ));
            let _begun = persistence.checkpointer.request(Why::LongTier);
            return;
        }
        let reached = reached(
            &config.durability.save_points,
            &figures,
            now_unix_ms,
            tried_unix_ms,
        );
        if let Some(point) = reached {
            self.keeping.saving.known().tried_unix_ms = now_unix_ms;
            let SavePoint { seconds, changes } = point;
            self.core.log.notice(format_args!(
                "{changes} changes in {seconds} seconds. Saving..."
            ));
            let _begun = persistence.checkpointer.request(Why::SavePoint);
        }
    }

    /// Returns the time of the last save, or of the server's start if there was none.
    pub(crate) fn last_save_unix_ms(&self) -> u64 {
        self.persistence()
            .map_or(self.process.started_unix_ms, |persistence| {
                persistence.checkpointer.figures().last_save_unix_ms
            })
    }

    /// Records the outcome of a checkpoint.
    pub(crate) fn note_checkpoint(&self, outcome: &Outcome) {
        let mut known = self.keeping.saving.known();
        known.changes_at_flush = None;
        let record = match kind_of(outcome.why) {
            SaveKind::Snapshot => &mut known.snapshots,
            SaveKind::Rewrite => &mut known.rewrites,
        };
        record.last_duration_ms = Some(outcome.duration_ms);
        if outcome.result.is_ok() {
            record.count += 1;
            record.failures_in_a_row = 0;
        } else if !matches!(
            outcome.result,
            Err(Failure::Cancelled | Failure::NotWhole(_))
        ) {
            // A checkpoint that an operator or a full sync cancelled says nothing about the disk.
            record.failures_in_a_row += 1;
        }
        drop(known);
        self.judge_writes(&self.core.config.current());
    }

    /// Refuses or admits writes. They are refused while the last background checkpoint failed,
    /// because they would look as if they were kept.
    pub(crate) fn judge_writes(&self, config: &Config) {
        let durability = &config.durability;
        let refuses = durability.refuses_writes_after_failed_save
            && !durability.save_points.is_empty()
            && self.keeping.saving.known().snapshots.failures_in_a_row > 0;
        self.core.shared.refusals.set_save_failed(refuses);
    }

    /// Whether a shutdown saves first.
    pub(crate) fn saves_at_shutdown(&self, request: ShutdownRequest) -> bool {
        if request.abort || self.core.shared.refusals.is_loading() {
            return false;
        }
        request.save.unwrap_or_else(|| {
            let has_points = !self.core.config.current().durability.save_points.is_empty();
            let changes = |it: &Persistence| it.checkpointer.figures().changes_since_save;
            has_points && self.persistence().is_some_and(|it| changes(it) > 0)
        })
    }

    /// SHUTDOWN, and its equivalents by signals: waits until replicas have everything, and stops
    /// the server. If another stop already waits for replicas, this call joins it.
    pub(crate) fn shut_down(&self, request: ShutdownRequest) -> Result<(), CommandError> {
        if request.abort {
            return self.abort_shutdown();
        }
        if request.now {
            return self.save_and_stop(request);
        }
        let (sender, over) = channel();
        let when_over = Box::new(move |stopped| drop(sender.send(stopped)));
        match self.replication.begin_stop(self, when_over) {
            Err(_) => self.save_and_stop(request),
            Ok(begun) => {
                if let Some(number) = begun {
                    self.carry_out_stop(number, request);
                }
                over.recv().unwrap_or(Err(SHUTDOWN_FAILED))
            }
        }
    }

    /// Carries out a stop that first waits for replicas.
    pub(crate) fn carry_out_stop(&self, number: u64, request: ShutdownRequest) {
        if self.replication.await_replicas(self, number) {
            let stopped = self.save_and_stop(request);
            self.replication.end_stop(number, &stopped);
        }
    }

    /// Saves if requested, with writes paused, and stops the server.
    fn save_and_stop(&self, request: ShutdownRequest) -> Result<(), CommandError> {
        if self.saves_at_shutdown(request) {
            self.core
                .log
                .notice(format_args!("Saving everything before exiting."));
            if self.save_at_shutdown().is_err() && !request.force {
                self.core
                    .log
                    .warning(format_args!("Nothing was saved, so the server goes on."));
                if let Some(part) = self.control.part() {
                    part.keep_all();
                }
                self.unpause_clients();
                return Err(SHUTDOWN_FAILED);
            }
        }
        self.stop();
        Ok(())
    }

    fn save_at_shutdown(&self) -> Result<(), SaveRefusal> {
        let persistence = self.persistence().ok_or(SaveRefusal::Impossible)?;
        // No write is acknowledged that the checkpoint would lack.
        self.pause_clients(u64::MAX, true);
        self.keeping
            .saving
            .is_shutting_down
            .store(true, Ordering::Release);
        persistence.checkpointer.cancel();
        let saved = self.save_for(Why::Shutdown);
        self.keeping
            .saving
            .is_shutting_down
            .store(false, Ordering::Release);
        if saved.is_err() {
            self.unpause_clients();
        }
        saved
    }

    fn abort_shutdown(&self) -> Result<(), CommandError> {
        if self.replication.abort_stop(self, &SHUTDOWN_FAILED) {
            return Ok(());
        }
        let is_saving = self.keeping.saving.is_shutting_down.load(Ordering::Acquire);
        let aborted = is_saving
            && self
                .persistence()
                .is_some_and(|persistence| persistence.checkpointer.cancel());
        if aborted {
            Ok(())
        } else {
            Err(CommandError::fixed("ERR No shutdown in progress."))
        }
    }
}

/// Whether an automatic checkpoint may begin.
fn may_try(figures: &Figures, now_unix_ms: u64, tried_unix_ms: u64) -> bool {
    let is_busy = figures.current.is_some() || figures.scheduled.is_some();
    let may_retry = now_unix_ms.saturating_sub(tried_unix_ms) > RETRY_MS;
    !is_busy && (figures.last_failure.is_none() || may_retry)
}

/// Whether the log has grown so much since a checkpoint of `base_bytes` that another one is
/// worthwhile: at a lower growth if checkpoints have rested.
fn has_grown(durability: &Durability, log_bytes: u64, base_bytes: u64, has_rested: bool) -> bool {
    let percent = u64::from(durability.log_growth_percent);
    let worth = (base_bytes / 100).saturating_mul(percent);
    let least = durability.log_growth_bytes_min.max(worth);
    let is_unrested_enough = log_bytes >= least.saturating_mul(2).max(LOG_BYTES_UNRESTED);
    percent > 0 && log_bytes >= least && (has_rested || is_unrested_enough)
}

/// Whether the last checkpoint took only a small share of the time since it began.
fn has_rested(figures: &Figures, now_unix_ms: u64) -> bool {
    let since_ms = now_unix_ms.saturating_sub(figures.last_save_unix_ms);
    since_ms >= figures.last_work_ms.saturating_mul(REST_TIMES)
}

/// Returns the save point that is reached, if there is one. After a failure the next attempt has to
/// wait.
fn reached(
    points: &[SavePoint],
    figures: &Figures,
    now_unix_ms: u64,
    tried_unix_ms: u64,
) -> Option<SavePoint> {
    if !may_try(figures, now_unix_ms, tried_unix_ms) {
        return None;
    }
    let since_s = now_unix_ms.saturating_sub(figures.last_save_unix_ms) / 1000;
    let mut points = points.iter().copied();
    points.find(|point| figures.changes_since_save >= point.changes && since_s > point.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use persistence::checkpointer::Progress;

    const POINTS: &[SavePoint] = &[
        SavePoint {
            seconds: 100,
            changes: 1,
        },
        SavePoint {
            seconds: 10,
            changes: 50,
        },
    ];

    fn figures(changes_since_save: u64) -> Figures {
        Figures {
            changes_since_save,
            last_save_unix_ms: 1_000_000,
            ..Figures::default()
        }
    }

    fn seconds(figures: &Figures, after_s: u64) -> Option<u64> {
        let now_unix_ms = 1_000_000 + after_s * 1000;
        reached(POINTS, figures, now_unix_ms, 0).map(|point| point.seconds)
    }

    #[test]
    fn one_point_of_several_is_enough() {
        assert_eq!(seconds(&figures(0), 1_000), None);
        assert_eq!(seconds(&figures(1), 100), None);
        assert_eq!(seconds(&figures(1), 101), Some(100));
        assert_eq!(seconds(&figures(49), 11), None);
        assert_eq!(seconds(&figures(50), 11), Some(10));
    }

    #[test]
    fn a_log_that_grows_fast_asks_for_checkpoints_seldom() {
        let durability = Settings::default().config().durability;
        let grown = |log_mib: u64, base_mib: u64, has_rested| {
            has_grown(&durability, log_mib << 20, base_mib << 20, has_rested)
        };
        assert!(!grown(63, 0, true) && grown(64, 0, true));
        assert!(!grown(199, 200, true) && grown(200, 200, true));
        assert!(!grown(1023, 200, false) && grown(1024, 200, false));
        assert!(!grown(3999, 2000, false) && grown(4000, 2000, false));

        let took_a_second = Figures {
            last_work_ms: 1_000,
            ..figures(0)
        };
        let rested_after = |s: u64| has_rested(&took_a_second, 1_000_000 + s * 1_000);
        assert!(!rested_after(29) && rested_after(30));
        assert!(has_rested(&figures(0), 0), "there was none yet");
    }

    #[test]
    fn nobody_is_refused_for_what_flushall_asked_for() {
        let progress = |why| Progress {
            why,
            started_unix_ms: 0,
            elapsed_ms: 0,
            records: 0,
            bytes: 0,
            walked_per_mille: 0,
            held_bytes: 0,
            is_given_up: false,
        };
        let busy = |current: Option<Why>, scheduled| {
            busy_with(&Figures {
                current: current.map(progress),
                scheduled,
                ..Figures::default()
            })
        };
        let (flushed, asked, rewrite) = (Why::Flushed, Why::Asked, Why::Rewrite);
        assert_eq!(busy(None, None), None);
        assert_eq!(busy(Some(flushed), None), None);
        assert_eq!(busy(Some(flushed), Some(flushed)), None);
        assert_eq!(busy(Some(flushed), Some(asked)), Some(SaveKind::Snapshot));
        assert_eq!(busy(Some(rewrite), Some(flushed)), Some(SaveKind::Rewrite));
        assert_eq!(busy(Some(asked), None), Some(SaveKind::Snapshot));
    }

    #[test]
    fn who_is_busy_or_has_just_failed_is_not_asked() {
        let failed = Figures {
            last_failure: Some(Failure::OverLimit),
            ..figures(50)
        };
        let at = |tried_unix_ms| reached(POINTS, &failed, 1_020_000, tried_unix_ms).is_some();
        assert!(at(1_014_000) && !at(1_015_000));
        let busy = Figures {
            scheduled: Some(Why::Asked),
            ..figures(50)
        };
        assert_eq!(seconds(&busy, 1_000), None);
        let current = Progress {
            why: Why::Asked,
            started_unix_ms: 0,
            elapsed_ms: 0,
            records: 0,
            bytes: 0,
            walked_per_mille: 0,
            held_bytes: 0,
            is_given_up: false,
        };
        let making = Figures {
            current: Some(current),
            ..figures(50)
        };
        assert_eq!(seconds(&making, 1_000), None);
    }
}
