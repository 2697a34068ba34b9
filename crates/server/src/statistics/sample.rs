//! The state of the server at one moment, from which rows read.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use engine::{Counts, ServerMemory};
use persistence::checkpointer::Figures;
use persistence::loading::Progress;
use store::{Handle, Statistics};

use crate::config::Config;
use crate::counters::{Count, Sums};
use crate::node::Node;
use crate::tier::Standing;

/// A moment. Expensive values are read once, when a row first needs them.
pub(crate) struct Sample<'a> {
    pub(crate) node: &'a Node,
    pub(crate) store: RefCell<&'a mut Handle>,
    pub(crate) config: Arc<Config>,
    pub(crate) statistics: Statistics,
    pub(crate) uptime_ms: u64,
    pub(crate) now_unix_us: u64,
    memory: OnceCell<ServerMemory>,
    sums: OnceCell<Sums>,
    counts: OnceCell<Counts>,
    rates: OnceCell<[f64; 5]>,
    figures: OnceCell<Figures>,
    loading: OnceCell<Progress>,
    tier: OnceCell<Option<Standing>>,
}

impl<'a> Sample<'a> {
    /// Takes a sample of the present state.
    pub(crate) fn take(node: &'a Node, store: &'a mut Handle) -> Self {
        Self {
            node,
            config: node.core.config.current(),
            statistics: store.statistics(),
            store: RefCell::new(store),
            uptime_ms: node.uptime_ms(),
            now_unix_us: node.core.clock.now_unix_us(),
            memory: OnceCell::new(),
            sums: OnceCell::new(),
            counts: OnceCell::new(),
            rates: OnceCell::new(),
            figures: OnceCell::new(),
            loading: OnceCell::new(),
            tier: OnceCell::new(),
        }
    }

    pub(crate) fn memory(&self) -> &ServerMemory {
        self.memory.get_or_init(|| self.node.memory())
    }

    /// Returns a count of the workers since CONFIG RESETSTAT.
    pub(crate) fn sum(&self, count: Count) -> u64 {
        self.sums.get_or_init(|| self.node.sums()).of(count)
    }

    /// Returns the counts of the engines since CONFIG RESETSTAT.
    pub(crate) fn counts(&self) -> &Counts {
        self.counts.get_or_init(|| self.node.counts())
    }

    /// Returns recent rates per second of requests, bytes in and out, turns, and nanoseconds of
    /// turns.
    pub(crate) fn rates(&self) -> [f64; 5] {
        *self.rates.get_or_init(|| self.node.work.rates.per_second())
    }

    /// Returns the checkpointer's figures.
    pub(crate) fn figures(&self) -> &Figures {
        self.figures.get_or_init(|| {
            self.node.persistence().map_or_else(
                || Figures {
                    last_save_unix_ms: self.node.process.started_unix_ms,
                    ..Figures::default()
                },
                |persistence| persistence.checkpointer.figures(),
            )
        })
    }

    /// Returns the state of the tier, or `None` without one.
    pub(crate) fn tier(&self) -> Option<&Standing> {
        let standing = self.tier.get_or_init(|| {
            let keys = self.store.borrow().stubs();
            self.node.tier().map(|tier| tier.standing(keys))
        });
        standing.as_ref()
    }

    /// Returns the progress of the loading; zeros at other times, for tools that look for the
    /// names.
    pub(crate) fn loading(&self) -> &Progress {
        self.loading.get_or_init(|| {
            let progress = self.node.core.env.loading.progress();
            if progress.goes_on {
                progress
            } else {
                Progress::default()
            }
        })
    }

    /// Returns the full name of a row of the command table.
    pub(crate) fn command(&self, index: engine::CommandIndex) -> String {
        let table = &self.node.core.env.table;
        table.full_name(index).unwrap_or_default().to_string()
    }
}
