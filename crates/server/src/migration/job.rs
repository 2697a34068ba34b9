//! One move as it is shown: its task, its progress and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::random::fill_from_os;
use base::spans::Span;
use cluster::NodeId;
use cluster::entry::SlotRange;
pub(crate) use engine::slot_moves::MoveStage as Stage;

/// The variable part of a job.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    pub(crate) error: String,
    pub(crate) retries: u32,
    pub(crate) created_ms: u64,
    pub(crate) started_ms: u64,
    pub(crate) updated_ms: u64,
    pub(crate) acked_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) pause_us: u64,
    pub(crate) keys: u64,
    /// Bytes of the log that are not sent yet.
    pub(crate) left_bytes: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: [u8; 20],
    pub(crate) ranges: Vec<SlotRange>,
    pub(crate) source: NodeId,
    pub(crate) target: NodeId,
    /// Whether this node asked for the slots. Then a failed attempt is not the end of the job,
    /// because the source tries again.
    pub(super) is_asked_for: bool,
    progress: Mutex<Progress>,
    is_cancelled: AtomicBool,
}

impl Job {
    pub(super) fn new(
        name: [u8; 20],
        ranges: Vec<SlotRange>,
        (source, target): (NodeId, NodeId),
        now_unix_ms: u64,
    ) -> Self {
        Self {
            name,
            ranges,
            source,
            target,
            is_asked_for: false,
            progress: Mutex::new(Progress {
                stage: Stage::Waiting,
                error: String::new(),
                retries: 0,
                created_ms: now_unix_ms,
                started_ms: 0,
                updated_ms: now_unix_ms,
                acked_ms: 0,
                ended_ms: 0,
                pause_us: 0,
                keys: 0,
                left_bytes: 0,
            }),
            is_cancelled: AtomicBool::new(false),
        }
    }

    /// Marks the job as one that this node has asked for.
    pub(super) fn asked_for(self) -> Self {
        Self {
            is_asked_for: true,
            ..self
        }
    }

    pub(super) fn new_name() -> [u8; 20] {
        let mut name = [0; 20];
        fill_from_os(&mut name);
        name
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().clone()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.lock().stage
    }

    /// Returns the trace span of the job, once it is over.
    pub(super) fn span(&self) -> Span {
        let Progress {
            stage,
            error,
            started_ms,
            ended_ms,
            keys,
            pause_us,
            retries,
            ..
        } = self.progress();
        Span {
            name: "slot move".to_owned(),
            begun_unix_us: started_ms * 1000,
            ended_unix_us: ended_ms * 1000,
            failure: (stage != Stage::Done).then_some(error),
            attributes: vec![
                ("iolite.target", self.target.to_string()),
                ("iolite.keys", keys.to_string()),
                ("iolite.write_pause_us", pause_us.to_string()),
                ("iolite.retries", retries.to_string()),
            ],
        }
    }

    pub(super) fn change(&self, now_unix_ms: u64, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.lock();
        let was_over = progress.stage.is_over();
        change(&mut progress);
        progress.updated_ms = now_unix_ms;
        if progress.stage.is_over() && !was_over {
            progress.ended_ms = now_unix_ms;
        }
        if matches!(progress.stage, Stage::Done | Stage::Cancelled) {
            // The error of an earlier attempt is not how the job ended.
            progress.error.clear();
        }
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn has(&self, slot: u16) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Whether the job includes any of these slots.
    pub(super) fn overlaps(&self, ranges: &[SlotRange]) -> bool {
        let meets = |a: &SlotRange, b: &SlotRange| a.0 <= b.1 && b.0 <= a.1;
        let mut own = self.ranges.iter();
        own.any(|one| ranges.iter().any(|other| meets(one, other)))
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_try_failed_of_is_not_told_of_a_move_that_went_well() {
        let nodes = (NodeId([1; 20]), NodeId([2; 20]));
        let end = |stage| {
            let job = Job::new([7; 20], vec![(0, 5)], nodes, 100);
            job.change(200, |it| {
                it.stage = Stage::Preparing;
                it.error = "the link has ended".to_owned();
            });
            assert_eq!(job.progress().error, "the link has ended");
            job.change(300, |it| it.stage = stage);
            job.progress().error
        };
        assert_eq!(end(Stage::Done), "");
        assert_eq!(end(Stage::Cancelled), "");
        assert_eq!(end(Stage::Failed), "the link has ended");
    }
}
