//! The thread that trains dictionaries for short values, whenever there are enough samples.

use std::sync::Arc;
use std::time::Duration;

use tier::{Tier, Trained};

use crate::log::Log;
use crate::rest::Rest;

/// Interval between two checks for samples.
const REST: Duration = Duration::from_millis(100);

/// See the module documentation.
pub(super) struct Trainer {
    tier: Arc<Tier>,
    rest: Rest,
}

impl Trainer {
    pub(super) fn new(tier: &Arc<Tier>) -> Self {
        Self {
            tier: Arc::clone(tier),
            rest: Rest::default(),
        }
    }

    /// Stops the thread after its present work.
    pub(super) fn stop(&self) {
        self.rest.end();
    }

    /// Trains when needed, until it is stopped.
    pub(super) fn run(&self, log: &Log) {
        while !self.rest.is_over() {
            match self.tier.train(&|| !self.rest.is_over()) {
                Ok(None) => {}
                Ok(Some(trained)) => log.notice(format_args!("{}", told(&trained))),
                Err(fault) => log.warning(format_args!(
                    "There is no new dictionary for values in the tier: {fault}"
                )),
            }
            self.rest.sleep(REST);
        }
    }
}

fn told(trained: &Trained) -> String {
    let Trained {
        raw_bytes,
        without_bytes,
        with_bytes,
        ..
    } = trained;
    let what = match (trained.new, trained.has_dictionary) {
        (Some(number), _) => format!("dictionary {number:08x} is in use"),
        (None, true) => "the dictionary stays".to_owned(),
        (None, false) => "no dictionary is in use".to_owned(),
    };
    format!(
        "Of short values in the tier {raw_bytes} bytes take {without_bytes} without a dictionary and {with_bytes} with a new \
         one: {what}"
    )
}
