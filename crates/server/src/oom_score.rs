//! The score by which the kernel chooses a process to kill when memory runs out (`oom-score-adj`).
//!
//! Relative scores count from the score that the process had before the first change. The process
//! gets that score back when the directive is turned off.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::config::{Config, OomScore};

const PATH: &str = "/proc/self/oom_score_adj";

/// The range that the kernel accepts.
const SCORES: std::ops::RangeInclusive<i32> = -1000..=1000;

/// State of the process's score.
#[derive(Debug, Default)]
pub(crate) struct OomRank {
    /// The score before the change, while it is changed.
    found: Mutex<Option<i32>>,
}

impl OomRank {
    /// Sets the process's score as `config` asks. Does nothing if it asks for none and none was
    /// set.
    ///
    /// # Errors
    /// The kernel refuses, as it does for a score below the one that an unprivileged process
    /// started with.
    pub(crate) fn apply(&self, config: &Config) -> io::Result<()> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match *found {
            Some(score) => score,
            None if config.oom_score == OomScore::Left => return Ok(()),
            None => read()?,
        };
        let score = match config.oom_score {
            OomScore::Left => before,
            OomScore::Relative => before.saturating_add(config.oom_adjustment),
            OomScore::Absolute => config.oom_adjustment,
        };
        let score = score.clamp(*SCORES.start(), *SCORES.end());
        std::fs::write(PATH, score.to_string())?;
        *found = (config.oom_score != OomScore::Left).then_some(before);
        Ok(())
    }
}

fn read() -> io::Result<i32> {
    let text = std::fs::read_to_string(PATH)?;
    let score = text.trim().parse();
    score.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}
